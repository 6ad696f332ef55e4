"""What each route needs, written once for both clients: arguments to a call, a reply to its model."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

from llm_client.client.options import deadline_of, fallback_of, parted
from llm_client.client.sending import with_headers, with_query
from llm_client.client.settings import Settings
from llm_client.compose.calls import make_call
from llm_client.errors import ConfigError
from llm_client.flow.run import Reply
from llm_client.model import UNSET, Call, Request
from llm_client.wire import chat, completions, embeddings, ranking, responses, tokenize, transcriptions
from llm_client.wire.base import Answer, CallOptions, WireModel
from llm_client.wire.body import dump
from llm_client.wire.chat_answers import ChatCompletion, ChatCompletionChunk
from llm_client.wire.measure import max_output, measure
from llm_client.wire.models import Model, ModelList
from llm_client.wire.structured import parse_chat, parse_response

A = TypeVar("A", bound=Answer)
C = TypeVar("C", bound=WireModel)
Arguments = Mapping[str, Any]


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


class Health(Answer):
    """A server that answers its health route; whatever it says beside is kept."""

    status: str | None = None


def ask_chat(settings: Settings, arguments: Arguments) -> Asked[ChatCompletion[Any], ChatCompletionChunk]:
    """Make a chat call; a class as `response_format` is parsed into.

    Raises:
        TypeError: an unknown or missing field.
        ConfigError: a bad option.
    """
    options, fields = parted(arguments)
    shape = fields.get("response_format")
    body = chat.build_body(cast("chat.ChatParams", _named(settings, fields)), options.get("extra_body"))

    def parsed(answer: ChatCompletion[Any]) -> ChatCompletion[Any]:
        return parse_chat(answer, shape) if isinstance(shape, type) else answer

    return Asked(
        _call(settings, "chat", "chat/completions", body, options),
        _reader(ChatCompletion[Any], parsed),
        ChatCompletionChunk.from_dict,
        lambda data: parsed(ChatCompletion[Any].from_dict(data)),
    )


def ask_completion(settings: Settings, arguments: Arguments) -> Asked[completions.Completion, completions.Completion]:
    """Make a completions call. Raises as `ask_chat`."""
    options, fields = parted(arguments)
    given = cast("completions.CompletionParams", _named(settings, fields))
    body = completions.build_body(given, options.get("extra_body"))
    model = completions.Completion
    return Asked(
        _call(settings, "completions", "completions", body, options), _reader(model), model.from_dict, model.from_dict
    )


def ask_response(settings: Settings, arguments: Arguments) -> Asked[responses.Response[Any], responses.ResponseEvent]:
    """Make a responses call; a class as `text_format` is parsed into. Raises as `ask_chat`."""
    options, fields = parted(arguments)
    shape = fields.get("text_format")
    given = cast("responses.ResponsesParams", _named(settings, fields))
    body = responses.build_body(given, options.get("extra_body"))

    def parsed(answer: responses.Response[Any]) -> responses.Response[Any]:
        return parse_response(answer, shape) if isinstance(shape, type) else answer

    return Asked(
        _call(settings, "responses", "responses", body, options),
        _reader(responses.Response[Any], parsed),
        responses.ResponseEvent.from_dict,
        lambda data: parsed(responses.Response[Any].from_dict(data)),
    )


def ask_embeddings(
    settings: Settings, arguments: Arguments
) -> list[Asked[embeddings.CreateEmbeddingResponse, WireModel]]:
    """Make an embeddings call, or several where the inputs are more than one call may carry. Raises as `ask_chat`."""
    options, fields = parted(arguments)
    batches = embeddings.split_batches(cast("embeddings.EmbeddingParams", _named(settings, fields)))
    return [_ask_embedding(settings, batch, options) for batch in batches]


def _ask_embedding(
    settings: Settings, params: embeddings.EmbeddingParams, options: CallOptions
) -> Asked[embeddings.CreateEmbeddingResponse, WireModel]:
    body = embeddings.build_body(params, options.get("extra_body"))

    def decoded(answer: embeddings.CreateEmbeddingResponse) -> embeddings.CreateEmbeddingResponse:
        return embeddings.decode(answer, params)

    return _whole(
        _call(settings, "embeddings", "embeddings", body, options), embeddings.CreateEmbeddingResponse, decoded
    )


def ask_rerank(settings: Settings, arguments: Arguments) -> Asked[ranking.RerankResponse, WireModel]:
    """Make a rerank call. Raises as `ask_chat`."""
    options, fields = parted(arguments)
    body = ranking.build_rerank(cast("ranking.RerankParams", _named(settings, fields)), options.get("extra_body"))
    return _whole(_call(settings, "rerank", "rerank", body, options), ranking.RerankResponse)


def ask_score(settings: Settings, arguments: Arguments) -> Asked[ranking.ScoreResponse, WireModel]:
    """Make a score call. Raises as `ask_chat`."""
    options, fields = parted(arguments)
    body = ranking.build_score(cast("ranking.ScoreParams", _named(settings, fields)), options.get("extra_body"))
    return _whole(_call(settings, "score", "score", body, options), ranking.ScoreResponse)


def ask_tokenize(settings: Settings, arguments: Arguments) -> Asked[tokenize.TokenizeResponse, WireModel]:
    """Make a tokenize call; the route stands beside `/v1`. Raises as `ask_chat`."""
    options, fields = parted(arguments)
    given = cast("tokenize.TokenizeParams", _named(settings, fields))
    body = tokenize.build_tokenize(given, options.get("extra_body"))
    return _whole(_call(settings, "tokenize", "/tokenize", body, options), tokenize.TokenizeResponse)


def ask_detokenize(settings: Settings, arguments: Arguments) -> Asked[tokenize.DetokenizeResponse, WireModel]:
    """Make a detokenize call; the route stands beside `/v1`. Raises as `ask_chat`."""
    options, fields = parted(arguments)
    given = cast("tokenize.DetokenizeParams", _named(settings, fields))
    body = tokenize.build_detokenize(given, options.get("extra_body"))
    return _whole(_call(settings, "detokenize", "/detokenize", body, options), tokenize.DetokenizeResponse)


def ask_transcription(settings: Settings, arguments: Arguments) -> Asked[transcriptions.Transcription, WireModel]:
    """Upload sound to be written down. Raises as `ask_chat`."""
    options, fields = parted(arguments)
    given = cast("transcriptions.TranscriptionParams", _named(settings, fields))
    form, upload = transcriptions.build_form(given, options.get("extra_body"))
    content_type, body = transcriptions.encode_form(form, upload, boundary=uuid.uuid4().hex)
    wanted = fields.get("response_format")

    def read(reply: Reply) -> transcriptions.Transcription:
        return transcriptions.parse_transcription(
            reply.body,
            response_format=wanted,
            status_code=reply.status,
            content_type=reply.headers.get("content-type", ""),
        ).with_meta(reply.meta)

    call = _call(
        settings,
        "transcriptions",
        "audio/transcriptions",
        {"model": dict(form).get("model")},
        options,
        content=(content_type, body),
    )
    return Asked(call, read, WireModel.from_dict, transcriptions.Transcription.from_dict)


def ask_models(settings: Settings, options: CallOptions) -> Asked[ModelList, WireModel]:
    """List what a server serves."""
    options = _bare("models.list", options)
    return _whole(_call(settings, "models", "models", {}, options, method="GET"), ModelList)


def ask_model(settings: Settings, name: str, options: CallOptions) -> Asked[_OneModel, WireModel]:
    """Ask about one model. Raises as `ask_chat`."""
    options = _bare("models.retrieve", options)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"model: expected a model's name, got {name!r}")
    call = _call(settings, "other", f"models/{quote(name, safe='/:')}", {}, options, method="GET")
    return Asked(call, _reader(_OneModel), WireModel.from_dict, _OneModel.from_dict)


def ask_health(settings: Settings, options: CallOptions) -> Asked[Health, WireModel]:
    """Ask a server whether it is well; an empty 200 is a yes."""
    options = _bare("health", options)
    call = _call(settings, "other", "/health", {}, options, method="GET")

    def read(reply: Reply) -> Health:
        said = reply.body.strip()
        answer = Health.from_bytes(said) if said.startswith(b"{") else Health(status=said.decode("utf-8", "replace"))
        return answer.with_meta(reply.meta)

    return Asked(call, read, WireModel.from_dict, Health.from_dict)


def _bare(call: str, arguments: CallOptions) -> CallOptions:
    """Part the options of a call that has no body."""
    options, fields = parted(cast("Arguments", arguments))
    for name in fields:
        raise TypeError(f"{call} has no argument {name!r}")
    return options


class _OneModel(Answer, Model):
    """One model, as an answer."""


def _whole(call: Call, model: type[A], finish: Callable[[A], A] | None = None) -> Asked[A, WireModel]:
    return Asked(call, _reader(model, finish), WireModel.from_dict, model.from_dict)


def _reader(model: type[A], finish: Callable[[A], A] | None = None) -> Callable[[Reply], A]:
    def read(reply: Reply) -> A:
        content_type = reply.headers.get("content-type", "")
        answer = model.from_bytes(reply.body, status_code=reply.status, content_type=content_type)
        answer = answer.with_meta(reply.meta)
        # A fixed text is what its author wrote; it owes nobody a schema.
        return answer if finish is None or reply.run.fallback is not None else finish(answer)

    return read


def _named(settings: Settings, fields: dict[str, Any]) -> dict[str, Any]:
    """Fill in the profile's model where a call names none."""
    if fields.get("model") is None and settings.plan.model is not None:
        return {**fields, "model": settings.plan.model}
    return fields


def _call(
    settings: Settings,
    route: str,
    path: str,
    body: dict[str, Any],
    options: CallOptions,
    *,
    method: str = "POST",
    content: tuple[str, bytes] | None = None,
) -> Call:
    """Make a call of a body and the caller's options; `content` replaces the JSON of the body."""
    headers = with_headers("extra_headers", settings.headers, options.get("extra_headers"))
    query = with_query("extra_query", settings.query, options.get("extra_query"))
    data = dump(body) if method != "GET" else b""
    if content is not None:
        content_type, data = content
        headers = with_headers("content-type", headers, {"content-type": content_type})
    return make_call(
        settings.pool,
        settings.plan,
        Request(method=method, path=path, body=data, headers=headers, query=query),
        route=route,
        model=body.get("model"),
        stream=bool(body.get("stream")),
        data=body if content is None and method != "GET" else None,
        size=measure(body),
        max_tokens=max_output(body),
        priority=options.get("priority", UNSET),
        deadline=deadline_of(options),
        fallback=fallback_of(settings, options),
        tenant=options.get("tenant"),
    )
