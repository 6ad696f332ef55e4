"""Answers we write ourselves: a fixed text in the frame of a route, plain or as a stream.

They are complete by the rules of every client: a role, a finish reason, usage of zero, `[DONE]` where the route
has one. That they are not a model's words is told beside them (`meta.fallback`), never inside.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from llm_client.wire.body import dump

__all__ = ["STATIC_ROUTES", "static_completion"]

STATIC_ROUTES: Final = frozenset({"chat", "completions", "responses"})
_USAGE: Final = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def static_completion(
    text: str,
    model: str,
    stream: bool,
    *,
    route: str = "chat",
    created: int = 0,
    id: str = "static",  # noqa: A002 - the wire's name
    include_usage: bool = False,
) -> bytes:
    """Return the bytes of an answer that says `text`.

    Args:
        text: what it says.
        model: the model that was asked.
        stream: an event stream in place of one JSON object.
        route: `chat`, `completions` or `responses`.
        created: seconds since the epoch.
        id: the answer's id, after the route's usual prefix.
        include_usage: send a last chunk with usage, as `stream_options.include_usage` asks for.

    Raises:
        ValueError: another route; a fixed text cannot be an embedding or a score.
    """
    if route == "responses":
        return _response_events(text, model, created, id) if stream else dump(_response(text, model, created, id))
    if route not in STATIC_ROUTES:
        raise ValueError(f"route: a static text can answer chat, completions and responses, not {route!r}")
    if stream:
        return _chunks(text, model, created, id, chat=route == "chat", include_usage=include_usage)
    body: dict[str, Any] = {
        "id": f"{_PREFIX[route]}-{id}",
        "object": "chat.completion" if route == "chat" else "text_completion",
        "created": created,
        "model": model,
        "choices": [{"index": 0, **_said(route, text), "logprobs": None, "finish_reason": "stop"}],
        "usage": _USAGE,
    }
    return dump(body)


_PREFIX: Final = {"chat": "chatcmpl", "completions": "cmpl"}


def _said(route: str, text: str) -> dict[str, Any]:
    if route == "chat":
        return {"message": {"role": "assistant", "content": text, "refusal": None}}
    return {"text": text}


def _sse(data: Iterable[tuple[str, dict[str, Any]]]) -> bytes:
    return b"".join(
        (f"event: {name}\n".encode() if name else b"") + b"data: " + dump(body) + b"\n\n" for name, body in data
    )


def _chunks(text: str, model: str, created: int, number: str, *, chat: bool, include_usage: bool) -> bytes:
    frame: dict[str, Any] = {
        "id": f"{_PREFIX['chat' if chat else 'completions']}-{number}",
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": created,
        "model": model,
    }

    def chunk(said: dict[str, Any], finish: str | None = None) -> tuple[str, dict[str, Any]]:
        body = {**frame, "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": finish}]}
        return "", {**body, "usage": None} if include_usage else body

    if chat:
        events = [
            chunk({"delta": {"role": "assistant", "content": ""}}),
            chunk({"delta": {"content": text}}),
            chunk({"delta": {}}, "stop"),
        ]
    else:
        events = [chunk({"text": text}, "stop")]
    if include_usage:
        events.append(("", {**frame, "choices": [], "usage": _USAGE}))
    return _sse(events) + b"data: [DONE]\n\n"


def _response(text: str, model: str, created: int, number: str) -> dict[str, Any]:
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": created,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [_message(text, number)],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": {
            "input_tokens": 0,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 0,
        },
    }


def _message(text: str, number: str) -> dict[str, Any]:
    return {
        "type": "message",
        "id": f"msg_{number}",
        "status": "completed",
        "role": "assistant",
        "content": [_part(text)],
    }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def _response_events(text: str, model: str, created: int, number: str) -> bytes:
    done = _response(text, model, created, number)
    begun = {**done, "status": "in_progress", "output": [], "usage": None}
    item = {**_message(text, number), "status": "in_progress", "content": []}
    place: dict[str, Any] = {"item_id": f"msg_{number}", "output_index": 0, "content_index": 0}
    bodies: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **place, "part": _part("")},
        {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []},
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": _part(text)},
        {"type": "response.output_item.done", "output_index": 0, "item": _message(text, number)},
        {"type": "response.completed", "response": done},
    ]
    return _sse((body["type"], {**body, "sequence_number": place}) for place, body in enumerate(bodies))
