"""What the end of an attempt teaches: one outcome, fed to limit, circuit, cool-down and buckets."""

from __future__ import annotations

from llm_client.core.admission import Notices
from llm_client.core.breaker import judge
from llm_client.core.bucket import Reservation
from llm_client.core.permit import Permit
from llm_client.events import CoolDownStarted
from llm_client.model import Kind, Outcome, Usage

# How long to leave a server alone that says it is loading and does not say for how long.
LOADING_PAUSE = 5.0
# No server's word silences an endpoint for longer than this; what it asked for beyond it is for the
# caller to see, not for us to sleep on.
LONGEST_PAUSE = 120.0


def book_first(permit: Permit, now: float, notices: Notices) -> None:
    """Book the first content of a stream: the endpoint works, whatever becomes of the rest."""
    permit.accepted = True
    permit.station.limit.first(permit.slot, now)
    breaker = permit.station.breaker
    slow = breaker.config.slow_first_token
    breaker.settle(permit.lease, now, "success", slow=slow is not None and now - permit.sent_at > slow)
    notices.events += permit.station.news(now)


def settle(
    permit: Permit,
    outcome: Outcome | None,
    now: float,
    usage: Usage | None,
    notices: Notices,
    *,
    guarded: bool = False,
) -> None:
    """Give a permit back.

    Args:
        permit: what the attempt was sent under.
        outcome: what it taught; None when it was cancelled or never sent: no lesson is drawn.
        now: monotonic seconds.
        usage: tokens as the server counted them.
        notices: receives events.
        guarded: enough endpoints are out of service: failure rates do not take out another.
    """
    permit.open = False
    station, slot = permit.station, permit.slot
    station.outstanding -= 1
    station.tokens = max(0.0, station.tokens - permit.tokens) if station.outstanding else 0.0
    if outcome is None:
        station.limit.dropped(slot, now)
        station.breaker.settle(permit.lease, now, "neutral")
        if permit.reservation is not None:
            permit.reservation.keep(now)
    else:
        _limit(permit, outcome, now, usage)
        _circuit(permit, outcome, now, guarded=guarded)
        if outcome.kind is Kind.UNAVAILABLE:
            _cool(permit, outcome, now, notices)
        if permit.reservation is not None:
            _meter(permit, permit.reservation, outcome, now, usage)
        station.note(now, failed=not outcome.ok and (outcome.breaker or outcome.refusal))
    notices.events += station.news(now)


def _limit(permit: Permit, outcome: Outcome, now: float, usage: Usage | None) -> None:
    limit, slot = permit.station.limit, permit.slot
    if outcome.ok:
        permit.station.served.add(now)
        permit.station.forecast.note(now - permit.sent_at, None if usage is None else usage.completion_tokens)
        limit.done(
            slot,
            now,
            prompt_tokens=permit.prompt if usage is None or usage.prompt_tokens is None else usage.prompt_tokens,
            output_tokens=None if usage is None else usage.completion_tokens,
        )
    elif outcome.overload:
        limit.refused(slot, now, None if outcome.hint is None else min(outcome.hint.seconds, LONGEST_PAUSE))
    elif outcome.sent and outcome.kind is not None and not outcome.refusal:
        limit.failed(slot, now)
    else:
        limit.dropped(slot, now)


def _circuit(permit: Permit, outcome: Outcome, now: float, *, guarded: bool) -> None:
    """Refusals are neutral, unless nothing of ours is in flight there: a server that only refuses is left alone."""
    station = permit.station
    breaker = station.breaker
    hint = None if outcome.hint is None else outcome.hint.seconds
    if permit.accepted:
        if outcome.breaker:
            breaker.broke(permit.lease, now, retry_after=hint)
        return
    verdict = judge(outcome, breaker.config.counts)
    lonely = verdict == "neutral" and outcome.overload and station.outstanding == 0
    breaker.settle(permit.lease, now, verdict, retry_after=hint, lonely=lonely, guarded=guarded)


def _cool(permit: Permit, outcome: Outcome, now: float, notices: Notices) -> None:
    if outcome.hint is not None:
        pause = min(outcome.hint.seconds, LONGEST_PAUSE)
    elif outcome.loading:
        pause = LOADING_PAUSE
    else:
        return
    station = permit.station
    reason = "loading" if outcome.loading else "unavailable"
    if station.cooldown.extend(now, pause, reason):
        notices.events.append(
            CoolDownStarted(at=now, endpoint=station.name, until=station.cooldown.until, reason=reason)
        )


def _meter(permit: Permit, reservation: Reservation, outcome: Outcome, now: float, usage: Usage | None) -> None:
    """Correct what was reserved by what was used, then take in what the server says is left.

    The order matters: the answered call is in the server's books already.
    """
    used = _total(usage)
    if outcome.refusal or not outcome.sent:
        reservation.refund(now)
    elif used is not None:
        reservation.settle(used, now)
    else:
        reservation.keep(now)
    members = () if permit.meter is None else permit.meter.members
    for window in permit.windows:
        if window.remaining is None:
            continue
        for member in members:
            # What one server says is no word on the pool's total or on a model that others serve too.
            if member.dimension == window.dimension and member.scope.startswith(("endpoint ", "account ")):
                member.bucket.observe(window.remaining, window.reset, now, limit=window.limit)


def _total(usage: Usage | None) -> int | None:
    if usage is None or usage.total_tokens is not None:
        return None if usage is None else usage.total_tokens
    if usage.prompt_tokens is None and usage.completion_tokens is None:
        return None
    return (usage.prompt_tokens or 0) + (usage.completion_tokens or 0)
