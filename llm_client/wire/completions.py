"""The completions route: plain text in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Required

from pydantic import Field

from llm_client.wire.base import Answer, CallOptions, CompletionUsage, WireModel
from llm_client.wire.body import Route
from llm_client.wire.chat_answers import Finish, finish_of
from llm_client.wire.chat_params import ResponseFormatParam, StreamOptions
from llm_client.wire.content import Content
from llm_client.wire.extras import ServerFields
from llm_client.wire.structured import format_param
from llm_client.wire.tolerant import OR_NONE, FinishReason, Listed, MaybeInt, MaybeStr

__all__ = [
    "ROUTE",
    "Completion",
    "CompletionCall",
    "CompletionChoice",
    "CompletionFields",
    "CompletionLogprobs",
    "CompletionParams",
    "build_body",
]


class CompletionFields(ServerFields, total=False):
    """The body without `stream`; `model` may be left out where the profile names one."""

    prompt: Required[str | Iterable[str] | Iterable[int] | Iterable[Iterable[int]] | None]
    model: str
    best_of: int | None
    echo: bool | None
    frequency_penalty: float | None
    logit_bias: Mapping[str, float] | None
    logprobs: int | None
    max_tokens: int | None
    n: int | None
    presence_penalty: float | None
    seed: int | None
    stop: str | Sequence[str] | None
    stream_options: StreamOptions | None
    suffix: str | None
    temperature: float | None
    top_p: float | None
    user: str
    # Of vLLM and SGLang.
    response_format: ResponseFormatParam
    json_schema: str | None
    prompt_embeds: str | Iterable[str] | None


class CompletionParams(CompletionFields, total=False):
    """The whole body of a completions call."""

    stream: bool | None


class CompletionCall(CompletionFields, CallOptions, total=False):
    """The keyword arguments of `completions.create`, for `Unpack`; `stream` stands beside."""


ROUTE: Final = Route(
    call="completions.create",
    fields=frozenset(CompletionParams.__annotations__),
    required=(("prompt", "prompt_embeds"),),
)


def build_body(params: CompletionParams, extra_body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Make the body of a completions call.

    Raises:
        TypeError: an unknown or missing field, or one given twice with different values.
    """
    wanted = params.get("response_format")
    if not isinstance(wanted, type):
        return ROUTE.build(params, extra_body)
    return ROUTE.build({**params, "response_format": format_param(wanted)}, extra_body)


class CompletionLogprobs(WireModel):
    """Log probabilities, one entry a token in each list."""

    text_offset: Annotated[list[int] | None, OR_NONE] = None
    token_logprobs: Annotated[list[float | None] | None, OR_NONE] = None
    tokens: Annotated[list[str] | None, OR_NONE] = None
    top_logprobs: Annotated[list[dict[str, float | None] | None] | None, OR_NONE] = None


class CompletionChoice(WireModel):
    """One text of the `n` asked for, or what a stream adds to it."""

    index: MaybeInt = 0
    text: Content = ""
    finish_reason: FinishReason = None
    stop_reason: Any = None
    logprobs: Annotated[CompletionLogprobs | None, OR_NONE] = None

    @property
    def finish(self) -> Finish | None:
        """The finish reason in OpenAI's words, `other` for a server's own."""
        return finish_of(self.finish_reason)


class Completion(Answer):
    """A completions answer, and equally one event of its stream."""

    id: MaybeStr = None
    object: MaybeStr = None
    created: MaybeInt = None
    model: MaybeStr = None
    choices: Listed[CompletionChoice] = Field(default_factory=list)
    usage: Annotated[CompletionUsage | None, OR_NONE] = None
    system_fingerprint: MaybeStr = None

    @property
    def text(self) -> str:
        """The text of the first choice, "" when there is none."""
        return "".join(choice.text or "" for choice in self.choices if not choice.index)
