"""Tool calls put together from their deltas, however the server numbers them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class ToolCall:
    """One call as far as it is known."""

    index: int | None = None
    id: str = ""
    type: str = "function"
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)


class ToolCalls:
    """The calls of one choice, in the order in which they opened.

    A delta belongs to the call of its index; a new id on a used index opens another (servers that send index 0 for
    all of them). Without an index the id decides, without either the last call goes on.
    """

    __slots__ = ("_by_id", "_by_index", "calls")

    def __init__(self) -> None:
        """Start with none."""
        self.calls: list[ToolCall] = []
        self._by_index: dict[int, ToolCall] = {}
        self._by_id: dict[str, ToolCall] = {}

    def add(self, deltas: object) -> bool:
        """Fold the `tool_calls` of one delta; return whether it held any."""
        if not isinstance(deltas, list):
            return False
        seen = False
        for delta in deltas:
            if isinstance(delta, dict):
                self._add(delta, first=not seen)
                seen = True
        return seen

    def _add(self, delta: dict[str, Any], *, first: bool) -> None:
        function = delta.get("function")
        function = function if isinstance(function, dict) else {}
        name = _word(function.get("name"))
        call = self._find(delta, name, first=first)
        call.name = call.name or name
        call.type = _word(delta.get("type")) or call.type
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            call.arguments.append(arguments)
        elif arguments is not None:
            call.arguments.append(json.dumps(arguments, ensure_ascii=False, separators=(",", ":")))
        for key, value in delta.items():
            if value is not None and key not in {"index", "id", "type", "function"}:
                call.extra[key] = value

    def _find(self, delta: dict[str, Any], name: str, *, first: bool) -> ToolCall:
        index = delta.get("index")
        ident = _word(delta.get("id"))
        if isinstance(index, int) and not isinstance(index, bool):
            call = self._by_index.get(index)
            if call is None or (ident and call.id and call.id != ident):
                call = self._open(index)
        elif ident:
            call = self._by_id.get(ident) or self._open(None)
        elif self.calls and first and not (name and self.calls[-1].name and name != self.calls[-1].name):
            call = self.calls[-1]
        else:
            # Several calls in one delta, or one with another name, are calls of their own.
            call = self._open(None)
        if ident and not call.id:
            call.id = ident
            self._by_id[ident] = call
        return call

    def _open(self, index: int | None) -> ToolCall:
        call = ToolCall(index=index)
        self.calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def finished(self, answer_id: str) -> list[dict[str, Any]]:
        """Return the calls as a message holds them; a missing id is made up from the answer's own."""
        return [
            {
                "id": call.id or f"call_{answer_id or 'local'}_{number}",
                "type": call.type,
                "function": {"name": call.name, "arguments": "".join(call.arguments)},
                **call.extra,
            }
            for number, call in enumerate(self.calls)
        ]


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""
