"""What belongs to one event loop: its HTTP clients, its sockets, and the tasks that send."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from llm_client.transport.answer import Flight
from llm_client.transport.attempt import Attempt
from llm_client.transport.multiplex import reset_async
from llm_client.transport.net_aio import AsyncBackend
from llm_client.transport.shards import Shard, Shards
from llm_client.transport.sockets import Sockets
from llm_client.transport.through import Through
from llm_client.transport.trust import Trust

# How long a cancelled caller waits for its request to be withdrawn; the disconnect itself takes microseconds.
_WITHDRAW: Final = 1.0


class Lane:
    """One loop's half of a transport. Used on its own loop only, `close_from_outside` aside.

    Attributes:
        sockets: every open one.
        flights: answers that are being read.
        tasks: sends and clean-ups under way.
    """

    def __init__(self, make: Callable[..., Shards], core: Any, sockets: Sockets, trust: Trust) -> None:
        """Build a client that keeps connections; one that does not waits until it is asked for."""
        self.sockets = sockets
        self.flights: set[Flight] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._make = make
        self._backend = AsyncBackend(core, sockets, trust)
        self._shards: dict[bool, Shards] = {False: make(self._backend, fresh=False)}
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that sends here."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def clients(self) -> list[Any]:
        """Every client of this lane."""
        return [client for shards in self._shards.values() for client in shards]

    async def send(self, request: Any, attempt: Attempt, *, fresh: bool) -> Flight:
        """Send a request in a task of this lane, and return the library's response when the head has come.

        Raises:
            Exception: whatever the library raises.
        """
        shards = self._shards.get(fresh)
        if shards is None:
            shards = self._shards[fresh] = self._make(self._backend, fresh=fresh)
        now = attempt.now()
        for client in shards.retire(now):
            self.spawn(client.aclose())
        shard = shards.take(now)
        waiter: asyncio.Future[tuple[Flight | None, Exception | None]] = self.loop.create_future()
        # The future is cancelled in the same step as the caller, who hears of it a turn later.
        attempt.gone = waiter.cancelled
        task = self.spawn(self._deliver(shards, shard, request, attempt, waiter))
        try:
            flight, error = await waiter
        except asyncio.CancelledError:
            await self._withdraw(task, waiter, attempt, shard)
            raise
        if flight is not None:
            return flight
        try:
            raise error or RuntimeError
        finally:
            del error  # its traceback holds this frame

    async def _deliver(
        self, shards: Shards, shard: Shard, request: Any, attempt: Attempt, waiter: asyncio.Future[Any]
    ) -> None:
        """Send, and leave response and error with the waiter, or close the response if nobody waits any longer."""
        flight = None
        try:
            transport = shard.client._transport_for_url(request.url)  # noqa: SLF001 - checked by build
            response = await Through(transport.handle_async_request(request))
            flight = Flight(response, response.stream.__aiter__(), attempt, shards, shard)
        except asyncio.CancelledError:
            waiter.cancel()  # the loop is shutting down, or the caller has gone
            raise
        except Exception as error:  # noqa: BLE001 - the caller sorts them
            if not waiter.done():
                waiter.set_result((None, error))
        else:
            if waiter.done():
                self.reap(flight)
            else:
                self.flights.add(flight)
                waiter.set_result((flight, None))
        finally:
            if flight is None:
                shards.give(shard)

    async def _withdraw(
        self, task: asyncio.Task[None], waiter: asyncio.Future[Any], attempt: Attempt, shard: Shard
    ) -> None:
        """Take a request back, for a caller that has gone."""
        if waiter.done() and not waiter.cancelled():
            flight, _error = waiter.result()  # it came in the same step as the cancellation
            if flight is not None:
                self.reap(flight)
            return
        if attempt.sent:
            attempt.kill()
            if attempt.shares():
                self.spawn(self._reset(attempt, shard, task.cancel))
            else:
                task.cancel()
            await asyncio.wait({task}, timeout=_WITHDRAW)

    async def give_back(self, flight: Flight, *, ended: bool) -> None:
        """Return a connection to its pool, or close it when the answer had not ended."""
        self.flights.discard(flight)
        if ended or not flight.attempt.shares():
            if not ended:
                flight.attempt.kill()
            await _close(flight)
        else:
            await asyncio.wait({self.spawn(self._give_up(flight))}, timeout=_WITHDRAW)

    def reap(self, flight: Flight) -> None:
        """Close, in a task, a response whose reader has gone."""
        self.flights.discard(flight)
        flight.attempt.kill()
        self.spawn(self._give_up(flight))

    async def _give_up(self, flight: Flight) -> None:
        """Close a response that was not read to its end; a shared connection counts it until its stream is reset."""
        if flight.attempt.shares():
            await self._reset(flight.attempt, flight.shard)
        await _close(flight)

    async def _reset(self, attempt: Attempt, shard: Shard, then: Callable[[], object] | None = None) -> None:
        attempt.until = attempt.now() + _WITHDRAW
        with contextlib.suppress(Exception):  # the connection may be gone, and with it the stream
            await reset_async(shard.client, attempt)
        if then is not None:
            then()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that must end in good order; the loop itself holds tasks by weak references only."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def aclose(self) -> None:
        """Close everything."""
        self.sockets.shut_all()
        for client in self.clients():
            with contextlib.suppress(Exception):
                await client.aclose()
        others = self.tasks - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_WITHDRAW)
        self.sockets.close_all()

    def close_from_outside(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close everything, from another thread or loop."""
        if loop.is_closed():
            self.sockets.close_all()
            return
        self.sockets.shut_all()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: self.spawn(self.aclose()))


async def _close(flight: Flight) -> None:
    """Close a response, in one step: there is nothing to wait for, and so no place for a cancellation."""
    with contextlib.suppress(Exception):  # the connection may be gone already
        await Through(flight.response.stream.aclose())
    with contextlib.suppress(Exception):
        await Through(flight.parts.aclose())
    flight.shards.give(flight.shard)
