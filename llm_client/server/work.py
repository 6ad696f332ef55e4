"""What a request asks for, in the words of the engine; made by a route, answered by the same route."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from . import text


@dataclass(slots=True, kw_only=True)
class Work:
    """One request, read and checked.

    Attributes:
        prompt: what the answer depends on.
        prompt_tokens: what the whole input counts for.
        output_tokens: how long the answer is.
        natural: how long it would be if nothing cut it.
        width: how many choices.
        priority: the number in the body, if any.
        whole: the whole input, for the prefix cache.
        body: the parsed body.
    """

    model: str
    prompt: str
    prompt_tokens: int
    output_tokens: int
    natural: int
    whole: str = ""
    width: int = 1
    stream: bool = False
    priority: int | None = None
    body: Any = None
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))
    cached_tokens: int = 0
    _tokens: dict[int, list[str]] = field(default_factory=dict, repr=False)

    @property
    def finish_reason(self) -> str:
        """`length` when a limit cut the answer."""
        return "stop" if self.output_tokens >= self.natural else "length"

    def tokens(self, choice: int = 0) -> list[str]:
        """The tokens of one choice."""
        known = self._tokens.get(choice)
        if known is None:
            known = self._tokens[choice] = text.tokens(self.prompt, self.output_tokens, choice)
        return known

    def usage(self) -> dict[str, Any]:
        """The usage object of chat and completions."""
        completion = self.output_tokens * self.width
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


def lengths(prompt: str, limit: int | None, default: int | None, *, endless: bool, least: int = 0) -> tuple[int, int]:
    """How long an answer is, and how long it would be if nothing cut it.

    Args:
        prompt: what the answer depends on.
        limit: `max_tokens` of the request.
        default: the server's length for requests without a limit.
        endless: never stop before the limit (`ignore_eos`).
        least: `min_tokens` of the request.
    """
    natural = max(least, default or text.natural_length(prompt))
    if limit is None:
        return natural, natural
    if endless:
        return limit, max(limit + 1, natural)
    return min(limit, natural), natural
