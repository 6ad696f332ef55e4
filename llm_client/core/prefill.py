"""The least time a first content takes: a base, and seconds per prompt token, from the fastest recent streams.

Queueing only ever adds, so the fastest of many calls show the work alone: the fastest short prompt gives the base,
the long prompt with the fewest seconds per token gives the slope. Least squares would need a thousand samples to see
a tenth of a millisecond per token through a second of queueing noise.
"""

from __future__ import annotations

from collections import deque
from math import inf

from llm_client.core.tuning import Tuning

Point = tuple[float, float]  # prompt tokens, seconds
_NONE: Point = (0.0, inf)


class Prefill:
    """A lower line under (prompt tokens, first-content delay), over the last minutes.

    Attributes:
        base: seconds that even the shortest prompt takes: network, scheduling, hidden work.
        slope: seconds per prompt token.
    """

    __slots__ = ("_blocks", "_long", "_mean", "_opened", "_short", "_tuning", "base", "slope")

    def __init__(self, tuning: Tuning) -> None:
        """Know nothing: all delay is taken for queueing."""
        self._tuning = tuning
        self._blocks: deque[tuple[Point, Point]] = deque(maxlen=tuning.floor_blocks)
        self._short = self._long = _NONE
        self._mean = 0.0  # EWMA of prompt tokens: parts short from long
        self._opened = 0.0
        self.base = self.slope = 0.0

    def note(self, now: float, prompt: float, delay: float) -> None:
        """Take one first content."""
        t = self._tuning
        if now - self._opened > t.floor_block:
            if self._short[1] < inf or self._long[1] < inf:
                self._blocks.append((self._short, self._long))
            self._opened, self._short, self._long = now, _NONE, _NONE
            self._renew()
        self._mean += t.smooth * (prompt - self._mean) if self._mean else prompt
        changed = False
        if delay < self._short[1] and prompt <= self._mean:
            self._short, changed = (prompt, delay), True
        if prompt > self._mean and delay * self._long[0] < self._long[1] * prompt or self._long is _NONE:
            self._long, changed = (prompt, delay), True
        if changed:
            self._renew()

    def _renew(self) -> None:
        short, long = self._short, self._long
        for s, l in self._blocks:
            if s[1] < short[1]:
                short = s
            if l[1] * long[0] < long[1] * l[0]:
                long = l
        if short is _NONE:
            return
        (p, d), (pl, dl) = short, long
        self.slope = max(0.0, (dl - d) / (pl - p)) if pl > 2.0 * p and dl < inf else 0.0
        self.base = max(0.0, d - self.slope * p)
