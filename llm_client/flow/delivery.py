"""The rest of a live answer: feeds its bytes to the reader, keeps its clocks, settles its permit at the end.

Pure: the drivers' bodies read bytes, hand them in and do as told.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from llm_client.core.permit import Permit
from llm_client.errors import DeadlineExceededError, LLMClientError
from llm_client.events import FirstContent
from llm_client.flow.effects import Exchange, Fault, FaultKind
from llm_client.flow.run import Run
from llm_client.model import OK, Kind, Outcome
from llm_client.wire.classify import of_fault
from llm_client.wire.failure import to_error
from llm_client.wire.stream import Chunk, StreamReader


class Delivery:
    """One live body. Used by one reader at a time.

    Args:
        run: the call.
        permit: settled when the body ends, breaks, or is given up.
        exchange: where the bytes come from.
        reader: understands the bytes; None for routes that are passed through.
        chunks: parsed while the head was peeked into.
        raw: the bytes of the same.
        started: monotonic second of the send.
    """

    def __init__(
        self,
        run: Run,
        permit: Permit,
        exchange: Exchange,
        reader: StreamReader | None,
        *,
        chunks: list[Chunk],
        raw: list[bytes],
        started: float,
    ) -> None:
        self.run = run
        self.permit = permit
        self.exchange = exchange
        self.reader = reader
        self.chunks = chunks
        self.raw = raw
        self.started = started
        self.open = True
        self.error: LLMClientError | None = None
        now = run.now()
        self._progress = reader.progress if reader is not None else 0
        self._moved = now
        self._heard = now
        self._put: Callable[[bytes], None] | None = None
        self._kept: list[bytes] = []
        self._room = 0

    def keep(self, put: Callable[[bytes], None], most: int) -> None:
        """Hand the whole body to `put` once it has ended well, unless it is longer than `most` bytes."""
        self._put, self._room = put, most
        for data in self.raw:
            self._remember(data)

    def _remember(self, data: bytes) -> None:
        self._room -= len(data)
        self._kept.append(data)
        if self._room < 0:
            self._put = None
            self._kept.clear()

    @property
    def until(self) -> float:
        """When the next bytes must have come, absolute."""
        bounds = self.run.plan.bounds
        deadline = self.run.deadline if self.run.call.deadline_covers == "end" else inf
        return min(deadline, self._moved + bounds.progress, self._heard + bounds.liveness)

    @property
    def ended(self) -> bool:
        """Whether the logical end was seen: nothing that follows matters."""
        return self.reader is not None and (self.reader.ended or self.reader.failure is not None)

    @property
    def text(self) -> str:
        """The text delivered so far."""
        return self.reader.text if self.reader is not None else ""

    def feed(self, data: bytes) -> list[Chunk]:
        """Take bytes in; return the chunks they complete."""
        now = self.run.now()
        self._heard = now
        if self._put is not None:
            self._remember(data)
        self.permit.alive(now)
        if self.reader is None:
            self._moved = now
            return []
        chunks = self.reader.feed(data)
        progress = self.reader.progress
        if progress != self._progress:
            self._progress = progress
            self._moved = now
        return chunks

    def late(self) -> Fault | None:
        """Tell whether a clock ran out although bytes keep coming: comments are not progress."""
        if self.run.now() < self.until:
            return None
        return Fault(FaultKind.READ_TIMEOUT, "no progress in time")

    def end(self) -> LLMClientError | None:
        """Settle at the clean end of the body; return what the caller must see, if anything."""
        return self._settle(OK if self.reader is None else self.reader.end())

    def broke(self, fault: Fault) -> LLMClientError | None:
        """Settle a body that broke off; an answer whose logical end was seen is whole all the same."""
        if self.ended:
            return self.end()
        now = self.run.now()
        if fault.kind is FaultKind.READ_TIMEOUT and now >= self.run.deadline:
            fault = Fault(FaultKind.DEADLINE, "the deadline of the call")
        if self.reader is None:
            return self._settle(of_fault(fault.kind, delivered=True, body_started=True))
        return self._settle(self.reader.cut(fault.kind))

    def give_up(self) -> None:
        """Settle a body that nobody wants any more."""
        if not self.open:
            return
        self.open = False
        now = self.run.now()
        self.permit.drop(now)
        self.run.record(self.permit, self.started, OK, now=now, cancelled=True)
        self.run.finish(Kind.CANCELLED)

    def lose(self) -> None:
        """Settle from a finalizer: takes no locks."""
        if self.open:
            self.open = False
            self.permit.lose()
            self.exchange.abandon()

    def _settle(self, outcome: Outcome) -> LLMClientError | None:
        if not self.open:
            return self.error
        self.open = False
        run, now = self.run, self.run.now()
        usage = self.reader.usage if self.reader is not None else None
        self.permit.settle(outcome, now, usage)
        run.record(self.permit, self.started, outcome, now=now, usage=usage)
        if run.services.learn is not None and outcome.ok:
            run.services.learn(run.call, usage)
        if self._put is not None and outcome.ok:
            self._put(b"".join(self._kept))
        run.finish("ok" if outcome.ok else str(outcome.kind))
        if not outcome.ok:
            self.error = self._error(outcome)
        return self.error

    def _error(self, outcome: Outcome) -> LLMClientError:
        run = self.run
        error = to_error(
            outcome,
            headers=self.exchange.headers,
            endpoint=self.permit.endpoint,
            attempts=tuple(run.records),
            partial=self.text,
        )
        if outcome.kind is not Kind.DEADLINE:
            return error
        late = DeadlineExceededError(
            f"the deadline of {run.deadline - run.call.arrived:.6g} s passed while the answer was being delivered",
            endpoint=self.permit.endpoint,
            attempts=tuple(run.records),
        )
        late.__cause__ = error
        return late


def announce(run: Run, permit: Permit, started: float) -> None:
    """Book the first content of a stream."""
    now = run.now()
    permit.first(now)
    run.first_token = now - started
    if run.services.listening:
        run.services.emit(
            FirstContent(
                at=now, call=run.call.id, profile=run.plan.name, endpoint=permit.endpoint, elapsed=now - started
            )
        )
