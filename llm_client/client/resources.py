"""What each route needs, written once for both clients: arguments to a call, a reply to its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from llm_client.client.settings import Settings
from llm_client.compose.calls import make_call
from llm_client.core.cost import measure
from llm_client.flow.run import Reply
from llm_client.model import UNSET, Call, Request
from llm_client.wire import chat
from llm_client.wire.base import Answer, CallOptions, WireModel, split_options
from llm_client.wire.body import dump
from llm_client.wire.chat_answers import ChatCompletion, ChatCompletionChunk
from llm_client.wire.measure import max_output
from llm_client.wire.structured import parse_chat

A = TypeVar("A", bound=Answer)
C = TypeVar("C", bound=WireModel)


@dataclass(frozen=True, slots=True)
class Asked(Generic[A, C]):
    """A call that was asked for, and how to read what comes back.

    Attributes:
        read: a complete reply -> its model.
        chunk: one decoded chunk of a stream -> its model.
        final: the chunks put together -> the model of a call without streaming.
    """

    call: Call
    read: Callable[[Reply], A]
    chunk: Callable[[dict[str, Any]], C]
    final: Callable[[dict[str, Any]], A]


def ask_chat(settings: Settings, arguments: Mapping[str, Any]) -> Asked[ChatCompletion[Any], ChatCompletionChunk]:
    """Make a chat call.

    Raises:
        TypeError: an unknown or missing field.
        ConfigError: a bad option.
    """
    options, fields = split_options(arguments)
    shape = fields.get("response_format")
    body = chat.build_body(cast("chat.ChatParams", _named(settings, fields)), options.get("extra_body"))

    def parsed(answer: ChatCompletion[Any]) -> ChatCompletion[Any]:
        return parse_chat(answer, shape) if isinstance(shape, type) else answer

    def read(reply: Reply) -> ChatCompletion[Any]:
        answer = ChatCompletion[Any].from_bytes(reply.body, status_code=reply.status).with_meta(reply.meta)
        return parsed(answer) if reply.run.fallback is None else answer

    def final(data: dict[str, Any]) -> ChatCompletion[Any]:
        return parsed(ChatCompletion[Any].from_dict(data))

    return Asked(_call(settings, "chat", "chat/completions", body, options), read, ChatCompletionChunk.from_dict, final)


def _named(settings: Settings, fields: dict[str, Any]) -> dict[str, Any]:
    """Fill in the profile's model where a call names none."""
    if fields.get("model") is None and settings.plan.model is not None:
        return {**fields, "model": settings.plan.model}
    return fields


def _call(settings: Settings, route: str, path: str, body: dict[str, Any], options: CallOptions) -> Call:
    headers = dict(settings.headers)
    for name, value in (options.get("extra_headers") or {}).items():
        if value is None:
            headers.pop(name, None)
        else:
            headers[name] = str(value)
    query = {**dict(settings.query), **{k: str(v) for k, v in (options.get("extra_query") or {}).items()}}
    return make_call(
        settings.pool,
        settings.plan,
        Request(path=path, body=dump(body), headers=tuple(headers.items()), query=tuple(query.items())),
        route=route,
        model=body.get("model"),
        stream=bool(body.get("stream")),
        data=body,
        size=measure(body),
        max_tokens=max_output(body),
        priority=options.get("priority", UNSET),
        deadline=options.get("deadline", options.get("timeout", UNSET)),
        fallback=options.get("fallback", UNSET),
        tenant=options.get("tenant"),
    )
