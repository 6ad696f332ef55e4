"""Every key of a profile file: the specification that loading, editors and the reference page share."""

from __future__ import annotations

from typing import Any, Final, get_args

from llm_client.model import Kind
from llm_client.profiles import build
from llm_client.profiles.containers import Many, Or, Table, maybe, off
from llm_client.profiles.free import anything
from llm_client.profiles.pool_schema import POOL
from llm_client.profiles.section import Key, Section
from llm_client.profiles.shapes import flag, level, number, span, target, text, whole, word
from llm_client.profiles.types import (
    BackoffKind,
    BackoffSpec,
    BackpressureKind,
    CachedFallback,
    Covers,
    FrozenMap,
    HedgeSpec,
    Profile,
    RetrySpec,
    Timeouts,
)

_VERSION: Final = 1

TIMEOUTS: Final = Section(
    of=Timeouts,
    keys=(
        Key(name="connect", shape=off(span()), doc="Making a connection."),
        Key(name="attempt", shape=off(span()), doc="One whole attempt. Without it the deadline bounds a plain answer."),
        Key(name="first_token", shape=off(span()), doc="Streams: from send to the first content."),
        Key(name="progress", shape=off(span()), doc="Streams: between two pieces of content."),
        Key(
            name="liveness",
            shape=off(span()),
            doc="Streams: between two bytes of any kind; only for servers that send keep-alive comments.",
        ),
    ),
)

_BACKOFF_GROWING: Final = tuple(kind for kind in get_args(BackoffKind) if kind != "constant")
RETRY: Final = Section(
    of=RetrySpec,
    make=build.retry,
    keys=(
        Key(
            name="attempts",
            shape=whole(most=100),
            doc="Requests that may fail after they were sent, the first included. 1 also turns refusals off.",
        ),
        Key(
            name="refusals",
            shape=whole(0, most=10_000),
            doc="Times a call may be refused (429, 503 by overload, no connection) and go back to the queue.",
        ),
        Key(
            name="backoff",
            shape=Section(
                of=BackoffSpec,
                keys=(
                    Key(name="kind", shape=word(get_args(BackoffKind)), doc="How the wait grows and is spread."),
                    Key(name="base", shape=span(), doc="The wait that the first retry is drawn from."),
                    Key(
                        name="cap",
                        shape=span(),
                        doc="The longest wait.",
                        only=("kind", _BACKOFF_GROWING),
                    ),
                ),
            ),
            doc="The wait before another attempt.",
        ),
        Key(
            name="retry_after",
            shape=Section(
                of=RetrySpec,
                make=lambda values, _place: values,
                keys=(
                    Key(
                        name="cap",
                        attr="retry_after_cap",
                        shape=span(),
                        doc="A server that asks for a longer wait is not waited for: the call fails at once.",
                    ),
                ),
            ),
            flat=True,
            doc="The server's own time to come back. It is never undercut.",
        ),
        Key(
            name="unknown_outcome",
            shape=flag(),
            doc="Whether a call is repeated that the server may have processed: after a cut or a time-out.",
        ),
    ),
)

BACKPRESSURE: Final = Section(
    make=build.backpressure,
    keys=(
        Key(
            name="kind",
            shape=word(get_args(BackpressureKind)),
            doc="What is watched: how full the queue is, or latency against a target.",
            required=True,
        ),
        Key(
            name="watch",
            shape=number(above=True),
            doc="From this ratio on, pressure is medium; left out, 0.5 of a queue, 1.0 of a latency.",
        ),
        Key(
            name="refuse",
            shape=number(above=True),
            doc="From this ratio on, new calls are refused; left out, 0.8 of a queue, 1.5 of a latency.",
        ),
        Key(
            name="target",
            shape=span(),
            doc="The latency that is ratio 1.",
            default=build.LATENCY["target"],
            only=("kind", ("latency",)),
        ),
        Key(
            name="window",
            shape=whole(),
            doc="Answers that the latency is taken over.",
            default=build.LATENCY["window"],
            only=("kind", ("latency",)),
        ),
    ),
)

HEDGE: Final = Section(
    of=HedgeSpec,
    keys=(
        Key(
            name="after",
            shape=Or(shape=span(), words={"p95": None}),
            doc="Time without a first byte; p95: longer than 95 % of calls took, at least 500ms.",
        ),
        Key(name="budget", shape=number(most=1.0, above=True), doc="Second requests, as a share of calls."),
        Key(name="priority", shape=level(), doc="The least urgent class that may hedge."),
        Key(name="max_prompt", shape=whole(), doc="Prompts of more tokens are not sent twice."),
    ),
)

FALLBACK: Final = Section(
    make=build.fallback,
    label=lambda value: str(value.kind),
    keys=(
        Key(
            name="kind",
            shape=word(("static", "callable", "profile", "model", "cached")),
            doc="What answers instead.",
            required=True,
        ),
        Key(name="text", shape=text(), doc="A fixed text.", required=True, only=("kind", ("static",))),
        Key(
            name="target",
            shape=target(),
            doc="A Python function.",
            required=True,
            only=("kind", ("callable",)),
        ),
        Key(
            name="profile",
            shape=text(),
            doc="Another profile of the file.",
            required=True,
            only=("kind", ("profile",)),
        ),
        Key(name="model", shape=text(), doc="Another model.", required=True, only=("kind", ("model",))),
        Key(
            name="rename",
            shape=Table(shape=text(), entry="field"),
            doc="Fields of the body that the other model calls by another name.",
            default=FrozenMap(),
            only=("kind", ("model",)),
        ),
        Key(
            name="drop",
            shape=Many(shape=text(), unique=True),
            doc="Fields of the body that the other model does not take.",
            default=(),
            only=("kind", ("model",)),
        ),
        Key(
            name="set",
            shape=Table(shape=anything(), entry="field"),
            doc="Fields of the body that are set for the other model.",
            default=FrozenMap(),
            only=("kind", ("model",)),
        ),
        Key(
            name="max_entries",
            shape=whole(),
            doc="Answers kept.",
            default=CachedFallback().max_entries,
            only=("kind", ("cached",)),
        ),
        Key(
            name="ttl",
            shape=span(),
            doc="How long an answer is kept.",
            default=CachedFallback().ttl,
            only=("kind", ("cached",)),
        ),
    ),
)

# Ours and the wire's words for what went wrong; a wrong set-up and a cancelled call have no substitute.
_KINDS: Final = tuple(kind.value for kind in Kind if kind not in {Kind.CONFIG, Kind.CANCELLED})

PROFILE: Final = Section(
    of=Profile,
    make=lambda values, _place: {name: value for name, value in values.items() if name != "extends"},
    keys=(
        Key(
            name="extends",
            shape=maybe(text()),
            default=None,
            doc="Another profile to start from: maps merge, lists are replaced, null takes a key out.",
        ),
        Key(name="priority", shape=level(), doc="Who goes first."),
        Key(name="deadline", shape=off(span()), doc="The whole call, queue and retries included."),
        Key(
            name="deadline_covers",
            shape=word(get_args(Covers)),
            doc="What must have happened by the deadline: the end of the answer, or a stream's first token.",
        ),
        Key(name="timeouts", shape=TIMEOUTS, doc="Bounds inside the deadline."),
        Key(
            name="queue",
            shape=Section(
                of=Profile,
                make=lambda values, _place: values,
                keys=(
                    Key(
                        name="max_wait",
                        attr="queue_max_wait",
                        shape=Or(shape=span(zero=True), words={"deadline": None}),
                        doc="Time in the queue; deadline: as long as the deadline allows.",
                    ),
                ),
            ),
            flat=True,
            doc="Waiting in the pool's queue.",
        ),
        Key(name="retry", shape=RETRY, doc="How often a call is tried."),
        Key(
            name="endpoints",
            shape=Or(shape=Many(shape=text(), least=1, unique=True), words={"all": None}),
            doc="Which endpoints may serve it: all, or a list of names.",
        ),
        Key(name="model", shape=maybe(text()), doc="Used when a call names none."),
        Key(name="backpressure", shape=off(BACKPRESSURE), doc="When the producer is told to slow down."),
        Key(
            name="measure_first_token",
            shape=flag(),
            doc="Ask the server to stream plain calls as well, so that their first token is seen.",
        ),
        Key(
            name="hedge",
            shape=off(HEDGE),
            doc="A second request to another endpoint when the first is slow to begin; async clients only.",
        ),
        Key(name="fallback", shape=off(Many(shape=FALLBACK), ()), doc="What answers instead, in order."),
        Key(
            name="fallback_on",
            shape=Many(shape=word(_KINDS), make=frozenset, least=1, unique=True),
            doc="Which errors call for a fallback.",
        ),
    ),
)


def _version(values: dict[str, Any], place: Any) -> Any:
    if values["version"] != _VERSION:
        return place.fail("version", f"this release reads version {_VERSION}")
    return values


FILE: Final = Section(
    make=_version,
    keys=(
        Key(name="version", shape=whole(), default=_VERSION, doc="Of this format."),
        Key(name="pool", shape=POOL, doc="Shared by all profiles of the file."),
        Key(
            name="profiles",
            shape=Table(shape=PROFILE, entry="name"),
            doc="Views on the pool, by name; `default` is there in any case.",
        ),
    ),
)
