"""What a flow may ask of its driver. A flow does no I/O: it yields one of these and receives a result.

The contract. A driver carries an effect out and sends the result back, or throws the exception in,
cancellation and `KeyboardInterrupt` included, so that `finally` runs; `finally` never yields. Until a flow
returns, the driver owns the exchange that it opened last and closes it on any exit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from llm_client.core.ticket import Ticket
from llm_client.flow.faults import Fault, FaultKind
from llm_client.model import Headers, Request

T = TypeVar("T")


class Exchange(Protocol):
    """A response whose head has arrived, as a flow sees it. Reading it is the driver's business."""

    @property
    def status(self) -> int:
        """HTTP status."""
        ...

    @property
    def headers(self) -> Headers:
        """Response headers."""
        ...

    def unbound(self) -> None:
        """Lift the bound on the size of the body: it is passed on piece by piece and not kept."""
        ...

    def abandon(self) -> None:
        """Let the server see the disconnect, from a finalizer: no locks."""
        ...


# Each attempt makes several of the next three. Nobody keeps them, and to freeze one costs three times what it does.


@dataclass(slots=True)
class Send:
    """Send a request, give back an `Exchange` once the response head is there. Throws `Fault`.

    Attributes:
        until: absolute monotonic second for the head to arrive.
        connect: seconds for the connection alone.
        fresh: use a new connection, whatever idles in the pool.
    """

    request: Request
    until: float
    connect: float
    fresh: bool = False


@dataclass(slots=True)
class Peek:
    """Read the next chunk of an exchange's body: bytes, or None at its clean end, which closes it. Throws `Fault`."""

    exchange: Exchange
    until: float


@dataclass(slots=True)
class Close:
    """Close an exchange, once or twice. `drain`: its logical end was seen, try to keep the connection."""

    exchange: Exchange
    drain: bool = False


@dataclass(frozen=True, slots=True)
class Park:
    """Wait until a ticket is settled. The driver registers its waker first and looks at the ticket second."""

    ticket: Ticket


@dataclass(frozen=True, slots=True)
class Sleep:
    """Do nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Invoke:
    """Run user code: a sync function is called, an awaitable result is awaited by the async driver.

    Attributes:
        until: absolute monotonic second after which a `Fault` of kind DEADLINE is thrown, whatever the function does.
            None: it is called where the flow runs, and takes what it takes.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Race:
    """Run a flow, and after a time a second one beside it; only for drivers that can do two things at once.

    Gives back the first result that wins, after the other flow was ended: thrown a cancellation in, and closed. When
    neither wins, the first flow's result. What the first flow throws is thrown; the second's failure is its own.

    Attributes:
        after: seconds until `second` is asked, unless the first has ended by then.
        second: makes the second flow; None for none.
        wins: whether a result ends the race.
        discard: gives up a result that came too late, and returns what is open of it.
    """

    first: Flow[Any]
    after: float
    second: Callable[[], Flow[Any] | None]
    wins: Callable[[Any], bool]
    discard: Callable[[Any], Exchange | None]


Effect = Send | Peek | Close | Park | Sleep | Invoke | Race
Flow = Generator[Effect, Any, T]

__all__ = [
    "Close",
    "Effect",
    "Exchange",
    "Fault",
    "FaultKind",
    "Flow",
    "Invoke",
    "Park",
    "Peek",
    "Race",
    "Send",
    "Sleep",
]
