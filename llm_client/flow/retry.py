"""The layer that tries again: refusals go back to the queue, failures cost attempts and budget."""

from __future__ import annotations

from llm_client.core.retry import Stop
from llm_client.core.ticket import Ticket
from llm_client.errors import DeadlineExceededError, LLMClientError, RejectedError
from llm_client.events import RetryScheduled
from llm_client.flow.admission import admit
from llm_client.flow.attempt import attempt
from llm_client.flow.effects import Flow
from llm_client.flow.hedge import hedged
from llm_client.flow.run import Failed, Reply, Run
from llm_client.model import Kind

# Seconds for which a call waits for the others rather than go back to an endpoint that is going: about as long as
# servers take to finish what they have.
ASIDE = 5.0


def with_retry(run: Run) -> Flow[Reply]:
    """Run attempts until one answers, or trying again is no use.

    The call keeps one place in line for its whole life. A wait is not slept here: the ticket enters the
    queue again with the instant before which it may not go to the endpoint that failed it, so it holds no
    slot meanwhile and may go to another endpoint at once.

    Raises:
        LLMClientError: what the last answer said, with every attempt attached; a `RejectedError` only when
            nothing was ever sent; `DeadlineExceededError` when time ran out.
    """
    ticket = run.ticket()
    while True:
        try:
            permit = yield from admit(run, ticket)
        except (RejectedError, DeadlineExceededError) as error:
            word = _last_word(run, error)
            raise word from (error if word is run.last else run.last)
        rule = run.plan.hedge
        result = yield from (attempt(run, permit) if rule is None else hedged(run, permit, rule))
        if isinstance(result, Reply):
            return result
        _weigh(run, ticket, result)


def _weigh(run: Run, ticket: Ticket, failed: Failed) -> None:
    """Raise when this was the end; else set the ticket up for another try."""
    outcome, error, now = failed.outcome, failed.error, run.now()
    free = outcome.refusal or not outcome.sent
    if free:
        run.refusals += 1
    verdict = run.plan.retry.decide(
        outcome,
        error,
        attempt=run.attempts,
        refusals=run.refusals,
        elapsed=now - run.call.arrived,
        now=now,
        deadline=run.deadline,
        rng=run.services.rng,
    )
    why = verdict.reason.value.replace("_", " ") if isinstance(verdict, Stop) else ""
    if not run.call.replayable:
        why = "the request body cannot be sent twice"
    aside = not why and _sidesteps(run, ticket, failed)
    if not why and not free and not aside and not run.services.gate.retry_allowed(now):
        why = "retry budget"
    if why or isinstance(verdict, Stop):
        if outcome.kind is Kind.DEADLINE:
            raise _out_of_time(run, error) from (run.last or error)
        error.add_note(f"not tried again: {why}")
        raise error
    run.last = error
    ticket.returned = True
    ticket.barred_by = "retry_after" if outcome.hint is not None else "backoff"
    until = now + verdict.after
    ticket.expires = min(run.deadline, until + run.plan.max_wait)
    if aside:
        ticket.not_before[failed.endpoint] = max(until, now + ASIDE)
    else:
        for name in _barred(run, ticket, failed):
            ticket.not_before[name] = until
    if run.services.listening:
        run.emit(
            RetryScheduled(
                at=now,
                call=run.call.id,
                profile=run.plan.name,
                endpoint=failed.endpoint,
                kind=outcome.kind or Kind.SERVER_ERROR,
                delay=verdict.after,
                refusal=verdict.refusal,
            )
        )


def _sidesteps(run: Run, ticket: Ticket, failed: Failed) -> bool:
    """Tell whether the endpoint is going or gone while another one is well that has not failed this call.

    A replica that shuts down says 503 to whatever reaches it; one that dies takes along all that it worked on, at
    once. Neither may use up the budget that stands between a failing server and a storm of repetitions. It stays
    bounded: each endpoint is left like this once per call, and attempts are counted as ever.
    """
    outcome = failed.outcome
    going = outcome.kind is Kind.UNAVAILABLE and outcome.status in {None, 503}
    died = outcome.kind is Kind.STREAM_INTERRUPTED and outcome.status is None
    if not (going or died) or not outcome.sent or not outcome.elsewhere:
        return False
    now = run.now()
    others = set(ticket.stations) - {record.endpoint for record in run.records if record.kind is not None}
    return any(each.name in others and each.ready_at(now) <= now for each in run.services.gate.stations)


def _barred(run: Run, ticket: Ticket, failed: Failed) -> tuple[str, ...]:
    """Name the endpoints that this call must leave alone for now.

    A refusal speaks for one endpoint, or for its account when the answer said so. The first failure
    lets the call go to another endpoint at once; from the second on the call backs off everywhere,
    since what fails twice in two places is often the call itself.
    """
    outcome = failed.outcome
    if outcome.refusal or not outcome.sent:
        if outcome.account:
            stations = {station.name: station for station in run.services.gate.stations}
            there = stations.get(failed.endpoint)  # an endpoint that was drained may be gone by now
            if there is not None:
                known = ((name, stations.get(name)) for name in ticket.stations)
                return tuple(name for name, each in known if each is not None and each.account == there.account)
        return (failed.endpoint,)
    return (failed.endpoint,) if run.attempts <= 1 else ticket.stations


def _last_word(run: Run, error: LLMClientError) -> LLMClientError:
    """Prefer what a server said over what we decided afterwards; lost time stays lost time."""
    if run.last is None or isinstance(error, DeadlineExceededError):
        return error
    run.last.add_note(f"not tried again: {error.message}")
    run.last.attempts = tuple(run.records)
    return run.last


def _out_of_time(run: Run, error: LLMClientError) -> DeadlineExceededError:
    return DeadlineExceededError(
        f"the deadline of {run.deadline - run.call.arrived:.6g} s passed during attempt {len(run.records)}",
        endpoint=error.endpoint,
        attempts=tuple(run.records),
    )
