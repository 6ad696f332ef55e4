"""A lighter load for a moment: finds out whether calls wait, where answers cannot tell it."""

from __future__ import annotations

from llm_client.core.signal import Reading
from llm_client.core.tuning import Tuning


class Trial:
    """Tries, now and then, whether fewer calls in flight bring as many answers. Guarded by its owner.

    If they do, the load stays light, and the signal has learned how long an answer takes there. The same is done by
    BBR's ProbeRTT (Cardwell et al., ACM Queue 14(5), 2016).
    """

    __slots__ = ("_at", "_before", "_gap", "_tuning")

    def __init__(self, tuning: Tuning) -> None:
        """Have tried nothing."""
        self._tuning = tuning
        self._before: tuple[float, float] | None = None  # the limit and the answers per second that it had
        self._at, self._gap = 0.0, tuning.trial_gap

    def ended(self, reading: Reading, now: float) -> float | None:
        """Return the limit to go back to, if a trial was on and cost answers; None otherwise."""
        if self._before is None:
            return None
        t = self._tuning
        limit, rate = self._before
        self._before = None
        vain = reading.rate < t.trial_loss * rate
        self._gap = min(t.trial_gap_max, 2.0 * self._gap) if vain else t.trial_gap
        self._at = now + self._gap
        return limit if vain else None

    def begun(self, reading: Reading, limit: float, now: float) -> float | None:
        """Return the lighter limit to try from now on; None when there is nothing to find out."""
        t = self._tuning
        if reading.sure or now < self._at or reading.wait < t.trial_wait * reading.service:
            return None
        if reading.fresh < t.seen or limit < t.trial_least:
            return None
        self._before = (limit, reading.rate)
        return t.trial * min(limit, reading.level)
