"""What a request asks for, in the words of the engine; made by a route, answered by the same route."""

from __future__ import annotations

import json
import re
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from . import text


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The call of a tool instead of a text."""

    id: str
    name: str
    arguments: str


@dataclass(slots=True, kw_only=True)
class Work:
    """One request, read and checked.

    Attributes:
        prompts: what the answer depends on; each has `each` choices.
        prompt_tokens: what the whole input counts for.
        output_tokens: how long the answer of one choice is.
        natural: how long it would be if nothing cut it.
        priority: the number in the body, if any.
        whole: the whole input, for the prefix cache.
        body: the parsed body.
        fixed: the pieces of the answer when they are not words made from the prompt.
        call: the tool that is called; `fixed` are the pieces of its arguments.
        before: for a route to keep the bytes that stand before each token of a choice.
    """

    model: str
    prompts: tuple[str, ...]
    prompt_tokens: int
    output_tokens: int
    natural: int
    whole: str = ""
    each: int = 1
    stream: bool = False
    priority: int | None = None
    body: Any = None
    fixed: list[str] | None = None
    call: ToolCall | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))
    cached_tokens: int = 0
    before: list[bytes] = field(default_factory=list, repr=False)
    _tokens: dict[int, list[str]] = field(default_factory=dict, repr=False)

    @property
    def width(self) -> int:
        """How many choices the answer has."""
        return len(self.prompts) * self.each

    @property
    def finish_reason(self) -> str:
        """`length` when a limit cut the answer."""
        if self.output_tokens < self.natural:
            return "length"
        return "tool_calls" if self.call is not None else "stop"

    def tokens(self, choice: int = 0) -> list[str]:
        """The tokens of one choice."""
        if self.fixed is not None:
            return self.fixed[: self.output_tokens]
        known = self._tokens.get(choice)
        if known is None:
            prompt = self.prompts[choice // self.each]
            known = self._tokens[choice] = text.tokens(prompt, self.output_tokens, choice % self.each)
        return known

    def say(self, words: str, limit: int | None = None) -> None:
        """Answer `words` instead of what the prompt would give.

        Args:
            words: the text.
            limit: tokens at most.
        """
        self.fixed = pieces(words)
        self.natural = max(1, len(self.fixed))
        self.output_tokens = min(self.natural, limit or self.natural)

    def call_tool(self, name: str, arguments: Any, limit: int | None = None) -> None:
        """Call a tool instead of answering text."""
        self.say(json.dumps(arguments, ensure_ascii=False), limit)
        self.call = ToolCall(f"call_{self.id}", name, "".join(self.tokens()))

    def usage(self) -> dict[str, Any]:
        """The usage object of chat and completions."""
        completion = self.output_tokens * self.width
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


def pieces(words: str) -> list[str]:
    """A text cut before each space, as most tokenizers would, and nothing lost."""
    return re.findall(r" ?[^ ]+| ", words) or [""]


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
