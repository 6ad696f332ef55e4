"""One unit of work on its way through queue and engine, and the one coroutine that waits for it."""

from __future__ import annotations

import asyncio
import enum
import math
from dataclasses import dataclass, field

CLASSES = ("critical", "high", "normal", "low")


class Phase(enum.Enum):
    """Where a job is."""

    NEW = enum.auto()
    QUEUED = enum.auto()
    RUNNING = enum.auto()
    DONE = enum.auto()


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not an error of ours
    """The server says no on purpose.

    Attributes:
        code: the word a client may decide on, such as `queue_full`.
        status: the HTTP status; None lets the settings choose between 429 and 503.
        message: what happened and what to do next.
        kind: the `type` of the error body.
        wait: seconds until another try may help; None when no time can be named.
        param: the field of the request that is at fault.
        headers: more response headers.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        kind: str = "overloaded_error",
        wait: float | None = None,
        param: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Keep what the answer needs."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.kind = kind
        self.wait = wait
        self.param = param
        self.headers = headers


class ClientGoneError(Exception):
    """The client closed its connection; nobody reads the answer."""


@dataclass(slots=True, eq=False, kw_only=True)
class Job:
    """What the engine is asked to do, and how far it is.

    Times are seconds of the event loop's clock. One coroutine waits for a job at a time.
    """

    rank: int = 2
    tie: int = 0
    prompt_tokens: int = 1
    output_tokens: int = 1
    width: int = 1
    blocks: tuple[int, ...] = ()
    stream: bool = False
    deadline: float = math.inf
    arrived: float = 0.0
    started: float = math.nan
    first: float = math.nan
    finished: float = math.nan
    produced: int = 0
    cached_tokens: int = 0
    phase: Phase = Phase.NEW
    error: Exception | None = None
    _waiter: asyncio.Future[None] | None = field(default=None, repr=False)

    @property
    def queue_time(self) -> float:
        """Seconds between arrival and start; 0 while it has not started."""
        return 0.0 if math.isnan(self.started) else self.started - self.arrived

    @property
    def service_time(self) -> float:
        """Seconds in the engine; 0 while it is not done."""
        return 0.0 if math.isnan(self.finished) or math.isnan(self.started) else self.finished - self.started

    def begin(self, now: float) -> None:
        """Leave the queue."""
        self.phase = Phase.RUNNING
        self.started = now
        self._wake()

    def advance(self, produced: int, now: float) -> None:
        """Say how many tokens exist by now."""
        if produced <= self.produced:
            return
        if self.produced == 0:
            self.first = now
        self.produced = produced
        if self.stream:
            self._wake()

    def finish(self, now: float) -> None:
        """All tokens exist; the slot is already free."""
        if self.produced == 0:
            self.first = now
        self.produced = self.output_tokens
        self.finished = now
        self.phase = Phase.DONE
        self._wake()

    def fail(self, error: Exception, now: float) -> None:
        """End without an answer; whoever waits gets `error`."""
        if self.phase is Phase.DONE:
            return
        self.error = error
        self.finished = now
        self.phase = Phase.DONE
        self._wake()

    async def until_started(self) -> None:
        """Wait for a slot; raises what `fail` was given."""
        while self.phase is Phase.QUEUED:
            await self._change()
        if self.error is not None:
            raise self.error

    async def until_progress(self, seen: int) -> None:
        """Wait for more than `seen` tokens or the end; raises what `fail` was given."""
        while self.produced <= seen and self.phase is not Phase.DONE:
            await self._change()
        if self.error is not None:
            raise self.error

    async def until_done(self) -> None:
        """Wait for the end; raises what `fail` was given."""
        while self.phase is not Phase.DONE:
            await self._change()
        if self.error is not None:
            raise self.error

    async def _change(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
