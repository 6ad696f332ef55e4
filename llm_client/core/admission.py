"""One pass over the queue: grant what is free, press for growth, tell when to look again."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf
from typing import TYPE_CHECKING

from llm_client.core.breaker import Refused
from llm_client.core.lane import Lane, Rank
from llm_client.core.permit import Permit
from llm_client.core.rate import Rate
from llm_client.core.routing import Router
from llm_client.core.station import Station
from llm_client.core.ticket import State, Ticket, Waker
from llm_client.core.waiting import WaitingRoom
from llm_client.events import Event
from llm_client.model import Kind, Priority

if TYPE_CHECKING:
    from llm_client.core.gate import Gate

# Seconds for which the room above a ceiling is kept for a more urgent class that was seen.
CEILING_HOLD = 10.0
# Seconds between two looks at what waits in vain.
SHED_EVERY = 0.1
# Of a safe answer time: what a call must have left to be worth sending before those that wait behind it.
MARGIN = 1.1
# Seconds over which grants are counted to guess when a refused caller should come back.
RATE_WINDOW = 10.0


@dataclass(slots=True)
class Notices:
    """What must be told to others once the lock is released."""

    wakers: list[Waker] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


@dataclass(slots=True)
class _Blocked:
    """A lane whose next ticket cannot go now."""

    rank: Rank
    lane: Lane
    ticket: Ticket
    limited: list[Station]  # ready to take calls, but full


class Admission:
    """Binds tickets to stations. Guarded by the gate."""

    def __init__(self, gate: Gate, stations: dict[str, Station], room: WaitingRoom, router: Router) -> None:
        self._gate = gate
        self._stations = stations
        self._room = room
        self._router = router
        self._granted = Rate(RATE_WINDOW)
        self._now = 0.0
        self._shed_at = -inf
        self._ceilings = room.limits.ceilings
        self._seen = [-inf, -inf, -inf]  # when a call of the three upper classes was last asked for
        self._again = [-inf, -inf, -inf]  # ... and the one before: a single one, such as a first try, is no traffic
        self._late = False  # some urgent line is late: look now and then who is hopeless

    def at_once(self, ticket: Ticket, now: float, notices: Notices) -> bool:
        """Grant a permit without queueing, when nobody waits who could be overtaken."""
        self._now = now
        if ticket.priority < Priority.LOW:
            self._again[ticket.priority] = self._seen[ticket.priority]
            self._seen[ticket.priority] = now
        if self._room.count:
            return False
        stations = ticket.open_to(now)
        station, _, _ = self._bind(stations, ticket, now)
        if station is None:
            return False
        self._grant(ticket, station, now, notices)
        return True

    def pump(self, now: float, notices: Notices) -> float:
        """Grant everything that can be granted; return when another look is worth it."""
        self._now = now
        room = self._room
        if not room.count:
            return inf
        at = self._shed(now)
        blocked: dict[int, _Blocked] = {}
        while room.count:
            best = self._first(blocked, now)
            if best is None:
                entry, at = self._press(blocked, at, now)
                if entry is None:
                    break
                ticket, station = entry
                ticket.lane.granted(ticket)
                room.remove(ticket)
                self._grant(ticket, station, now, notices)
                blocked.clear()
                continue
            rank, ticket = best
            lane = ticket.lane
            if ticket.deadline <= now:
                room.give_up(ticket, Kind.DEADLINE)
                continue
            if self.too_late(ticket, lane.stations, now):
                room.give_up(ticket, Kind.DEADLINE_UNREACHABLE)
                continue
            found, when, limited = self._bind(lane.stations, ticket, now)
            if found is not None:
                lane.granted(ticket)
                room.remove(ticket)
                self._grant(ticket, found, now, notices)
            elif lane.impatient and not limited and self.all_closed(lane.stations, now):
                for each in [each for each in lane if each.impatient]:
                    room.give_up(each, Kind.CIRCUIT_OPEN)
            else:
                at = min(at, when)
                blocked[id(lane)] = _Blocked(rank, lane, ticket, limited)
        return at

    def _first(self, blocked: dict[int, _Blocked], now: float) -> tuple[Rank, Ticket] | None:
        """Find the ticket that should go next, over all lanes that are not blocked."""
        best: tuple[Rank, Ticket] | None = None
        for lane in self._room.lanes.values():
            if lane.count and id(lane) not in blocked:
                first = lane.first(now)
                if first is not None and (best is None or first[0] < best[0]):
                    best = first
        return best

    def too_late(self, ticket: Ticket, stations: tuple[str, ...], now: float) -> bool:
        """Tell whether no endpoint would answer in time even if the call went out now."""
        if ticket.deadline == inf or ticket.stream:
            return False
        room = ticket.deadline - now
        output = ticket.cost.output
        return all(self._stations[name].forecast.seconds(output) > room for name in stations)

    def _shed(self, now: float) -> float:
        """Give up, from time to time, what waits in vain; return when to look again."""
        if now < self._shed_at:
            return self._shed_at if self._late else inf
        self._shed_at = now + SHED_EVERY
        self._late = False
        for lane in list(self._room.lanes.values()):
            if not lane.count:
                continue
            stations = [self._stations[name] for name in lane.stations]
            going = sum(station.capacity(now) for station in stations)
            lane.blind = not going or any(station.unsettled(now) for station in stations)
            if not lane.blind:
                service = MARGIN * min(station.forecast.safe for station in stations)
                flying = sum(station.outstanding for station in stations)
                free = sum(max(0.0, station.limit.limit - station.outstanding) for station in stations)
                while (
                    ticket := lane.hopeless(now, service=service, going=going, flying=flying, free=free)
                ) is not None:
                    self._room.give_up(ticket, Kind.DEADLINE_UNREACHABLE)
            self._late = self._late or lane.late(now)
        return self._shed_at if self._late else inf

    def all_closed(self, stations: tuple[str, ...], now: float) -> bool:
        """Tell whether circuit or cool-down of every one of these endpoints is closed to us."""
        return all(self._stations[name].ready_at(now) > now for name in stations)

    def come_back(self, ticket: Ticket, reason: Kind) -> float | None:
        """Guess in how many seconds a refused caller may try again."""
        now = self._now
        if reason is Kind.CIRCUIT_OPEN:
            at = min((self._stations[name].ready_at(now) for name in ticket.stations), default=inf)
            return None if at == inf else max(0.0, at - now)
        return self.drain_time() if reason in (Kind.QUEUE_FULL, Kind.QUEUE_TIMEOUT) else None

    def drain_time(self) -> float | None:
        """Guess in how many seconds what waits now will be gone, in tenths; None before anything was granted."""
        rate = self._granted.per_second(self._now)
        return None if rate <= 0.0 else ceil(self._room.count / rate * 10.0) / 10.0

    def _bind(self, names: tuple[str, ...], ticket: Ticket, now: float) -> tuple[Station | None, float, list[Station]]:
        """Find a station for a ticket; else when to look again, and which stations are merely full."""
        at = inf
        free: list[Station] = []
        limited: list[Station] = []
        for name in names:
            station = self._stations[name]
            ready = station.ready_at(now)
            if ready > now:
                at = min(at, ready)
                continue
            if not station.holds(ticket.cost.total):
                continue  # an answer makes room, and is an event of its own
            when = station.limit.may_send(now)
            if (held := self._held(ticket, station, now)) > now:
                at = min(at, held)
            elif when <= now:
                free.append(station)
            else:
                at = min(at, when)
                limited.append(station)
        while free:
            if ticket.prefix and len(names) > 1:
                station = self._router.prefer(ticket.prefix, free, [self._stations[name] for name in names], now)
            else:
                station = self._router.pick(free, now)
            wait = self._wait(station, ticket, now)
            if wait <= 0.0:
                return station, at, limited
            at = min(at, now + wait)
            free.remove(station)
        return None, at, limited

    def _held(self, ticket: Ticket, station: Station, now: float) -> float:
        """Return until when a class keeps clear of the rest of an endpoint's limit; `<= now` when it need not.

        That rest is what lies above its ceiling, if it has one, and what the endpoint has not proven to work on. Both
        count only while more urgent calls are about, or half a GPU would idle under batch work.
        """
        limit, ceilings, above = station.limit, self._ceilings, ticket.priority
        at = limit.clear_at()
        if at > now:
            at = min(at, max(self._again[:above], default=-inf) + CEILING_HOLD)
        if ceilings is not None and limit.inflight >= ceilings[above] * limit.limit:
            at = max(at, max(self._seen[:above], default=-inf) + CEILING_HOLD)
        return at

    def _press(
        self, blocked: dict[int, _Blocked], at: float, now: float
    ) -> tuple[tuple[Ticket, Station] | None, float]:
        """Let one full endpoint grow by one call: the first choice of the first ticket that would use it."""
        pressed: set[str] = set()
        for entry in sorted(blocked.values(), key=lambda each: each.rank):
            for station in self._router.order(entry.limited, now):
                if station.name in pressed:
                    continue
                pressed.add(station.name)
                when = station.limit.press(now, self._backlog(station))
                if when > now:
                    at = min(at, when)
                elif (wait := self._wait(station, entry.ticket, now)) > 0.0:
                    at = min(at, now + wait)
                else:
                    return (entry.ticket, station), at
        return None, at

    def _backlog(self, station: Station) -> float:
        """Waiting calls that count as this endpoint's: every lane is shared out by the limits."""
        total = 0.0
        for lane in self._room.lanes.values():
            if lane.count and station.name in lane.stations:
                if len(lane.stations) == 1:
                    total += lane.count
                else:
                    share = sum(self._stations[name].limit.limit for name in lane.stations)
                    total += lane.count * (station.limit.limit / share if 0 < share < inf else 1.0)
        return total

    @staticmethod
    def _wait(station: Station, ticket: Ticket, now: float) -> float:
        meter = station.meter(ticket.model) if station.meter is not None else None
        return 0.0 if meter is None else meter.wait(ticket.cost, now)

    def _grant(self, ticket: Ticket, station: Station, now: float, notices: Notices) -> None:
        meter = station.meter(ticket.model) if station.meter is not None else None
        lease = station.breaker.acquire(now)
        if isinstance(lease, Refused):
            raise RuntimeError(f"the circuit of {station.name} was ready and refused")  # noqa: TRY004 - not a caller's type
        ticket.move(now, "")
        tokens = ticket.cost.total
        ticket.permit = Permit(
            self._gate,
            station,
            station.limit.sent(now, stream=ticket.stream, prompt=ticket.cost.prompt),
            lease,
            meter=meter,
            reservation=None if meter is None else meter.take(ticket.cost, now),
            now=now,
            prompt=ticket.cost.prompt,
            tokens=tokens,
            owner=ticket.owner,
        )
        ticket.state = State.GRANTED
        station.outstanding += 1
        station.tokens += tokens
        self._granted.add(now)
        notices.events += station.news(now)
        if ticket.waker is not None:
            notices.wakers.append(ticket.waker)
