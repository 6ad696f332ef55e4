"""The words of a circuit: its settings, what it hands out, and how it reads an outcome."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, Literal, NamedTuple

from llm_client.errors import ConfigError
from llm_client.model import Kind, Outcome

Verdict = Literal["success", "failure", "neutral"]
State = Literal["closed", "open", "half_open", "isolated", "disabled", "metrics_only"]

# What `counts` may name beside "failures": kinds that say something about the endpoint.
_COUNTABLE: Final = frozenset(
    {"failures", *(Kind.RATE_LIMITED, Kind.OVERLOADED, Kind.TIMEOUT, Kind.UNAVAILABLE, Kind.SERVER_ERROR)}
)
_CLASSIC: Final = frozenset({Kind.RATE_LIMITED, Kind.OVERLOADED, Kind.TIMEOUT})
# Errors of the request: whoever answers them is alive.
_ALIVE: Final = frozenset(
    {Kind.BAD_REQUEST, Kind.AUTH, Kind.PERMISSION, Kind.NOT_FOUND, Kind.CONTEXT_LENGTH, Kind.CONTENT_FILTER}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerConfig:
    """When a circuit opens, for how long, and what closes it. Durations are seconds; None switches a rule off.

    Attributes:
        failures: consecutive failures that open it; also refusals in a row with nothing of ours in flight.
        failure_rate: share of failures in the window that opens it, from `minimum` outcomes on.
        slow_rate: share of slow first tokens that opens it, from `minimum` outcomes on.
        slow_first_token: what the owner calls slow; the breaker itself only counts.
        open_base, open_cap: first and longest open time; each opening lasts half as long again as the one before. Half
            of it is random, unless both are equal: then it is exact, as in the classic form.
        probes: calls that may be under way while half-open.
        successes: probes that must succeed to close it.
        counts: "failures" and the kinds of `llm_client.Kind` that count as failures although they are not.
        liveness: bytes of an accepted stream this recent veto the rule of consecutive failures. Not used in the
            classic form, where the number of failures is a promise.
        lease: how long a probe may keep its place without an outcome.
        settled_after: closed for so long, the open time starts at `open_base` again.
        retry_after_cap: a server's "not before" sets the open time up to here.
    """

    enabled: bool = True
    failures: int | None = 5
    failure_rate: float | None = 0.5
    slow_rate: float | None = 0.8
    slow_first_token: float | None = None
    window: float = 30.0
    minimum: int = 10
    open_base: float = 0.5
    open_cap: float = 60.0
    probes: int = 2
    successes: int = 2
    counts: frozenset[str] = frozenset({"failures"})
    liveness: float = 2.0
    lease: float = 30.0
    settled_after: float = 60.0
    retry_after_cap: float = 120.0

    def __post_init__(self) -> None:
        """Refuse numbers that make no circuit.

        Raises:
            ConfigError: names the field and what it takes.
        """
        for name in ("failures", "minimum", "probes", "successes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise _config_error(name, "an int >= 1", value)
        for name in ("failure_rate", "slow_rate"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value <= 1.0:
                raise _config_error(name, "a share above 0 and at most 1", value)
        for name in ("window", "open_base", "open_cap", "lease"):
            value = getattr(self, name)
            if not 0.0 < value < inf:
                raise _config_error(name, "seconds above 0", value)
        if self.open_cap < self.open_base:
            raise _config_error("open_for.cap", f"at least open_for.base ({self.open_base:g} s)", self.open_cap)
        unknown = self.counts - _COUNTABLE
        if unknown or not self.counts:
            raise _config_error("counts", f"one or more of {', '.join(sorted(_COUNTABLE))}", sorted(self.counts))

    @property
    def classic(self) -> bool:
        """Refusals or time-outs count as failures, as in the textbook form."""
        return not _CLASSIC.isdisjoint(self.counts)


def _config_error(name: str, expected: str, value: object) -> ConfigError:
    return ConfigError(f"breaker.{name}: expected {expected}, got {value!r}", path=f"pool.breaker.{name}")


class Pass:
    """The right to make one call to the endpoint; give it back with `Breaker.settle`, once."""

    __slots__ = ("accepted", "ends", "generation", "mark", "probe", "settled")

    def __init__(self, generation: int, *, probe: bool, ends: float, mark: int = -1) -> None:
        """Belong to one generation of the circuit, and of a streak; a probe holds its place until `ends`."""
        self.generation = generation
        self.probe = probe
        self.ends = ends
        self.mark = mark
        self.settled = False
        self.accepted = False


@dataclass(frozen=True, slots=True)
class Refused:
    """No call now. `until` is when to ask again; inf when only an operator changes that."""

    until: float


class Transition(NamedTuple):
    """One change of state, for the event bus. `until` is the end of an open time."""

    old: str
    new: str
    until: float | None
    reason: str


def judge(outcome: Outcome, counts: frozenset[str]) -> Verdict:
    """Read an outcome as a circuit does.

    A refusal proves neither health nor failure and is neutral; so are cancellation, our own deadline, a loading
    model and an empty purse. An error of the request is a success: whoever says 400 is alive.
    """
    if outcome.ok:
        return "success"
    if (outcome.breaker and "failures" in counts) or outcome.kind in counts:
        return "failure"
    return "success" if outcome.kind in _ALIVE and not outcome.refusal else "neutral"
