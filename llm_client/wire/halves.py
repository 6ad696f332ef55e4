"""Surrogate pairs that a server split over two deltas, joined again before anybody sees half of one.

JSON may escape the two halves of an emoji in different chunks. Each half alone breaks the first encoder it meets, so
the first is held back until the second comes; a half that stays alone becomes U+FFFD.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from llm_client.wire.unicode import clean_tree

_FIELDS: Final = ("content", "text", "reasoning", "reasoning_content", "refusal")


class Halves:
    """High halves that wait for their low ones, by choice and field."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        """Start with none."""
        self._waiting: dict[tuple[object, str], str] = {}

    def __bool__(self) -> bool:
        """Tell whether a half waits, so that the next chunk must pass through here."""
        return bool(self._waiting)

    def join(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return a chunk with whole characters only; the chunk is changed in place where it must be."""
        for key, holder, ends in _holders(data):
            for field in _FIELDS if key != "delta" else ("delta",):
                value = holder.get(field)
                held = self._waiting.get((key, field))
                if held is not None and (isinstance(value, str) or ends):
                    value = self._waiting.pop((key, field)) + (value if isinstance(value, str) else "")
                    holder[field] = value
                if isinstance(value, str) and not ends and "\ud800" <= value[-1:] <= "\udbff":
                    self._waiting[key, field] = value[-1]
                    holder[field] = value[:-1]
        cleaned: dict[str, Any] = clean_tree(data)
        return cleaned


def _holders(data: dict[str, Any]) -> Iterator[tuple[object, dict[str, Any], bool]]:
    """Find the objects that hold text: a key for each, the object, and whether it is the last of its kind."""
    if isinstance(data.get("delta"), str):
        yield "delta", data, False
    choices = data.get("choices")
    for position, choice in enumerate(choices if isinstance(choices, list) else ()):
        if isinstance(choice, dict):
            index = choice.get("index")
            delta = choice.get("delta")
            holder = delta if isinstance(delta, dict) else choice.get("message")
            yield (
                index if isinstance(index, int) else position,
                holder if isinstance(holder, dict) else choice,
                bool(choice.get("finish_reason")),
            )
