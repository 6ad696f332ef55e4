"""Outcomes of the last seconds, counted in ten buckets."""

from __future__ import annotations

BUCKETS = 10


class Window:
    """Running totals over the last `span` seconds, exact to a tenth of it. Guarded by its owner.

    An outcome leaves the totals when its bucket does, so it counts for 0.9 to 1.0 times `span`.
    Every operation costs the same however many outcomes there were or how long nothing came.

    Attributes:
        total: outcomes in the window, as of the last call.
        failed: how many of them were failures.
        slow: how many of them were slow.
    """

    __slots__ = ("_failed", "_head", "_slow", "_total", "_width", "failed", "slow", "total")

    def __init__(self, span: float) -> None:
        """Cover `span` seconds."""
        self._width = span / BUCKETS
        # The bucket number of the newest outcome; None before the first one.
        self._head: int | None = None
        self._total = [0] * BUCKETS
        self._failed = [0] * BUCKETS
        self._slow = [0] * BUCKETS
        self.total = self.failed = self.slow = 0

    def add(self, now: float, *, failed: bool = False, slow: bool = False) -> None:
        """Count one outcome."""
        self.advance(now)
        at = (self._head or 0) % BUCKETS
        self._total[at] += 1
        self.total += 1
        if failed:
            self._failed[at] += 1
            self.failed += 1
        if slow:
            self._slow[at] += 1
            self.slow += 1

    def advance(self, now: float) -> None:
        """Forget what has become too old. A `now` before the newest outcome counts as that outcome's time."""
        number = int(now // self._width)
        head = self._head
        if head is None:
            self._head = number
            return
        if number <= head:
            return
        self._head = number
        if number - head >= BUCKETS:
            self.clear()
            return
        for gone in range(head + 1, number + 1):
            at = gone % BUCKETS
            self.total -= self._total[at]
            self.failed -= self._failed[at]
            self.slow -= self._slow[at]
            self._total[at] = self._failed[at] = self._slow[at] = 0

    def clear(self) -> None:
        """Forget everything."""
        self._total = [0] * BUCKETS
        self._failed = [0] * BUCKETS
        self._slow = [0] * BUCKETS
        self.total = self.failed = self.slow = 0
