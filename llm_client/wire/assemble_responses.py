"""The events of a Responses API stream folded into the answer they spell."""

from __future__ import annotations

from typing import Any, Final

from llm_client.model import Usage
from llm_client.wire.assemble import read_usage

ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_REASONS: Final = {"max_output_tokens": "length"}


class ResponseAssembly:
    """What a Responses API stream has said so far.

    Attributes:
        final: the response object of the terminal event, which is the complete body.
        news: how many deltas told the caller something.
    """

    __slots__ = ("_items", "_last", "_reasoning", "_text", "final", "news")

    def __init__(self) -> None:
        """Start empty."""
        self.final: dict[str, Any] | None = None
        self.news = 0
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._items: list[dict[str, Any]] = []
        self._last: dict[str, Any] = {}

    def add(self, kind: str, data: dict[str, Any]) -> None:
        """Fold one event. On the path of every token."""
        delta = data.get("delta")
        if delta and kind.endswith(".delta"):
            self.news += 1
            if kind == "response.output_text.delta" and type(delta) is str:
                self._text.append(delta)
            elif "reasoning" in kind and type(delta) is str:
                self._reasoning.append(delta)
            return
        response = data.get("response")
        if isinstance(response, dict):
            self._last = response
            if kind in ENDS:
                self.final = response
        elif kind == "response.output_item.done" and isinstance(data.get("item"), dict):
            self._items.append(data["item"])

    @property
    def text(self) -> str:
        """The output text so far."""
        return "".join(self._text) or output_text(self.final)

    @property
    def reasoning(self) -> str:
        """The reasoning so far, as far as the server shows it."""
        return "".join(self._reasoning)

    @property
    def tokens(self) -> Usage | None:
        """The usage of the terminal event."""
        return read_usage((self.final or {}).get("usage"))

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended, in the words of the chat API."""
        return finish_of(self.final)

    def body(self) -> dict[str, Any]:
        """Return the complete response object; before the terminal event, what is known of it."""
        body = dict(self.final or self._last)
        if not body.get("output"):
            body["output"] = list(self._items) or self._spelled()
        return body

    def _spelled(self) -> list[dict[str, Any]]:
        if not self._text:
            return []
        part = {"type": "output_text", "text": self.text, "annotations": []}
        return [{"type": "message", "role": "assistant", "content": [part]}]


def output_text(response: dict[str, Any] | None) -> str:
    """Join the output text of a response object."""
    found: list[str] = []
    output = (response or {}).get("output")
    for item in output if isinstance(output, list) else ():
        content = item.get("content") if isinstance(item, dict) and item.get("type") == "message" else None
        found.extend(
            part["text"]
            for part in (content if isinstance(content, list) else ())
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return "".join(found)


def finish_of(response: dict[str, Any] | None) -> str | None:
    """Translate a response object's status: completed is `stop`, out of tokens is `length`."""
    status = (response or {}).get("status")
    if status == "completed":
        return "stop"
    if status == "incomplete":
        details = (response or {}).get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        return _REASONS.get(reason, reason) if isinstance(reason, str) else status
    return None
