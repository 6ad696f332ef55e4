"""The embeddings route: base64 on the wire, lists of floats for the caller, batches for long inputs."""

from __future__ import annotations

import array
import base64
import binascii
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Required, TypedDict, cast

from pydantic import Field

from llm_client.errors import InvalidResponseError
from llm_client.wire.base import Answer, CallOptions, WireModel
from llm_client.wire.body import Route, absent
from llm_client.wire.tolerant import OR_NONE, OR_TEXT, Listed, MaybeInt, MaybeStr

__all__ = [
    "ROUTE",
    "CreateEmbeddingResponse",
    "Embedding",
    "EmbeddingCall",
    "EmbeddingParams",
    "EmbeddingUsage",
    "build_body",
    "decode",
    "join",
    "split_batches",
]

# OpenAI's bounds of one request, which other servers seldom undercut.
MAX_INPUTS: Final = 2048
MAX_TOKENS: Final = 300_000
# A token is rarely shorter than three bytes of UTF-8, so that this guess errs on the side of smaller batches.
_BYTES_PER_TOKEN: Final = 3


class EmbeddingParams(TypedDict, total=False):
    """The body; `model` may be left out where the profile names one."""

    input: Required[str | Iterable[str] | Iterable[int] | Iterable[Iterable[int]]]
    model: str
    dimensions: int
    encoding_format: Literal["float", "base64"]
    user: str
    # Of vLLM and SGLang.
    truncate_prompt_tokens: int | None
    truncation_side: Literal["left", "right"] | None
    add_special_tokens: bool | None
    use_activation: bool | None
    embed_dtype: str | None
    endianness: Literal["native", "big", "little"] | None
    mm_processor_kwargs: Mapping[str, Any] | None
    cache_salt: str | None
    request_id: str | None
    rid: str | None
    lora_path: str | None


class EmbeddingCall(EmbeddingParams, CallOptions, total=False):
    """The keyword arguments of `embeddings.create`, for `Unpack`."""


ROUTE: Final = Route(
    call="embeddings.create", fields=frozenset(EmbeddingParams.__annotations__), required=(("input",),)
)


def build_body(params: EmbeddingParams, extra_body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Make the body of an embeddings call; base64 is asked for unless a format was named.

    Base64 takes a third of the bytes of decimal numbers and a tenth of the time to read.

    Raises:
        TypeError: an unknown or missing field, or one given twice with different values.
    """
    body = ROUTE.build(params, extra_body)
    body.setdefault("encoding_format", "base64")
    return body


class Embedding(WireModel):
    """One vector; its type is openai-python's, although who asks for base64 by name finds text in it."""

    embedding: Annotated[list[float], OR_TEXT] = Field(default_factory=list)
    index: MaybeInt = None
    object: MaybeStr = None

    @property
    def vector(self) -> list[float]:
        """The vector as floats, whichever way it came.

        Raises:
            InvalidResponseError: base64 that is none, or not whole 32-bit floats.
        """
        found: list[float] | str = self.embedding
        return _floats(found) if isinstance(found, str) else found


class EmbeddingUsage(WireModel):
    """Token counts; None where the server did not say."""

    prompt_tokens: MaybeInt = None
    total_tokens: MaybeInt = None


class CreateEmbeddingResponse(Answer):
    """The vectors, in the order of the inputs."""

    object: MaybeStr = None
    model: MaybeStr = None
    data: Listed[Embedding] = Field(default_factory=list)
    usage: Annotated[EmbeddingUsage | None, OR_NONE] = None

    @property
    def vectors(self) -> list[list[float]]:
        """All vectors as lists of floats."""
        return [item.vector for item in self.data]


def _floats(text: str) -> list[float]:
    try:
        numbers = array.array("f", base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as error:
        raise InvalidResponseError("embedding: not the base64 of whole 32-bit floats", status_code=200) from error
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def decode(answer: CreateEmbeddingResponse, params: Mapping[str, Any]) -> CreateEmbeddingResponse:
    """Turn base64 into floats, in place, unless the caller named a format.

    Servers that know no base64 send floats all the same, which are left alone.

    Raises:
        InvalidResponseError: no vector at all, or base64 that does not decode.
    """
    if not absent(params.get("encoding_format")) and "encoding_format" in params:
        return answer
    if not answer.data:
        raise InvalidResponseError("the embeddings answer holds no vectors", status_code=200)
    for item in answer.data:
        item.embedding = item.vector
    return answer


def split_batches(
    params: EmbeddingParams, *, max_inputs: int = MAX_INPUTS, max_tokens: int = MAX_TOKENS
) -> list[EmbeddingParams]:
    """Part a long list of inputs into calls of their own, in order.

    A single text or a single list of token numbers is one input. An input that is larger than `max_tokens`
    by itself gets a call of its own, so that the server says what it thinks of it.

    Args:
        params: the arguments of the whole call.
        max_inputs: inputs per call, at least 1.
        max_tokens: tokens per call; texts are counted as one token per three bytes.
    """
    if max_inputs < 1 or max_tokens < 1:
        raise ValueError("max_inputs and max_tokens: expected at least 1")
    given = params.get("input")
    if isinstance(given, str) or given is None:
        return [params]
    inputs: list[Any] = list(given)
    if not inputs or isinstance(inputs[0], int):
        return [cast("EmbeddingParams", {**params, "input": inputs})]
    batches: list[list[Any]] = [[]]
    tokens = 0
    for item in inputs:
        cost = -(-len(item.encode("utf-8", "replace")) // _BYTES_PER_TOKEN) if isinstance(item, str) else len(item)
        if batches[-1] and (len(batches[-1]) == max_inputs or tokens + cost > max_tokens):
            batches.append([])
            tokens = 0
        batches[-1].append(item)
        tokens += cost
    return [cast("EmbeddingParams", {**params, "input": batch}) for batch in batches]


def join(answers: Sequence[CreateEmbeddingResponse]) -> CreateEmbeddingResponse:
    """Make one answer of the batches' answers, given in order; `index` counts through, usage is summed.

    Raises:
        ValueError: no answers.
    """
    if not answers:
        raise ValueError("answers: expected at least one")
    if len(answers) == 1:
        return answers[0]
    data: list[Embedding] = []
    for answer in answers:
        start = len(data)
        rows = sorted(enumerate(answer.data), key=lambda row: row[0] if row[1].index is None else row[1].index)
        data.extend(item.model_copy(update={"index": start + number}) for number, (_, item) in enumerate(rows))
    usage = EmbeddingUsage(
        prompt_tokens=_total(answer.usage.prompt_tokens if answer.usage else None for answer in answers),
        total_tokens=_total(answer.usage.total_tokens if answer.usage else None for answer in answers),
    )
    return answers[0].model_copy(update={"data": data, "usage": usage})


def _total(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)
