"""The blocking transport: sends a request, hands over its answer piece by piece. Thread-safe."""

from __future__ import annotations

import contextlib
import threading
import weakref
from queue import Empty, SimpleQueue
from typing import Final

from llm_client.clock import Clock
from llm_client.flow.faults import Fault, FaultKind
from llm_client.model import Request
from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport.answer import DRAIN_BYTES, DRAIN_SECONDS, Answer, Flight
from llm_client.transport.attempt import Attempt
from llm_client.transport.body import MAX_BODY
from llm_client.transport.build import check, sharded
from llm_client.transport.family import load
from llm_client.transport.faults import named, translate
from llm_client.transport.multiplex import reset, tracer
from llm_client.transport.net_sync import SyncBackend
from llm_client.transport.outgoing import Outgoing, Target
from llm_client.transport.shards import Shards
from llm_client.transport.sockets import Sockets, forget_in_child, keep
from llm_client.transport.trust import Trust

# Seconds to get a few bytes to a server that other requests share a connection to.
_RESET: Final = 1.0


class SyncTransport:
    """Connections to any number of servers, made with one profile's network settings.

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
        self._sockets = Sockets()
        self._backend = SyncBackend(self._family.core, self._sockets, self._trust)
        # Responses that were dropped unread; finalizers put, `send` and `close` get.
        self._dropped: SimpleQueue[Flight] = SimpleQueue()
        self._flights: set[Flight] = set()
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._shards: dict[bool, Shards] = {False: self._make(fresh=False)}
        self._closed = False
        forget_in_child(self)
        weakref.finalize(self, self._sockets.close_all)

    def send(
        self, request: Request, *, until: float, connect: float | None, clock: Clock, fresh: bool = False
    ) -> SyncExchange:
        """Send a request and wait for the head of its answer.

        Args:
            request: with its `url` set.
            until: when to give up, monotonic seconds.
            connect: seconds for making a connection, TLS included; None for no bound but `until`. A name look-up
                counts, but the system cannot be made to give one up.
            clock: says what time it is.
            fresh: use a connection that has carried nothing before.

        Raises:
            Fault: no answer.
        """
        self._drain()
        shards = self._take_shards(fresh)
        hops = 0
        while True:
            target = self._outgoing.target(request.url or "", request.query)
            attempt = Attempt(clock, until, connect)
            exchange = self._send(shards, request, target, attempt)
            try:
                following = self._outgoing.redirected(request, target, exchange.status, exchange.headers, hops)
            except Fault:
                exchange.close()
                raise
            if following is None:
                return exchange
            exchange.finish()
            request = following
            hops += 1

    def close(self) -> None:
        """Close every connection; reads in other threads end with a fault. Idempotent."""
        with self._lock:
            self._closed = True
            shards, self._shards = list(self._shards.values()), {}
        self._sockets.shut_all()
        self._drain()
        for client in (client for part in shards for client in part):
            client.close()
        self._sockets.close_all()

    def after_fork(self) -> None:
        """Forget, in a forked child, what belongs to the parent."""
        self._lock = threading.Lock()
        self._trust.after_fork()
        keep(self._shards, self._dropped, self._flights)
        self._shards, self._dropped, self._flights = {}, SimpleQueue(), set()
        self._sockets.close_all()

    def _send(self, shards: Shards, request: Request, target: Target, attempt: Attempt) -> SyncExchange:
        if attempt.expired():
            raise Fault(FaultKind.DEADLINE, f"{target.shown}: no time left to send the request", sent=False)
        trace = tracer(attempt, asynchronous=False) if self._spec.http2 else None
        outgoing = self._outgoing.request(request, target, attempt, trace)
        now = attempt.now()
        for client in shards.retire(now):
            client.close()
        shard = shards.take(now)
        flight = None
        try:
            transport = shard.client._transport_for_url(target.url)  # noqa: SLF001 - checked by build
            response = transport.handle_request(outgoing)
            flight = Flight(response, iter(response.stream), attempt, shards, shard)
            self._flights.add(flight)
        except Exception as error:  # noqa: BLE001 - the gate sorts them
            fault = translate(error, attempt)
        except BaseException:
            # KeyboardInterrupt: the core closes the connection, unless it struck between two of its steps.
            attempt.kill()
            raise
        else:
            attempt.head = attempt.answered = True
            return SyncExchange(self, flight, target, self._max_body)
        finally:
            if flight is None:
                shards.give(shard)
        raise named(fault, target.shown)

    def _take_shards(self, fresh: bool) -> Shards:
        shards = self._shards.get(fresh)
        if shards is None:
            with self._lock:
                if self._closed:
                    msg = "this transport is closed; make a new client"
                    raise RuntimeError(msg)
                shards = self._shards.get(fresh)
                if shards is None:
                    shards = self._shards[fresh] = self._make(fresh=fresh)
        return shards

    def _make(self, *, fresh: bool) -> Shards:
        return sharded(self._spec, self._family, self._trust, self._backend, asynchronous=False, fresh=fresh)

    def _drain(self) -> None:
        """Tell the pool about responses that finalizers dropped; their sockets are closed already."""
        while not self._dropped.empty():
            try:
                flight = self._dropped.get_nowait()
            except Empty:
                return
            self._close(flight, ended=False)

    def _close(self, flight: Flight, *, ended: bool) -> None:
        """Give a connection back to its pool, or close it when the answer had not ended."""
        self._flights.discard(flight)
        with contextlib.suppress(Exception):  # the connection may be gone already
            if not ended and flight.attempt.shares():
                flight.attempt.until = flight.attempt.now() + _RESET
                reset(flight.shard.client, flight.attempt)
            flight.response.stream.close()
            flight.parts.close()
        flight.shards.give(flight.shard)


class SyncExchange(Answer):
    """One answer. Read it until None, or close it: by one thread at a time. `close` and `abandon` may come from any."""

    def __init__(self, transport: SyncTransport, flight: Flight, target: Target, limit: int | None) -> None:
        super().__init__(flight, target, limit)
        self._transport = transport
        self._reading = False
        self._closing = False

    def read(self, until: float) -> bytes | None:
        """Return the next decoded bytes, never empty; None at the end of the answer.

        Args:
            until: when to give up, monotonic seconds. Giving up closes the connection.

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
                part = self._next(until)
                if part is None:
                    self._ended = True
                    self._body.end()
                    self.close()
                else:
                    self._body.feed(part)
        except Fault as fault:
            self.close()
            raise named(fault, self._target.shown) from fault.__cause__

    def finish(self, timeout: float = DRAIN_SECONDS) -> None:
        """Leave an answer whose logical end was seen: read the little that may follow, so that the connection is kept.

        Args:
            timeout: seconds to wait for the end; then the connection is closed.
        """
        until = self._attempt.now() + timeout
        left = DRAIN_BYTES
        try:
            while left > 0 and not self._closed:
                piece = self.read(until)
                if piece is None:
                    return
                left -= len(piece)
        except Fault:
            return
        finally:
            self.close()

    def close(self) -> None:
        """Give the connection back if the answer was read to its end, else close it. Idempotent."""
        if self._closed:
            return
        if self._reading:
            # Another thread waits here: wake it, and let it clean up behind itself.
            self._closing = True
            self._attempt.kill()
            return
        self._closed = True
        self._transport._close(self._flight, ended=self._ended)  # noqa: SLF001 - one room

    def abandon(self) -> None:
        """Let go of an unread answer from a finalizer: no locks; the server sees the disconnect now."""
        if self._closed:
            return
        self._closed = True
        if self._reading:
            self._attempt.kill()
        else:
            self._attempt.drop()
        self._transport._dropped.put(self._flight)  # noqa: SLF001 - one room

    def __del__(self) -> None:
        """An answer that nobody closed must not keep a GPU busy."""
        if not getattr(self, "_closed", True):
            self.abandon()

    def _next(self, until: float) -> bytes | None:
        self._check_open()
        self._attempt.until = until
        self._reading = True
        try:
            part: bytes | None = next(self._flight.parts, None)
        except Exception as error:  # noqa: BLE001 - the gate sorts them
            fault = translate(error, self._attempt)
        except BaseException:
            self._attempt.kill()
            self._reading = False
            self.close()
            raise
        else:
            self._reading = False
            if self._closing:
                self.close()
            return part
        self._reading = False
        try:
            raise fault  # outside the handler, so that the library's exception is not its context
        finally:
            del fault
