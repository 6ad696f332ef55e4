"""Who goes next, and to which endpoint: binds waiting tickets to free endpoints, as late as possible.

One lock guards the queue and the state of every endpoint, and is held for arithmetic only. Wakers, keepers
and listeners are called after it is released.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from random import Random
from typing import Protocol

from llm_client.core.admission import Admission, Notices
from llm_client.core.budget import RetryBudget
from llm_client.core.permit import Permit
from llm_client.core.pressure import DEPTH, Pressure, PressureRule
from llm_client.core.routing import Router
from llm_client.core.settling import book_first, settle
from llm_client.core.station import Station
from llm_client.core.ticket import State, Ticket, Waker
from llm_client.core.waiting import QueueLimits, WaitingRoom
from llm_client.events import Event
from llm_client.model import Kind, Outcome, Priority, Usage


class Keeper(Protocol):
    """Somebody who keeps time for parked calls: an event loop's timer, or the longest-parked thread."""

    def arm(self, at: float) -> None:
        """Call `Gate.pump` at monotonic second `at`, or earlier. Callable from any thread, never blocks."""
        ...

    def poke(self) -> None:
        """Call `Gate.pump` soon. Callable from a finalizer: takes no locks."""
        ...


class Gate:
    """Admission for one pool. Thread-safe.

    A call enters with a ticket and either holds a permit at once, or waits; whoever changes the state of
    the world (an answer, a refusal, a passed instant) pumps, and the pump grants permits to the tickets that
    should go next. Granting moves the right: nobody can overtake a woken call.

    Args:
        limits: bounds and order of the queue.
        rng: for jitter and ties.
        emit: receives events, after the lock is released; must not raise.
        budget: pays for retries after failures.
    """

    def __init__(
        self, limits: QueueLimits, rng: Random, emit: Callable[[Event], None], budget: RetryBudget | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._emit = emit
        # Guarded by _lock.
        self._budget = budget or RetryBudget()
        self._stations: dict[str, Station] = {}
        self._eligible: dict[tuple[str | None, tuple[str, ...] | None], tuple[str, ...]] = {}
        self._room = WaitingRoom(limits, self._fail)
        self._admission = Admission(self, self._stations, self._room, Router(rng))
        self._owners: Counter[int] = Counter()
        self._notices = Notices()
        self._next = inf
        self._keepers: tuple[Keeper, ...] = ()
        self._closed = False
        self.granted = 0
        # Written by finalizers, which take no locks.
        self._lost: deque[Permit] = deque()

    # -- the life of a ticket

    def enter(self, ticket: Ticket, now: float) -> None:
        """Let a ticket wait for its turn; afterwards it is GRANTED, FAILED or WAITING.

        A ticket that was refused by a server enters again with its `not_before`, keeps its place in line
        and is never turned away by the queue's bounds.
        """
        with self._lock:
            self._collect(now)
            ticket.stations = self._stations_for(ticket)
            ticket.state = State.WAITING
            if ticket.owner is not None:
                self._owners[ticket.owner] = self._owners.get(ticket.owner, 0) + 1
            if self._closed or not ticket.stations:
                self._fail(ticket, Kind.CANCELLED if self._closed else Kind.NOT_FOUND)
            elif ticket.deadline <= now:
                self._fail(ticket, Kind.DEADLINE)
            elif self._admission.too_late(ticket, ticket.stations, now):
                self._fail(ticket, Kind.DEADLINE_UNREACHABLE)
            elif ticket.impatient and self._admission.all_closed(ticket.stations, now):
                self._fail(ticket, Kind.CIRCUIT_OPEN)
            elif self._admission.at_once(ticket, now, self._notices):
                pass
            elif ticket.expires <= now:
                self._fail(ticket, Kind.QUEUE_TIMEOUT)  # it may not wait
            else:
                self._room.add(ticket, now)
                self._pump(now)
                if not ticket.returned:
                    self._room.settle_bounds(ticket)
            notices, keepers, at = self._release()
        self._flush(notices, keepers, at)

    def leave(self, ticket: Ticket, now: float) -> None:
        """Take a ticket out, whatever its state: its call was cancelled or gave up."""
        with self._lock:
            permit = ticket.permit
            if ticket.state is State.WAITING:
                self._room.remove(ticket)
                self._disown(ticket.owner)
            elif permit is not None:
                ticket.permit = None
                settle(permit, None, now, None, self._notices)
                self._forget(permit)
            ticket.state = State.IDLE
            self._pump(now)
            notices, keepers, at = self._release()
        self._flush(notices, keepers, at)

    def take(self, ticket: Ticket) -> Permit:
        """Hand a granted ticket's permit to its call, which must settle it."""
        permit = ticket.permit
        if permit is None:
            raise RuntimeError("take() needs a granted ticket")
        ticket.permit = None
        ticket.state = State.IDLE
        return permit

    # -- the life of a permit

    def first(self, permit: Permit, now: float) -> None:
        """Book the first content of a stream."""
        with self._lock:
            if permit.open and not permit.accepted:
                book_first(permit, now, self._notices)
                self._budget.deposit()
                self._pump(now)
            notices, keepers, at = self._release()
        self._flush(notices, keepers, at)

    def settle(self, permit: Permit, outcome: Outcome | None, now: float, usage: Usage | None) -> None:
        """Settle a permit with what the attempt taught; None teaches nothing."""
        with self._lock:
            self._collect(now)
            if permit.open:
                if outcome is not None and outcome.ok and not permit.accepted:
                    self._budget.deposit()
                guarded = outcome is not None and not outcome.ok and self._guarded(permit.station)
                settle(permit, outcome, now, usage, self._notices, guarded=guarded)
                self._forget(permit)
                self._pump(now)
            notices, keepers, at = self._release()
        self._flush(notices, keepers, at)

    def drop(self, permit: Permit, now: float) -> None:
        """Settle a permit without a lesson."""
        self.settle(permit, None, now, None)

    def lose(self, permit: Permit) -> None:
        """Settle a permit from a finalizer: append and poke, no lock."""
        self._lost.append(permit)
        for keeper in self._keepers:
            keeper.poke()

    def retry_allowed(self, now: float) -> bool:
        """Take one retry after a failure from the budget; False when it is used up."""
        with self._lock:
            return self._budget.withdraw(now)

    # -- time

    def pump(self, now: float) -> float:
        """Grant what can be granted, expire what is out of time; return when to come back (inf: on an event)."""
        with self._lock:
            self._collect(now)
            self._pump(now)
            notices, keepers, at = self._release()
        self._flush(notices, keepers, at)
        return at

    def next_event(self) -> float:
        """Return the monotonic second at which `pump` has something to do."""
        return self._next

    def join(self, keeper: Keeper) -> None:
        """Add somebody who keeps time while calls of theirs are parked."""
        with self._lock:
            self._keepers = (*self._keepers, keeper)

    def part(self, keeper: Keeper) -> None:
        """Remove a keeper."""
        with self._lock:
            self._keepers = tuple(each for each in self._keepers if each is not keeper)

    def holds(self, owner: int) -> bool:
        """Tell whether calls driven by this event loop wait or hold permits."""
        return self._owners[owner] > 0

    # -- endpoints

    def add_station(self, station: Station, now: float) -> None:
        """Add an endpoint, or replace one of the same name; waiting calls may use it at once."""
        with self._lock:
            self._stations[station.name] = station
            self._reroute(now)
            notices, keepers, at = self._release()
        self._flush(notices, keepers, at)

    def drain_station(self, name: str, now: float) -> None:
        """Send nothing new to an endpoint; what is under way ends there, and with the last of it the endpoint goes."""
        with self._lock:
            station = self._stations[name]
            station.draining = True
            self._reroute(now)
            self._remove_drained(station)
            notices, keepers, at = self._release()
        self._flush(notices, keepers, at)

    def change(self, name: str, act: Callable[[Station], None], now: float) -> None:
        """Run a manual change (isolate, reset, disable) on an endpoint's state."""
        with self._lock:
            act(self._stations[name])
            self._notices.events += self._stations[name].news(now)
            self._pump(now)
            notices, keepers, at = self._release()
        self._flush(notices, keepers, at)

    @property
    def stations(self) -> Sequence[Station]:
        """The endpoints' states, for reading."""
        return tuple(self._stations.values())

    # -- reading

    @property
    def waiting(self) -> int:
        """Tickets that wait, delayed ones included."""
        return self._room.count + self._room.delayed

    def waiting_by_class(self) -> dict[Priority, int]:
        """Count waiting tickets by class, delayed ones left out."""
        with self._lock:
            return self._room.waiting()

    def pressure(self, rule: PressureRule = DEPTH) -> Pressure:
        """Tell how full we are, by queue depth or by answer times."""
        with self._lock:
            waiting = self._room.count + self._room.delayed
            if rule.kind == "latency":
                times = [mean for each in self._stations.values() if (mean := each.forecast.mean) > 0.0]
                ratio = sum(times) / len(times) / rule.target if times else 0.0
            else:
                size = self._room.limits.size
                ratio = waiting / size if size else float(waiting > 0)
            level = rule.level(ratio)
            later = None if level == "low" else self._admission.drain_time()
        return Pressure(level=level, ratio=ratio, waiting=waiting, retry_after=later)

    @property
    def expired(self) -> int:
        """Tickets that ran out of time while they waited."""
        return self._room.expired

    # -- the end

    def close(self, now: float) -> None:
        """Fail everything that waits; permits under way may still be settled."""
        with self._lock:
            self._closed = True
            for ticket in self._room.everyone():
                self._room.remove(ticket)
                self._fail(ticket, Kind.CANCELLED)
            notices, keepers, at = self._release()
        del now
        self._flush(notices, keepers, at)

    def before_fork(self) -> None:
        """Hold the lock, so that the child inherits a state at rest."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Let go of the lock in the parent."""
        self._lock.release()

    def reborn(self, stations: Iterable[Station]) -> None:
        """Start anew in the child: permits and tickets belong to the parent's calls, which go on there."""
        self._lock = threading.Lock()
        self._keepers = ()
        self._owners.clear()
        self._lost.clear()
        self._notices = Notices()
        for ticket in self._room.everyone():
            self._room.remove(ticket)
            ticket.state = State.IDLE
        for station in stations:
            self._stations[station.name] = station
        self._eligible.clear()
        self._next = inf

    # -- under the lock

    def _forget(self, permit: Permit) -> None:
        self._disown(permit.owner)
        self._remove_drained(permit.station)

    def _remove_drained(self, station: Station) -> None:
        if station.draining and not station.outstanding and self._stations.get(station.name) is station:
            del self._stations[station.name]

    def _guarded(self, station: Station) -> bool:
        """Tell whether half of the other endpoints are out already: a rate must not take out the whole pool."""
        total = len(self._stations)
        if total < 2:
            return False
        out = sum(each.breaker.state != "closed" for each in self._stations.values() if each is not station)
        return out >= total // 2

    def _collect(self, now: float) -> None:
        while self._lost:
            permit = self._lost.popleft()
            if permit.open:
                settle(permit, None, now, None, self._notices)
                self._forget(permit)

    def _pump(self, now: float) -> None:
        room = self._room
        if room.idle:
            self._next = self._admission.pump(now, self._notices)
            return
        room.advance(now)
        at = self._admission.pump(now, self._notices)
        room.expire(now)
        self._next = min(at, room.next_event())

    def _fail(self, ticket: Ticket, reason: Kind) -> None:
        ticket.state = State.FAILED
        ticket.reason = reason
        ticket.retry_after = self._admission.come_back(ticket, reason)
        self._disown(ticket.owner)
        if ticket.waker is not None:
            self._notices.wakers.append(ticket.waker)

    def _disown(self, owner: int | None) -> None:
        if owner is not None:
            left = self._owners[owner] - 1
            if left:
                self._owners[owner] = left
            else:
                self._owners.pop(owner, None)

    def _stations_for(self, ticket: Ticket) -> tuple[str, ...]:
        key = (ticket.model, ticket.allowed)
        found = self._eligible.get(key)
        if found is None:
            found = tuple(
                name
                for name, station in self._stations.items()
                if station.serves(ticket.model) and station.answers_to(ticket.allowed)
            )
            if len(self._eligible) > 256:  # models are the caller's words: bound what they can make us keep
                self._eligible.clear()
            self._eligible[key] = found
        return found

    def _reroute(self, now: float) -> None:
        self._eligible.clear()
        for ticket in self._room.everyone():
            self._room.remove(ticket)
            ticket.stations = self._stations_for(ticket)
            if not ticket.stations:
                ticket.barred_by = "no_endpoint"  # it waits for one to come, as long as it may wait
            self._room.place(ticket, now)
        self._pump(now)

    def _release(self) -> tuple[Notices | None, Iterable[Keeper], float]:
        notices: Notices | None = None
        if self._notices.wakers or self._notices.events:
            notices, self._notices = self._notices, Notices()
        return notices, self._keepers, self._next

    def _flush(self, notices: Notices | None, keepers: Iterable[Keeper], at: float) -> None:
        if notices is not None:
            for waker in notices.wakers:
                waker.wake()
            for event in notices.events:
                self._emit(event)
        for keeper in keepers:
            keeper.arm(at)


__all__ = ["Gate", "Keeper", "Waker"]
