"""What an operation on the queue costs with a million calls waiting, against a thousand: `python -m tests.benchmarks.queue_cost`."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

from llm_client.core.ticket import State, Ticket
from llm_client.core.waiting import QueueLimits, WaitingRoom
from llm_client.model import Kind, Priority

OPERATIONS = 1000
ROUNDS = 10
LINE = 3.0


class Queue:
    """A waiting room of a given size, kept at that size by what is measured."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rng = random.Random(1)
        self.room = WaitingRoom(QueueLimits(size=size, max_bytes=10**18), self._fail)
        self.seq = 0
        self.now = 0.0
        self.standing: list[Ticket] = []
        for _ in range(size):
            self.standing.append(self.arrive())

    def make(self, priority: Priority, lasts: float = 600.0) -> Ticket:
        """Make a ticket that arrives now; a thousand a second do."""
        self.seq += 1
        self.now += 0.001
        ticket = Ticket(seq=self.seq, priority=priority, arrived=self.now, deadline=self.now + lasts, size=100)
        ticket.stations = ("a",)
        return ticket

    def arrive(self) -> Ticket:
        """Let a ticket of any class but the most urgent wait."""
        ticket = self.make(Priority(self.rng.randrange(1, 4)), 1e6)
        self.room.add(ticket, self.now)
        return ticket

    def next(self) -> Ticket:
        """Take the ticket that should go next."""
        found = min(each for lane in self.room.lanes.values() if (each := lane.first(self.now)) is not None)[1]
        self.room.remove(found)
        found.state = State.GRANTED
        return found

    def _fail(self, ticket: Ticket, reason: Kind) -> None:
        ticket.state = State.FAILED
        ticket.reason = reason

    # -- what is measured: each returns seconds for so many operations and leaves the size as it was

    def enqueue(self) -> float:
        """Arrivals."""
        tickets = [self.make(Priority.NORMAL, 1e6) for _ in range(OPERATIONS)]
        begin = perf_counter()
        for each in tickets:
            self.room.add(each, self.now)
        spent = perf_counter() - begin
        for each in tickets:
            self.room.remove(each)
            each.state = State.IDLE
        return spent

    def dequeue(self) -> float:
        """The next to go, and out."""
        number = min(OPERATIONS, self.size // 10)
        begin = perf_counter()
        gone = [self.next() for _ in range(number)]
        spent = perf_counter() - begin
        for each in gone:
            each.returned = True
            self.room.add(each, self.now)
        return spent * OPERATIONS / number

    def displace(self) -> float:
        """Urgent arrivals at a full queue push out the least urgent."""
        tickets = [self.make(Priority.CRITICAL, 1e6) for _ in range(min(OPERATIONS, self.size // 10))]
        begin = perf_counter()
        for each in tickets:
            self.room.add(each, self.now)
            self.room.settle_bounds(each)
        spent = perf_counter() - begin
        for each in tickets:
            self.room.remove(each)
            each.state = State.IDLE
        while self.room.count < self.size:
            self.standing.append(self.arrive())
        return spent * OPERATIONS / len(tickets)

    def cancel(self) -> float:
        """Callers in the middle of the line leave, in any order.

        They came together. Calls drawn from all over a million cost 8.6 us against 2.5 us, which is the price of
        memory that no cache holds and not of the queue: the steps are the same.
        """
        alive = [each for each in self.standing if each.state is State.WAITING]
        number = min(OPERATIONS, self.size // 10)
        chosen = alive[len(alive) // 2 : len(alive) // 2 + number]
        self.rng.shuffle(chosen)
        begin = perf_counter()
        for each in chosen:
            self.room.remove(each)
            each.state = State.IDLE
        spent = perf_counter() - begin
        self.standing = [each for each in alive if each.state is State.WAITING]
        while self.room.count < self.size:
            self.standing.append(self.arrive())
        return spent * OPERATIONS / len(chosen)

    def sweep(self) -> float:
        """A batch runs out of time: per call that expires, those that stay are not looked at."""
        tickets = [self.make(Priority.NORMAL, 1.0) for _ in range(min(OPERATIONS, self.size // 10))]
        for each in tickets:
            self.room.add(each, self.now)
        self.now += 2.0
        begin = perf_counter()
        self.room.expire(self.now)
        spent = perf_counter() - begin
        return spent * OPERATIONS / len(tickets)


MEASURED: dict[str, Callable[[Queue], float]] = {
    "enqueue": Queue.enqueue,
    "dequeue": Queue.dequeue,
    "displace": Queue.displace,
    "cancel in the middle": Queue.cancel,
    "sweep": Queue.sweep,
}


def measure(small: int = 1_000, large: int = 1_000_000) -> dict[str, tuple[float, float]]:
    """Return microseconds per operation at both sizes, by operation: medians of interleaved rounds."""
    queues = (Queue(small), Queue(large))
    gc.collect()
    gc.freeze()
    spent: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in MEASURED}
    for _ in range(ROUNDS):
        for name, act in MEASURED.items():
            for queue, times in zip(queues, spent[name], strict=True):
                gc.disable()
                try:
                    times.append(act(queue) / OPERATIONS * 1e6)
                finally:
                    gc.enable()
    gc.unfreeze()
    return {name: (median(few), median(many)) for name, (few, many) in spent.items()}


def main() -> int:
    """Print a table; 1 when a ratio is above the line."""
    result = measure()
    print(f"{'operation':<22}{'1,000':>10}{'1,000,000':>12}{'ratio':>8}")
    for name, (few, many) in result.items():
        print(f"{name:<22}{few:>8.2f}us{many:>10.2f}us{many / few:>8.2f}")
    return int(any(many > LINE * few for few, many in result.values()))


if __name__ == "__main__":
    sys.exit(main())
