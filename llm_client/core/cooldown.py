"""Until when an endpoint asked for silence."""

from __future__ import annotations

from math import inf, isfinite


class CoolDown:
    """One endpoint's "not before", kept as the latest of all that were heard. Guarded by its owner.

    The first, shorter wish must not win over a later, longer one: a gateway that keeps the first
    (BerriAI/litellm#40130) sends again into a closed window.

    Attributes:
        until: monotonic seconds; -inf when nobody ever asked.
        reason: why, in the words of whoever extended it last.
    """

    __slots__ = ("reason", "until")

    def __init__(self) -> None:
        """Start with nothing to wait for."""
        self.until = -inf
        self.reason = ""

    def extend(self, now: float, seconds: float, reason: str) -> bool:
        """Stay silent for `seconds` from now, unless a longer silence is already kept.

        Returns:
            True when the end moved.
        """
        if not isfinite(seconds) or seconds <= 0.0 or now + seconds <= self.until:
            return False
        self.until = now + seconds
        self.reason = reason
        return True

    def ready_at(self, now: float) -> float:
        """Return when calls may go again; `now` when they may go now."""
        return max(now, self.until)

    def clear(self) -> None:
        """Forget the silence: an operator says so, or the endpoint answered."""
        self.until = -inf
        self.reason = ""
