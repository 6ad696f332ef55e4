"""The driver of virtual time: the same flows, no sockets, and a clock that jumps to the next event."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from math import inf
from types import GeneratorType
from typing import Any, Generic, Protocol, TypeVar

from llm_client.core.gate import Gate
from llm_client.core.ticket import Ticket
from llm_client.flow.effects import Close, Effect, Fault, FaultKind, Flow, Invoke, Park, Peek, Race, Send, Sleep
from llm_client.model import Headers, Request

T = TypeVar("T")

# Any fixed instant serves as the wall clock's origin: simulations must not depend on the day they run.
EPOCH = 1_800_000_000.0


class World:
    """An event loop in virtual time: a heap of instants and what happens at them. Also its clock.

    Attributes:
        now: seconds since the start.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._seq = count()

    def monotonic(self) -> float:
        """Seconds since the start."""
        return self.now

    def wall(self) -> float:
        """Seconds of a wall clock that started at a fixed instant."""
        return EPOCH + self.now

    def at(self, when: float, act: Callable[..., object], *args: Any) -> None:
        """Let something happen at `when`, or now if that is past; inf is never."""
        if when != inf:
            heapq.heappush(self._heap, (max(when, self.now), next(self._seq), act, args))

    def run(self, until: float = inf, *, done: Callable[[], bool] | None = None) -> float:
        """Let time pass until nothing is left to happen, `until`, or `done()`; return the time."""
        while self._heap and self._heap[0][0] <= until and not (done is not None and done()):
            self.now, _, act, args = heapq.heappop(self._heap)
            act(*args)
        if until != inf and not (done is not None and done()):
            self.now = max(self.now, until)
        return self.now


class VirtualExchange:
    """A response in virtual time: a modelled server pushes, a flow reads.

    Attributes:
        request: what was sent.
        gone: the client closed it; a server should stop working on it.
        on_gone: set by the server, called when the client closes before the end.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.status = 0
        self.headers = Headers()
        self.gone = False
        self.on_gone: Callable[[], None] | None = None
        self._chunks: deque[bytes | None] = deque()
        self._fault: Fault | None = None
        self._waiter: Callable[[], None] | None = None
        self._over = False

    def respond(self, status: int, headers: Headers | None = None) -> None:
        """Send the response head."""
        self.status = status
        self.headers = headers or Headers()
        self._notify()

    def push(self, data: bytes) -> None:
        """Send a piece of the body."""
        self._chunks.append(data)
        self._notify()

    def end(self) -> None:
        """End the body cleanly."""
        self._chunks.append(None)
        self._over = True
        self._notify()

    def fail(self, kind: FaultKind, *, sent: bool = True) -> None:
        """Break the connection."""
        self._fault = Fault(kind, "", sent)
        self._over = True
        self._notify()

    def close(self) -> None:
        """Leave, as the client."""
        if not self.gone:
            self.gone = True
            if not self._over and self.on_gone is not None:
                self.on_gone()

    abandon = close

    def unbound(self) -> None:
        """Bodies have no bound here."""

    def _notify(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter()


class VirtualServer(Protocol):
    """A modelled network with its servers."""

    def receive(self, exchange: VirtualExchange) -> None:
        """Take a request in; answer now or later through the exchange."""
        ...


class VirtualKeeper:
    """Keeps time for the parked calls of one gate."""

    def __init__(self, gate: Gate, world: World) -> None:
        self._gate = gate
        self._world = world
        self._at = inf

    def arm(self, at: float) -> None:
        """Pump at `at` or earlier."""
        if at < self._at:
            self._at = at
            self._world.at(at, self._pump, at)

    def poke(self) -> None:
        """Pump soon."""
        self._world.at(self._world.now, self._gate.pump, self._world.now)

    def _pump(self, at: float) -> None:
        if at == self._at:
            self._at = inf
            self.arm(self._gate.pump(self._world.now))


class VirtualDriver:
    """Runs flows as processes of a world. One per gate."""

    def __init__(self, gate: Gate, server: VirtualServer, world: World) -> None:
        self._server = server
        self._world = world
        gate.join(VirtualKeeper(gate, world))

    def start(self, flow: Flow[T], done: Callable[[T | None, BaseException | None], None]) -> Process[T]:
        """Run a flow from now on; `done` gets its result or its exception."""
        process = Process(flow, done, self._world, self._server)
        process.step()
        return process


class Process(Generic[T]):
    """One flow on its way through virtual time."""

    def __init__(
        self,
        flow: Flow[T],
        done: Callable[[T | None, BaseException | None], None],
        world: World,
        server: VirtualServer,
    ) -> None:
        self._flow = flow
        self._done = done
        self._world = world
        self._server = server
        self._exchange: VirtualExchange | None = None
        self._turn = 0  # every suspension has its own number; a late timer or wake-up of another is void
        self._suspended = False
        self._race: _Race | None = None

    def cancel(self, error: BaseException) -> None:
        """Throw an exception in where the flow waits now."""
        if self._suspended:
            self._turn += 1
            self._suspended = False
            if self._race is not None:
                self._race.stop(error)
            self.step(error=error)

    def step(self, value: Any = None, error: BaseException | None = None) -> None:
        """Advance the flow until it waits or ends."""
        self._suspended = False
        try:
            while True:
                effect = self._flow.send(value) if error is None else self._flow.throw(error)
                value, error = None, None
                try:
                    ready, value = self._perform(effect)
                except Exception as caught:  # noqa: BLE001 - all of them are the flow's to handle
                    error = caught
                    continue
                if not ready:
                    self._suspended = True
                    return
        except StopIteration as stop:
            self._done(stop.value, None)
        except BaseException as failure:  # noqa: BLE001 - handed to whoever started the process
            if self._exchange is not None:
                self._exchange.close()
            self._done(None, failure)

    def _perform(self, effect: Effect) -> tuple[bool, Any]:
        world = self._world
        match effect:
            case Send(request=request, until=until):
                exchange = self._exchange = VirtualExchange(request)
                self._server.receive(exchange)
                return self._await(exchange, until, lambda: exchange.status != 0, lambda: exchange)
            case Peek(exchange=exchange, until=until):
                assert isinstance(exchange, VirtualExchange)  # noqa: S101 - a driver gets its own exchanges back
                chunks = exchange._chunks  # noqa: SLF001 - two halves of one mechanism
                return self._await(exchange, until, lambda: bool(chunks), chunks.popleft)
            case Park(ticket=ticket):
                return self._park(ticket)
            case Close(exchange=exchange):
                assert isinstance(exchange, VirtualExchange)  # noqa: S101 - as above
                exchange.close()
            case Sleep(seconds=seconds):
                self._turn += 1
                world.at(world.now + seconds, self._resume, self._turn)
                return False, None
            case Invoke(function=function, args=args, until=until):
                result = function(*args)
                if not isinstance(result, GeneratorType):
                    return True, result
                return self._aside(result, until)
            case Race():
                self._turn += 1
                turn = self._turn
                self._race = _Race(effect, world, self._server, lambda value, error: self._raced(turn, value, error))
                self._race.begin()
                return False, None
        return True, None

    def _aside(self, slow: Flow[Any], until: float | None) -> tuple[bool, Any]:
        """Let user code take its time: here it is a flow, which mostly sleeps."""
        self._turn += 1
        turn = self._turn
        process = Process(slow, lambda value, error: self._raced(turn, value, error), self._world, self._server)
        process.step()
        if until is not None:
            late = Fault(FaultKind.DEADLINE, "a function of the user's gave nothing in time", sent=False)
            self._world.at(until, process.cancel, late)
        return False, None

    def _raced(self, turn: int, value: Any, error: BaseException | None) -> None:
        def go() -> None:
            if turn == self._turn and self._suspended:
                self._race = None
                self.step(value, error)

        self._world.at(self._world.now, go)

    def _park(self, ticket: Ticket) -> tuple[bool, Any]:
        if ticket.settled:
            return True, None
        self._turn += 1
        ticket.waker = _Waker(self, self._turn)
        return False, None

    def _await(
        self, exchange: VirtualExchange, until: float, ready: Callable[[], bool], take: Callable[[], Any]
    ) -> tuple[bool, Any]:
        """Wait for the server's next move, at most until `until`."""
        if ready():
            return True, take()
        if exchange._fault is not None:  # noqa: SLF001 - two halves of one mechanism
            raise exchange._fault  # noqa: SLF001
        self._turn += 1
        turn = self._turn

        def wake(*, late: bool = False) -> None:
            if turn != self._turn or not self._suspended:
                return
            self._turn += 1
            exchange._waiter = None  # noqa: SLF001
            if ready():
                self.step(take())
            elif exchange._fault is not None:  # noqa: SLF001
                self.step(error=exchange._fault)  # noqa: SLF001
            elif late:
                exchange.close()
                self.step(error=Fault(FaultKind.READ_TIMEOUT, "out of time"))

        exchange._waiter = lambda: self._world.at(self._world.now, wake)  # noqa: SLF001
        self._world.at(until, lambda: wake(late=True))
        return False, None

    def _resume(self, turn: int) -> None:
        if turn == self._turn and self._suspended:
            self.step()


class _Ended(BaseException):
    """Thrown into a flow that lost, as an event loop throws its cancellation."""


class _Race:
    """Two flows of a process side by side."""

    def __init__(
        self,
        race: Race,
        world: World,
        server: VirtualServer,
        done: Callable[[Any, BaseException | None], None],
    ) -> None:
        self._race = race
        self._world = world
        self._server = server
        self._done = done
        self._running: list[Process[Any]] = []
        self._first: tuple[Any, BaseException | None] | None = None
        self._over = False

    def begin(self) -> None:
        """Start the first flow, and the clock of the second."""
        self._start(self._race.first, first=True)
        self._world.at(self._world.now + self._race.after, self._second)

    def stop(self, error: BaseException) -> None:
        """End both: the process was cancelled."""
        self._over = True
        running, self._running = self._running, []
        for process in running:
            process.cancel(error)

    def _start(self, flow: Flow[Any], *, first: bool) -> None:
        process: Process[Any] = Process(
            flow, lambda value, error: self._ended(process, value, error, first=first), self._world, self._server
        )
        self._running.append(process)
        process.step()

    def _second(self) -> None:
        if self._over or self._first is not None:
            return
        flow = self._race.second()
        if flow is not None:
            self._start(flow, first=False)

    def _ended(self, process: Process[Any], value: Any, error: BaseException | None, *, first: bool) -> None:
        if process in self._running:
            self._running.remove(process)
        if self._over:
            if error is None and (exchange := self._race.discard(value)) is not None:
                exchange.abandon()
            return
        if first:
            self._first = (value, error)
        if (error is None and self._race.wins(value)) or (first and error is not None):
            self.stop(_Ended())
            self._done(value, error)
        elif not self._running and self._first is not None:
            self._over = True
            self._done(*self._first)


class _Waker:
    """Resumes a parked process at the present instant."""

    __slots__ = ("_process", "_turn")

    def __init__(self, process: Process[Any], turn: int) -> None:
        self._process = process
        self._turn = turn

    def wake(self) -> None:
        process = self._process
        process._world.at(process._world.now, process._resume, self._turn)  # noqa: SLF001
