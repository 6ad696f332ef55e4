"""The bounded queue: a heap with four classes, expiry and displacement. Pure; `now` is an argument."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import Generic, TypeVar

from .job import CLASSES

T = TypeVar("T")

_COMPACT_ABOVE = 64  # dead heap entries are swept when they outnumber the living and this many


def queue_size(max_latency: float, inference_time: float, concurrency: float) -> int:
    """How many may wait so that nobody waits longer than `max_latency`.

    Five seconds of patience, half a second per answer and ten answers at a time give a queue of 100.

    Args:
        max_latency: seconds the last one in the queue may wait.
        inference_time: mean seconds of service per request.
        concurrency: requests served at a time.
    """
    for name, value in (
        ("max_latency", max_latency),
        ("inference_time", inference_time),
        ("concurrency", concurrency),
    ):
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be a positive number, got {value!r}")
    return math.ceil(round(max_latency / inference_time * concurrency, 9))


class BoundedQueue(Generic[T]):
    """Most urgent class first, arrival order inside a class.

    Not thread-safe; it belongs to one event loop. Items are told apart by identity.

    Args:
        size: how many may wait; None for no bound.
    """

    def __init__(self, size: int | None) -> None:
        self.size = size
        self._order = itertools.count()
        self._heap: list[tuple[int, int, int, T]] = []
        self._expiries: list[tuple[float, int, T]] = []
        self._alive: dict[T, tuple[int, int]] = {}  # item -> (rank, order)
        self._classes: tuple[dict[int, T], ...] = tuple({} for _ in CLASSES)

    def __len__(self) -> int:
        return len(self._alive)

    @property
    def full(self) -> bool:
        """Whether one more would be one too many."""
        return self.size is not None and len(self._alive) >= self.size

    def by_class(self) -> tuple[int, ...]:
        """How many wait, for each class from critical to low."""
        return tuple(len(members) for members in self._classes)

    def push(self, item: T, *, rank: int, tie: int = 0, expires: float = math.inf) -> None:
        """Put one at the end of its class.

        Args:
            item: what waits.
            rank: its class, 0 critical to 3 low.
            tie: order inside the class before arrival; smaller goes first.
            expires: when it must be out of the queue.
        """
        if self.full:
            raise OverflowError("the queue is full; ask `full` or `displace` first")
        order = next(self._order)
        self._alive[item] = (rank, order)
        self._classes[rank][order] = item
        heapq.heappush(self._heap, (rank, tie, order, item))
        if expires < math.inf:
            heapq.heappush(self._expiries, (expires, order, item))

    def peek(self) -> T | None:
        """Who is next; None when nobody waits."""
        while self._heap:
            _, _, order, item = self._heap[0]
            if self._is_alive(item, order):
                return item
            heapq.heappop(self._heap)
        return None

    def pop(self) -> T | None:
        """Take the next one out; None when nobody waits."""
        item = self.peek()
        if item is not None:
            heapq.heappop(self._heap)
            self._forget(item)
        return item

    def remove(self, item: T) -> bool:
        """Take this one out wherever it stands; False when it does not wait here."""
        if item not in self._alive:
            return False
        self._forget(item)
        self._compact()
        return True

    def displace(self, rank: int) -> T | None:
        """Take out the newest of the lowest class strictly below `rank`; None when there is none."""
        for members in self._classes[:rank:-1]:
            if members:
                item = members[next(reversed(members))]
                self.remove(item)
                return item
        return None

    def next_expiry(self) -> float:
        """When `expired` has something to give; infinity for never."""
        while self._expiries and not self._is_alive(self._expiries[0][2], self._expiries[0][1]):
            heapq.heappop(self._expiries)
        return self._expiries[0][0] if self._expiries else math.inf

    def expired(self, now: float) -> list[T]:
        """Take out everything whose time is over."""
        out: list[T] = []
        while self.next_expiry() <= now:
            item = heapq.heappop(self._expiries)[2]
            self._forget(item)
            out.append(item)
        self._compact()
        return out

    def drain(self) -> list[T]:
        """Take everything out, next one first."""
        out: list[T] = []
        while (item := self.pop()) is not None:
            out.append(item)
        return out

    def _is_alive(self, item: T, order: int) -> bool:
        entry = self._alive.get(item)
        return entry is not None and entry[1] == order

    def _forget(self, item: T) -> None:
        rank, order = self._alive.pop(item)
        del self._classes[rank][order]

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._alive) + _COMPACT_ABOVE:
            self._heap = [entry for entry in self._heap if self._is_alive(entry[3], entry[2])]
            heapq.heapify(self._heap)
        if len(self._expiries) > 2 * len(self._alive) + _COMPACT_ABOVE:
            self._expiries = [entry for entry in self._expiries if self._is_alive(entry[2], entry[1])]
            heapq.heapify(self._expiries)
