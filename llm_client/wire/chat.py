"""The chat route: how its body is made, and every type a caller meets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from llm_client.wire.body import Route
from llm_client.wire.chat_answers import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessage,
    Choice,
    ChoiceDelta,
    ChoiceLogprobs,
    ChunkChoice,
    Finish,
    ToolCall,
    finish_of,
)
from llm_client.wire.chat_params import (
    ChatCall,
    ChatFields,
    ChatParams,
    ContentPartParam,
    FunctionToolParam,
    MessageParam,
    ReasoningEffort,
    ResponseFormatParam,
    ToolParam,
)
from llm_client.wire.structured import format_param

__all__ = [
    "ROUTE",
    "ChatCall",
    "ChatCompletion",
    "ChatCompletionChunk",
    "ChatCompletionMessage",
    "ChatFields",
    "ChatParams",
    "Choice",
    "ChoiceDelta",
    "ChoiceLogprobs",
    "ChunkChoice",
    "ContentPartParam",
    "Finish",
    "FunctionToolParam",
    "MessageParam",
    "ReasoningEffort",
    "ResponseFormatParam",
    "ToolCall",
    "ToolParam",
    "build_body",
    "finish_of",
]

ROUTE: Final = Route(
    call="chat.completions.create", fields=frozenset(ChatParams.__annotations__), required=(("messages",),)
)


def build_body(params: ChatParams, extra_body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Make the body of a chat call; a class as `response_format` becomes its strict JSON Schema.

    Raises:
        TypeError: an unknown or missing field, or one given twice with different values.
    """
    wanted = params.get("response_format")
    if not isinstance(wanted, type):
        return ROUTE.build(params, extra_body)
    body = ROUTE.build({**params, "response_format": format_param(wanted)}, extra_body)
    # openai-python's `parse` says so too; the bodies of the two stay equal.
    body.setdefault("stream", False)
    return body
