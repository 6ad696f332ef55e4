"""Answers of the responses route, and the events of its streams."""

from __future__ import annotations

from typing import Annotated, Any, Generic

from pydantic import Field, PrivateAttr
from typing_extensions import TypeVar

from llm_client.wire.base import Answer, WireModel
from llm_client.wire.content import Arguments, Content
from llm_client.wire.tolerant import OR_NONE, Listed, MaybeFloat, MaybeInt, MaybeStr

__all__ = ["OutputItem", "OutputPart", "Response", "ResponseEvent", "ResponseUsage"]

T = TypeVar("T", default=Any)

_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


class InputTokensDetails(WireModel):
    """What the input tokens were."""

    cached_tokens: MaybeInt = None


class OutputTokensDetails(WireModel):
    """What the output tokens were."""

    reasoning_tokens: MaybeInt = None


class ResponseUsage(WireModel):
    """Token counts; None where the server did not say."""

    input_tokens: MaybeInt = None
    output_tokens: MaybeInt = None
    total_tokens: MaybeInt = None
    input_tokens_details: Annotated[InputTokensDetails | None, OR_NONE] = None
    output_tokens_details: Annotated[OutputTokensDetails | None, OR_NONE] = None


class OutputPart(WireModel, Generic[T]):
    """A part of an output item: text, a refusal, a piece of reasoning."""

    type: MaybeStr = None
    text: Content = None
    refusal: MaybeStr = None
    annotations: Any = None
    logprobs: Any = None

    _parsed: Any = PrivateAttr(default=None)

    @property
    def parsed(self) -> T | None:
        """The text as the class given as `text_format`."""
        parsed: T | None = self._parsed
        return parsed


class OutputItem(WireModel, Generic[T]):
    """One item of the output: a message, a function call, reasoning, a built-in tool's call."""

    type: MaybeStr = None
    id: MaybeStr = None
    status: MaybeStr = None
    role: MaybeStr = None
    phase: MaybeStr = None
    content: list[OutputPart[T]] | None = None
    name: MaybeStr = None
    call_id: MaybeStr = None
    arguments: Arguments = None
    summary: Annotated[list[OutputPart[T]] | None, OR_NONE] = None
    encrypted_content: MaybeStr = None

    @property
    def text(self) -> str:
        """The visible text of a message, "" for any other item."""
        if self.type not in {None, "message"}:
            return ""
        return "".join(part.text or "" for part in self.content or () if part.type in {None, "output_text", "text"})


class IncompleteDetails(WireModel):
    """Why an answer is incomplete."""

    reason: MaybeStr = None


class ResponseError(WireModel):
    """Why an answer failed."""

    code: MaybeStr = None
    message: MaybeStr = None


class Response(Answer, Generic[T]):
    """An answer of the responses route. With a class as `text_format`, `T` is that class."""

    id: MaybeStr = None
    object: MaybeStr = None
    created_at: MaybeFloat = None
    model: MaybeStr = None
    status: MaybeStr = None
    error: Annotated[ResponseError | None, OR_NONE] = None
    incomplete_details: Annotated[IncompleteDetails | None, OR_NONE] = None
    output: Listed[OutputItem[T]] = Field(default_factory=list)
    usage: Annotated[ResponseUsage | None, OR_NONE] = None
    previous_response_id: MaybeStr = None
    service_tier: MaybeStr = None

    @property
    def output_text(self) -> str:
        """The visible text of all messages, "" when there is none."""
        return "".join(item.text for item in self.output)

    @property
    def reasoning_text(self) -> str | None:
        """What the model thought, as far as the server shows it: in full, else in summary."""
        items = [item for item in self.output if item.type == "reasoning"]
        for parts in ([item.content for item in items], [item.summary for item in items]):
            found = "".join(part.text or "" for group in parts for part in group or ())
            if found:
                return found
        return None

    @property
    def function_calls(self) -> list[OutputItem[T]]:
        """The functions the model wants called."""
        return [item for item in self.output if item.type == "function_call"]

    @property
    def output_parsed(self) -> T | None:
        """The first parsed text."""
        for item in self.output:
            for part in item.content or ():
                if part.parsed is not None:
                    return part.parsed
        return None

    @property
    def finish_reason(self) -> str | None:
        """Why generation ended, in the words of chat: `stop`, `length`, `content_filter`, or the server's own."""
        if self.status == "incomplete":
            reason = self.incomplete_details.reason if self.incomplete_details else None
            return _REASONS.get(reason or "", reason)
        return "stop" if self.status == "completed" else None


class ResponseEvent(WireModel):
    """One event of a responses stream; `type` tells which of the other fields it has."""

    type: str = ""
    sequence_number: MaybeInt = None
    response: Annotated[Response | None, OR_NONE] = None
    item: Annotated[OutputItem | None, OR_NONE] = None
    part: Annotated[OutputPart | None, OR_NONE] = None
    item_id: MaybeStr = None
    output_index: MaybeInt = None
    content_index: MaybeInt = None
    summary_index: MaybeInt = None
    delta: Any = None
    text: MaybeStr = None
    arguments: MaybeStr = None
    refusal: MaybeStr = None
    name: MaybeStr = None
    code: MaybeStr = None
    message: MaybeStr = None
    param: MaybeStr = None

    @property
    def text_delta(self) -> str:
        """The visible text this event adds, "" for every other kind of event."""
        return self.delta if self.type == "response.output_text.delta" and isinstance(self.delta, str) else ""

    @property
    def reasoning_delta(self) -> str:
        """The reasoning this event adds, as text or as summary."""
        kinds = {"response.reasoning_text.delta", "response.reasoning_summary_text.delta"}
        return self.delta if self.type in kinds and isinstance(self.delta, str) else ""
