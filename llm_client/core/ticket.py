"""A place in the queue: what a waiting call needs, wants and has been told."""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from llm_client.model import Cost, Kind, Priority

if TYPE_CHECKING:
    from llm_client.core.permit import Permit

# Calls that must be answered within a minute are the ones that newest-first saves under overload:
# at twice the capacity, first-in-first-out answers nobody in time (Facebook, "Fail at Scale", 2015).
URGENT = 60.0


class Waker(Protocol):
    """How a driver is told that a ticket may have changed; a hint, the state is the truth."""

    def wake(self) -> None:
        """Let the parked call look again. Callable from any thread, never blocks."""
        ...


class State(Enum):
    """Where a ticket stands."""

    IDLE = "idle"  # not in the queue
    WAITING = "waiting"
    GRANTED = "granted"  # holds a permit that nobody has taken yet
    FAILED = "failed"  # `reason` says why


class Ticket:
    """A waiting call, unbound to an endpoint until it is granted.

    Guarded by the gate that holds it; `state` may be read without its lock.

    Args:
        seq: place in line; kept for the life of the call, so a refused call comes back to where it stood.
        model: the name the call asks for; decides which endpoints may serve it.
        allowed: names of the endpoints its profile allows; None for all.
        expires: monotonic second at which waiting ends, whatever the deadline.
        impatient: fail at once when every circuit is open, instead of waiting for a probe.
        owner: identity of the event loop that drives the call; None for a thread.
        prefix: digest of the prompt's beginning, for the endpoint that knows it; empty for no preference.
    """

    __slots__ = (
        "allowed",
        "arrived",
        "barred_by",
        "cause",
        "cost",
        "deadline",
        "entry",
        "expires",
        "impatient",
        "lane",
        "model",
        "not_before",
        "owner",
        "permit",
        "prefix",
        "priority",
        "reason",
        "retry_after",
        "returned",
        "scope",
        "seq",
        "since",
        "size",
        "state",
        "stations",
        "stream",
        "tenant",
        "waited",
        "waker",
    )

    def __init__(
        self,
        *,
        seq: int,
        priority: Priority,
        arrived: float,
        model: str | None = None,
        allowed: tuple[str, ...] | None = None,
        deadline: float = inf,
        expires: float = inf,
        cost: Cost | None = None,
        size: int = 0,
        stream: bool = False,
        impatient: bool = False,
        tenant: str | None = None,
        scope: str = "",
        owner: int | None = None,
        prefix: bytes = b"",
    ) -> None:
        self.seq = seq
        self.priority = priority
        self.arrived = arrived
        self.model = model
        self.allowed = allowed
        self.stations: tuple[str, ...] = ()  # set by the gate
        self.deadline = deadline
        self.expires = min(expires, deadline)
        self.cost = cost or Cost()
        self.size = size
        self.stream = stream
        self.impatient = impatient
        self.tenant = tenant
        self.scope = scope
        self.owner = owner
        self.prefix = prefix
        self.state = State.IDLE
        self.permit: Permit | None = None
        self.reason: Kind | None = None
        self.retry_after: float | None = None
        self.waker: Waker | None = None
        self.lane: Any = None
        self.entry: list[Ticket | None] = []
        self.not_before: dict[str, float] = {}
        self.returned = False  # was refused before: never refused again by the queue's bounds
        self.barred_by = "retry_after"  # why it may go nowhere, while it is delayed
        self.since = arrived
        self.cause = ""
        self.waited: dict[str, float] = {}

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self.state is not State.WAITING

    @property
    def urgent(self) -> bool:
        """Whether the call must be answered within a minute of its arrival."""
        return self.deadline - self.arrived < URGENT

    def open_to(self, now: float) -> tuple[str, ...]:
        """Endpoints this call may go to now, given what servers told it."""
        if not self.not_before:
            return self.stations
        return tuple(name for name in self.stations if self.not_before.get(name, -inf) <= now)

    def next_opening(self, now: float) -> float:
        """When the next endpoint opens to this call; inf when none is barred."""
        return min((at for name in self.stations if (at := self.not_before.get(name, -inf)) > now), default=inf)

    def move(self, now: float, cause: str) -> None:
        """Book the time since the last move on its cause, and start counting for the next one."""
        if self.cause and now > self.since:
            self.waited[self.cause] = self.waited.get(self.cause, 0.0) + now - self.since
        self.since = now
        self.cause = cause
