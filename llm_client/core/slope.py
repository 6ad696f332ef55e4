"""Seconds per token, from points with outliers: the median slope of neighbouring pairs (Theil 1950, Sen 1968).

Least squares lets one call that waited 20 s decide for the next 63. Neighbours in send time met the same queue, so
their difference is work; the median shrugs off the pairs that did not. And seconds per token grow with the batch, so
a low quantile of latency / tokens, which stems from idle times, would call a full, unqueued batch congested.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from math import sqrt

from llm_client.core.tuning import Tuning


class Slope:
    """A slope over the last calls.

    Attributes:
        value: seconds per token as of the last `renew`; never negative, 0.0 while nothing is known.
        least: the same, two standard errors lower.
        mean: EWMA of the tokens.
    """

    __slots__ = ("_count", "_new", "_pairs", "_points", "_tuning", "_variance", "least", "mean", "value")

    def __init__(self, tuning: Tuning) -> None:
        """Know nothing."""
        self._tuning = tuning
        self._pairs: deque[tuple[float, float]] = deque(maxlen=tuning.pairs)  # slope, weight
        self._points: list[tuple[float, float, float]] = []  # sent at, tokens, seconds; in that order
        self._count = self._new = 0
        self._variance = 0.0
        self.mean = 0.0
        self.value = self.least = 0.0

    def __len__(self) -> int:
        """Count the pairs that the slope rests on."""
        return len(self._pairs)

    @property
    def spread(self) -> float:
        """Return the standard deviation of the tokens."""
        return sqrt(self._variance)

    def note(self, sent_at: float, tokens: float, seconds: float) -> None:
        """Take one call and pair it with its neighbours in send time, where tokens differ enough to tell."""
        t = self._tuning
        self._count += 1
        weight = max(1.0 / self._count, t.memory)
        step = tokens - self.mean
        self.mean += weight * step
        self._variance += weight * (step * (tokens - self.mean) - self._variance)
        least = t.apart * self.mean
        points = self._points
        if len(points) == t.history:
            del points[0]
        at = bisect_left(points, (sent_at, tokens, seconds))
        for _, other, level in points[max(0, at - t.neighbours) : at + t.neighbours]:
            gap = tokens - other
            if gap > least or gap < -least:
                self._pairs.append(((seconds - level) / gap, abs(gap)))
                self._new += 1
        points.insert(at, (sent_at, tokens, seconds))

    def renew(self) -> float:
        """Take the weighted median again, if enough pairs are new; wide pairs weigh more: noise tilts them less."""
        if self._new < self._tuning.pairs_new:
            return self.value
        self._new = 0
        pairs = sorted(self._pairs)
        self.value = max(0.0, _quantile(pairs, 0.5))
        # Two standard errors below the middle, as in a sign test.
        self.least = max(0.0, _quantile(pairs, max(0.0, 0.5 - 1.0 / sqrt(len(pairs)))))
        return self.value


def _quantile(pairs: list[tuple[float, float]], share: float) -> float:
    """Return the slope below which lies this share of the weight; `pairs` are slope and weight, sorted."""
    left = share * sum([weight for _, weight in pairs])
    for slope, weight in pairs:
        left -= weight
        if left <= 0.0:
            return slope
    return pairs[-1][0]
