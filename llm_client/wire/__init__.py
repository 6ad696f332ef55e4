"""The protocol. Bytes and mappings in, models and outcomes out; no I/O."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# The end of a request's path, after the base URL's /v1, to the word by which the rest of the package knows it.
ROUTES: Final[Mapping[str, str]] = MappingProxyType({
    "chat/completions": "chat",
    "completions": "completions",
    "responses": "responses",
    "embeddings": "embeddings",
    "models": "models",
    "rerank": "rerank",
    "score": "score",
    "tokenize": "tokenize",
    "detokenize": "detokenize",
    "audio/transcriptions": "transcriptions",
    "audio/translations": "transcriptions",
})  # fmt: skip

# Routes whose success is known only from the first content, so that an answer to them is read ahead.
PEEKED: Final = frozenset({"chat", "completions", "responses"})

# Everything else is passed through untouched.
OTHER: Final = "other"


def route_of(path: str) -> str:
    """Name the route of a path or URL path; `other` for anything unknown."""
    path = path.partition("?")[0].rstrip("/")
    last_two = "/".join(path.split("/")[-2:])
    return ROUTES.get(last_two) or ROUTES.get(path.rpartition("/")[2], OTHER)
