"""The asyncio transport: sends a request, hands over its answer piece by piece.

Every running loop has connections of its own. A request is sent by a task of the transport, which outlives a caller
that is cancelled: a connection pool that is cancelled while it connects loses the connection's place for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Iterable
from functools import partial

from llm_client.clock import Clock
from llm_client.flow.faults import Fault, FaultKind
from llm_client.model import Request
from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport.answer import DRAIN_BYTES, DRAIN_SECONDS, Answer, Flight
from llm_client.transport.attempt import Attempt
from llm_client.transport.body import MAX_BODY
from llm_client.transport.build import check, sharded
from llm_client.transport.family import load
from llm_client.transport.faults import late, named, translate
from llm_client.transport.lane import Lane
from llm_client.transport.multiplex import tracer
from llm_client.transport.outgoing import Outgoing, Target
from llm_client.transport.sockets import Sockets, forget_in_child, keep
from llm_client.transport.through import Through
from llm_client.transport.trust import Trust


class AsyncTransport:
    """Connections to any number of servers, made with one profile's network settings.

    Threads may share it, each with a loop of its own.

    Args:
        spec: the network settings; None for the built-in ones.
        max_body: how many bytes an answer may have after decompression, event streams aside; None for any number.

    Raises:
        ConfigError: the settings cannot work here.
    """

    def __init__(self, spec: HttpSpec | None = None, *, max_body: int | None = MAX_BODY) -> None:
        self._spec = spec or HttpSpec()
        self._family = load(self._spec.family)
        check(self._spec, self._family)
        self._trust = Trust(self._spec)
        self._max_body = max_body
        self._outgoing = Outgoing(self._family, self._spec)
        self._lock = threading.Lock()
        # Guarded by _lock; read without it, because a look-up is atomic.
        self._lanes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Lane] = weakref.WeakKeyDictionary()
        self._closed = False
        # Built now, so that settings which cannot work are refused now; the first loop takes it.
        self._spare: Lane | None = self._make_lane()
        forget_in_child(self)
        weakref.finalize(self, _close_lanes, self._lanes)

    async def send(
        self, request: Request, *, until: float, connect: float | None, clock: Clock, fresh: bool = False
    ) -> AsyncExchange:
        """Send a request and wait for the head of its answer.

        Cancelled while connecting, it raises at once, and the request is never sent. Cancelled later, it disconnects,
        and raises when that is done, after a second at most.

        Args:
            request: with its `url` set.
            until: when to give up, monotonic seconds.
            connect: seconds for making a connection, name look-up and TLS included; None for no bound but `until`.
            clock: says what time it is.
            fresh: use a connection that has carried nothing before.

        Raises:
            Fault: no answer.
        """
        lane = self._here()
        hops = 0
        while True:
            target = self._outgoing.target(request.url or "", request.query)
            attempt = Attempt(clock, until, connect)
            exchange = await self._send(lane, request, target, attempt, fresh=fresh)
            try:
                following = self._outgoing.redirected(request, target, exchange.status, exchange.headers, hops)
            except Fault:
                await exchange.aclose()
                raise
            if following is None:
                return exchange
            await exchange.finish()
            request = following
            hops += 1

    async def aclose(self) -> None:
        """Close every connection, those of other loops too; reads end with a fault. Idempotent."""
        loop = asyncio.get_running_loop()
        for other, lane in self._take_lanes():
            if other is loop:
                await lane.aclose()
            else:
                lane.close_from_outside(other)

    def close(self) -> None:
        """Close every connection from outside the loops that use them; each finishes on its own loop. Idempotent."""
        for loop, lane in self._take_lanes():
            lane.close_from_outside(loop)

    def after_fork(self) -> None:
        """Forget, in a forked child, what belongs to the parent."""
        self._lock = threading.Lock()
        self._trust.after_fork()
        lanes = list(self._lanes.values())
        for lane in lanes:
            lane.sockets.close_all()
        keep(lanes, list(self._lanes.keys()))
        self._lanes.clear()

    async def _send(
        self, lane: Lane, request: Request, target: Target, attempt: Attempt, *, fresh: bool
    ) -> AsyncExchange:
        if attempt.expired():
            raise Fault(FaultKind.DEADLINE, f"{target.shown}: no time left to send the request", sent=False)
        trace = tracer(attempt, asynchronous=True) if self._spec.http2 else None
        outgoing = self._outgoing.request(request, target, attempt, trace)
        try:
            # An HTTP/2 connection may make a request wait for others, and no socket's time-out ends that.
            async with asyncio.timeout(attempt.left() if self._spec.http2 else None):
                flight = await lane.send(outgoing, attempt, fresh=fresh)
        except TimeoutError:
            fault = late(attempt)
        except Exception as error:  # noqa: BLE001 - the gate sorts them
            fault = translate(error, attempt)
        else:
            attempt.head = attempt.answered = True
            return AsyncExchange(self, lane, flight, target, self._max_body)
        raise named(fault, target.shown)

    def _here(self) -> Lane:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is not None:
            return lane
        with self._lock:
            if self._closed:
                msg = "this transport is closed; make a new client"
                raise RuntimeError(msg)
            for other in [other for other in self._lanes if other.is_closed()]:
                self._lanes.pop(other).sockets.close_all()
            lane, self._spare = self._spare or self._make_lane(), None
            self._lanes[loop] = lane
            return lane

    def _make_lane(self) -> Lane:
        # No reference to self: the finalizer keeps the lanes, and must not keep the transport.
        make = partial(sharded, self._spec, self._family, self._trust, asynchronous=True)
        return Lane(make, self._family.core, Sockets(), self._trust)

    def _take_lanes(self) -> Iterable[tuple[asyncio.AbstractEventLoop, Lane]]:
        with self._lock:
            self._closed = True
            lanes = list(self._lanes.items())
            self._lanes.clear()
            self._spare = None
        return lanes


class AsyncExchange(Answer):
    """One answer. Read it until None, or close it, on the loop that sent the request; `abandon` from anywhere."""

    def __init__(
        self, transport: AsyncTransport, lane: Lane, flight: Flight, target: Target, limit: int | None
    ) -> None:
        super().__init__(flight, target, limit)
        self._transport = transport  # connections live as long as their transport does
        self._lane = lane

    async def read(self, until: float) -> bytes | None:
        """Return the next decoded bytes, never empty; None at the end of the answer.

        Args:
            until: when to give up, monotonic seconds. Giving up closes the connection; so does cancelling.

        Raises:
            Fault: the answer was cut, or cannot be decoded, or nothing came in time.
        """
        try:
            while True:
                piece = self._body.take()
                if piece:
                    return piece
                if self._ended:
                    return None
                part = await self._next(until)
                if part is None:
                    self._ended = True
                    self._body.end()
                    await self.aclose()
                else:
                    self._body.feed(part)
        except Fault as fault:
            await self.aclose()
            raise named(fault, self._target.shown) from fault.__cause__

    async def finish(self, timeout: float = DRAIN_SECONDS) -> None:  # noqa: ASYNC109 - a socket's, not a task's
        """Leave an answer whose logical end was seen: read the little that may follow, so that the connection is kept.

        Args:
            timeout: seconds to wait for the end; then the connection is closed.
        """
        until = self._attempt.now() + timeout
        left = DRAIN_BYTES
        try:
            while left > 0 and not self._closed:
                piece = await self.read(until)
                if piece is None:
                    return
                left -= len(piece)
        except Fault:
            return
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Give the connection back if the answer was read to its end, else close it. Idempotent."""
        if self._closed:
            return
        self._closed = True
        await self._lane.give_back(self._flight, ended=self._ended)

    def abandon(self) -> None:
        """Let go of an unread answer from a finalizer: no locks; the server sees the disconnect now."""
        if self._closed:
            return
        self._closed = True
        self._attempt.kill()
        with contextlib.suppress(RuntimeError):  # the loop is closed, and its sockets with it
            self._lane.loop.call_soon_threadsafe(self._lane.reap, self._flight)

    def __del__(self) -> None:
        """An answer that nobody closed must not keep a GPU busy."""
        if not getattr(self, "_closed", True):
            self.abandon()

    async def _next(self, until: float) -> bytes | None:
        self._check_open()
        self._attempt.until = until
        try:
            part: bytes = await Through(self._flight.parts.__anext__())
        except StopAsyncIteration:
            return None
        except Exception as error:  # noqa: BLE001 - the gate sorts them
            fault = translate(error, self._attempt)
        except BaseException:
            self._closed = True
            self._lane.reap(self._flight)
            raise
        else:
            return part
        try:
            raise fault  # outside the handler, so that the library's exception is not its context
        finally:
            del fault


def _close_lanes(lanes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Lane]) -> None:
    for lane in list(lanes.values()):
        lane.sockets.close_all()
