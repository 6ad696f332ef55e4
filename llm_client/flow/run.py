"""One call on its way: what the layers share, and what it has been through."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from itertools import count
from math import inf
from random import Random
from typing import Any

from llm_client.clock import Clock
from llm_client.core.gate import Gate
from llm_client.core.permit import Permit
from llm_client.core.ticket import Ticket
from llm_client.errors import LLMClientError
from llm_client.events import AttemptFinished, CallFinished, Event
from llm_client.flow.affinity import prefix_of
from llm_client.flow.context import roomy
from llm_client.flow.hedges import Hedges
from llm_client.flow.measured import may_stream
from llm_client.flow.plan import Plan, Target
from llm_client.model import AttemptRecord, Call, Headers, Kind, Meta, Outcome, Usage

_seq = count()


def next_place() -> int:
    """Return the next place in line; one counter for the process, so that pools can be merged."""
    return next(_seq)


@dataclass(slots=True, kw_only=True)
class Services:
    """What a pool lends to every call. Shared and thread-safe.

    Attributes:
        emit: receives events; must not raise.
        listening: somebody wants every event, not only the rare ones.
        learn: told the call, its usage and the endpoint after each answer, to mend estimates.
        plain_only: endpoints that were seen not to stream what a plain call asks for.
        prefix_bytes: how much of a prompt's beginning decides where it would rather go; 0 for none.
        asked: endpoints whose dialect was asked after, and when.
    """

    gate: Gate
    clock: Clock
    rng: Random
    targets: MutableMapping[str, Target]
    emit: Callable[[Event], None]
    listening: bool = False
    learn: Callable[[Call, Usage | None], None] | None = None
    plain_only: set[str] = field(default_factory=set)
    prefix_bytes: int = 0
    hedges: Hedges = field(default_factory=Hedges)
    asked: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt that brought no answer: what it taught, and the error its caller would see."""

    outcome: Outcome
    error: LLMClientError
    endpoint: str


@dataclass(slots=True)
class Run:
    """The state of one call under one plan.

    Attributes:
        renewed: endpoints whose token was asked for once more after a 401.
        plain: endpoints that this call asks for no stream any more.
        before: attempts of the call that are counted elsewhere, or are in the records out of turn.
        now: returns monotonic seconds.
        deadline: absolute; inf when there is none.
    """

    call: Call
    plan: Plan
    services: Services
    owner: int | None = None
    records: list[AttemptRecord] = field(default_factory=list)
    waited: dict[str, float] = field(default_factory=dict)
    refusals: int = 0
    resent: bool = False
    reset: bool = False
    last: LLMClientError | None = None
    fallback: str | None = None
    finished: bool = False
    started: float = 0.0
    request_id: str | None = None
    first_token: float | None = None
    limit: float | None = None
    renewed: frozenset[str] = frozenset()
    plain: frozenset[str] = frozenset()
    before: int = 0
    now: Callable[[], float] = field(init=False)
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        """Keep what is asked for over and over."""
        self.now = self.services.clock.monotonic
        self.deadline = inf if self.call.deadline is None else self.call.deadline

    @property
    def number(self) -> int:
        """The next attempt's number, counted from 1."""
        return self.before + len(self.records) + 1

    @property
    def attempts(self) -> int:
        """Requests that cost an attempt: sent, and not merely refused."""
        return sum(not record.refusal for record in self.records)

    def measured(self, endpoint: str) -> bool:
        """Tell whether this plain call is streamed under the hood when it goes to an endpoint."""
        return (
            self.plan.measure_first_token
            and endpoint not in self.plain
            and endpoint not in self.services.plain_only
            and may_stream(self.call)
        )

    def ticket(self) -> Ticket:
        """Make the call's place in line."""
        call, plan, size = self.call, self.plan, self.services.prefix_bytes
        return Ticket(
            seq=next_place(),
            priority=call.priority,
            arrived=call.arrived,
            model=call.model,
            allowed=roomy(call, plan, self.services.targets),
            deadline=self.deadline,
            expires=call.arrived + plan.max_wait,
            cost=call.cost,
            size=call.size,
            stream=call.stream or (plan.measure_first_token and any(map(self.measured, list(self.services.targets)))),
            impatient=plan.circuit_wait <= 0 or (bool(plan.fallback) and Kind.CIRCUIT_OPEN in plan.fallback_on),
            tenant=call.tenant,
            owner=self.owner,
            prefix=prefix_of(call, size) if size else b"",
        )

    def emit(self, event: Event) -> None:
        """Tell the listeners."""
        self.services.emit(event)

    def record(
        self,
        permit: Permit,
        started: float,
        outcome: Outcome,
        *,
        now: float,
        usage: Usage | None = None,
        cancelled: bool = False,
    ) -> None:
        """Write one attempt, which ended at `now`, into the call's story."""
        number = self.number
        kind = Kind.CANCELLED if cancelled else outcome.kind
        self.records.append(
            AttemptRecord(
                number=number,
                endpoint=permit.endpoint,
                started=started,
                elapsed=now - started,
                kind=kind,
                status=outcome.status,
                refusal=outcome.refusal or not outcome.sent,
                retry_after=None if outcome.hint is None else outcome.hint.seconds,
                request_id=outcome.request_id,
            )
        )
        self.request_id = outcome.request_id or self.request_id
        if self.services.listening:
            self.services.emit(
                AttemptFinished(
                    at=now,
                    call=self.call.id,
                    profile=self.plan.name,
                    endpoint=permit.endpoint,
                    number=number,
                    elapsed=now - started,
                    kind=kind,
                    status=outcome.status,
                    refusal=outcome.refusal,
                    prompt_tokens=None if usage is None else usage.prompt_tokens,
                    completion_tokens=None if usage is None else usage.completion_tokens,
                )
            )

    def finish(self, outcome: str) -> None:
        """Say once that the call is over."""
        if self.finished:
            return
        self.finished = True
        if self.services.listening:
            now = self.now()
            self.services.emit(
                CallFinished(
                    at=now,
                    call=self.call.id,
                    profile=self.plan.name,
                    outcome=outcome,
                    elapsed=now - self.started,
                    attempts=self.attempts,
                    refusals=len(self.records) - self.attempts,
                    endpoint=self.records[-1].endpoint if self.records else None,
                    waited=sum(self.waited.values()),
                )
            )

    def meta(self) -> Meta:
        """Explain the call as far as it has come."""
        return Meta(
            endpoint=self.records[-1].endpoint if self.records else None,
            attempts=tuple(self.records),
            waited=dict(self.waited),
            limit=self.limit,
            fallback=self.fallback,
            request_id=self.request_id,
            first_token=self.first_token,
            elapsed=self.now() - self.started,
        )


@dataclass(slots=True)
class Reply:
    """What leaves the stack: a complete body, or one that is still being delivered.

    Attributes:
        body: the whole body when `delivery` is None.
        chunks: the parsed chunks of a stream that ended before it was handed over.
        delivery: the rest of a live body; whoever reads it settles the permit.
        url: where the answer came from, without its query.
    """

    status: int
    headers: Headers
    run: Run
    body: bytes = b""
    delivery: Any = None
    chunks: list[Any] = field(default_factory=list)
    url: str = ""

    @property
    def meta(self) -> Meta:
        """How the answer came about; for a live body, so far."""
        return self.run.meta()
