"""`/v1/completions`: text continues."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from . import text
from .routes import DONE, event
from .schema import CompletionRequest
from .settings import Settings
from .work import Work, lengths

_DEFAULT_TOKENS = 16  # what the API gives when the request names no limit


class Completions:
    """A prompt, or several, gives its continuation."""

    path = "/v1/completions"
    name = "completions"
    body: type[BaseModel] = CompletionRequest

    def work(self, body: CompletionRequest, settings: Settings) -> Work:
        """Read a checked body; token ids count as what they are and read as their numbers."""
        prompts = texts(body.prompt)
        limit = body.max_tokens or settings.tokens or _DEFAULT_TOKENS
        count, natural = lengths(
            prompts[0], limit, settings.tokens, endless=body.ignore_eos, least=body.min_tokens
        )  # fmt: skip
        return Work(
            model=body.model or settings.models[0],
            prompts=prompts,
            each=body.n or 1,
            whole=prompts[0],
            prompt_tokens=count_tokens(body.prompt),
            output_tokens=count,
            natural=natural,
            stream=bool(body.stream),
            priority=body.priority,
            body=body,
        )

    def answer(self, work: Work) -> dict[str, Any]:
        """The whole answer."""
        echo = work.body.echo
        return {
            **self._head(work),
            "choices": [
                {
                    "index": choice,
                    "text": (work.prompts[choice // work.each] if echo else "") + "".join(work.tokens(choice)),
                    "logprobs": self._logprobs(work, choice),
                    "finish_reason": work.finish_reason,
                }
                for choice in range(work.width)
            ],
            "usage": work.usage(),
        }

    def opening(self, work: Work) -> list[bytes]:
        """The prompts, if they are to be echoed."""
        if not work.body.echo:
            return []
        return [self._chunk(work, choice, work.prompts[choice // work.each]) for choice in range(work.width)]

    def deltas(self, work: Work, start: int, stop: int) -> list[bytes]:
        """One chunk for each token of each choice."""
        return [
            self._chunk(work, choice, work.tokens(choice)[number])
            for number in range(start, stop)
            for choice in range(work.width)
        ]

    def closing(self, work: Work) -> list[bytes]:
        """The finish reason, the usage if asked for, and the end marker."""
        out = [self._chunk(work, choice, "", work.finish_reason) for choice in range(work.width)]
        options = work.body.stream_options
        if options is not None and options.include_usage:
            out.append(event({**self._head(work), "choices": [], "usage": work.usage()}))
        out.append(DONE)
        return out

    def _head(self, work: Work) -> dict[str, Any]:
        return {"id": f"cmpl-{work.id}", "object": "text_completion", "created": work.created, "model": work.model}

    def _chunk(self, work: Work, choice: int, words: str, finish: str | None = None) -> bytes:
        body = {"index": choice, "text": words, "logprobs": None, "finish_reason": finish}
        return event({**self._head(work), "choices": [body]})

    def _logprobs(self, work: Work, choice: int) -> dict[str, Any] | None:
        if work.body.logprobs is None:
            return None
        tokens = work.tokens(choice)
        offsets = [0]
        for token in tokens[:-1]:
            offsets.append(offsets[-1] + len(token))
        values = [-0.01 * (1 + len(token)) for token in tokens]
        top = [{token: value} for token, value in zip(tokens, values, strict=True)]
        return {"tokens": tokens, "token_logprobs": values, "top_logprobs": top, "text_offset": offsets}


def texts(prompt: str | list[Any]) -> tuple[str, ...]:
    """The prompts as texts."""
    if isinstance(prompt, str):
        return (prompt,)
    if isinstance(prompt[0], int):
        return (" ".join(map(str, prompt)),)
    return tuple(each if isinstance(each, str) else " ".join(map(str, each)) for each in prompt)


def count_tokens(prompt: str | list[Any]) -> int:
    """What the prompts count for."""
    if isinstance(prompt, str):
        return text.count_tokens(prompt)
    if isinstance(prompt[0], int):
        return len(prompt)
    return sum(text.count_tokens(each) if isinstance(each, str) else len(each) for each in prompt)
