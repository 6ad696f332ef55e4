"""The bounded priority queue: who waits, where, until when, and who must leave when it is full."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from llm_client.core.fairness import Fairness
from llm_client.core.lane import Lane
from llm_client.core.ticket import State, Ticket
from llm_client.core.timers import Timers
from llm_client.model import Kind, Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Bounds and order of the queue; durations in seconds.

    Attributes:
        size: tickets that may wait; 0 means no waiting.
        max_bytes: sum of the waiting calls' request bodies.
        overflow: `reject` or `drop` refuse at the bound, `wait` lets producers block in order.
        ageing: a waiting ticket counts one class higher per this many seconds; inf never.
        lifo_after: an urgent line older than this serves its newest first; inf keeps first-in-first-out.
        ceilings: by class, the share of an endpoint's limit beyond which the class waits for more urgent ones.
    """

    size: int = 10_000
    max_bytes: int = 256_000_000
    overflow: str = "reject"
    ageing: float = 10.0
    lifo_after: float = 2.0
    ceilings: tuple[float, ...] | None = None


class WaitingRoom:
    """Every ticket that waits for a permit.

    Tickets stand in lanes, one lane per set of endpoints that they may go to now. A refused ticket
    that may go nowhere yet is *delayed*: it keeps its place in line but stands outside of every lane
    until its first endpoint opens again. Not synchronised; the gate guards it.

    Args:
        limits: bounds and order.
        fail: called with a ticket and a reason when the room gives up on it.
    """

    def __init__(self, limits: QueueLimits, fail: Callable[[Ticket, Kind], None]) -> None:
        self.limits = limits
        self.lanes: dict[object, Lane] = {}
        self.fair = Fairness()
        self.count = 0
        self.bytes = 0
        self.expired = 0
        self._fail = fail
        self._absent: dict[int, Ticket] = {}  # delayed: may go nowhere yet
        self._hall: deque[Ticket] = deque()  # producers that wait for room (`overflow: wait`)
        self._expiries: Timers[Ticket] = Timers(_still_expires, lambda: self.count + self.delayed + len(self._hall))
        self._openings: Timers[Ticket] = Timers(_still_delayed, lambda: self.delayed)

    def add(self, ticket: Ticket, now: float) -> None:
        """Let a ticket wait, in the lane of the endpoints that are open to it, or delayed."""
        ticket.state = State.WAITING
        self._expiries.add(ticket.expires, ticket)
        self.place(ticket, now)

    def remove(self, ticket: Ticket) -> None:
        """Take a ticket out, wherever it stands."""
        lane = ticket.lane
        if lane is not None:
            lane.discard(ticket)
            self.count -= 1
            self.bytes -= ticket.size
            if not lane.count and len(self.lanes) > 32:
                del self.lanes[lane.key]
        elif self._absent.pop(ticket.seq, None) is None and ticket in self._hall:
            self._hall.remove(ticket)

    def settle_bounds(self, ticket: Ticket) -> None:
        """Enforce the bounds after `ticket` came in and nobody could be served at once.

        The newest ticket of the lowest class strictly below the arrival makes room; where there is
        none, the arrival itself is refused, or waits outside under `overflow: wait`.
        """
        while ticket.state is State.WAITING and self._over():
            victim = None
            for lane in self.lanes.values():
                last = lane.last(ticket.priority)
                if last is not None and (victim is None or _worse(last, victim)):
                    victim = last
            if victim is not None:
                self.give_up(victim, Kind.QUEUE_FULL)
            elif self.limits.overflow == "wait" and self.limits.size > 0:
                self.remove(ticket)
                self._hall.append(ticket)
                return
            else:
                self.give_up(ticket, Kind.QUEUE_FULL)

    def advance(self, now: float) -> None:
        """Put opened tickets back into line, let producers in."""
        for ticket in self._openings.due(now):
            self.remove(ticket)
            self.place(ticket, now)
        while self._hall and not self._full(self._hall[0]):
            self.place(self._hall.popleft(), now)

    def expire(self, now: float) -> None:
        """Give up what is out of time; after the grants, for a call that may not wait may still be served."""
        for ticket in self._expiries.due(now):
            self.expired += 1
            self.give_up(ticket, Kind.DEADLINE if ticket.expires >= ticket.deadline else Kind.QUEUE_TIMEOUT)

    def next_event(self) -> float:
        """Return when `advance` or `expire` has something to do; inf when never."""
        return min(self._expiries.next(), self._openings.next())

    @property
    def delayed(self) -> int:
        """Tickets that may go nowhere yet."""
        return len(self._absent)

    @property
    def idle(self) -> bool:
        """Whether nobody waits and no timer is left to look at: time brings nothing here."""
        return not (self.count or self._absent or self._hall or self._expiries or self._openings)

    def waiting(self) -> dict[Priority, int]:
        """Count waiting tickets by class, delayed ones left out."""
        counts = dict.fromkeys(Priority, 0)
        for lane in self.lanes.values():
            for priority, number in lane.waiting().items():
                counts[priority] += number
        return counts

    def everyone(self) -> list[Ticket]:
        """List every ticket: in a lane, delayed, or waiting outside."""
        standing = [ticket for lane in self.lanes.values() for ticket in lane]
        return [*standing, *self._absent.values(), *self._hall]

    def place(self, ticket: Ticket, now: float) -> None:
        """Put a ticket where it belongs now: into the lane of its open endpoints, or among the delayed."""
        stations = ticket.open_to(now)
        if len(stations) < len(ticket.stations):
            self._openings.add(ticket.next_opening(now), ticket)
        if not stations:
            ticket.move(now, ticket.barred_by)
            self._absent[ticket.seq] = ticket
            return
        ticket.move(now, "queue")
        key = (stations, ticket.scope)
        lane = self.lanes.get(key)
        if lane is None:
            lane = Lane(key, stations, self.fair, ageing=self.limits.ageing, lifo_after=self.limits.lifo_after)
            self.lanes[key] = lane
        lane.add(ticket)
        self.count += 1
        self.bytes += ticket.size

    def give_up(self, ticket: Ticket, reason: Kind) -> None:
        """Take a ticket out and tell its call why."""
        self.remove(ticket)
        self._fail(ticket, reason)

    def _over(self) -> bool:
        return self.count > self.limits.size or self.bytes > self.limits.max_bytes

    def _full(self, ticket: Ticket) -> bool:
        return self.count >= self.limits.size or self.bytes + ticket.size > self.limits.max_bytes


def _worse(ticket: Ticket, than: Ticket) -> bool:
    return (ticket.priority, ticket.seq) > (than.priority, than.seq)


def _still_expires(ticket: Ticket, at: float) -> bool:
    return ticket.state is State.WAITING and ticket.expires == at


def _still_delayed(ticket: Ticket, at: float) -> bool:
    return ticket.state is State.WAITING and at in ticket.not_before.values()
