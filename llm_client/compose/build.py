"""From a validated profile file to the objects that carry calls: targets, stations, plans."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random

from llm_client.compose.meters import Meters
from llm_client.core.adaptive import AdaptiveLimit
from llm_client.core.backoff import Backoff, backoff
from llm_client.core.breaker import Breaker, BreakerConfig
from llm_client.core.concurrency import FixedLimit, Limit, NoLimit
from llm_client.core.cooldown import CoolDown
from llm_client.core.latency_limit import LatencyLimit
from llm_client.core.pressure import PressureRule
from llm_client.core.retry import RetryPolicy
from llm_client.core.station import Station
from llm_client.core.waiting import QueueLimits
from llm_client.errors import ConfigError
from llm_client.flow.answers import Answers
from llm_client.flow.plan import (
    Bounds,
    CachedStep,
    CallableStep,
    Hedge,
    OtherStep,
    Plan,
    StaticStep,
    Step,
    Target,
)
from llm_client.profiles.free import plain
from llm_client.profiles.types import (
    BackoffSpec,
    BreakerSpec,
    CachedFallback,
    CallableFallback,
    ConcurrencySpec,
    EndpointSpec,
    File,
    HedgeSpec,
    HttpSpec,
    ModelFallback,
    PoolSpec,
    Profile,
    ProfileFallback,
    QueueSpec,
    StaticFallback,
)
from llm_client.wire.dialects import dialect


def queue_limits(spec: QueueSpec) -> QueueLimits:
    """Bounds and order of the pool's queue."""
    return QueueLimits(
        size=spec.size,
        max_bytes=spec.max_bytes,
        overflow=spec.overflow,
        ageing=_or_inf(spec.ageing),
        lifo_after=spec.lifo_after if spec.order == "adaptive" else inf,
        ceilings=spec.ceilings,
    )


def target(spec: EndpointSpec, http: HttpSpec, group: str = "") -> Target:
    """Where an endpoint is and what goes with every request to it."""
    headers = {**http.headers, **spec.headers}
    if spec.api_key is not None and spec.auth == "bearer":
        headers["authorization"] = f"Bearer {spec.api_key.reveal()}"
    elif spec.api_key is not None and spec.auth == "api-key":
        headers["api-key"] = spec.api_key.reveal()
    return Target(
        name=spec.name,
        base_url=spec.base_url,
        headers=tuple(headers.items()),
        query=tuple({**http.query, **spec.query}.items()),
        token=spec.token,
        models=spec.models,
        dialect=dialect(spec.dialect),
        forward_priority=spec.forward_priority,
        max_context=spec.max_context,
        group=group,
    )


def station(spec: EndpointSpec, pool: PoolSpec, meters: Meters, rng: Random, group: str = "") -> Station:
    """Make the state that the gate keeps for an endpoint."""
    return Station(
        name=spec.name,
        limit=_limit(pool.concurrency, rng),
        most_tokens=inf if pool.concurrency.tokens is None else float(pool.concurrency.tokens),
        breaker=Breaker(spec.name, _breaker(pool.breaker), rng),
        cooldown=CoolDown(),
        weight=spec.weight,
        account=spec.account,
        models=None if spec.models is None else frozenset(spec.models),
        meter=meters.of(spec),
        group=group,
    )


def plans(file: File) -> Callable[[str], Plan]:
    """Return a function from a profile's name to its plan, made once each."""
    made: dict[str, Plan] = {}
    classic = _breaker(file.pool.breaker).classic

    def plan(name: str) -> Plan:
        found = made.get(name)
        if found is not None:
            return found
        profile = file.profiles.get(name)
        if profile is None:
            known = ", ".join(sorted(file.profiles))
            raise ConfigError(f"profile {name!r} is not in {file.source}; there are: {known}", file=file.source)
        bare = _plan(profile, classic=classic)
        steps = tuple(_steps(profile, bare, plan))
        made[name] = _plan(profile, classic=classic, steps=steps)
        return made[name]

    return plan


def _plan(profile: Profile, *, classic: bool, steps: tuple[Step, ...] = ()) -> Plan:
    times = profile.timeouts
    wait = _or_inf(profile.queue_max_wait)
    return Plan(
        name=profile.name,
        retry=RetryPolicy(
            attempts=profile.retry.attempts,
            refusals=profile.retry.refusals,
            wait=_backoff(profile.retry.backoff),
            cap=profile.retry.retry_after_cap,
            unknown_outcome=profile.retry.unknown_outcome,
        ),
        priority=profile.priority,
        deadline=_or_inf(profile.deadline),
        deadline_covers=profile.deadline_covers,
        bounds=Bounds(
            connect=_or_inf(times.connect),
            attempt=_or_inf(times.attempt),
            first_token=_or_inf(times.first_token),
            progress=_or_inf(times.progress),
            liveness=_or_inf(times.liveness),
        ),
        max_wait=wait,
        circuit_wait=0.0 if classic else wait,  # the textbook's open circuit fails at once
        allowed=profile.endpoints,
        model=profile.model,
        fallback=steps,
        fallback_on=profile.fallback_on,
        pressure=_pressure(profile),
        measure_first_token=profile.measure_first_token,
        hedge=_hedge(profile.hedge),
    )


def _hedge(spec: HedgeSpec | None) -> Hedge | None:
    if spec is None:
        return None
    return Hedge(after=spec.after, budget=spec.budget, priority=spec.priority, max_prompt=spec.max_prompt)


def _pressure(profile: Profile) -> PressureRule | None:
    spec = profile.backpressure
    if spec is None:
        return None
    return PressureRule(kind=spec.kind, watch=spec.watch, refuse=spec.refuse, target=spec.target or 2.0)


def _steps(profile: Profile, bare: Plan, plan: Callable[[str], Plan]) -> list[Step]:
    steps: list[Step] = []
    for spec in profile.fallback:
        match spec:
            case StaticFallback(text=text):
                steps.append(StaticStep(text=text))
            case CallableFallback(function=function):
                steps.append(CallableStep(function=function))
            case ProfileFallback(profile=name):
                steps.append(OtherStep(plan=plan(name), kind="profile"))
            case ModelFallback():
                steps.append(_to_model(spec, bare))
            case CachedFallback(max_entries=entries, ttl=ttl):
                steps.append(CachedStep(answers=Answers(entries, ttl)))
    return steps


def _to_model(spec: ModelFallback, bare: Plan) -> OtherStep:
    return OtherStep(
        plan=bare,
        model=spec.model,
        kind="model",
        rename=spec.rename,
        drop=frozenset(spec.drop),
        set={name: plain(value) for name, value in spec.set.items()},
    )


def _limit(spec: ConcurrencySpec, rng: Random) -> Limit:
    match spec.kind:
        case "adaptive":
            return AdaptiveLimit(rng, maximum=spec.max, retry_after_scope=spec.retry_after_scope)
        case "fixed":
            return FixedLimit(spec.limit or spec.max)
        case "latency":
            return LatencyLimit(target=spec.target, window=spec.window, maximum=spec.max)
        case "off":
            return NoLimit()


def _breaker(spec: BreakerSpec) -> BreakerConfig:
    return BreakerConfig(
        enabled=spec.enabled,
        failures=spec.failures,
        failure_rate=spec.failure_rate,
        slow_first_token=spec.slow_first_token,
        window=spec.window,
        open_base=spec.open_for.base,
        open_cap=spec.open_for.cap,
        probes=spec.probes,
        successes=spec.successes,
        counts=spec.counts,
    )


def _backoff(spec: BackoffSpec) -> Backoff:
    return backoff(spec.kind, spec.base, spec.cap)


def _or_inf(seconds: float | None) -> float:
    return inf if seconds is None else seconds


__all__ = ["plans", "queue_limits", "station", "target"]
