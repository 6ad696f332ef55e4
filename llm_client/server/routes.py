"""The common part of every inference route: how a body becomes work and work becomes bytes."""

from __future__ import annotations

import json
from typing import Any, Protocol

from pydantic import BaseModel

from . import text
from .schema import ChatRequest, InferRequest
from .settings import Settings
from .work import Work, lengths

DONE = b"data: [DONE]\n\n"


def dump(value: Any) -> bytes:
    """Compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


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


class Infer:
    """`/infer`: `{"prompt", "max_tokens"}` gives `{"result"}`."""

    path = "/infer"
    name = "infer"
    body: type[BaseModel] = InferRequest

    def work(self, body: InferRequest, settings: Settings) -> Work:
        """Read a checked body."""
        count, natural = lengths(body.prompt, body.max_tokens, settings.tokens, endless=False)
        return Work(
            model=body.model or settings.models[0],
            prompt=body.prompt,
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

    def opening(self, work: Work) -> list[bytes]:
        """`/infer` has no stream."""
        raise NotImplementedError(work.id)

    def deltas(self, work: Work, start: int, stop: int) -> list[bytes]:
        """`/infer` has no stream."""
        raise NotImplementedError(work.id, start, stop)

    def closing(self, work: Work) -> list[bytes]:
        """`/infer` has no stream."""
        raise NotImplementedError(work.id)


class Chat:
    """`/v1/chat/completions`."""

    path = "/v1/chat/completions"
    name = "chat"
    body: type[BaseModel] = ChatRequest

    def work(self, body: ChatRequest, settings: Settings) -> Work:
        """Read a checked body; the answer depends on the last message."""
        parts = [content_text(message.content) for message in body.messages]
        limit = body.max_completion_tokens or body.max_tokens
        count, natural = lengths(
            parts[-1], limit, settings.tokens, endless=body.ignore_eos, least=body.min_tokens
        )  # fmt: skip
        whole = "\n".join(f"{message.role}: {part}" for message, part in zip(body.messages, parts, strict=True))
        return Work(
            model=body.model or settings.models[0],
            prompt=parts[-1],
            whole=whole,
            prompt_tokens=text.count_tokens(whole),
            output_tokens=count,
            natural=natural,
            width=body.n,
            stream=bool(body.stream),
            priority=body.priority,
            body=body,
        )

    def answer(self, work: Work) -> dict[str, Any]:
        """The whole answer."""
        return {
            "id": f"chatcmpl-{work.id}",
            "object": "chat.completion",
            "created": work.created,
            "model": work.model,
            "choices": [
                {
                    "index": choice,
                    "message": {"role": "assistant", "content": "".join(work.tokens(choice)), "refusal": None},
                    "logprobs": None,
                    "finish_reason": work.finish_reason,
                }
                for choice in range(work.width)
            ],
            "usage": work.usage(),
        }

    def opening(self, work: Work) -> list[bytes]:
        """One chunk with the role for each choice."""
        delta = {"role": "assistant", "content": "", "refusal": None}
        return [self._chunk(work, choice, delta) for choice in range(work.width)]

    def deltas(self, work: Work, start: int, stop: int) -> list[bytes]:
        """One chunk for each token of each choice."""
        return [
            self._chunk(work, choice, {"content": work.tokens(choice)[number]})
            for number in range(start, stop)
            for choice in range(work.width)
        ]

    def closing(self, work: Work) -> list[bytes]:
        """The finish reason, the usage if asked for, and the end marker."""
        out = [self._chunk(work, choice, {}, work.finish_reason) for choice in range(work.width)]
        options = work.body.stream_options
        if options is not None and options.include_usage:
            out.append(event({**self._head(work), "choices": [], "usage": work.usage()}))
        out.append(DONE)
        return out

    def _head(self, work: Work) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{work.id}",
            "object": "chat.completion.chunk",
            "created": work.created,
            "model": work.model,
        }

    def _chunk(self, work: Work, choice: int, delta: dict[str, Any], finish: str | None = None) -> bytes:
        body = {"index": choice, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**self._head(work), "choices": [body]})


def content_text(content: str | list[dict[str, Any]] | None) -> str:
    """The text of a message, its parts joined; other parts count by their kind only."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", f"[{part.get('type', 'part')}]")) for part in content)


ROUTES: tuple[Route, ...] = (Infer(), Chat())
