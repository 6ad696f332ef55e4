"""What every route shares: the per-call options, and answers that parse tolerantly and keep what they do not know.

Servers of the OpenAI dialect agree on names, not on types: counts arrive as null, words outside the
specification arrive as finish reasons, text arrives as a list of parts. An answer is therefore refused only
when its frame is wrong (not JSON, not an object, `choices` not a list); a value that does not fit its field
reads as None.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Protocol, Self, TypedDict

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from llm_client.errors import InvalidResponseError
from llm_client.model import Meta, Priority
from llm_client.wire.tolerant import OR_NONE, MaybeInt
from llm_client.wire.unicode import clean, clean_tree

__all__ = ["OPTION_NAMES", "Answer", "CallOptions", "CompletionUsage", "WireModel", "split_options"]

_PREVIEW: Final = 300
_KEPT_BODY: Final = 64 * 1024


class Patience(Protocol):
    """The part of an `httpx.Timeout` that says how long an answer may take."""

    read: float | None


class CallOptions(TypedDict, total=False):
    """What may be said per call beside the fields of the route's body; none of it is sent as such.

    Attributes:
        priority: `critical`, `high`, `normal`, `low` or 0-3, the smaller first. A server's own numeric
            `priority` goes in `extra_body`.
        deadline: seconds for the whole call, waiting included; None for no bound.
        timeout: openai-python's name for `deadline`; give one of the two. Of an `httpx.Timeout` the longest part.
        fallback: what to answer when no server can; None forbids any.
        tenant: whose share of the limits this call uses.
        extra_body: fields of the body that have no typed name here.
        extra_headers: request headers of this call; None removes a default one.
        extra_query: query parameters of this call.
    """

    priority: Priority | int | str
    deadline: float | None
    timeout: float | Patience | None
    fallback: Any
    tenant: str | None
    extra_body: Mapping[str, Any] | None
    extra_headers: Mapping[str, str | None] | None
    extra_query: Mapping[str, Any] | None


OPTION_NAMES: Final = frozenset(CallOptions.__annotations__)


def split_options(arguments: Mapping[str, Any]) -> tuple[CallOptions, dict[str, Any]]:
    """Part a call's keyword arguments into our options and the fields of the body.

    Raises:
        TypeError: both `timeout` and `deadline` were given.
    """
    options = CallOptions()
    fields: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in OPTION_NAMES:
            options[name] = value  # type: ignore[literal-required]
        else:
            fields[name] = value
    if "timeout" in options and "deadline" in options:
        raise TypeError("timeout is another name for deadline: give one of the two")
    return options, fields


class WireModel(BaseModel):
    """A part of an answer. Unknown fields are kept: `part.model_extra`, and in every dump."""

    # Schemas are built at first use: building them all would triple the import time of the package.
    model_config = ConfigDict(
        extra="allow", defer_build=True, coerce_numbers_to_str=True, protected_namespaces=(), populate_by_name=True
    )

    def __class_getitem__(cls, types: Any) -> type[Self]:
        """Return the class itself: what an answer parses into is for type checkers.

        pydantic would make a class, and its schema, for every argument, and keep both.
        """
        return cls

    def to_dict(self, *, mode: Literal["json", "python"] = "python", exclude_none: bool = False) -> dict[str, Any]:
        """Return the fields the server sent, under the server's names."""
        return self.model_dump(mode=mode, by_alias=True, exclude_unset=True, exclude_none=exclude_none)

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the fields the server sent as JSON; always encodable as UTF-8."""
        return self.model_dump_json(indent=indent, by_alias=True, exclude_unset=True)

    def unknown(self, name: str) -> Any:
        """Return a field that has no typed name here, or None."""
        return (self.__pydantic_extra__ or {}).get(name)

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Make the model from decoded JSON. Half a surrogate pair becomes U+FFFD.

        Raises:
            InvalidResponseError: the data does not have the frame of this answer.
        """
        try:
            return cls.model_validate(clean_tree(data))
        except ValidationError as error:
            raise InvalidResponseError(_misfit(cls, error), status_code=200) from error
        except RecursionError as error:
            raise InvalidResponseError(f"{cls.__name__}: the answer is nested too deeply", status_code=200) from error

    @classmethod
    def from_bytes(cls, body: bytes, *, status_code: int = 200, content_type: str = "") -> Self:
        """Make the model from a body, in one pass where the body is proper JSON.

        A byte order mark, bytes that are not UTF-8, raw control characters and half surrogate pairs are
        mended; the latter two kinds of bytes become U+FFFD.

        Args:
            body: the whole body, decoded from any content coding.
            status_code: for the error.
            content_type: for the error.

        Raises:
            InvalidResponseError: not JSON, or JSON of another frame.
        """
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            # What is nested deeper than the parser goes could not be written out again either.
            if first["type"] != "json_invalid" or "recursion limit" in first["msg"]:
                message = _misfit(cls, error)
                raise InvalidResponseError(message, status_code=status_code, body=_kept(body)) from error
        text = body.decode("utf-8", "replace").removeprefix("\ufeff")
        try:
            data = json.loads(text, strict=False)
        except (ValueError, RecursionError) as error:
            message = _not_json(cls, text, status_code, content_type)
            raise InvalidResponseError(message, status_code=status_code, body=_kept(body)) from error
        return cls.from_dict(data)


class Answer(WireModel):
    """A whole answer; `meta` tells how it came about."""

    _meta: Meta | None = PrivateAttr(default=None)

    @property
    def meta(self) -> Meta:
        """How the answer came about: endpoint, attempts, waits, fallback."""
        return self._meta or _NO_META

    @property
    def _request_id(self) -> str | None:
        # openai-python's name.
        return self.meta.request_id

    def with_meta(self, meta: Meta) -> Self:
        """Attach the story of the call, in place."""
        self._meta = meta
        return self


_NO_META: Final = Meta()


class PromptTokensDetails(WireModel):
    """What the prompt tokens were."""

    cached_tokens: MaybeInt = None
    audio_tokens: MaybeInt = None


class CompletionTokensDetails(WireModel):
    """What the completion tokens were."""

    reasoning_tokens: MaybeInt = None
    audio_tokens: MaybeInt = None
    accepted_prediction_tokens: MaybeInt = None
    rejected_prediction_tokens: MaybeInt = None


class CompletionUsage(WireModel):
    """Token counts; None where the server did not say."""

    prompt_tokens: MaybeInt = None
    completion_tokens: MaybeInt = None
    total_tokens: MaybeInt = None
    prompt_tokens_details: Annotated[PromptTokensDetails | None, OR_NONE] = None
    completion_tokens_details: Annotated[CompletionTokensDetails | None, OR_NONE] = None


def _misfit(model: type[BaseModel], error: ValidationError) -> str:
    """Name the first field that is wrong, without the value: it may be the model's words."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"the answer is not a {model.__name__}: {_place(first['loc'])}: {first['msg']}"[:500]


def _place(steps: Sequence[int | str]) -> str:
    # Validators of unions and functions appear as steps of their own ("list[Choice]", "function-plain[...]").
    named = [str(step) for step in steps if isinstance(step, int) or not set(step) & set("[](-")]
    return ".".join(named) or "the body"


def _not_json(model: type[BaseModel], text: str, status_code: int, content_type: str) -> str:
    seen = " ".join(clean(text[:_KEPT_BODY]).split())[:_PREVIEW]
    kind = f" ({content_type})" if content_type else ""
    hint = "" if not seen.startswith("<") else "; is base_url right, and is there a login page or proxy in between?"
    return f"status {status_code}{kind}, but the body is not the JSON of a {model.__name__}{hint} Body: {seen!r}"[:500]


def _kept(body: bytes) -> str:
    return body[:_KEPT_BODY].decode("utf-8", "replace")
