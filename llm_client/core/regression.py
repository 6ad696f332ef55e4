"""The slope of a cloud of points with outliers: the median slope of neighbouring pairs (Theil 1950, Sen 1968).

Least squares lets one call that waited 20 s decide for the next 63. Neighbours in time met the same queue, so their
difference is work; the median shrugs off the pairs that did not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import sqrt

Pair = tuple[float, float]  # slope, weight


class Slope:
    """Seconds per token over the last pairs.

    Attributes:
        value: the weighted median slope, never negative.
        pairs: how many pairs it rests on.
    """

    __slots__ = ("_apart", "_last", "_mean", "_pairs", "value")

    def __init__(self, *, pairs: int, neighbours: int, apart: float) -> None:
        """Keep `pairs` pairs of each point and its last `neighbours`, at least `apart` means apart."""
        self._pairs: deque[Pair] = deque(maxlen=pairs)
        self._last: deque[Pair] = deque(maxlen=neighbours)
        self._apart = apart
        self._mean = 0.0
        self.value = 0.0

    def __len__(self) -> int:
        return len(self._pairs)

    def note(self, x: float, y: float) -> None:
        """Take one point."""
        self._mean = mean = self._mean + 0.1 * (x - self._mean) if self._mean else x
        least = self._apart * mean
        for other, level in self._last:
            gap = x - other
            if gap > least or gap < -least:
                self._pairs.append(((y - level) / gap, abs(gap)))
        self._last.append((x, y))

    def renew(self) -> float:
        """Take the weighted median again and return it."""
        ordered = sorted(self._pairs)
        half = 0.5 * sum(weight for _, weight in ordered)
        for slope, weight in ordered:
            half -= weight
            if half <= 0.0:
                self.value = max(0.0, slope)
                break
        return self.value


def mean_and_spread(values: Iterable[float]) -> tuple[float, float]:
    """Return mean and standard deviation; 0.0 and 0.0 of nothing."""
    n, total, squares = 0, 0.0, 0.0
    for v in values:
        n += 1
        total += v
        squares += v * v
    if n == 0:
        return 0.0, 0.0
    mean = total / n
    return mean, sqrt(max(0.0, squares / n - mean * mean))
