"""The validated, frozen settings of a pool: everything that the profiles of a file share.

Durations are float seconds, sizes int bytes, rates amounts per period. None means switched off, unless a field says
otherwise. The defaults written here are the built-in ones; they stand nowhere else. Each field's meaning is told to
users in docs/reference/profile.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from llm_client.profiles.frozen import FrozenMap
from llm_client.profiles.secret import PrivateMap, Secret

Overflow = Literal["reject", "drop", "wait"]
Order = Literal["adaptive", "fifo"]
LimitKind = Literal["adaptive", "fixed", "latency", "off"]
RetryAfterScope = Literal["call", "endpoint"]
Counted = Literal["failures", "rate_limited", "overloaded", "timeout", "unavailable", "server_error"]
Family = Literal["httpx", "httpx2"]
Pacing = Literal["burst", "leaky"]
Auth = Literal["bearer", "api-key", "none", "callable"]
PathMode = Literal["auto", "as_is"]
Affinity = Literal["off", "prefix"]

# The servers whose habits are known, as `llm_client.wire.dialects` names them; written here as well because a profile
# is read without loading the wire. A test holds the two together.
DIALECTS: Final = (
    *("auto", "vllm", "sglang", "tgi", "llamacpp", "tensorrt", "triton", "lmdeploy", "ollama", "dynamo", "llmd"),
    *("litellm", "ray", "nim", "azure", "openai", "anthropic", "groq", "openrouter", "bedrock", "kong", "envoy"),
    "nginx",
)
# Those that read a priority of their own; elsewhere the field would be ignored or refused.
WITH_PRIORITY: Final = ("vllm", "sglang", "triton")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """The one waiting queue.

    Attributes:
        size: waiting calls at most; 0 means that nobody waits.
        ageing: seconds after which a waiting call rises by one class.
        lifo_after: seconds after which a class serves its newest first; read only when `order` is adaptive.
        ceilings: share of the load up to which a class is sent, indexed by `Priority`.
    """

    size: int = 10_000
    max_bytes: int = 256_000_000
    overflow: Overflow = "reject"
    ageing: float | None = 10.0
    order: Order = "adaptive"
    lifo_after: float = 2.0
    ceilings: tuple[float, float, float, float] | None = None


# The tiers of `queue.ceilings: on`: critical, high, normal, low.
CEILINGS: Final = (1.0, 0.9, 0.7, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencySpec:
    """How many calls an endpoint may have in flight.

    Attributes:
        max: the adaptive and latency forms never go above it.
        limit: the number of the fixed form, else None.
        target: latency in seconds that the latency form aims at.
        window: answers over which the latency form judges.
        tokens: of prompt and output, estimated, that may be in flight as well; None for any number.
    """

    kind: LimitKind = "adaptive"
    max: int = 1024
    limit: int | None = None
    target: float = 2.0
    window: int = 100
    retry_after_scope: RetryAfterScope = "call"
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFor:
    """How long a circuit stays open: `base`, half as long again per opening, at most `cap`; equal: always the same."""

    base: float = 0.5
    cap: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSpec:
    """When an endpoint's circuit opens and closes.

    Attributes:
        failures: in a row, to open.
        failure_rate: share of the window's answers, to open.
        window: seconds of the failure rate and of slow first tokens.
        probes: at most so many at once while half open.
        successes: of probes in a row, to close. Two, because one lucky answer of a half-broken server must not
            bring the whole queue down on it.
        counts: what counts as a failure; `failures` is the default evidence of a broken endpoint.
        slow_first_token: a first token later than this many seconds counts as a failure.
    """

    enabled: bool = True
    failures: int = 5
    failure_rate: float | None = 0.5
    window: float = 30.0
    open_for: OpenFor = OpenFor()
    probes: int = 2
    successes: int = 2
    counts: frozenset[str] = frozenset({"failures"})
    slow_first_token: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSpec:
    """Retries after send, as a share of first attempts; `burst` may be saved up."""

    ratio: float = 0.1
    burst: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCert:
    """A certificate that identifies us to the server: PEM files, and the key's password if it has one."""

    cert: str
    key: str | None = None
    password: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSpec:
    """The HTTP library beneath, and what goes with every request."""

    family: Family = "httpx"
    trust_env: bool = True
    verify: bool = True
    ca_file: str | None = None
    client_cert: ClientCert | None = None
    proxy: Secret | None = None
    http2: bool = False
    keepalive: float = 4.0
    headers: PrivateMap = field(default_factory=PrivateMap)
    query: PrivateMap = field(default_factory=PrivateMap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """`amount` per `period` seconds.

    Attributes:
        burst: how much may go at once after a quiet time; None for a whole period's `amount`. A provider that counts
            in fixed windows may then see up to twice its limit in one: give a smaller burst there.
    """

    amount: float
    period: float
    burst: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeLimits:
    """The rate limits of one scope: an endpoint, an account, a model, or everything.

    Attributes:
        pacing: `burst` spends saved-up tokens at once, `leaky` spaces the calls evenly.
        fleet_size: so many equal processes share the limit without a store; each takes its part.
        pessimistic: reserve `max_tokens` in full, as some servers do, instead of the expected output.
    """

    requests: Rate | None = None
    tokens: Rate | None = None
    pacing: Pacing = "burst"
    fleet_size: int = 1
    pessimistic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSpec:
    """Rate limits that are wider than one endpoint."""

    total: ScopeLimits = ScopeLimits()
    accounts: Mapping[str, ScopeLimits] = field(default_factory=FrozenMap)
    models: Mapping[str, ScopeLimits] = field(default_factory=FrozenMap)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """Where limits are counted. Only this process's memory, for now."""

    kind: Literal["memory"] = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSpec:
    """How an endpoint's health is asked after; `every` in seconds.

    Attributes:
        path: from the server's root; None for the dialect's route, or `/health`.
    """

    path: str | None = None
    every: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSpec:
    """Which of several free endpoints takes a call.

    Attributes:
        prefix_bytes: how much of a prompt's beginning decides where it would rather go.
    """

    affinity: Affinity = "off"
    prefix_bytes: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSpec:
    """One server, or with `dns+http://` or `discover` a group of servers that are found at run time.

    Attributes:
        base_url: normalised: no trailing slash, `/v1` appended to an empty path unless `path_mode` is as_is.
        discover: a function that returns the base URLs of the group; `base_url` then only names it.
        account: who is billed; endpoints of one account share its limits. Left out, the endpoint's own name.
        models: name the caller says -> name the server knows. Given, only these are served; None: any.
        auth: `bearer` and `api-key` send `api_key` if there is one; `callable` asks `token` for a bearer token.
        token: a function, sync or async, that returns the bearer token.
        headers: win over `http.headers`; query: wins over `http.query`.
        max_context: tokens of prompt and answer together; None when not told.
    """

    name: str
    base_url: str
    api_key: Secret | None = None
    account: str = ""
    dialect: str = "auto"
    weight: float = 1.0
    models: Mapping[str, str] | None = None
    auth: Auth = "bearer"
    token: Callable[[], Any] | None = None
    limits: ScopeLimits = ScopeLimits()
    forward_priority: bool = False
    headers: PrivateMap = field(default_factory=PrivateMap)
    query: PrivateMap = field(default_factory=PrivateMap)
    path_mode: PathMode = "auto"
    max_context: int | None = None
    health: HealthSpec | None = None
    discover: Callable[[], Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """An endpoint without an account is one of its own."""
        if not self.account:
            object.__setattr__(self, "account", self.name)

    @property
    def dynamic(self) -> bool:
        """Whether it stands for servers that are found at run time."""
        return self.discover is not None or self.base_url.startswith("dns+")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """Everything that calls share."""

    queue: QueueSpec = QueueSpec()
    concurrency: ConcurrencySpec = ConcurrencySpec()
    breaker: BreakerSpec = BreakerSpec()
    retry_budget: BudgetSpec = BudgetSpec()
    http: HttpSpec = field(default_factory=HttpSpec)
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    store: StoreSpec = StoreSpec()
    routing: RoutingSpec = RoutingSpec()
    endpoints: tuple[EndpointSpec, ...] = ()
