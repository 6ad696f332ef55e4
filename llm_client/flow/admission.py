"""The layer that waits for a turn: from a ticket to a permit, or the reason why there is none."""

from __future__ import annotations

from llm_client.core.breaker import circuit_open_error
from llm_client.core.permit import Permit
from llm_client.core.pressure import PressureRule
from llm_client.core.ticket import State, Ticket
from llm_client.errors import (
    CircuitOpenError,
    DeadlineExceededError,
    DeadlineUnreachableError,
    LLMClientError,
    NotFoundError,
    QueueFullError,
    QueueTimeoutError,
    RateLimitedLocallyError,
)
from llm_client.events import CallGranted, CallQueued
from llm_client.flow.effects import Flow, Park
from llm_client.flow.run import Run
from llm_client.model import Kind

# A wait that operators want to know of, whether anybody counts the short ones or not.
LONG_WAIT = 1.0


def admit(run: Run, ticket: Ticket) -> Flow[Permit]:
    """Wait until the gate grants a permit.

    Raises:
        RejectedError: the queue or the circuit refused; nothing was sent for it.
        DeadlineExceededError: the deadline passed in the queue.
    """
    gate = run.services.gate
    asked = run.now()
    if run.plan.pressure is not None and not ticket.returned:
        _under_pressure(run, run.plan.pressure)
    gate.enter(ticket, asked)
    try:
        if ticket.state is State.WAITING and run.services.listening:
            run.emit(CallQueued(at=asked, call=run.call.id, profile=run.plan.name, waiting=gate.waiting))
        while ticket.state is State.WAITING:
            yield Park(ticket)
        if ticket.state is State.FAILED:
            raise _rejection(run, ticket)
        permit = gate.take(ticket)
    finally:
        if ticket.state is not State.IDLE:
            gate.leave(ticket, run.now())
    if ticket.waited:
        for cause, seconds in ticket.waited.items():
            run.waited[cause] = run.waited.get(cause, 0.0) + seconds
        ticket.waited = {}
    now = run.now()
    if run.services.listening or now - asked > LONG_WAIT:
        cause = max(run.waited, key=lambda each: run.waited[each], default="none")
        run.emit(
            CallGranted(
                at=now,
                call=run.call.id,
                profile=run.plan.name,
                endpoint=permit.endpoint,
                waited=now - asked,
                cause=cause,
                limit=permit.station.limit.limit,
            )
        )
    return permit


def _under_pressure(run: Run, rule: PressureRule) -> None:
    """Refuse a new call when the profile wants its producers to hear of pressure before the queue is full."""
    pressure = run.services.gate.pressure(rule)
    if pressure.level == "high":
        hint = "" if pressure.retry_after is None else f"; try again in {pressure.retry_after:.3g} s"
        raise QueueFullError(
            f"back-pressure: {rule.kind} is at {pressure.ratio:.2f} of its bound, above {rule.refuse:g}{hint}",
            retry_after=pressure.retry_after,
        )


def _rejection(run: Run, ticket: Ticket) -> LLMClientError:
    waited = run.now() - run.call.arrived
    hint = "" if ticket.retry_after is None else f"; try again in {ticket.retry_after:.3g} s"
    names = ", ".join(ticket.stations) or "none"
    match ticket.reason:
        case Kind.QUEUE_FULL:
            depth = run.services.gate.waiting
            message = f"the local queue is full ({depth} calls wait){hint}; raise pool.queue.size or send less"
            error: LLMClientError = QueueFullError(message, retry_after=ticket.retry_after)
        case Kind.QUEUE_TIMEOUT:
            message = f"no endpoint was free within queue.max_wait ({waited:.3g} s){hint}"
            error = QueueTimeoutError(message, retry_after=ticket.retry_after)
        case Kind.CIRCUIT_OPEN:
            error = circuit_open_error(
                f"the circuit of every endpoint ({names}) is open{hint}", retry_after=ticket.retry_after
            )
        case Kind.DEADLINE_UNREACHABLE:
            error = DeadlineUnreachableError(f"the answer cannot come before the deadline{hint}")
        case Kind.RATE_LIMITED_LOCALLY:
            message = f"a local token bucket cannot serve this call before its deadline{hint}"
            error = RateLimitedLocallyError(message, retry_after=ticket.retry_after)
        case Kind.NOT_FOUND:
            error = NotFoundError(
                f"no endpoint of this pool serves model {run.call.model!r}; see pool.endpoints[].models and the "
                f"profile's endpoints"
            )
        case Kind.DEADLINE:
            budget = run.deadline - run.call.arrived
            error = DeadlineExceededError(f"the deadline of {budget:.6g} s passed in the local queue")
        case _:
            raise RuntimeError("the pool is closed")
    error.attempts = tuple(run.records)
    if isinstance(error, CircuitOpenError) and ticket.stations:
        error.endpoint = ticket.stations[0]
    return error
