"""`/v1/embeddings`, `/v1/rerank` and `/v1/score`: numbers instead of words, from shared pieces of text."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
from typing import Any

from pydantic import BaseModel

from . import text
from .completions import count_tokens, texts
from .routes import Whole
from .schema import EmbeddingRequest, RerankRequest, ScoreRequest
from .settings import Settings
from .work import Work

_DIMENSIONS = 256


def vector(words: str, dimensions: int) -> list[float]:
    """A unit vector; texts that share words point in similar directions."""
    out = [0.0] * dimensions
    for word in words.lower().split() or [""]:
        seed = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=32).digest()
        for start in range(0, 32, 4):
            place, sign = int.from_bytes(seed[start : start + 3], "big"), seed[start + 3] & 1
            out[place % dimensions] += 1.0 if sign else -1.0
    length = math.sqrt(sum(x * x for x in out))
    if length == 0:  # every piece met its opposite
        out[0] = length = 1.0
    return [x / length for x in out]


def similarity(one: str, other: str) -> float:
    """How much two texts share: 0 to 1."""
    pairs = zip(vector(one, _DIMENSIONS), vector(other, _DIMENSIONS), strict=True)
    return round((1 + sum(a * b for a, b in pairs)) / 2, 6)


def _work(body: Any, settings: Settings, prompts: tuple[str, ...], tokens: int) -> Work:
    return Work(
        model=body.model or settings.models[0],
        prompts=prompts,
        whole=prompts[0],
        prompt_tokens=tokens,
        output_tokens=1,  # one pass over the input, no decoding
        natural=1,
        priority=body.priority,
        body=body,
    )


def _usage(work: Work) -> dict[str, Any]:
    return {"prompt_tokens": work.prompt_tokens, "total_tokens": work.prompt_tokens}


class Embeddings(Whole):
    """Texts give vectors."""

    path = "/v1/embeddings"
    name = "embeddings"
    body: type[BaseModel] = EmbeddingRequest

    def work(self, body: EmbeddingRequest, settings: Settings) -> Work:
        """Read a checked body."""
        return _work(body, settings, texts(body.input), count_tokens(body.input))

    def answer(self, work: Work) -> dict[str, Any]:
        """The whole answer; base64 holds little-endian floats of four bytes."""
        rows: list[dict[str, Any]] = []
        for index, prompt in enumerate(work.prompts):
            values: Any = vector(prompt, work.body.dimensions or _DIMENSIONS)
            if work.body.encoding_format == "base64":
                values = base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()
            rows.append({"object": "embedding", "index": index, "embedding": values})
        return {"object": "list", "data": rows, "model": work.model, "usage": _usage(work)}


class Rerank(Whole):
    """Documents are put in order of how well they fit a query."""

    path = "/v1/rerank"
    name = "rerank"
    body: type[BaseModel] = RerankRequest

    def work(self, body: RerankRequest, settings: Settings) -> Work:
        """Read a checked body."""
        documents = tuple(_document(each) for each in body.documents)
        tokens = sum(text.count_tokens(body.query) + text.count_tokens(each) for each in documents)
        return _work(body, settings, (body.query, *documents), tokens)

    def answer(self, work: Work) -> dict[str, Any]:
        """The whole answer, best first."""
        query, *documents = work.prompts
        rows = [
            {"index": index, "relevance_score": similarity(query, each)}
            | ({"document": {"text": each}} if work.body.return_documents else {})
            for index, each in enumerate(documents)
        ]
        rows.sort(key=lambda row: (-float(str(row["relevance_score"])), row["index"]))
        count = len(rows) if work.body.top_n is None else work.body.top_n
        return {"id": f"rerank-{work.id}", "model": work.model, "results": rows[:count], "usage": _usage(work)}


class Score(Whole):
    """Pairs of texts get a number each."""

    path = "/v1/score"
    name = "score"
    body: type[BaseModel] = ScoreRequest

    def work(self, body: ScoreRequest, settings: Settings) -> Work:
        """Read a checked body; one text against many, or as many against as many."""
        ones, others = texts(body.text_1), texts(body.text_2)
        if len(ones) not in {1, len(others)}:
            raise ValueError("text_1: expected one text, or as many as text_2 has")
        ones = ones * len(others) if len(ones) == 1 else ones
        prompts = tuple(f"{one}\n{other}" for one, other in zip(ones, others, strict=True))
        work = _work(body, settings, prompts, sum(map(text.count_tokens, prompts)))
        work.fixed = [str(similarity(one, other)) for one, other in zip(ones, others, strict=True)]
        return work

    def answer(self, work: Work) -> dict[str, Any]:
        """The whole answer."""
        scores = enumerate(work.fixed or [])
        rows = [{"index": index, "object": "score", "score": float(each)} for index, each in scores]
        return {
            "id": f"score-{work.id}", "object": "list", "created": work.created, "model": work.model,
            "data": rows, "usage": _usage(work),
        }  # fmt: skip


def _document(document: str | dict[str, Any]) -> str:
    return document if isinstance(document, str) else str(document.get("text", ""))
