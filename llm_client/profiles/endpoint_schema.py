"""Every key of one endpoint, and of the rate limits of one scope."""

from __future__ import annotations

from typing import Any, Final, get_args

from llm_client.profiles import build, private
from llm_client.profiles.containers import Many, Short, Table, maybe, off
from llm_client.profiles.frozen import FrozenMap
from llm_client.profiles.section import Key, Section
from llm_client.profiles.shapes import flag, number, per_time, span, target, text, whole, word
from llm_client.profiles.types import (
    DIALECTS,
    Auth,
    EndpointSpec,
    HealthSpec,
    Pacing,
    PathMode,
    ScopeLimits,
)


def _rate(name: str, what: str) -> Key:
    shape = Short(
        short=per_time(),
        long=Section(
            make=build.rate,
            keys=(
                Key(name="rate", shape=per_time(), doc="The rate.", required=True),
                Key(
                    name="burst",
                    shape=number(1, above=False),
                    doc="How much may go at once after a quiet time; left out, the amount of a whole period.",
                ),
            ),
            label=lambda value: f"{{rate: {per_time().show(value)}, burst: {value.burst:g}}}",
        ),
        wrap=build.as_rate,
        unwrap=lambda value: value if value.burst is None else None,
    )
    return Key(name=name, shape=maybe(shape), doc=f"{what} per time.")


SCOPE: Final = Section(
    of=ScopeLimits,
    make=build.limits_of_scope,
    keys=(
        _rate("requests", "Requests"),
        _rate("tokens", "Tokens, of prompts and answers,"),
        Key(
            name="pacing",
            shape=word(get_args(Pacing)),
            doc="burst spends what was saved up at once; leaky spaces the calls evenly.",
        ),
        Key(
            name="fleet_size",
            shape=whole(),
            doc="So many equal processes share the limit; each takes its part.",
        ),
        Key(
            name="pessimistic",
            shape=flag(),
            doc="Reserve max_tokens in full instead of the expected answer, as some servers do.",
        ),
    ),
)

_TOKEN: Final = Section(
    make=lambda values, _place: build.auth(values["callable"]),
    keys=(
        Key(
            name="callable",
            shape=target(),
            doc="A function, sync or async, that returns the bearer token.",
            required=True,
        ),
    ),
    label=lambda value: f"{{callable: {value}}}",
)
_SIMPLE: Final = tuple(way for way in get_args(Auth) if way != "callable")
_AUTH: Final = Short(
    short=word(_SIMPLE, private=True),
    long=_TOKEN,
    wrap=lambda way: (way, None),
    unwrap=lambda value: value if isinstance(value, str) else value[0],
)


def _names(values: list[Any]) -> FrozenMap[str, str]:
    return FrozenMap({name: name for name in values})


_BASE_URL: Final = Short(
    short=text(),
    long=Section(
        make=lambda values, _place: values["callable"],
        keys=(
            Key(
                name="callable",
                shape=target(),
                doc="A function that returns base URLs: each is an endpoint, and it is asked again every 10 s.",
                required=True,
            ),
        ),
        label=lambda value: f"{{callable: {value[0]}}}",
    ),
    wrap=lambda value: value,
    unwrap=lambda value: value if isinstance(value, str) else None,
)

HEALTH: Final = Section(
    of=HealthSpec,
    keys=(
        Key(
            name="path",
            shape=maybe(text()),
            doc="The route that is asked, from the server's root. Left out: the dialect's own, or /health.",
        ),
        Key(name="every", shape=span(), doc="Time between two questions."),
    ),
)

_MODELS: Final = Short(
    short=Many(shape=text(), make=_names, least=1, unique=True),
    long=Table(shape=text(), entry="alias", least=1),
    wrap=lambda value: value,
    unwrap=lambda value: value if all(name == served for name, served in value.items()) else None,
)

ENDPOINT: Final = Section(
    of=EndpointSpec,
    make=build.endpoint,
    label=lambda value: str(value.name),
    keys=(
        Key(name="name", shape=text(), doc="What it is called in metrics and errors. Left out: host and port."),
        Key(
            name="base_url",
            shape=_BASE_URL,
            doc="Where its routes begin; /v1 is appended to an empty path. dns+http://name:port: every address of it.",
            required=True,
        ),
        Key(
            name="path",
            attr="path_mode",
            shape=word(get_args(PathMode)),
            doc="as_is leaves an empty path empty.",
        ),
        Key(
            name="api_key",
            shape=maybe(private.api_key()),
            doc="Its key: ${VARIABLE} or file:/path. Empty: none is sent.",
        ),
        Key(name="api_key_file", shape=maybe(private.key_file()), default=None, doc="A file that holds the key."),
        Key(
            name="auth",
            shape=_AUTH,
            default=("bearer", None),
            doc="How the key is sent: as a bearer token, as an `api-key` header, not at all, or made by a function.",
        ),
        Key(
            name="account",
            shape=text(),
            doc="Who is billed: endpoints of one account share its limits. Left out: an account of its own.",
            default="",
        ),
        Key(name="dialect", shape=word(DIALECTS), doc="Whose habits the server has; auto reads them all."),
        Key(name="weight", shape=number(most=1e6, above=True), doc="Its share of the calls, against the others'."),
        Key(
            name="models",
            shape=maybe(_MODELS),
            doc="The models it serves, as a list or as {alias: served-name}. Given, it gets only calls for these.",
        ),
        Key(name="limits", shape=SCOPE, doc="Its rate limits."),
        Key(
            name="forward_priority",
            shape=flag(),
            doc="Send the call's priority to the server. Only where it was started with priorities.",
        ),
        Key(name="headers", shape=private.PrivateTable(headers=True), doc="Headers; they win over http.headers."),
        Key(name="query", shape=private.PrivateTable(headers=False), doc="Query parameters; they win over http.query."),
        Key(name="max_context", shape=maybe(whole()), doc="Tokens that prompt and answer may have together."),
        Key(
            name="health",
            shape=off(HEALTH),
            doc="Ask its health route now and then: an open circuit is not probed while the answer is bad.",
        ),
    ),
)
