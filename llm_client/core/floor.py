"""How much of a delay is work that no smaller limit cures: networks, schedulers, prefill, hidden thought.

Two signs. Queueing only ever adds, so the quickest quarter of the quietest minute bounds the work from above. And
queues move while work scatters: calls sent at the same time meet the same queue, so when they differ among
themselves as much as calls do over minutes, what differs is work (von Neumann's ratio, 1941). Without the second sign
the first is allowed only as far as the share is large: a small share's standing queue belongs to others too, and
taking it for work would let every newcomer of a fleet stand behind it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from math import sqrt

from llm_client.core.tuning import Tuning

Seen = tuple[float, float]  # sent at, seconds


class Floor:
    """The work in a delay, over the last minutes.

    Attributes:
        base: seconds; the quick quarter of the quietest block.
    """

    __slots__ = (
        "_apart",
        "_block",
        "_blocks",
        "_count",
        "_level",
        "_near",
        "_opened",
        "_pairs",
        "_recent",
        "_together",
        "_tuning",
        "base",
    )

    def __init__(self, tuning: Tuning) -> None:
        """Know nothing: all delay is taken for queueing."""
        self._tuning = tuning
        self._block: list[float] = []  # sorted
        self._blocks: deque[float] = deque(maxlen=tuning.floor_blocks)  # quick quarters of closed blocks
        self._opened = 0.0
        self._recent: list[Seen] = []  # sorted by send time
        self._count = self._pairs = 0
        self._level = 0.0  # EWMA of the delay
        self._apart = 0.0  # its variance
        self._together = 0.0  # half the squared difference of calls sent together: variance that is work
        self._near = 0.0  # share of calls that had such a neighbour
        self.base = 0.0

    def note(self, now: float, sent_at: float, delay: float, latency: float) -> None:
        """Take one delay, in seconds; `latency` is that of whole answers, 0.0 while unknown."""
        t = self._tuning
        self._count += 1
        weight = max(1.0 / self._count, t.memory)
        step = delay - self._level
        self._level += weight * step
        self._apart += weight * (step * (delay - self._level) - self._apart)
        self._pair((sent_at, delay), t.near * latency or t.near_blind, weight)
        block = self._block
        if now - self._opened > t.floor_block and len(block) >= t.floor_few:
            self._blocks.append(block[len(block) // 4])
            self._opened = now
            block.clear()
        if len(block) < t.history:
            insort(block, delay)
            self.base = max(0.0, min(block[len(block) // 4], *self._blocks, block[-1]))

    def allowance(self, limit: float) -> float:
        """Return the seconds of a delay that count as work, for a share of `limit` calls."""
        t = self._tuning
        steady = t.steady + t.steady_few / max(1, self._count)
        if self._near >= t.near_share and self._apart <= steady * self._together + t.steady_least:
            return self.base + t.scatter * sqrt(self._together)
        return min(self.base, t.base_share * limit * limit)

    def _pair(self, seen: Seen, gap: float, weight: float) -> None:
        """Compare with the nearest neighbour in send time, if it was sent about together."""
        recent = self._recent
        if len(recent) == self._tuning.recent:
            del recent[0]
        at = bisect_left(recent, seen)
        nearest = min(recent[max(0, at - 1) : at + 1], key=lambda other: abs(other[0] - seen[0]), default=None)
        recent.insert(at, seen)
        if nearest is None:
            return
        together = abs(nearest[0] - seen[0]) <= gap
        self._near += max(weight, 1.0 / (self._count - 1) if self._count > 1 else 1.0) * (together - self._near)
        if together:
            self._pairs += 1
            half = 0.5 * (seen[1] - nearest[1]) ** 2
            self._together += max(1.0 / self._pairs, self._tuning.memory) * (half - self._together)
