"""Chat answers and the chunks of chat streams."""

from __future__ import annotations

import zlib
from typing import Annotated, Any, Final, Generic, Literal

from pydantic import AfterValidator, Field, PrivateAttr
from typing_extensions import TypeVar

from llm_client.wire.base import Answer, CompletionUsage, WireModel
from llm_client.wire.content import Arguments, Content, parts_of, thinking_of
from llm_client.wire.tolerant import (
    NULL_AS_NEW,
    OR_NONE,
    FinishReason,
    Ints,
    Listed,
    MaybeFloat,
    MaybeInt,
    MaybeStr,
)

__all__ = [
    "ChatCompletion",
    "ChatCompletionChunk",
    "ChatCompletionMessage",
    "Choice",
    "ChoiceDelta",
    "ChoiceLogprobs",
    "ChunkChoice",
    "Finish",
    "ToolCall",
    "finish_of",
]

T = TypeVar("T", default=Any)

Finish = Literal["stop", "length", "tool_calls", "content_filter", "function_call", "other"]
_FINISHES: Final[dict[str, Finish]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "function_call": "function_call",
}


def finish_of(reason: str | None) -> Finish | None:
    """Sort a finish reason: OpenAI's words, or `other` for a server's own; None when none was given."""
    return _FINISHES.get(reason, "other") if reason else None


class TopLogprob(WireModel):
    """An alternative token."""

    token: MaybeStr = None
    logprob: MaybeFloat = None
    bytes: Ints = None


class TokenLogprob(TopLogprob):
    """A token with its log probability; null where the server had minus infinity."""

    top_logprobs: Listed[TopLogprob] = Field(default_factory=list)


class ChoiceLogprobs(WireModel):
    """Log probabilities of one choice."""

    content: Annotated[list[TokenLogprob] | None, OR_NONE] = None
    refusal: Annotated[list[TokenLogprob] | None, OR_NONE] = None


class FunctionCall(WireModel):
    """The function to call; `arguments` is JSON text as the model wrote it, and may be wrong."""

    name: str | None = None
    arguments: Arguments = None


class CustomCall(WireModel):
    """The input of a custom tool."""

    name: str | None = None
    input: Content = None


class ToolCall(WireModel):
    """A tool the model wants called."""

    id: str = ""
    type: str | None = "function"
    function: Annotated[FunctionCall, NULL_AS_NEW] = Field(default_factory=FunctionCall)
    custom: CustomCall | None = None
    index: MaybeInt = None


def _answerable(calls: list[ToolCall]) -> list[ToolCall]:
    # Calls are sent back with their results, under their ids: what a server left out has to be there then.
    for number, call in enumerate(calls):
        if "type" not in call.model_fields_set:
            call.type = "function"
        if not call.id:
            seed = f"{number}:{call.function.name}:{call.function.arguments}"
            call.id = f"call_{number}_{zlib.crc32(seed.encode('utf-8', 'replace')):08x}"
    return calls


class _Reasoned(WireModel):
    """Thinking goes by two names, `reasoning` and `reasoning_content`; both read the same here."""

    content: Content = None

    @property
    def reasoning(self) -> str | None:
        """What the model thought before it answered, if the server shows it."""
        extra = self.__pydantic_extra__ or {}
        for name in ("reasoning_content", "reasoning"):
            found = extra.get(name)
            if isinstance(found, str) and found:
                return found
        return thinking_of(self.content)

    @property
    def reasoning_content(self) -> str | None:
        """The other name of `reasoning`."""
        return self.reasoning

    @property
    def text(self) -> str:
        """The visible text, "" when there is none."""
        return self.content or ""


class ChatCompletionMessage(_Reasoned, Generic[T]):
    """What the model said."""

    role: str = "assistant"
    refusal: MaybeStr = None
    tool_calls: Annotated[list[ToolCall], AfterValidator(_answerable)] | None = None
    function_call: Annotated[FunctionCall | None, OR_NONE] = None
    annotations: Any = None
    audio: Any = None

    _parsed: Any = PrivateAttr(default=None)

    @property
    def parsed(self) -> T | None:
        """The content as the class given as `response_format`; None when the model refused or called tools."""
        parsed: T | None = self._parsed
        return parsed

    @property
    def parts(self) -> list[Any]:
        """The content as parts, whichever way it was sent."""
        return parts_of(self.content)


class Choice(WireModel, Generic[T]):
    """One answer of the `n` asked for."""

    index: MaybeInt = 0
    message: Annotated[ChatCompletionMessage[T], NULL_AS_NEW] = Field(default_factory=ChatCompletionMessage)
    finish_reason: FinishReason = None
    stop_reason: Any = None
    logprobs: Annotated[ChoiceLogprobs | None, OR_NONE] = None

    @property
    def finish(self) -> Finish | None:
        """The finish reason in OpenAI's words, `other` for a server's own."""
        return finish_of(self.finish_reason)


class ChatCompletion(Answer, Generic[T]):
    """A chat answer. With a class as `response_format`, `T` is that class."""

    id: MaybeStr = None
    object: MaybeStr = None
    created: MaybeInt = None
    model: MaybeStr = None
    choices: Listed[Choice[T]] = Field(default_factory=list)
    usage: Annotated[CompletionUsage | None, OR_NONE] = None
    service_tier: MaybeStr = None
    system_fingerprint: MaybeStr = None

    @property
    def text(self) -> str:
        """The text of the first choice, "" when there is none."""
        return self.choices[0].message.text if self.choices else ""

    @property
    def reasoning(self) -> str | None:
        """The reasoning of the first choice."""
        return self.choices[0].message.reasoning if self.choices else None

    @property
    def parsed(self) -> T | None:
        """The parsed content of the first choice."""
        return self.choices[0].message.parsed if self.choices else None

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls of the first choice."""
        return (self.choices[0].message.tool_calls or []) if self.choices else []


class FunctionCallDelta(WireModel):
    """A piece of a function call."""

    name: str | None = None
    arguments: Arguments = None


class ToolCallDelta(WireModel):
    """A piece of a tool call; pieces of one `index` belong together."""

    index: MaybeInt = None
    id: MaybeStr = None
    type: MaybeStr = None
    function: FunctionCallDelta | None = None


class ChoiceDelta(_Reasoned):
    """What a chunk adds."""

    role: MaybeStr = None
    refusal: MaybeStr = None
    tool_calls: list[ToolCallDelta] | None = None
    function_call: Annotated[FunctionCallDelta | None, OR_NONE] = None


class ChunkChoice(WireModel):
    """One choice of a chunk."""

    index: MaybeInt = 0
    delta: Annotated[ChoiceDelta, NULL_AS_NEW] = Field(default_factory=ChoiceDelta)
    finish_reason: FinishReason = None
    logprobs: Annotated[ChoiceLogprobs | None, OR_NONE] = None

    @property
    def text(self) -> str:
        """The visible text this choice adds; some servers put it in `message` or `text` in place of `delta`."""
        if self.delta.content is not None:
            return self.delta.text
        message = self.unknown("message")
        found = message.get("content") if isinstance(message, dict) else self.unknown("text")
        return found if isinstance(found, str) else ""

    @property
    def finish(self) -> Finish | None:
        """The finish reason in OpenAI's words, `other` for a server's own."""
        return finish_of(self.finish_reason)


class ChatCompletionChunk(WireModel):
    """One event of a chat stream."""

    id: MaybeStr = None
    object: MaybeStr = None
    created: MaybeInt = None
    model: MaybeStr = None
    choices: Listed[ChunkChoice] = Field(default_factory=list)
    usage: Annotated[CompletionUsage | None, OR_NONE] = None
    service_tier: MaybeStr = None
    system_fingerprint: MaybeStr = None

    @property
    def text(self) -> str:
        """The text this chunk adds to the first choice, "" when it adds none."""
        return "".join(choice.text for choice in self.choices if not choice.index)

    @property
    def reasoning(self) -> str | None:
        """The reasoning this chunk adds to the first choice."""
        return "".join(choice.delta.reasoning or "" for choice in self.choices if not choice.index) or None
