"""The chunks of a chat or completions stream folded into the answer they spell."""

from __future__ import annotations

from typing import Any, Final

from llm_client.model import Usage
from llm_client.wire.content import JoinedText, thinking_of
from llm_client.wire.tool_calls import ToolCalls

_CHOICE_KEYS: Final = frozenset({"index", "delta", "message", "text", "finish_reason", "logprobs"})
_REASONING: Final = frozenset({"reasoning", "reasoning_content"})
_HEAD_KEYS: Final = frozenset({"choices", "usage", "object", "error"})
_OBJECTS: Final = {"chat": "chat.completion", "completions": "text_completion"}
_NUMBERS: Final = frozenset({int, float})  # as JSON gives them; a bool is none
_NO_FINISH: Final = frozenset({"error", "abort"})
_NO_DELTA: Final[dict[str, Any]] = {}


class Choice:
    """One choice as far as it is known."""

    __slots__ = (
        "content", "extra", "finish", "function", "index", "logprobs", "message_extra", "reasoning", "reasoning_key",
        "refusal", "role", "spoke", "tools",
    )  # fmt: skip

    def __init__(self, index: int) -> None:
        """Start empty."""
        self.index = index
        self.content: list[str] = []
        self.spoke = False  # a content of "" was sent, which differs from null
        self.reasoning: list[str] = []
        self.reasoning_key = "reasoning_content"
        self.refusal: list[str] = []
        self.tools: ToolCalls | None = None
        self.function: dict[str, Any] | None = None
        self.role: str | None = None
        self.finish: str | None = None
        self.logprobs: dict[str, Any] | None = None
        self.extra: dict[str, Any] = {}
        self.message_extra: dict[str, Any] = {}

    def add(self, raw: dict[str, Any]) -> int:
        """Fold one choice of a chunk; return how much of it is news to the caller."""
        news = 0
        delta = raw.get("delta")
        if type(delta) is not dict:
            delta = _other_delta(raw)
        content = delta.get("content")
        if content:
            if type(content) is str:
                self.content.append(content)
                news = 1
            else:
                news = self._add_parts(content)
        elif content is not None:
            self.spoke = True
        if len(delta) > 1 or (content is None and delta):
            news += self._add_rare(delta)
        finish = raw.get("finish_reason")
        # Most servers send index, delta, finish_reason and perhaps `logprobs: null`, and nothing else.
        if len(raw) > 4 or ((len(raw) > 3 or "finish_reason" not in raw) and raw.get("logprobs", raw) is not None):
            self._add_extra(raw)
        if finish and self.finish is None:
            self.finish = str(finish)
        return news

    def _add_rare(self, delta: dict[str, Any]) -> int:
        """Fold what few deltas have; return how much of it is news to the caller."""
        news = 0
        thought = False
        for key, value in delta.items():
            if value is None or key == "content":
                continue
            if key in _REASONING:
                if value and isinstance(value, str) and not thought:
                    thought = True  # some servers send both fields, with the same text
                    self.reasoning.append(value)
                    self.reasoning_key = key
                    news += 1
            elif key == "role":
                self.role = value if value and isinstance(value, str) else self.role
            elif key == "tool_calls":
                news += self._add_tools(value)
            else:
                news += self._add_oddity(key, value)
        return news

    def _add_tools(self, value: object) -> int:
        if self.tools is None:
            self.tools = ToolCalls()
        return int(self.tools.add(value))

    def _add_oddity(self, key: str, value: Any) -> int:
        if key == "refusal" and isinstance(value, str):
            if value:
                self.refusal.append(value)
            return int(bool(value))
        if key == "function_call" and isinstance(value, dict):
            return self._add_function(value)
        self.message_extra[key] = value
        return int(key == "audio" and bool(value))

    def _add_parts(self, content: object) -> int:
        """Fold a content that came as a list of parts; return whether it said anything."""
        if not isinstance(content, list):
            return 0
        joined = JoinedText(content)
        thought = thinking_of(joined)
        if thought:
            self.reasoning.append(thought)
        if joined:
            self.content.append(str(joined))
        return int(bool(joined or thought))

    def _add_extra(self, raw: dict[str, Any]) -> None:
        """Keep log-probabilities and whatever a server adds to its choices."""
        for key, value in raw.items():
            if value is None:
                continue
            if key == "logprobs":
                self._add_logprobs(value)
            elif key not in _CHOICE_KEYS:
                self.extra[key] = value

    def _add_function(self, function: dict[str, Any]) -> int:
        if self.function is None:
            self.function = {"name": "", "arguments": ""}
        for key in ("name", "arguments"):
            part = function.get(key)
            if isinstance(part, str):
                self.function[key] += part
        return 1

    def _add_logprobs(self, value: object) -> None:
        if not isinstance(value, dict):
            return
        if self.logprobs is None:
            self.logprobs = {}
        for key, items in value.items():
            known = self.logprobs.get(key)
            if isinstance(known, list) and isinstance(items, list):
                known.extend(items)
            elif items is not None or key not in self.logprobs:
                self.logprobs[key] = list(items) if isinstance(items, list) else items

    def message(self, answer_id: str) -> dict[str, Any]:
        """Return the message the deltas spell."""
        text = "".join(self.content)
        message: dict[str, Any] = {"role": self.role or "assistant"}
        calls = self.tools.finished(answer_id) if self.tools else []
        message["content"] = text if text or (self.spoke and not calls and self.function is None) else None
        if self.reasoning:
            message[self.reasoning_key] = "".join(self.reasoning)
        if self.refusal:
            message["refusal"] = "".join(self.refusal)
        if calls:
            message["tool_calls"] = calls
        if self.function is not None:
            message["function_call"] = self.function
        return {**message, **self.message_extra}


class Assembly:
    """What a chat or completions stream has said so far.

    Attributes:
        choices: by index.
        usage: the last usage object; servers that repeat it send running totals.
        news: how many deltas told the caller something.
        stopped: the choice whose finish reason, `error` or `abort`, is no finish.
    """

    __slots__ = ("_head", "_route", "_width", "choices", "news", "stopped", "usage")

    def __init__(self, route: str) -> None:
        """Start empty."""
        self.choices: dict[int, Choice] = {}
        self.usage: dict[str, Any] | None = None
        self.news = 0
        self.stopped: dict[str, Any] | None = None
        self._route = route
        self._head: dict[str, Any] = {}
        self._width = -1  # the number of keys of the chunks so far: another number means a new key

    def add(self, data: dict[str, Any]) -> None:
        """Fold one chunk. On the path of every token."""
        usage = data.get("usage")
        if usage and type(usage) is dict:
            self.usage = usage
        if len(data) != self._width:
            self._add_head(data)
        choices = data.get("choices")
        if not choices or type(choices) is not list:
            if "done" in data:
                self._add_native(data)
            return
        for position, raw in enumerate(choices):
            if type(raw) is not dict:
                continue
            index = raw.get("index")
            if type(index) is not int:
                index = position
            choice = self.choices.get(index)
            if choice is None:
                choice = self._open(index)
            self.news += choice.add(raw)
            if choice.finish is not None:
                self._add_head(data)
                self.stopped = raw if choice.finish in _NO_FINISH else self.stopped

    def _add_native(self, data: dict[str, Any]) -> None:
        """Fold a line of Ollama's own API, which some proxies pass through."""
        message = data.get("message")
        delta = message if isinstance(message, dict) else {"content": data.get("response")}
        thought = delta.get("thinking")
        if thought:
            delta = {**delta, "reasoning": thought}
        finish = (data.get("done_reason") or "stop") if data.get("done") is True else None
        choice = self.choices.get(0) or self._open(0)
        self.news += choice.add({"delta": delta, "finish_reason": finish})

    def add_finish(self, data: dict[str, Any]) -> None:
        """Take only the finish reasons of a chunk that carries an error as well."""
        choices = data.get("choices")
        for position, raw in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(raw, dict) and raw.get("finish_reason"):
                index = raw.get("index")
                index = index if type(index) is int else position
                choice = self.choices.get(index) or self._open(index)
                choice.finish = choice.finish or str(raw["finish_reason"])

    @property
    def finished(self) -> bool:
        """Whether every choice seen has a finish reason."""
        return bool(self.choices) and all(choice.finish is not None for choice in self.choices.values())

    @property
    def tokens(self) -> Usage | None:
        """The usage as numbers; None when the server sent none."""
        return read_usage(self.usage)

    def text(self, index: int = 0) -> str:
        """Return the content of one choice so far."""
        choice = self.choices.get(index)
        return "".join(choice.content) if choice else ""

    def body(self) -> dict[str, Any]:
        """Return the complete, non-streamed body the chunks amount to."""
        ident = self._head.get("id")
        answer_id = ident if isinstance(ident, str) else ""
        choices: list[dict[str, Any]] = []
        for _, choice in sorted(self.choices.items()):
            spelled = choice.message(answer_id)
            entry: dict[str, Any] = {"index": choice.index}
            if self._route == "completions":
                entry["text"] = spelled["content"] or ""
            else:
                entry["message"] = spelled
            choices.append({**entry, "logprobs": choice.logprobs, "finish_reason": choice.finish, **choice.extra})
        body = {
            **self._head,
            "object": _OBJECTS.get(self._route, "chat.completion"),
            "choices": choices,
        }
        if self.usage is not None:
            body["usage"] = self.usage
        return body

    def _open(self, index: int) -> Choice:
        self.choices[index] = made = Choice(index)
        return made

    def _add_head(self, data: dict[str, Any]) -> None:
        """Keep the first real value of id, model and created; the last of everything a server adds."""
        self._width = len(data)
        for key, value in data.items():
            if key in _HEAD_KEYS or value is None:
                continue
            if key not in {"id", "model", "created"} or not self._head.get(key):
                self._head[key] = value
        if self.usage is None:
            self.usage = usage_of(data)


def usage_of(data: dict[str, Any]) -> dict[str, Any] | None:
    """Find the token counts of an answer or a chunk, whatever their place; None when the server sent none."""
    usage = data.get("usage")
    if usage and isinstance(usage, dict):
        return usage
    groq = data.get("x_groq")
    found = groq.get("usage") if isinstance(groq, dict) else None
    return found if isinstance(found, dict) else None


def as_chunk(body: dict[str, Any]) -> dict[str, Any]:
    """Turn a complete body into the one chunk a stream would have needed."""
    given = body.get("choices")
    choices = [_as_delta(choice) for choice in given] if isinstance(given, list) else []
    kind = "chat.completion.chunk" if body.get("object") == _OBJECTS["chat"] else body.get("object")
    return {**body, "object": kind, "choices": choices}


def _as_delta(choice: Any) -> Any:
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return choice
    delta = choice["message"]
    calls = delta.get("tool_calls")
    if isinstance(calls, list):
        numbered = [{"index": index, **call} for index, call in enumerate(calls) if isinstance(call, dict)]
        delta = {**delta, "tool_calls": numbered}
    return {**{name: value for name, value in choice.items() if name != "message"}, "delta": delta}


def read_usage(usage: object) -> Usage | None:
    """Read a usage object of either API; null members stay unknown."""
    if not isinstance(usage, dict):
        return None
    return Usage(
        prompt_tokens=_count(usage, "prompt_tokens", "input_tokens"),
        completion_tokens=_count(usage, "completion_tokens", "output_tokens"),
        total_tokens=_count(usage, "total_tokens", "total_tokens"),
    )


def _count(usage: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value: Any = usage.get(name)
        if type(value) in _NUMBERS and 0 <= value <= 1e15:
            return int(value)
    return None


def _other_delta(raw: dict[str, Any]) -> dict[str, Any]:
    """Find the delta under its other names."""
    message = raw.get("message")
    if isinstance(message, dict):
        return message
    text = raw.get("text")
    return {"content": text} if isinstance(text, str) else _NO_DELTA
