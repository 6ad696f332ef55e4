"""Every key of a file's `pool:` section."""

from __future__ import annotations

from typing import Final, get_args

from llm_client.profiles import build, private
from llm_client.profiles.containers import Many, Or, Short, Table, maybe, off
from llm_client.profiles.endpoint_schema import ENDPOINT, SCOPE
from llm_client.profiles.section import Key, Section
from llm_client.profiles.shapes import file_path, flag, number, size, span, whole, word
from llm_client.profiles.types import (
    CEILINGS,
    Affinity,
    BreakerSpec,
    BudgetSpec,
    ClientCert,
    ConcurrencySpec,
    Counted,
    Family,
    HttpSpec,
    LimitKind,
    LimitsSpec,
    OpenFor,
    Order,
    Overflow,
    PoolSpec,
    QueueSpec,
    RetryAfterScope,
    RoutingSpec,
    StoreSpec,
)

_TIERS: Final = ("critical", "high", "normal", "low")


def _tier(name: str, default: float) -> Key:
    doc = f"Share of the load up to which {name} calls are sent."
    return Key(name=name, shape=number(most=1.0, above=True), doc=doc, default=default)


_CEILINGS: Final = Section(
    make=build.ceilings,
    keys=tuple(_tier(*tier) for tier in zip(_TIERS, CEILINGS, strict=True)),
    label=lambda value: "{" + ", ".join(f"{name}: {tier}" for name, tier in zip(_TIERS, value, strict=True)) + "}",
)
QUEUE: Final = Section(
    of=QueueSpec,
    keys=(
        Key(name="size", shape=whole(0), doc="Calls that may wait; 0 lets none wait."),
        Key(name="max_bytes", shape=size(), doc="Bytes that waiting calls may hold in memory."),
        Key(
            name="overflow",
            shape=word(get_args(Overflow)),
            doc="A full queue: reject with a time to come back, drop at once, or wait for room until the deadline.",
        ),
        Key(name="ageing", shape=off(span()), doc="A call that has waited so long rises by one class."),
        Key(
            name="order",
            shape=word(get_args(Order)),
            doc="Inside a class: adaptive serves the newest first while the head is older than lifo_after and nobody "
            "can tell who will be in time, fifo never.",
        ),
        Key(
            name="lifo_after",
            shape=span(zero=True),
            doc="Age of a class's head above which its newest call goes first.",
            only=("order", ("adaptive",)),
        ),
        Key(
            name="ceilings",
            shape=Or(shape=_CEILINGS, words={"off": None, "on": CEILINGS}, null=None),
            doc="Keep room for urgent classes: each class is sent only below its share of the load.",
        ),
    ),
)

CONCURRENCY: Final = Section(
    of=ConcurrencySpec,
    keys=(
        Key(
            name="kind",
            shape=word(get_args(LimitKind)),
            doc="How the limit is set: adaptive finds it, fixed is told, latency aims at a target, off has none.",
        ),
        Key(
            name="max",
            shape=whole(),
            doc="The limit that is found never goes above it.",
            only=("kind", ("adaptive", "latency")),
        ),
        Key(
            name="limit",
            shape=whole(),
            doc="The limit that is told.",
            required=True,
            only=("kind", ("fixed",)),
        ),
        Key(name="target", shape=span(), doc="The latency to aim at.", only=("kind", ("latency",))),
        Key(name="window", shape=whole(), doc="Answers over which latency is judged.", only=("kind", ("latency",))),
        Key(
            name="retry_after_scope",
            shape=word(get_args(RetryAfterScope)),
            doc="What a refused call's Retry-After holds back: that call, or everything to that endpoint.",
            only=("kind", ("adaptive",)),
        ),
        Key(
            name="tokens",
            shape=off(whole()),
            doc="A second limit, in tokens: prompt and output, as estimated, of all calls in flight at an endpoint.",
        ),
    ),
)

_OPEN_FOR: Final = Short(
    short=span(),
    long=Section(
        of=OpenFor,
        make=build.open_for,
        keys=(
            Key(name="base", shape=span(), doc="The first time; each further opening lasts half as long again."),
            Key(name="cap", shape=span(), doc="The longest time."),
        ),
    ),
    wrap=lambda seconds: OpenFor(base=seconds, cap=seconds),
    unwrap=lambda value: value.base if value.base == value.cap else None,
)

BREAKER: Final = off(
    Section(
        of=BreakerSpec,
        keys=(
            Key(name="enabled", shape=flag(), doc="Whether circuits open at all; `breaker: off` says the same."),
            Key(name="failures", shape=whole(), doc="Failures in a row that open the circuit."),
            Key(
                name="failure_rate",
                shape=off(number(most=1.0, above=True)),
                doc="Share of failures in the window that opens the circuit, once it has ten answers.",
            ),
            Key(name="window", shape=span(), doc="Time over which failure_rate and slow_first_token are judged."),
            Key(
                name="open_for",
                shape=_OPEN_FOR,
                doc="How long the circuit stays open before it is probed; one duration keeps it the same each time.",
            ),
            Key(name="probes", shape=whole(), doc="Calls at once that may test a half-open circuit."),
            Key(name="successes", shape=whole(), doc="Probes in a row that must succeed to close the circuit."),
            Key(
                name="counts",
                shape=Many(shape=word(get_args(Counted)), make=frozenset, least=1, unique=True),
                doc="What counts as a failure: `failures` is the evidence of a broken endpoint; more words add to it.",
            ),
            Key(
                name="slow_first_token",
                shape=off(span()),
                doc="A first token later than this counts against the endpoint.",
            ),
        ),
    ),
    BreakerSpec(enabled=False),
)

BUDGET: Final = Section(
    of=BudgetSpec,
    keys=(
        Key(name="ratio", shape=number(most=100), doc="Retries after send, as a share of first attempts."),
        Key(name="burst", shape=whole(), doc="Retries that may be saved up."),
    ),
)

_CERTIFICATE: Final = Short(
    short=file_path(),
    long=Section(
        of=ClientCert,
        keys=(
            Key(name="cert", shape=file_path(), doc="The certificate's PEM file.", required=True),
            Key(name="key", shape=maybe(file_path()), doc="The key's PEM file, if it is another."),
            Key(name="password", shape=maybe(private.password()), doc="The key's password."),
        ),
    ),
    wrap=lambda path: ClientCert(cert=path),
    unwrap=lambda value: value.cert if value.key is None and value.password is None else None,
)

HTTP: Final = Section(
    of=HttpSpec,
    keys=(
        Key(name="family", shape=word(get_args(Family)), doc="The HTTP library beneath."),
        Key(name="trust_env", shape=flag(), doc="Whether HTTP_PROXY, NO_PROXY and SSL_CERT_FILE are obeyed."),
        Key(name="verify", shape=flag(), doc="Whether the server's certificate is checked."),
        Key(name="ca_file", shape=maybe(file_path()), doc="PEM file of the authorities to trust instead of the usual."),
        Key(name="client_cert", shape=maybe(_CERTIFICATE), doc="Certificate that identifies us: a PEM file, or a map."),
        Key(name="proxy", shape=maybe(private.proxy()), doc="URL of a proxy for all endpoints."),
        Key(name="http2", shape=flag(), doc="Whether HTTP/2 is offered."),
        Key(
            name="keepalive",
            shape=span(zero=True),
            doc="How long an idle connection is kept; stay below the server's own time, which is 5s for uvicorn.",
        ),
        Key(name="headers", shape=private.PrivateTable(headers=True), doc="Headers sent with every request."),
        Key(name="query", shape=private.PrivateTable(headers=False), doc="Query parameters sent with every request."),
    ),
)


LIMITS: Final = Section(
    of=LimitsSpec,
    make=build.limits,
    keys=(
        Key(name="total", shape=SCOPE, doc="Limits for everything together."),
        Key(name="accounts", shape=Table(shape=SCOPE, entry="account"), doc="Limits of an account."),
        Key(name="models", shape=Table(shape=SCOPE, entry="model"), doc="Limits of a model, by the name callers use."),
    ),
)

_NO_STORE: Final = "a shared store is not available in this version; write memory, and limits: {fleet_size: ...}"
STORE: Final = Section(
    of=StoreSpec,
    keys=(
        Key(
            name="kind",
            shape=word(("memory",), reserved=("redis", _NO_STORE)),
            doc="Where limits are counted: this process's memory. redis is reserved for a later version.",
        ),
        Key(name="url", shape=private.password(), doc="Reserved: the store's address.", only=("kind", ("redis",))),
        Key(
            name="on_error",
            shape=word(("local",)),
            doc="Reserved: what holds while the store is away.",
            only=("kind", ("redis",)),
        ),
    ),
)

ROUTING: Final = Section(
    of=RoutingSpec,
    keys=(
        Key(
            name="affinity",
            shape=word(get_args(Affinity)),
            doc="prefix: prompts that begin alike go to the same endpoint while it is free and not above its share.",
        ),
        Key(
            name="prefix_bytes",
            shape=whole(),
            doc="How much of a prompt's beginning counts.",
            only=("affinity", ("prefix",)),
        ),
    ),
)

POOL: Final = Section(
    of=PoolSpec,
    keys=(
        Key(name="queue", shape=QUEUE, doc="The one waiting queue."),
        Key(name="concurrency", shape=CONCURRENCY, doc="Calls in flight, per endpoint."),
        Key(name="breaker", shape=BREAKER, doc="The circuit breaker, per endpoint."),
        Key(name="retry_budget", shape=BUDGET, doc="What bounds retries over all calls."),
        Key(name="http", shape=HTTP, doc="The network."),
        Key(name="limits", shape=LIMITS, doc="Rate limits that are wider than an endpoint."),
        Key(name="store", shape=STORE, doc="Where limits are counted."),
        Key(name="routing", shape=ROUTING, doc="Which of several free endpoints takes a call."),
        Key(name="endpoints", shape=Many(shape=ENDPOINT), doc="The servers."),
    ),
)
