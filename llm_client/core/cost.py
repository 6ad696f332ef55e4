"""What a call will cost in tokens, guessed from its size and learned from `usage`.

No tokenizer and no network: a guess that is settled afterwards needs neither a vocabulary nor its download, and text
that spells a special token is text like any other.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from llm_client.model import Cost, Size, Usage

# English in common vocabularies has about four bytes a token; code, Chinese and base64 have less.
_BYTES_PER_TOKEN: Final = 4.0
_FEWEST_BYTES: Final = 1.5
_MOST_BYTES: Final = 8.0
# One answer moves a mean by a twentieth: twenty answers to learn, none to spoil it.
_WEIGHT: Final = 0.05
# An image costs between 85 and some 1,500 tokens on most servers.
_MEDIA_TOKENS: Final = 500.0
_MOST_MEDIA_TOKENS: Final = 100_000.0
# Before the first answer: long enough for most chats, short enough not to reserve a limit away.
_FIRST_OUTPUT: Final = 512
# Seven of ten answers are at most as long as the guess; the others are settled.
_QUANTILE: Final = 0.7
_RECENT: Final = 64
# Model names are the caller's words; so many are remembered.
_MOST_MODELS: Final = 256


@dataclass(slots=True)
class _Model:
    """What was learned about one model."""

    bytes_per_token: float = _BYTES_PER_TOKEN
    outputs: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))
    typical: float = _FIRST_OUTPUT


class Estimator:
    """Guesses costs per model and mends the guess after each answer. Guarded by its owner.

    A prompt is bytes / (bytes per token), an output the smaller of the caller's bound and what seven of ten recent
    answers of this model did not exceed.
    """

    __slots__ = ("_media", "_models", "_pessimistic")

    def __init__(self, *, pessimistic: bool = False) -> None:
        """Start with nothing learned.

        Args:
            pessimistic: reserve the caller's whole output bound, as servers do that book `max_tokens` at arrival.
        """
        self._pessimistic = pessimistic
        self._models: OrderedDict[str, _Model] = OrderedDict()
        self._media: dict[str, float] = {}

    def estimate(
        self,
        model: str | None,
        size: Size,
        *,
        max_tokens: int | None = None,
        choices: int = 1,
        dialect: str = "",
        generates: bool = True,
    ) -> Cost:
        """Guess what a call will cost, in whole tokens.

        Args:
            model: as the call names it.
            size: what of the request costs tokens.
            max_tokens: the caller's bound on one choice, if any.
            choices: the `n` of the request.
            dialect: of the endpoint; media cost differently on each.
            generates: False for routes without an output, such as embeddings.
        """
        known = self._models.get(model or "")
        ratio = _BYTES_PER_TOKEN if known is None else known.bytes_per_token
        prompt = size.text / ratio + size.media * self._media.get(dialect, _MEDIA_TOKENS) + size.tokens
        if not generates:
            return Cost(prompt=ceil(prompt))
        bound = None if max_tokens is None else max(0, max_tokens) * max(1, choices)
        typical = _FIRST_OUTPUT if known is None else ceil(known.typical)
        if bound is None:
            return Cost(prompt=ceil(prompt), output=typical)
        return Cost(prompt=ceil(prompt), output=bound if self._pessimistic else min(bound, typical))

    def learn(self, model: str | None, size: Size, usage: Usage, *, dialect: str = "") -> None:
        """Take in what one answer did cost; counts that are missing or absurd teach nothing."""
        known = self._known(model or "")
        prompt = usage.prompt_tokens
        if prompt is not None and prompt > 0:
            if size.media:
                old = self._media.get(dialect, _MEDIA_TOKENS)
                seen = (prompt - size.tokens - size.text / known.bytes_per_token) / size.media
                seen = min(max(seen, 0.0), _MOST_MEDIA_TOKENS)
                self._media[dialect] = old + _WEIGHT * (seen - old)
            elif size.text and prompt > size.tokens:
                seen = min(max(size.text / (prompt - size.tokens), _FEWEST_BYTES), _MOST_BYTES)
                known.bytes_per_token += _WEIGHT * (seen - known.bytes_per_token)
        output = usage.completion_tokens
        if output is not None and output >= 0:
            known.outputs.append(output)
            ordered = sorted(known.outputs)
            seen = ordered[ceil(_QUANTILE * len(ordered)) - 1]
            # Of calls that began together the short answers come first: the guess rises at once and falls slowly, or
            # a burst of short ones would promise that all are short.
            known.typical = max(seen, known.typical + _WEIGHT * (seen - known.typical))

    def _known(self, model: str) -> _Model:
        known = self._models.get(model)
        if known is None:
            known = self._models[model] = _Model()
            if len(self._models) > _MOST_MODELS:
                self._models.popitem(last=False)
        else:
            self._models.move_to_end(model)
        return known
