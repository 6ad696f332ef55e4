"""One attempt as the network layer sees it: how much time is left, how far it came, and on which connection.

The object is handed to the HTTP library in the place of its time-outs. The library passes it down untouched to the
network streams of this package, which ask it for the time that is left at each single connect, read and write. So
time-outs may change from read to read, and the streams learn which request they work for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Protocol

from llm_client.clock import Clock

# Longer waits are not bounded at all: sockets refuse a time-out over 24 days, and a day is no LLM time-out.
UNBOUNDED: Final = 86_400.0

# A head waits for a body up to this size, so that both leave in one packet and wake the server once.
JOINED: Final = 65_536


class Wire(Protocol):
    """A network stream of this package."""

    uses: int
    multiplexed: bool

    def kill(self) -> None:
        """Let the peer see the end at once. Callable from finalizers."""
        ...

    def drop(self) -> None:
        """Close the descriptor too; nobody reads or writes here any more. Callable from finalizers."""
        ...


class Stopped(Exception):  # noqa: N818 - a signal between us and our own stream
    """The caller has gone: the request is not sent although the connection is there."""


class Attempt:
    """The clock and the story of one request.

    Attributes:
        until: when reading and writing end, monotonic seconds; moved before each read.
        gone: tells whether the caller has gone, in which case the request head must not be sent.
        sent: the request head was handed to a connection.
        reused: that connection had carried a request before.
        answered: a byte of the answer has arrived.
        head: the whole head of the answer has arrived.
        stream: the connection that carries the request, once it is known.
        stream_id: the HTTP/2 stream, if it is one.
    """

    __slots__ = ("_clock", "_connect", "answered", "gone", "head", "reused", "sent", "stream", "stream_id", "until")

    def __init__(self, clock: Clock, until: float, connect: float | None) -> None:
        """Start the connect time-out (seconds) now."""
        self._clock = clock
        self.until = until
        self._connect = math.inf if connect is None else clock.monotonic() + connect
        self.gone: Callable[[], bool] = _never
        self.sent = False
        self.reused = False
        self.answered = False
        self.head = False
        self.stream: Wire | None = None
        self.stream_id: int | None = None

    def remaining(self) -> float | None:
        """Seconds left for the present phase, never negative; None when there is no bound."""
        return self._until(self.until if self.sent else min(self.until, self._connect))

    def left(self) -> float | None:
        """Seconds left in all."""
        return self._until(self.until)

    def _until(self, end: float) -> float | None:
        left = end - self._clock.monotonic()
        return None if left > UNBOUNDED else max(left, 0.0)

    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock.monotonic()

    def expired(self) -> bool:
        """Whether the present phase has used up its time; a millisecond early counts."""
        left = self.remaining()
        return left is not None and left <= 0.001

    def connecting(self) -> None:
        """Note that a new connection is being made for this request."""
        self.sent = False
        self.stream = None

    def writing(self, stream: Wire, data: bytes) -> bool:
        """Note what is about to be written for this request; True when it is the head.

        Raises:
            Stopped: it is the request head, and the caller has gone.
        """
        if self.stream is stream or _negotiates(data):
            return False
        if self.gone():
            raise Stopped
        self.sent = True
        self.stream = stream
        self.reused = stream.uses > 0
        stream.uses += 1
        return True

    def received(self, stream: Wire) -> None:
        """Note that bytes of the answer arrived; on a shared connection they may be anybody's."""
        if self.sent and not stream.multiplexed:
            self.answered = True

    def kill(self) -> None:
        """Let the server see that nobody waits any longer. Callable from finalizers.

        A connection that other requests share is left alone; closing the response resets its stream.
        """
        stream = self.stream
        if stream is not None and not stream.multiplexed:
            stream.kill()

    def shares(self) -> bool:
        """Whether the connection carries other requests as well."""
        return self.stream is not None and self.stream.multiplexed

    def drop(self) -> None:
        """Kill the connection and close its descriptor, under the same condition."""
        stream = self.stream
        if stream is not None and not stream.multiplexed:
            stream.kill()
            stream.drop()


def _never() -> bool:
    return False


def _negotiates(data: bytes) -> bool:
    """Whether bytes belong to a proxy's handshake: CONNECT (RFC 9110, 9.3.6) or SOCKS5 (RFC 1928, 1929)."""
    return data[:1] in {b"\x01", b"\x05"} or data.startswith(b"CONNECT ")


def seconds(timeout: Any) -> float | None:
    """Read a time-out as a network stream gets it: an attempt, a number or None."""
    return timeout.remaining() if isinstance(timeout, Attempt) else timeout
