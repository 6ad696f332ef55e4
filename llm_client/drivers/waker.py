"""How parked calls are woken and who keeps time for them: one timer per event loop, one thread among many."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from math import inf
from queue import Empty, SimpleQueue

from llm_client.clock import Clock
from llm_client.core.gate import Gate

# No timer of ours is later than this: a forgotten wake-up would otherwise be a hang.
LONGEST_NAP = 60.0


class LoopWaker:
    """Wakes one parked coroutine, from any thread."""

    __slots__ = ("_loop", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.future: asyncio.Future[None] = loop.create_future()

    def wake(self) -> None:
        """Let the coroutine look again; a closed loop has nobody to wake."""
        if _running() is self._loop:
            self._set()
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._set)

    def _set(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class LoopKeeper:
    """One timer per event loop that has parked calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, gate: Gate, clock: Clock) -> None:
        self._loop = loop
        self._gate = gate
        self._clock = clock
        self._parked = 0
        self._handle: asyncio.TimerHandle | None = None
        self._at = inf

    def enter(self) -> None:
        """Count a parked call in; the first one starts the timer."""
        self._parked += 1
        if self._parked == 1:
            self._gate.join(self)
        self._arm_here(self._gate.next_event())

    def leave(self) -> None:
        """Count a parked call out; the last one stops the timer."""
        self._parked -= 1
        if not self._parked:
            self._gate.part(self)
            self._cancel()

    def arm(self, at: float) -> None:
        """Pump at `at` or earlier."""
        if at >= self._at:
            return
        if _running() is self._loop:
            self._arm_here(at)
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._arm_here, at)

    def poke(self) -> None:
        """Pump soon; callable from a finalizer."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._pump)

    def _arm_here(self, at: float) -> None:
        if not self._parked or (at >= self._at and self._handle is not None):
            return
        self._cancel()
        delay = min(LONGEST_NAP, max(0.0, at - self._clock.monotonic()))
        self._at = at
        self._handle = self._loop.call_later(delay, self._pump)

    def _cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None
        self._at = inf

    def _pump(self) -> None:
        self._cancel()
        at = self._gate.pump(self._clock.monotonic())
        self._arm_here(at)


class ThreadWaker:
    """Wakes one parked thread; `SimpleQueue.put` is re-entrant, so finalizers may call it."""

    __slots__ = ("_box",)

    def __init__(self) -> None:
        self._box: SimpleQueue[None] = SimpleQueue()

    def wake(self) -> None:
        """Let the thread look again."""
        self._box.put(None)

    def wait(self, timeout: float) -> None:
        """Sleep until woken, at most `timeout` seconds; an interrupt gets through."""
        with contextlib.suppress(Empty):
            self._box.get(timeout=timeout)


class ThreadKeeper:
    """The parked threads of one pool; the one that parks longest keeps time for all."""

    def __init__(self, gate: Gate, clock: Clock) -> None:
        self._gate = gate
        self._clock = clock
        self._lock = threading.Lock()
        self._at = inf  # until when the leader sleeps; a hint
        # Guarded by _lock.
        self._line: deque[ThreadWaker] = deque()

    def enter(self, waker: ThreadWaker) -> None:
        """Join the parked threads."""
        with self._lock:
            self._line.append(waker)
            if len(self._line) == 1:
                self._gate.join(self)

    def leave(self, waker: ThreadWaker) -> None:
        """Stop being parked, and hand the time over to the next."""
        with self._lock:
            led = self._line[0] is waker
            self._line.remove(waker)
            if not self._line:
                self._gate.part(self)
            elif led:
                self._line[0].wake()

    def nap(self, waker: ThreadWaker) -> float:
        """Return how long this thread may sleep: the leader until the gate's next event, the others until woken."""
        line = self._line
        if not line or line[0] is not waker:
            return LONGEST_NAP
        self._at = inf  # whoever arms from here on pokes us, so no earlier instant is missed
        self._at = at = self._gate.next_event()
        return min(LONGEST_NAP, max(0.0, at - self._clock.monotonic()))

    def arm(self, at: float) -> None:
        """Let the leader look at the time again, unless it will do so anyway."""
        if at < self._at:
            self.poke()

    def poke(self) -> None:
        """Wake the leader; callable from a finalizer."""
        with contextlib.suppress(IndexError):
            self._line[0].wake()


def _running() -> asyncio.AbstractEventLoop | None:
    return asyncio._get_running_loop()  # noqa: SLF001 - get_running_loop raises, which costs ten times as much
