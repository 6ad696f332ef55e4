"""Straight lines through a few noisy points, cheap enough to fit beside every window."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import sqrt
from typing import NamedTuple


class Line(NamedTuple):
    """`y = intercept + slope * x`, where points with a small x weigh most.

    Attributes:
        slope: never negative: more tokens do not take less time.
        scale: the x at which a point weighs about 1.
        short: the weight of a point is `1 / (short + x / scale) ** 2`.
    """

    slope: float
    scale: float
    short: float

    def intercept(self, points: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """Return the weighted mean of `y - slope * x` over other points, and its standard error."""
        weighed = total = 0.0
        rests: list[float] = []
        for x, y in points:
            w = 1.0 / (self.short + x / self.scale)
            rest = y - self.slope * x
            rests.append(rest)
            total += w
            weighed += w * rest
        level = max(0.0, weighed / total)
        _, spread = mean_and_spread(rests)
        return level, spread / sqrt(len(rests))


def fit(points: Collection[tuple[float, float]], *, scale: float, short: float) -> Line:
    """Fit a line by weighted least squares."""
    sw = sx = sy = sxx = sxy = 0.0
    for x, y in points:
        w = short + x / scale
        w = 1.0 / (w * w)
        wx = w * x
        sw += w
        sx += wx
        sy += w * y
        sxx += wx * x
        sxy += wx * y
    slope = (sw * sxy - sx * sy) / max(1e-12, sw * sxx - sx * sx)
    return Line(max(0.0, slope), scale, short)


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
