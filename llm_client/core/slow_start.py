"""What the less urgent may have on the way while a ramp goes on: as much as answers and time have proven."""

from __future__ import annotations

from math import inf, log2

from llm_client.core.tuning import Tuning


class SlowStart:
    """Grows with answers, as congestion windows do (RFC 5681, 3.1), and with time. Guarded by its owner.

    A ramp that grows on silence fills the queue of a server that it does not know yet. What fills it should be urgent,
    where anything is. A ramp after an outage seeks what was known before: there the answers of before count.
    """

    __slots__ = ("_calls", "_since", "_tuning")

    def __init__(self, tuning: Tuning, calls: float) -> None:
        """Begin with so many calls when the first one is sent."""
        self._tuning = tuning
        self._calls = calls
        self._since = inf

    def sent(self, now: float) -> None:
        """Note that a call left."""
        self._since = min(self._since, now)

    def answered(self) -> None:
        """Note that the server took a call."""
        self._calls += self._tuning.proven_gain

    def clear_at(self, inflight: int) -> float:
        """Tell when, with so many calls in flight, there is room for one of the less urgent; monotonic seconds."""
        t = self._tuning
        share = (inflight + t.slack) / self._calls
        return 0.0 if share <= 1.0 else self._since + t.proven_double * log2(share)
