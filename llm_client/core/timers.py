"""A heap of things that are due, whose entries may die early without being looked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T")


class Timers(Generic[T]):
    """Due items in order of time; an item counts only while `alive(item, at)` says so.

    Dead entries are dropped when they surface, and swept out when they outnumber the living two to
    one, so memory follows the number of live items (Varghese and Lauck's lazy timers, SOSP 1987,
    in their simplest form).
    """

    __slots__ = ("_alive", "_heap", "_live", "_seq")

    def __init__(self, alive: Callable[[T, float], bool], live: Callable[[], int]) -> None:
        self._alive = alive
        self._live = live
        self._heap: list[tuple[float, int, T]] = []
        self._seq = 0

    def __len__(self) -> int:
        """Count entries, dead ones that nobody came across yet included."""
        return len(self._heap)

    def add(self, at: float, item: T) -> None:
        """Set an item due at monotonic second `at`; inf is never due and costs nothing."""
        if at == inf:
            return
        heap = self._heap
        if len(heap) > 64 and len(heap) > 3 * self._live():
            self._heap = heap = [entry for entry in heap if self._alive(entry[2], entry[0])]
            heapq.heapify(heap)
        self._seq += 1
        heapq.heappush(heap, (at, self._seq, item))

    def due(self, now: float) -> Iterator[T]:
        """Take out every live item that is due."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            at, _, item = heapq.heappop(heap)
            if self._alive(item, at):
                yield item

    def next(self) -> float:
        """Return when the next live item is due; inf when there is none."""
        heap = self._heap
        while heap:
            at, _, item = heap[0]
            if self._alive(item, at):
                return at
            heapq.heappop(heap)
        return inf
