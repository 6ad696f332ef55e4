"""The driver that blocks: carries out a flow's effects in the calling thread."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from llm_client.clock import Clock
from llm_client.core.gate import Gate
from llm_client.core.ticket import Ticket
from llm_client.drivers.aside import call_within
from llm_client.drivers.waker import ThreadKeeper, ThreadWaker
from llm_client.errors import ConfigError, LLMClientError
from llm_client.flow.delivery import Delivery
from llm_client.flow.effects import Close, Effect, Exchange, Flow, Invoke, Park, Peek, Send, Sleep
from llm_client.flow.reading import closing, read_on
from llm_client.model import Request
from llm_client.wire.stream import Chunk

T = TypeVar("T")

# A sync call that holds up an event loop for longer is worth a word, once.
BLOCKING = 1.0

_log = logging.getLogger("llm_client")


class SyncExchange(Exchange, Protocol):
    """A response in a thread."""

    def read(self, until: float) -> bytes | None:
        """Return the next chunk, None at the clean end, which closes it. Raises `Fault`."""
        ...

    def close(self) -> None:
        """Close; idempotent."""
        ...

    def finish(self) -> None:
        """Close after the logical end, keeping the connection if its end is at hand."""
        ...


class SyncTransport(Protocol):
    """What sends from threads."""

    def send(
        self, request: Request, *, until: float, connect: float, clock: Clock, fresh: bool = False
    ) -> SyncExchange:
        """Return once the response head is there. Raises `Fault`."""
        ...


class SyncDriver:
    """Runs flows in the calling thread. Shared by all threads of a pool."""

    _warned = False

    def __init__(self, gate: Gate, transport: SyncTransport, clock: Clock) -> None:
        self._gate = gate
        self._transport = transport
        self._clock = clock
        self._keeper = ThreadKeeper(gate, clock)

    def run(self, flow: Flow[T]) -> T:
        """Advance a flow to its end; closes what it leaves open when it does not end well."""
        value: Any = None
        error: BaseException | None = None
        exchange: SyncExchange | None = None
        loop = asyncio._get_running_loop()  # noqa: SLF001 - None instead of an exception
        began = self._clock.monotonic() if loop is not None else 0.0
        try:
            while True:
                effect = flow.send(value) if error is None else flow.throw(error)
                value, error = None, None
                try:
                    if type(effect) is Send:
                        value = exchange = self._transport.send(
                            effect.request,
                            until=effect.until,
                            connect=effect.connect,
                            clock=self._clock,
                            fresh=effect.fresh,
                        )
                    elif type(effect) is Peek:
                        value = effect.exchange.read(effect.until)  # type: ignore[attr-defined]  # its own
                    else:
                        value = self._perform(effect)
                except BaseException as caught:  # noqa: BLE001 - all of them are the flow's to handle
                    error = caught
        except StopIteration as stop:
            result: T = stop.value
            return result
        except BaseException:
            if exchange is not None:
                exchange.close()
            raise
        finally:
            error = None  # or the exception and this frame keep each other alive
            flow.close()
            if loop is not None and not SyncDriver._warned and self._clock.monotonic() - began > BLOCKING:
                SyncDriver._warned = True
                _log.warning("a sync call blocked a running event loop for over %g s; use AsyncClient here", BLOCKING)

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case Park(ticket=ticket):
                self._park(ticket)
            case Close(exchange=exchange, drain=drain):
                # A driver gets its own exchanges back.
                (exchange.finish if drain else exchange.close)()  # type: ignore[attr-defined]
            case Sleep(seconds=seconds):
                time.sleep(seconds)
            case Invoke(function=function, args=args, until=until):
                left = None if until is None else until - self._clock.monotonic()
                result = function(*args) if left is None else call_within(left, function, args)
                if inspect.isawaitable(result):
                    if inspect.iscoroutine(result):
                        result.close()
                    raise ConfigError(f"{function!r} is async and cannot serve a sync client; use AsyncClient")
                return result
            case _:
                raise TypeError(f"no driver knows {effect!r}")
        return None

    def _park(self, ticket: Ticket) -> None:
        loop = asyncio._get_running_loop()  # noqa: SLF001 - None instead of an exception
        if loop is not None and self._gate.holds(id(loop)):
            raise RuntimeError(
                "would deadlock: this thread's event loop holds the slots that the sync call waits for; "
                "use AsyncClient here"
            )
        waker = ThreadWaker()
        ticket.waker = waker
        if ticket.settled:
            return
        keeper = self._keeper
        keeper.enter(waker)
        try:
            while not ticket.settled:
                waker.wait(keeper.nap(waker))
                if not ticket.settled:
                    self._gate.pump(self._clock.monotonic())
        finally:
            keeper.leave(waker)
            ticket.waker = None


class SyncBody:
    """A live body in a thread: parsed chunks, or raw bytes; settles its permit however it ends."""

    def __init__(self, delivery: Delivery, driver: SyncDriver) -> None:
        self.delivery = delivery
        self._driver = driver
        self._chunks: deque[Chunk] = deque(delivery.chunks)
        self._raw: deque[bytes] = deque(delivery.raw)

    def __iter__(self) -> Iterator[Chunk]:
        """Iterate over parsed chunks."""
        return self

    def __next__(self) -> Chunk:
        """Return the next chunk.

        Raises:
            LLMClientError: the stream broke; `.partial` has the text so far.
        """
        while not self._chunks:
            if self._more() is None:
                raise StopIteration
        return self._chunks.popleft()

    def next_bytes(self) -> bytes | None:
        """Return the next raw bytes, None at the end; for whoever parses by himself. Raises as the iteration."""
        if self._raw:
            return self._raw.popleft()
        data = self._more()
        self._chunks.clear()
        return data

    def close(self) -> None:
        """Give up the rest: the server sees the disconnect, the permit is free. Idempotent."""
        self.delivery.give_up()
        self._driver.run(closing(self.delivery))

    def _more(self) -> bytes | None:
        try:
            piece = self._driver.run(read_on(self.delivery))
        except BaseException as error:
            if not isinstance(error, LLMClientError):  # cancelled or interrupted: nobody will read on
                self.close()
            raise
        if piece is None:
            return None
        data, chunks = piece
        self._chunks += chunks
        return data

    def __del__(self) -> None:
        """Give the slot back when nobody reads on."""
        self.delivery.lose()
