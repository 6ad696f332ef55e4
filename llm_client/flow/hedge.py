"""The layer that sends a second request elsewhere when the first is slow to begin; whoever answers first is taken."""

from __future__ import annotations

from math import inf

from llm_client.core.permit import Permit
from llm_client.core.ticket import State, Ticket
from llm_client.flow.attempt import attempt
from llm_client.flow.effects import Exchange, Flow, Race
from llm_client.flow.plan import Hedge
from llm_client.flow.run import Failed, Reply, Run, next_place

# An endpoint above this share of its limit would pay for the second request with its own calls.
ROOM = 0.7


def hedged(run: Run, permit: Permit, rule: Hedge) -> Flow[Reply | Failed]:
    """Run an attempt under a permit, with a second one beside it if need be. Gives back what `attempt` would.

    The loser is closed at once and its permit dropped; the call's story holds both, the winner last.
    """
    hedges, started = run.services.hedges, run.now()
    if not run.records:
        hedges.earn(run.plan.name, rule.budget)
    after = (hedges.slow(run.call) if rule.after is None else rule.after) if _may(run, rule) else None
    if after is None:
        alone = yield from attempt(run, permit)
        if isinstance(alone, Reply):
            hedges.began(run.call, _begun(run, started))
        return alone
    second = _Second(run, permit, rule)
    result: Reply | Failed
    ended = False
    try:
        result = yield Race(attempt(run, permit), after, second.start, _answers, _live)
        ended = True
    finally:
        if not ended:  # a flow that never ran has no `finally` of its own; dropping twice is nothing
            permit.drop(run.now())
            second.drop()
    if isinstance(result, Reply):
        # A loser would have taken longer still; leaving it out would make everything look quick.
        hedges.began(run.call, _begun(run, started))
    second.join(result)
    return result


def _may(run: Run, rule: Hedge) -> bool:
    """Tell whether this call may be sent twice: never after a refusal or a failure, which say that all is not well."""
    call = run.call
    return (
        not run.records
        and call.priority <= rule.priority
        and call.cost.prompt <= rule.max_prompt
        and call.replayable
        and call.route != "other"
        and run.plan.retry.unknown_outcome
    )


class _Second:
    """The request beside the first, if it comes to one."""

    def __init__(self, run: Run, first: Permit, rule: Hedge) -> None:
        self._run = run
        self._first = first
        self._rule = rule
        self._permit: Permit | None = None
        self._leg: Run | None = None
        self._before = len(run.records)

    def start(self) -> Flow[Reply | Failed] | None:
        """Return a second attempt; None when it is not paid for, or no other endpoint is free at once."""
        run, now = self._run, self._run.now()
        hedges, gate = run.services.hedges, run.services.gate
        if run.first_token is not None or not hedges.affordable(run.plan.name):
            return None
        permit = self._find(now)
        if permit is None:
            return None
        if not gate.retry_allowed(now):
            permit.drop(now)
            return None
        hedges.spend(run.plan.name)
        self._permit = permit
        self._leg = Run(
            run.call, run.plan, run.services, run.owner, waited=run.waited, started=run.started, before=self._before + 1
        )
        return attempt(self._leg, permit)

    def drop(self) -> None:
        """Give its permit back, if there is one."""
        if self._permit is not None:
            self._permit.drop(self._run.now())

    def join(self, result: Reply | Failed) -> None:
        """Make one story of both, the winner last; numbers stay those that went out."""
        run, leg = self._run, self._leg
        if leg is None:
            return
        if isinstance(result, Reply) and result.run is run:
            run.records[self._before : self._before] = leg.records
            run.before -= len(leg.records)
            return
        leg.before -= len(run.records)
        run.records.extend(leg.records)
        leg.records = run.records

    def _find(self, now: float) -> Permit | None:
        """Ask for a permit elsewhere that is free now: in health, with room, and with nobody waiting for it."""
        run = self._run
        ticket: Ticket = run.ticket()
        ticket.seq, ticket.arrived, ticket.expires = next_place(), now, now
        for station in run.services.gate.stations:
            free = station.breaker.state == "closed" and station.limit.inflight < ROOM * station.limit.limit
            if station is self._first.station or not free:
                ticket.not_before[station.name] = inf
        gate = run.services.gate
        gate.enter(ticket, now)
        return gate.take(ticket) if ticket.state is State.GRANTED else None


def _begun(run: Run, started: float) -> float:
    """Return the seconds until the first content, or the whole plain answer; at least so many, for a loser."""
    return run.now() - started if run.first_token is None else run.first_token


def _answers(result: Reply | Failed) -> bool:
    return isinstance(result, Reply)


def _live(result: Reply | Failed) -> Exchange | None:
    """Give up an answer that came too late; return what is still open of it."""
    if isinstance(result, Reply) and result.delivery is not None:
        result.delivery.give_up()
        exchange: Exchange = result.delivery.exchange
        return exchange
    return None
