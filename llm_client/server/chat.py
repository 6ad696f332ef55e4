"""`/v1/chat/completions`: text, tool calls, structured output, log probabilities, streams."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from . import text
from .routes import DONE, dump, event
from .sample import sample
from .schema import ChatRequest, Message, Tool
from .settings import Settings
from .work import Work, lengths

_AFTER = b'},"logprobs":null,"finish_reason":null}]}\n\n'


class Chat:
    """A conversation gives the next message."""

    path = "/v1/chat/completions"
    name = "chat"
    body: type[BaseModel] = ChatRequest

    def work(self, body: ChatRequest, settings: Settings) -> Work:
        """Read a checked body; the answer depends on the last message."""
        parts = [content_text(message.content) for message in body.messages]
        limit = body.max_completion_tokens or body.max_tokens
        last = parts[-1]
        count, natural = lengths(last, limit, settings.tokens, endless=body.ignore_eos, least=body.min_tokens)
        whole = "\n".join(f"{message.role}: {part}" for message, part in zip(body.messages, parts, strict=True))
        work = Work(
            model=body.model or settings.models[0],
            prompts=(last,),
            each=body.n or 1,
            whole=whole,
            prompt_tokens=text.count_tokens(whole),
            output_tokens=count,
            natural=natural,
            stream=bool(body.stream),
            priority=body.priority,
            body=body,
        )
        tool = choose_tool(body.tools or [], body.tool_choice, body.messages, last)
        if tool is not None:
            word = text.tokens(last, 2)[1].strip()
            work.call_tool(tool.function.name, sample(tool.function.parameters or {}, word), limit)
        elif (structured := structured_answer(body.response_format, last)) is not None:
            work.say(structured, limit)
        return work

    def answer(self, work: Work) -> dict[str, Any]:
        """The whole answer."""
        return {
            **self._head(work, "chat.completion"),
            "choices": [
                {
                    "index": choice,
                    "message": self._message(work, choice),
                    "logprobs": self._logprobs(work, choice, 0, work.output_tokens),
                    "finish_reason": work.finish_reason,
                }
                for choice in range(work.width)
            ],
            "usage": work.usage(),
        }

    def opening(self, work: Work) -> list[bytes]:
        """One chunk with the role for each choice, and the name of the tool."""
        delta: dict[str, Any] = {"role": "assistant", "content": "", "refusal": None}
        if work.call is not None:
            function = {"name": work.call.name, "arguments": ""}
            delta |= {
                "content": None,
                "tool_calls": [{"index": 0, "id": work.call.id, "type": "function", "function": function}],
            }
        return [self._chunk(work, choice, delta) for choice in range(work.width)]

    def deltas(self, work: Work, start: int, stop: int) -> list[bytes]:
        """One chunk for each token of each choice."""
        if work.call is None and not work.body.logprobs:
            before = work.before
            if not before:
                before.extend(self._before(work, choice) for choice in range(work.width))
            return [
                before[choice] + dump(work.tokens(choice)[number]) + _AFTER
                for number in range(start, stop)
                for choice in range(work.width)
            ]
        return [
            self._chunk(work, choice, self._delta(work, choice, number), logprobs=(number, number + 1))
            for number in range(start, stop)
            for choice in range(work.width)
        ]

    def closing(self, work: Work) -> list[bytes]:
        """The finish reason, the usage if asked for, and the end marker."""
        out = [self._chunk(work, choice, {}, finish=work.finish_reason) for choice in range(work.width)]
        options = work.body.stream_options
        if options is not None and options.include_usage:
            out.append(event({**self._head(work), "choices": [], "usage": work.usage()}))
        out.append(DONE)
        return out

    def _head(self, work: Work, kind: str = "chat.completion.chunk") -> dict[str, Any]:
        return {"id": f"chatcmpl-{work.id}", "object": kind, "created": work.created, "model": work.model}

    def _before(self, work: Work, choice: int) -> bytes:
        head = dump(self._head(work))[:-1]
        return b'data: %s,"choices":[{"index":%d,"delta":{"content":' % (head, choice)

    def _delta(self, work: Work, choice: int, number: int) -> dict[str, Any]:
        token = work.tokens(choice)[number]
        if work.call is None:
            return {"content": token}
        return {"tool_calls": [{"index": 0, "function": {"arguments": token}}]}

    def _chunk(
        self,
        work: Work,
        choice: int,
        delta: dict[str, Any],
        *,
        finish: str | None = None,
        logprobs: tuple[int, int] | None = None,
    ) -> bytes:
        body = {
            "index": choice,
            "delta": delta,
            "logprobs": None if logprobs is None else self._logprobs(work, choice, *logprobs),
            "finish_reason": finish,
        }
        return event({**self._head(work), "choices": [body]})

    def _message(self, work: Work, choice: int) -> dict[str, Any]:
        if work.call is None:
            return {"role": "assistant", "content": "".join(work.tokens(choice)), "refusal": None}
        function = {"name": work.call.name, "arguments": work.call.arguments}
        calls = [{"id": work.call.id, "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}

    def _logprobs(self, work: Work, choice: int, start: int, stop: int) -> dict[str, Any] | None:
        if not work.body.logprobs:
            return None
        others = work.body.top_logprobs or 0
        return {"content": [logprob(token, others) for token in work.tokens(choice)[start:stop]], "refusal": None}


def logprob(token: str, others: int) -> dict[str, Any]:
    """The log probability of a token and of the words that almost came."""

    def row(word: str, value: float) -> dict[str, Any]:
        return {"token": word, "logprob": value, "bytes": list(word.encode("utf-8", "replace"))}

    value = -0.01 * (1 + len(token))
    near = [row(token if rank == 0 else " " + text.WORDS[rank], value - rank) for rank in range(others)]
    return {**row(token, value), "top_logprobs": near}


def content_text(content: str | list[dict[str, Any]] | None) -> str:
    """The text of a message, its parts joined; other parts count by their kind only."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", f"[{part.get('type', 'part')}]")) for part in content)


def choose_tool(tools: list[Tool], choice: Any, messages: list[Message], last: str) -> Tool | None:
    """The tool to call, or None for text.

    A named one when the request names it; with `required` the first that was not called yet, else the last;
    with `auto` one whose name the last message mentions, unless that message is a tool's result.
    """
    if not tools or choice == "none":
        return None
    if isinstance(choice, dict):
        wanted = choice.get("function", choice)
        name = wanted.get("name") if isinstance(wanted, dict) else None
        return next((tool for tool in tools if tool.function.name == name), tools[0])
    if choice == "required":
        called = {
            call.get("function", {}).get("name")
            for message in messages
            for call in message.tool_calls or ()
            if isinstance(call.get("function"), dict)
        }
        return next((tool for tool in tools if tool.function.name not in called), tools[-1])
    if messages[-1].role == "tool":
        return None
    return next((tool for tool in tools if tool.function.name in last), None)


def structured_answer(response_format: dict[str, Any] | None, prompt: str) -> str | None:
    """JSON text for a `response_format` that asks for it."""
    if response_format is None:
        return None
    word = text.tokens(prompt, 2)[1].strip()
    kind = response_format.get("type")
    if kind == "json_object":
        return json.dumps({"answer": word})
    if kind == "json_schema":
        named = response_format.get("json_schema", response_format)
        schema = named.get("schema", {}) if isinstance(named, dict) else {}
        return json.dumps(sample(schema, word), ensure_ascii=False)
    return None
