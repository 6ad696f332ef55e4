"""The driver that awaits: carries out a flow's effects on the running event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from llm_client.clock import Clock
from llm_client.core.gate import Gate
from llm_client.core.ticket import Ticket
from llm_client.drivers.aside import acall_within
from llm_client.drivers.race import run_race
from llm_client.drivers.waker import LoopKeeper, LoopWaker
from llm_client.errors import LLMClientError
from llm_client.flow.delivery import Delivery
from llm_client.flow.effects import Close, Effect, Exchange, Flow, Invoke, Park, Peek, Race, Send, Sleep
from llm_client.flow.reading import closing, read_on
from llm_client.model import Request
from llm_client.wire.stream import Chunk

T = TypeVar("T")


class AsyncExchange(Exchange, Protocol):
    """A response on an event loop."""

    async def read(self, until: float) -> bytes | None:
        """Return the next chunk, None at the clean end, which closes it. Raises `Fault`."""
        ...

    async def aclose(self) -> None:
        """Close; idempotent."""
        ...

    async def finish(self) -> None:
        """Close after the logical end, keeping the connection if its end is at hand."""
        ...


class AsyncTransport(Protocol):
    """What sends on an event loop."""

    async def send(
        self, request: Request, *, until: float, connect: float, clock: Clock, fresh: bool = False
    ) -> AsyncExchange:
        """Return once the response head is there. Raises `Fault`."""
        ...


class AsyncDriver:
    """Runs flows on whichever event loop calls it. Shared by all loops of a pool."""

    def __init__(self, gate: Gate, transport: AsyncTransport, clock: Clock) -> None:
        self._gate = gate
        self._transport = transport
        self._clock = clock
        self._keepers: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopKeeper] = WeakKeyDictionary()
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, asyncio.Lock]] = WeakKeyDictionary()

    async def run(self, flow: Flow[T]) -> T:
        """Advance a flow to its end; closes what it leaves open when it does not end well."""
        value: Any = None
        error: BaseException | None = None
        exchange: AsyncExchange | None = None
        try:
            while True:
                effect = flow.send(value) if error is None else flow.throw(error)
                value, error = None, None
                try:
                    if type(effect) is Send:
                        value = exchange = await self._transport.send(
                            effect.request,
                            until=effect.until,
                            connect=effect.connect,
                            clock=self._clock,
                            fresh=effect.fresh,
                        )
                    elif type(effect) is Peek:
                        value = await effect.exchange.read(effect.until)  # type: ignore[attr-defined]  # its own
                    else:
                        value = await self._perform(effect)
                except BaseException as caught:  # noqa: BLE001 - all of them are the flow's to handle
                    error = caught
        except StopIteration as stop:
            result: T = stop.value
            return result
        except BaseException:
            if exchange is not None:
                await exchange.aclose()
            raise
        finally:
            error = None  # or the exception and this frame keep each other alive
            flow.close()

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case Park(ticket=ticket):
                await self._park(ticket)
            case Close(exchange=exchange, drain=drain):
                # A driver gets its own exchanges back.
                await (exchange.finish() if drain else exchange.aclose())  # type: ignore[attr-defined]
            case Sleep(seconds=seconds):
                await asyncio.sleep(seconds)
            case Invoke(function=function, args=args, until=until):
                if until is not None:
                    turns = self._turns.setdefault(asyncio.get_running_loop(), {})
                    turn = turns.setdefault(id(function), asyncio.Lock())
                    return await acall_within(until - self._clock.monotonic(), function, args, turn)
                result = function(*args)
                return await result if inspect.isawaitable(result) else result
            case Race():
                return await run_race(effect, self.run)
            case _:
                raise TypeError(f"no driver knows {effect!r}")
        return None

    async def _park(self, ticket: Ticket) -> None:
        loop = asyncio.get_running_loop()
        waker = LoopWaker(loop)
        ticket.waker = waker
        if ticket.settled:
            return
        keeper = self._keepers.get(loop)
        if keeper is None:
            keeper = self._keepers[loop] = LoopKeeper(loop, self._gate, self._clock)
        keeper.enter()
        try:
            await waker.future
        finally:
            keeper.leave()
            ticket.waker = None


class AsyncBody:
    """A live body on an event loop: parsed chunks, or raw bytes; settles its permit however it ends."""

    def __init__(self, delivery: Delivery, driver: AsyncDriver) -> None:
        self.delivery = delivery
        self._driver = driver
        self._chunks: deque[Chunk] = deque(delivery.chunks)
        self._raw: deque[bytes] = deque(delivery.raw)

    def __aiter__(self) -> AsyncBody:
        """Iterate over parsed chunks."""
        return self

    async def __anext__(self) -> Chunk:
        """Return the next chunk.

        Raises:
            LLMClientError: the stream broke; `.partial` has the text so far.
        """
        while not self._chunks:
            if await self._more() is None:
                raise StopAsyncIteration
        return self._chunks.popleft()

    async def next_bytes(self) -> bytes | None:
        """Return the next raw bytes, None at the end; for whoever parses by himself. Raises as the iteration."""
        if self._raw:
            return self._raw.popleft()
        data = await self._more()
        self._chunks.clear()
        return data

    async def aclose(self) -> None:
        """Give up the rest: the server sees the disconnect, the permit is free. Idempotent."""
        self.delivery.give_up()
        await self._driver.run(closing(self.delivery))

    async def _more(self) -> bytes | None:
        try:
            piece = await self._driver.run(read_on(self.delivery))
        except BaseException as error:
            if not isinstance(error, LLMClientError):  # cancelled or interrupted: nobody will read on
                await self.aclose()
            raise
        if piece is None:
            return None
        data, chunks = piece
        self._chunks += chunks
        return data

    def __del__(self) -> None:
        """Give the slot back when nobody reads on."""
        self.delivery.lose()


__all__ = ["AsyncBody", "AsyncDriver", "AsyncExchange", "AsyncTransport"]
