"""The validated, frozen profile: what the pool and its clients are made from.

Durations are float seconds. None means switched off, unless a field says otherwise. The defaults written here are the
built-in profile; they stand nowhere else. The pool's half is in `pool_types`, and can be imported from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from llm_client.model import Kind, Priority
from llm_client.profiles.frozen import FrozenMap
from llm_client.profiles.pool_types import (
    CEILINGS,
    DIALECTS,
    WITH_PRIORITY,
    Affinity,
    Auth,
    BreakerSpec,
    BudgetSpec,
    ClientCert,
    ConcurrencySpec,
    Counted,
    EndpointSpec,
    Family,
    HealthSpec,
    HttpSpec,
    LimitKind,
    LimitsSpec,
    OpenFor,
    Order,
    Overflow,
    Pacing,
    PathMode,
    PoolSpec,
    QueueSpec,
    Rate,
    RetryAfterScope,
    RoutingSpec,
    ScopeLimits,
    StoreSpec,
)
from llm_client.profiles.secret import PrivateMap, Secret

__all__ = [
    "CEILINGS",
    "DEFAULT",
    "DIALECTS",
    "FALLBACK_ON",
    "WITH_PRIORITY",
    "Affinity",
    "Auth",
    "BackoffKind",
    "BackoffSpec",
    "BackpressureKind",
    "BackpressureSpec",
    "BreakerSpec",
    "BudgetSpec",
    "CachedFallback",
    "CallableFallback",
    "ClientCert",
    "ConcurrencySpec",
    "Counted",
    "Covers",
    "EndpointSpec",
    "FallbackSpec",
    "Family",
    "File",
    "FrozenMap",
    "HealthSpec",
    "HedgeSpec",
    "HttpSpec",
    "LimitKind",
    "LimitsSpec",
    "ModelFallback",
    "OpenFor",
    "Order",
    "Overflow",
    "Pacing",
    "PathMode",
    "PoolSpec",
    "PrivateMap",
    "Profile",
    "ProfileFallback",
    "QueueSpec",
    "Rate",
    "RetryAfterScope",
    "RetrySpec",
    "RoutingSpec",
    "ScopeLimits",
    "Secret",
    "StaticFallback",
    "StoreSpec",
    "Timeouts",
]

Covers = Literal["end", "first_token"]
BackoffKind = Literal["full_jitter", "equal_jitter", "decorrelated", "exponential", "constant"]
BackpressureKind = Literal["queue_depth", "latency"]

DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Bounds inside the deadline, in seconds.

    Attributes:
        attempt: one whole attempt.
        first_token: streams, from send to the first content.
        progress: streams, between two pieces of content.
        liveness: streams, between two bytes of any kind.
    """

    connect: float | None = 5.0
    attempt: float | None = None
    first_token: float | None = 120.0
    progress: float | None = 300.0
    liveness: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffSpec:
    """The wait before another attempt, in seconds; `cap` is not read by the constant kind."""

    kind: BackoffKind = "full_jitter"
    base: float = 0.5
    cap: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySpec:
    """How often a call is tried.

    Attributes:
        attempts: requests sent that came to failure or success, the first included.
        refusals: times a call may be refused and queue again.
        retry_after_cap: a server that asks for a longer wait (seconds) gets none: the call fails at once.
        unknown_outcome: try again also when the server may have processed the request.
    """

    attempts: int = 5
    refusals: int = 50
    backoff: BackoffSpec = BackoffSpec()
    retry_after_cap: float = 120.0
    unknown_outcome: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BackpressureSpec:
    """When the producer is told to slow down, before it makes a call.

    Attributes:
        watch: from this load ratio on, pressure is medium.
        refuse: from this load ratio on, new calls are refused.
        target: latency in seconds that is load 1.0; None for the queue_depth kind.
        window: answers that the latency is taken over; None for the queue_depth kind.
    """

    kind: BackpressureKind = "queue_depth"
    watch: float = 0.5
    refuse: float = 0.8
    target: float | None = None
    window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgeSpec:
    """A second request to another endpoint when the first is slow to begin.

    Attributes:
        after: seconds without a first byte; None for the 95th percentile seen, never under half a second.
        budget: hedges as a share of calls.
        priority: the least urgent class that may hedge.
        max_prompt: prompts of more tokens are not sent twice.
    """

    after: float | None = None
    budget: float = 0.05
    priority: Priority = Priority.HIGH
    max_prompt: int = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFallback:
    """A fixed text, for chat, completions and responses without tools or `response_format`."""

    kind: ClassVar[str] = "static"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallableFallback:
    """A Python function of the user's; `target` is how the profile named it.

    Attributes:
        function: resolved at load; called with the call and the error.
    """

    kind: ClassVar[str] = "callable"
    target: str
    function: Callable[..., Any] = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFallback:
    """The same call under another profile of the file."""

    kind: ClassVar[str] = "profile"
    profile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFallback:
    """The same call to another model.

    Attributes:
        rename, drop, set: what becomes of the body's fields, in this order: names that model has for them, fields
            it lacks, and values that it needs.
    """

    kind: ClassVar[str] = "model"
    model: str
    rename: Mapping[str, str] = field(default_factory=FrozenMap)
    drop: tuple[str, ...] = ()
    set: Mapping[str, Any] = field(default_factory=FrozenMap)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedFallback:
    """The answer an identical call got before; `ttl` in seconds."""

    kind: ClassVar[str] = "cached"
    max_entries: int = 1000
    ttl: float = 3600.0


FallbackSpec = StaticFallback | CallableFallback | ProfileFallback | ModelFallback | CachedFallback

# Shed, refused, or gone: what another answer can help with. A bad request stays a bad request elsewhere.
FALLBACK_ON: Final[frozenset[str]] = frozenset(
    {
        Kind.CIRCUIT_OPEN,
        Kind.QUEUE_FULL,
        Kind.QUEUE_TIMEOUT,
        Kind.DEADLINE_UNREACHABLE,
        Kind.RATE_LIMITED_LOCALLY,
        Kind.OVERLOADED,
        Kind.RATE_LIMITED,
        Kind.UNAVAILABLE,
        Kind.QUOTA_EXHAUSTED,
        Kind.TIMEOUT,
        Kind.SERVER_ERROR,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How one kind of work uses the pool.

    Attributes:
        deadline: seconds for the whole call, queue included; None: unbounded.
        queue_max_wait: seconds in the queue; None: as long as the deadline allows.
        endpoints: names of the endpoints that may serve it; None: all.
        model: used when a call names none.
        measure_first_token: ask the server to stream plain calls as well, to see their first token.
    """

    name: str = DEFAULT
    priority: Priority = Priority.NORMAL
    deadline: float | None = 600.0
    deadline_covers: Covers = "end"
    timeouts: Timeouts = Timeouts()
    queue_max_wait: float | None = None
    retry: RetrySpec = RetrySpec()
    endpoints: tuple[str, ...] | None = None
    model: str | None = None
    backpressure: BackpressureSpec | None = None
    measure_first_token: bool = False
    hedge: HedgeSpec | None = None
    fallback: tuple[FallbackSpec, ...] = ()
    fallback_on: frozenset[str] = FALLBACK_ON


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A whole profile file, or the built-in profile.

    Attributes:
        profiles: by name; `default` is always there.
        source: the file's path, or a word in angle brackets.
        recipe: what it was made from. A file pickles as its recipe: with references to secrets, never with secrets.
    """

    version: int = 1
    pool: PoolSpec = field(default_factory=PoolSpec)
    profiles: Mapping[str, Profile] = field(default_factory=lambda: FrozenMap({DEFAULT: Profile()}))
    source: str = "<built-in>"
    recipe: Any = field(default=None, repr=False, compare=False)

    def __copy__(self) -> File:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> File:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.recipe is None:
            return (_plain_file, (self.version, self.pool, self.profiles, self.source))
        return (self.recipe.file, ())


def _plain_file(version: int, pool: PoolSpec, profiles: Mapping[str, Profile], source: str) -> File:
    return File(version=version, pool=pool, profiles=profiles, source=source)
