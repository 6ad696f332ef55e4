"""The point from which more calls in flight bring no more answers: what tells waiting from work when all are alike."""

from __future__ import annotations

from llm_client.core.tuning import Tuning


class Knee:
    """Remembers the load at which an endpoint answered most per second, and how long an answer took there.

    An answer that takes longer says nothing by itself: a batch that grows slows every call and still does more. By
    Little's law (Operations Research 9(3), 1961) calls in flight are rate times latency, so where latency grew and
    the rate did not, the calls that were added only waited. BBR (ACM Queue 14(5), 2016) looks for the same point.
    """

    __slots__ = ("_cut", "_latency", "_rate", "_tuning")

    def __init__(self, tuning: Tuning) -> None:
        """Know nothing."""
        self._tuning = tuning
        self._rate = 0.0  # most answers per second ...
        self._latency = 0.0  # ... and the shortest latency at about that rate
        self._cut: tuple[float, float] | None = None  # level and latency at the last verdict

    def passed(self, level: float, rate: float, latency: float) -> bool:
        """Take in one window; tell whether its load was beyond the point.

        Args:
            level: calls in flight when they were sent, on average.
            rate: answers per second.
            latency: median seconds of an answer.
        """
        t = self._tuning
        if self._cut is not None and level <= t.knee_relief * self._cut[0]:
            # A lighter load that is no quicker: answers have become longer, and nobody waits.
            unrelieved, self._cut = latency >= t.knee_unrelieved * self._cut[1], None
            if unrelieved:
                self._rate, self._latency = rate, latency
                return False
        if rate > t.knee_gain * self._rate:
            self._rate, self._latency = rate, latency
            return False
        if latency < self._latency and rate * t.knee_gain >= self._rate:
            self._latency = latency
        self._rate *= t.knee_leak
        if latency < t.knee_slower * self._latency:
            return False
        if self._cut is None:
            self._cut = (level, latency)
        return True
