"""The tokenize and detokenize routes: what a text is in tokens, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Required, TypedDict

from pydantic import Field

from llm_client.wire.base import Answer, CallOptions
from llm_client.wire.body import Route
from llm_client.wire.chat_params import MessageParam
from llm_client.wire.chat_params import ToolParam as ChatToolParam
from llm_client.wire.tolerant import Listed, MaybeInt, MaybeStr

__all__ = [
    "DETOKENIZE",
    "TOKENIZE",
    "DetokenizeCall",
    "DetokenizeParams",
    "DetokenizeResponse",
    "TokenizeCall",
    "TokenizeParams",
    "TokenizeResponse",
    "build_detokenize",
    "build_tokenize",
]


class TokenizeParams(TypedDict, total=False):
    """The body of a tokenize call: a `prompt`, or `messages` for the model's chat template.

    llama.cpp calls the prompt `content`.
    """

    model: str
    prompt: str | Iterable[str]
    content: str
    messages: Iterable[MessageParam]
    tools: Iterable[ChatToolParam] | None
    add_special_tokens: bool | None
    add_special: bool | None
    parse_special: bool | None
    with_pieces: bool | None
    return_token_strs: bool | None
    add_generation_prompt: bool | None
    continue_final_message: bool | None
    chat_template: str | None
    chat_template_kwargs: Mapping[str, Any] | None
    mm_processor_kwargs: Mapping[str, Any] | None


class TokenizeCall(TokenizeParams, CallOptions, total=False):
    """The keyword arguments of `tokenize`, for `Unpack`."""


class DetokenizeParams(TypedDict, total=False):
    """The body of a detokenize call."""

    model: str
    tokens: Required[Iterable[int] | Iterable[Iterable[int]]]
    skip_special_tokens: bool | None


class DetokenizeCall(DetokenizeParams, CallOptions, total=False):
    """The keyword arguments of `detokenize`, for `Unpack`."""


TOKENIZE: Final = Route(
    call="tokenize",
    fields=frozenset(TokenizeParams.__annotations__),
    required=(("prompt", "messages", "content"),),
)
DETOKENIZE: Final = Route(
    call="detokenize", fields=frozenset(DetokenizeParams.__annotations__), required=(("tokens",),)
)


def build_tokenize(params: TokenizeParams, extra_body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Make the body of a tokenize call.

    Raises:
        TypeError: an unknown or missing field, or one given twice with different values.
    """
    return TOKENIZE.build(params, extra_body)


def build_detokenize(params: DetokenizeParams, extra_body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Make the body of a detokenize call.

    Raises:
        TypeError: an unknown or missing field, or one given twice with different values.
    """
    return DETOKENIZE.build(params, extra_body)


class TokenizeResponse(Answer):
    """The tokens; `tokens` holds numbers, or objects with `id` and `piece` where pieces were asked for."""

    tokens: Listed[Any] = Field(default_factory=list)
    count: MaybeInt = None
    max_model_len: MaybeInt = None
    token_strs: list[str] | None = None

    @property
    def ids(self) -> list[int]:
        """The token numbers."""
        return [token["id"] if isinstance(token, Mapping) else token for token in self.tokens]

    @property
    def length(self) -> int:
        """How many tokens, whether or not the server counted them."""
        return len(self.tokens) if self.count is None else self.count


class DetokenizeResponse(Answer):
    """The text of the tokens."""

    prompt: MaybeStr = None

    @property
    def text(self) -> str:
        """The text, under whichever name the server gives it (`prompt`, `text`, `content`)."""
        for found in (self.prompt, self.unknown("text"), self.unknown("content")):
            if isinstance(found, str):
                return found
        return ""
