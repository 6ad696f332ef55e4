"""What the two kinds of exchange share: status, headers, decoding, and the state of the body."""

from __future__ import annotations

from typing import Any, Final

from llm_client.flow.faults import Fault, FaultKind
from llm_client.model import Headers
from llm_client.transport.attempt import Attempt
from llm_client.transport.body import Body
from llm_client.transport.outgoing import Target
from llm_client.transport.shards import Shard, Shards

# After the logical end of a stream: how long, and for how much, it is worth waiting to keep the connection.
DRAIN_SECONDS: Final = 0.05
DRAIN_BYTES: Final = 65_536


def read_headers(response: Any) -> Headers:
    """Take the headers over as they stood on the wire."""
    return Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw)


class Flight:
    """What the library holds for an answer that is being read.

    The transport keeps it alive until it is closed. If an exchange that is collected took it along, the library's
    generators would be closed from inside the garbage collector, and they take locks.
    """

    __slots__ = ("attempt", "parts", "response", "shard", "shards")

    def __init__(self, response: Any, parts: Any, attempt: Attempt, shards: Shards, shard: Shard) -> None:
        """Take the library's response and the iterator over its raw body."""
        self.response = response
        self.parts = parts
        self.attempt = attempt
        self.shards = shards
        self.shard = shard


class Answer:
    """The head of an answer and the state of its body.

    Attributes:
        status: the HTTP status.
        headers: as they stood on the wire.
        unknown_encoding: the content coding that `read` leaves in place, because it is not known here; usually "".
    """

    def __init__(self, flight: Flight, target: Target, limit: int | None) -> None:
        """Begin with the head."""
        self.status: int = flight.response.status_code
        self.headers = read_headers(flight.response)
        self._flight = flight
        self._attempt = flight.attempt
        self._target = target
        self._body = Body(self.headers, limit)
        self._ended = False
        self._closed = False

    @property
    def unknown_encoding(self) -> str:
        """The content coding that `read` leaves in place; "" when there is none."""
        return self._body.unknown

    @property
    def reused(self) -> bool:
        """Whether the connection had carried a request before."""
        return self._attempt.reused

    @property
    def closed(self) -> bool:
        """Whether the connection was given back or closed."""
        return self._closed

    def unbound(self) -> None:
        """Lift the bound on the size of the body, for answers that are passed on and not kept."""
        self._body.limit = None

    def _check_open(self) -> None:
        if self._closed:
            raise Fault(FaultKind.EOF, "this answer was closed before its end")
