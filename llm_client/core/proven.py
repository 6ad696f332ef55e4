"""What the less urgent may have on the way while more urgent calls are about: as much as the endpoint is known to do.

What waits inside a server cannot be overtaken, so it should be urgent, where anything is.
"""

from __future__ import annotations

from math import inf, log2

from llm_client.core.signal import Reading
from llm_client.core.tuning import Tuning


class Proven:
    """How many calls an endpoint has proven to work on. Guarded by its owner.

    While a ramp goes on it grows with answers, as congestion windows do (RFC 5681, 3.1), and with time: a ramp that
    grows on silence fills the queue of a server that it does not know yet. A ramp after an outage seeks what was known
    before: there the answers of before count. Later it is what windows say: of the calls in flight those that did not
    wait (Little's law), and half of the rest of the limit, so that a wrong guess idles no slot.
    """

    __slots__ = ("_answered", "_since", "_tuning", "_worked")

    def __init__(self, tuning: Tuning, calls: float) -> None:
        """Begin with so many calls when the first one is sent."""
        self._tuning = tuning
        self._answered = calls
        self._since = inf
        self._worked = inf  # EWMA over windows; inf while nothing waits

    def sent(self, now: float) -> None:
        """Note that a call left."""
        self._since = min(self._since, now)

    def answered(self) -> None:
        """Note that the server took a call during a ramp."""
        self._answered += self._tuning.proven_gain

    def weighed(self, reading: Reading) -> None:
        """Take in a window."""
        t = self._tuning
        if reading.wait < t.proven_calm * reading.target:
            self._worked = inf  # else a limit that few urgent calls press would hardly grow
        elif reading.service < inf:
            # Where answers are all alike, whoever sees the shorter wait would take what the others leave.
            share = 1.0 if reading.alike else reading.service / (reading.service + reading.wait)
            worked = share * reading.level
            old = self._worked
            self._worked = worked if old == inf else old + t.proven_smooth * (worked - old)

    def clear_at(self, inflight: int, limit: float) -> float:
        """Tell when one more of the less urgent may go; monotonic seconds, past for now, inf for the next answer.

        Args:
            inflight: calls on the way.
            limit: the limit; inf while a ramp seeks it.
        """
        t = self._tuning
        if not inflight:
            return 0.0
        if limit == inf:
            share = (inflight + t.slack) / self._answered
            return 0.0 if share <= 1.0 else self._since + t.proven_double * log2(share)
        spared = t.proven_spare * max(0.0, limit - self._worked)
        return 0.0 if inflight + t.slack < limit - spared else inf
