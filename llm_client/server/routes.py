"""The common part of every inference route: how a body becomes work and work becomes bytes."""

from __future__ import annotations

import json
from typing import Any, Protocol

from pydantic import BaseModel

from . import text
from .schema import InferRequest
from .settings import Settings
from .work import Work, lengths

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
DONE = b"data: [DONE]\n\n"


def dump(value: Any) -> bytes:
    """Compact JSON in UTF-8; a lone surrogate, which UTF-8 cannot write, becomes a question mark."""
    return _ENCODE(value).encode("utf-8", "replace")


def event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + dump(value) + b"\n\n"


class Route(Protocol):
    """One kind of call."""

    path: str
    name: str
    body: type[BaseModel]

    def work(self, body: Any, settings: Settings) -> Work:
        """Read a checked body."""
        ...

    def answer(self, work: Work) -> dict[str, Any]:
        """The whole answer."""
        ...

    def opening(self, work: Work) -> list[bytes]:
        """Events before the first token."""
        ...

    def deltas(self, work: Work, start: int, stop: int) -> list[bytes]:
        """Events for the tokens from `start` up to `stop`."""
        ...

    def closing(self, work: Work) -> list[bytes]:
        """Events after the last token, the end marker included."""
        ...


class Whole:
    """A route that does not stream."""

    def opening(self, work: Work) -> list[bytes]:
        """Never called: its work has `stream` off."""
        raise NotImplementedError(work.id)

    def deltas(self, work: Work, start: int, stop: int) -> list[bytes]:
        """Never called: its work has `stream` off."""
        raise NotImplementedError(work.id, start, stop)

    def closing(self, work: Work) -> list[bytes]:
        """Never called: its work has `stream` off."""
        raise NotImplementedError(work.id)


class Infer(Whole):
    """The plain form: a prompt gives a result."""

    path = "/infer"
    name = "infer"
    body: type[BaseModel] = InferRequest

    def work(self, body: InferRequest, settings: Settings) -> Work:
        """Read a checked body."""
        count, natural = lengths(body.prompt, body.max_tokens, settings.tokens, endless=False)
        return Work(
            model=body.model or settings.models[0],
            prompts=(body.prompt,),
            whole=body.prompt,
            prompt_tokens=text.count_tokens(body.prompt),
            output_tokens=count,
            natural=natural,
            priority=body.priority,
            body=body,
        )

    def answer(self, work: Work) -> dict[str, Any]:
        """The whole answer."""
        return {"result": "".join(work.tokens())}
