"""The rerank and score routes: how well texts answer a query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Required, TypedDict

from pydantic import AliasChoices, Field, model_validator

from llm_client.wire.base import Answer, CallOptions, CompletionUsage, WireModel
from llm_client.wire.body import Route
from llm_client.wire.tolerant import OR_NONE, Listed, MaybeFloat, MaybeInt, MaybeStr

__all__ = [
    "RERANK",
    "SCORE",
    "RerankCall",
    "RerankParams",
    "RerankResponse",
    "RerankResult",
    "ScoreCall",
    "ScoreData",
    "ScoreParams",
    "ScoreResponse",
    "build_rerank",
    "build_score",
]

# A text, or parts as in a chat message for models that see images.
RankedText = str | Mapping[str, Any]


class _PoolingFields(TypedDict, total=False):
    model: str
    user: str
    truncate_prompt_tokens: int | None
    truncation_side: Literal["left", "right"] | None
    mm_processor_kwargs: Mapping[str, Any] | None
    use_activation: bool | None
    cache_salt: str | None
    request_id: str | None


class RerankParams(_PoolingFields, total=False):
    """The body of a rerank call.

    Attributes:
        top_n: how many of the best to return; all by default.
        return_documents: send the texts back with the scores.
    """

    query: Required[RankedText]
    documents: Required[Sequence[RankedText]]
    top_n: int | None
    return_documents: bool | None
    max_chunks_per_doc: int | None
    max_tokens_per_doc: int | None
    instruct: str | None
    rid: str | None


class RerankCall(RerankParams, CallOptions, total=False):
    """The keyword arguments of `rerank`, for `Unpack`."""


class ScoreParams(_PoolingFields, total=False):
    """The body of a score call: two sides, under the names the server knows.

    vLLM takes `text_1` and `text_2`, or `queries` and `documents`; SGLang takes `query`, `items` and
    `label_token_ids`.
    """

    text_1: RankedText | Sequence[RankedText]
    text_2: RankedText | Sequence[RankedText]
    data_1: RankedText | Sequence[RankedText]
    data_2: RankedText | Sequence[RankedText]
    queries: RankedText | Sequence[RankedText]
    documents: RankedText | Sequence[RankedText]
    query: str | Iterable[int]
    items: RankedText | Sequence[RankedText] | Sequence[Sequence[int]]
    label_token_ids: Iterable[int]
    apply_softmax: bool | None
    item_first: bool | None


class ScoreCall(ScoreParams, CallOptions, total=False):
    """The keyword arguments of `score`, for `Unpack`."""


RERANK: Final = Route(
    call="rerank", fields=frozenset(RerankParams.__annotations__), required=(("query",), ("documents",))
)
SCORE: Final = Route(
    call="score",
    fields=frozenset(ScoreParams.__annotations__),
    required=(("text_1", "queries", "data_1", "query"), ("text_2", "documents", "data_2", "items")),
)


def build_rerank(params: RerankParams, extra_body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Make the body of a rerank call.

    Raises:
        TypeError: an unknown or missing field, or one given twice with different values.
    """
    return RERANK.build(params, extra_body)


def build_score(params: ScoreParams, extra_body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Make the body of a score call.

    Raises:
        TypeError: an unknown or missing field, or one given twice with different values.
    """
    return SCORE.build(params, extra_body)


class RerankResult(WireModel):
    """The score of the document at `index` of the request."""

    index: int = 0
    relevance_score: MaybeFloat = Field(default=None, validation_alias=AliasChoices("relevance_score", "score"))
    document: Any = None

    @property
    def text(self) -> str | None:
        """The document's text, where the server sent it back."""
        found = self.document.get("text") if isinstance(self.document, Mapping) else self.document
        return found if isinstance(found, str) else None


class RerankResponse(Answer):
    """The documents, best first on most servers; `scores` has them in the order of the request."""

    id: MaybeStr = None
    model: MaybeStr = None
    results: Listed[RerankResult] = Field(default_factory=list)
    usage: Annotated[CompletionUsage | None, OR_NONE] = None

    @model_validator(mode="before")
    @classmethod
    def _other_frames(cls, value: Any) -> Any:
        # SGLang and text-embeddings-inference send the list itself, Voyage calls it `data`.
        if isinstance(value, list):
            return {"results": value}
        if isinstance(value, dict) and "results" not in value and isinstance(value.get("data"), list):
            return {**value, "results": value["data"]}
        return value

    @property
    def scores(self) -> dict[int, float | None]:
        """Scores by the document's place in the request, in that order; cut ones are missing."""
        return {row.index: row.relevance_score for row in sorted(self.results, key=lambda row: row.index)}


class ScoreData(WireModel):
    """The score of one pair."""

    index: MaybeInt = None
    score: MaybeFloat = None
    object: MaybeStr = None


class ScoreResponse(Answer):
    """The scores, one per pair; SGLang's `scores` per label are in `labels`."""

    id: MaybeStr = None
    object: MaybeStr = None
    model: MaybeStr = None
    data: Listed[ScoreData] = Field(default_factory=list)
    labels: Annotated[list[list[float | None]] | None, OR_NONE] = Field(default=None, alias="scores")
    usage: Annotated[CompletionUsage | None, OR_NONE] = None

    @property
    def scores(self) -> list[float | None]:
        """The scores in the order of the pairs."""
        return [row.score for row in self.data]
