"""One line of waiting tickets: strict classes with ageing, oldest first, newest first when late."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from math import inf

from llm_client.core.fairness import Fairness
from llm_client.core.ticket import Ticket
from llm_client.model import Priority

# A head that has spent this share of its time in line is late, however short its deadline: what is left must
# suffice for the answer.
LATE = 0.2

Rank = tuple[int, float, int]  # effective class, the tenant's virtual time, place in line; the smaller goes first


Slot = tuple[Priority, bool, str | None]  # class, urgent, tenant
# Tenants come and go; empty lines beyond so many are dropped.
MOST_LINES = 64

Entry = list[Ticket | None]  # emptied in place when its ticket leaves the line


class Line:
    """Tickets of one class and one temper, kept in order of their place in line.

    Arrivals come in order, so a deque serves them at O(1); tickets that come back to an earlier place
    go to a small heap. Removal empties the entry: hollow entries are skipped at the ends and swept out
    when they are the majority, so every operation is amortised O(1), or O(log r) for r returned tickets.
    """

    __slots__ = ("_back", "_count", "_hollow", "_queue", "_turn")

    def __init__(self) -> None:
        self._queue: deque[Entry] = deque()
        self._back: list[tuple[int, int, Entry]] = []
        self._count = 0
        self._hollow = 0
        self._turn = 0  # tells entries of one ticket apart: it may leave and come back

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Ticket]:
        yield from (ticket for _, _, (ticket,) in self._back if ticket is not None)
        yield from (ticket for (ticket,) in self._queue if ticket is not None)

    def add(self, ticket: Ticket) -> None:
        """Put a ticket at its place."""
        if self._hollow > 32 and self._hollow > self._count:
            self._sweep()
        newest = self._tail()
        entry: Entry = [ticket]
        ticket.entry = entry
        self._count += 1
        if newest is not None and newest.seq > ticket.seq:
            self._turn += 1
            heapq.heappush(self._back, (ticket.seq, self._turn, entry))
        else:
            self._queue.append(entry)

    def discard(self, ticket: Ticket) -> None:
        """Take a ticket out."""
        ticket.entry[0] = None
        ticket.entry = []
        self._count -= 1
        self._hollow += 1

    def oldest(self) -> Ticket | None:
        """Return the head of the line, returned tickets included."""
        back, queue = self._returned(), self.arrival()
        if back is None or (queue is not None and queue.seq < back.seq):
            return queue
        return back

    def arrival(self) -> Ticket | None:
        """Return the head among tickets that never left the line: only these tell how late it is."""
        queue = self._queue
        while queue:
            ticket = queue[0][0]
            if ticket is not None:
                return ticket
            queue.popleft()
            self._hollow -= 1
        return None

    def newest(self) -> Ticket | None:
        """Return the end of the line."""
        tail = self._tail()
        if tail is not None:
            return tail
        return max((ticket for _, _, (ticket,) in self._back if ticket), key=lambda each: each.seq, default=None)

    def _tail(self) -> Ticket | None:
        queue = self._queue
        while queue:
            ticket = queue[-1][0]
            if ticket is not None:
                return ticket
            queue.pop()
            self._hollow -= 1
        return None

    def _returned(self) -> Ticket | None:
        back = self._back
        while back:
            ticket = back[0][2][0]
            if ticket is not None:
                return ticket
            heapq.heappop(back)
            self._hollow -= 1
        return None

    def _sweep(self) -> None:
        self._queue = deque(entry for entry in self._queue if entry[0] is not None)
        self._back = [item for item in self._back if item[2][0] is not None]
        heapq.heapify(self._back)
        self._hollow = 0


class Lane:
    """The tickets that may go to the same endpoints, in the order in which they should.

    Between classes the order is strict, but a head that has waited counts one class higher per
    `ageing` seconds, never above HIGH. Inside a class the oldest goes first, until the head of the
    urgent line is older than `lifo_after`, or than a fifth of its own time: then that line serves its newest,
    who can still be in time (adaptive LIFO; Maurer, "Fail at Scale", ACM Queue 2015), for as long as the lane is
    blind. Tenants of one class take turns by tokens.

    Attributes:
        blind: nobody can tell who will be in time: the endpoints' rate is unknown, or one of them is away. Otherwise
            the hopeless are given up, and the rest is served in order: that answers more calls in time than any other
            order, for the oldest has the least time left.
    """

    __slots__ = ("_fair", "_lines", "ageing", "blind", "count", "impatient", "key", "lifo_after", "stations")

    def __init__(
        self, key: object, stations: tuple[str, ...], fair: Fairness, *, ageing: float, lifo_after: float
    ) -> None:
        self._fair = fair
        self.key = key
        self.stations = stations
        self.ageing = ageing
        self.lifo_after = lifo_after
        self.count = 0
        self.impatient = 0
        self.blind = True
        self._lines: dict[Slot, Line] = {}

    def __iter__(self) -> Iterator[Ticket]:
        for line in self._lines.values():
            yield from line

    def add(self, ticket: Ticket) -> None:
        """Put a ticket into line at its place."""
        slot = _slot(ticket)
        line = self._lines.get(slot)
        if line is None:
            if len(self._lines) > MOST_LINES:
                self._lines = {key: each for key, each in self._lines.items() if len(each)}
            line = self._lines[slot] = Line()
        line.add(ticket)
        ticket.lane = self
        self.count += 1
        self.impatient += ticket.impatient

    def discard(self, ticket: Ticket) -> None:
        """Take a ticket out of the line."""
        self._lines[_slot(ticket)].discard(ticket)
        ticket.lane = None
        self.count -= 1
        self.impatient -= ticket.impatient

    def granted(self, ticket: Ticket) -> None:
        """Count a ticket of this lane that goes now."""
        self._fair.charge(ticket.tenant, ticket.cost.total)

    def hopeless(self, now: float, *, service: float, going: float, flying: int, free: float) -> Ticket | None:
        """Return a ticket that will not be answered in time as things go; None when all may be.

        Only an urgent line that is late gives anybody up, the oldest first, for it has the least time left: when an
        answer would come too late for it even if it went now; and when the line could not be emptied before the
        deadline of its newest even if nobody else came.

        Args:
            now: monotonic seconds.
            service: seconds that an answer takes as a rule.
            going: calls per second that the lane's endpoints can do; 0.0 while nothing is known.
            free: calls that the endpoints would take at once.
            flying: calls under way at the lane's endpoints. While no more than these wait, all of them go when
                these are answered, however few were answered lately.
        """
        standing = [0] * len(Priority)  # tickets of this class or a higher one
        for (priority, _, _), line in self._lines.items():
            for each in Priority:
                if each >= priority:
                    standing[each] += len(line)
        for (priority, urgent, _), line in self._lines.items():
            oldest = line.arrival() if urgent else None
            newest = line.newest()
            if oldest is None or newest is None or oldest.returned or standing[priority] <= flying:
                continue
            if not going or not self._is_late(oldest, now):
                continue
            ahead = max(0.0, standing[priority] - free) / going
            if now + service > oldest.deadline or now + ahead + service > newest.deadline:
                return oldest
        return None

    def late(self, now: float) -> bool:
        """Tell whether the head of an urgent line has waited too long: somebody may have to be given up soon."""
        return any(
            urgent and (head := line.arrival()) is not None and self._is_late(head, now)
            for (_, urgent, _), line in self._lines.items()
        )

    def first(self, now: float) -> tuple[Rank, Ticket] | None:
        """Return the ticket that should go next and its rank against other lanes' tickets."""
        best: tuple[Rank, Ticket] | None = None
        for (priority, urgent, tenant), line in self._lines.items():
            head = line.oldest()
            if head is None:
                continue
            effective = self._effective(priority, now - head.arrived)
            rank = (effective, self._fair.start(tenant), head.seq)
            if best is None or rank < best[0]:
                best = (rank, self._pick(line, head, now, urgent=urgent and effective == priority))
        return best

    def last(self, below: Priority) -> Ticket | None:
        """Return the newest never-refused ticket of the lowest class strictly below `below`."""
        found: Ticket | None = None
        for (priority, _, _), line in self._lines.items():
            if priority <= below:
                continue
            ticket = line.newest()
            if ticket is None or ticket.returned:
                continue
            if found is None or (priority, ticket.seq) > (found.priority, found.seq):
                found = ticket
        return found

    def waiting(self) -> dict[Priority, int]:
        """Count tickets by class."""
        counts: dict[Priority, int] = {}
        for (priority, _, _), line in self._lines.items():
            counts[priority] = counts.get(priority, 0) + len(line)
        return counts

    def _is_late(self, head: Ticket, now: float) -> bool:
        """Tell whether the head of an urgent line has waited too long to be served first."""
        return now - head.arrived > min(self.lifo_after, LATE * (head.deadline - head.arrived))

    def _effective(self, priority: Priority, waited: float) -> int:
        if priority <= Priority.HIGH or self.ageing == inf:
            return int(priority)
        return max(int(Priority.HIGH), int(priority) - int(waited / self.ageing))

    def _pick(self, line: Line, head: Ticket, now: float, *, urgent: bool) -> Ticket:
        if not urgent or head.returned:
            return head
        arrival = line.arrival()
        if self.blind and arrival is not None and not arrival.returned and self._is_late(arrival, now):
            return line.newest() or head
        return head


def _slot(ticket: Ticket) -> Slot:
    return (ticket.priority, ticket.urgent, ticket.tenant)
