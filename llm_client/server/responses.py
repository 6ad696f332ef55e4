"""`/v1/responses`: items instead of messages, named events instead of chunks."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from . import text
from .chat import content_text, structured_answer
from .routes import dump
from .sample import sample
from .schema import ResponsesRequest
from .settings import Settings
from .work import Work, lengths


class Responses:
    """An input gives output items."""

    path = "/v1/responses"
    name = "responses"
    body: type[BaseModel] = ResponsesRequest

    def work(self, body: ResponsesRequest, settings: Settings) -> Work:
        """Read a checked body; the answer depends on the last input."""
        items = [body.input] if isinstance(body.input, str) else [_item_text(item) for item in body.input]
        last = items[-1]
        limit = body.max_output_tokens
        count, natural = lengths(last, limit, settings.tokens, endless=body.ignore_eos)
        whole = "\n".join([body.instructions or "", *items])
        work = Work(
            model=body.model or settings.models[0],
            prompts=(last,),
            whole=whole,
            prompt_tokens=text.count_tokens(whole),
            output_tokens=count,
            natural=natural,
            stream=bool(body.stream),
            priority=body.priority,
            body=body,
        )
        tool = _choose(body, last)
        shape = body.text.get("format") if body.text else None
        if tool is not None:
            arguments = sample(tool.get("parameters") or {}, text.tokens(last, 2)[1].strip())
            work.call_tool(str(tool["name"]), arguments, limit)
        elif isinstance(shape, dict) and (structured := structured_answer(shape, last)) is not None:
            work.say(structured, limit)
        return work

    def answer(self, work: Work) -> dict[str, Any]:
        """The whole answer."""
        return self._response(work, self._status(work), [self._item(work, self._status(work))])

    def opening(self, work: Work) -> list[bytes]:
        """Created, in progress, an item, and a part of it for text."""
        response = self._response(work, "in_progress", [])
        out = [
            _event("response.created", 0, response=response),
            _event("response.in_progress", 1, response=response),
            _event("response.output_item.added", 2, output_index=0, item=self._item(work, "in_progress")),
        ]
        if work.call is None:
            out.append(_event("response.content_part.added", 3, **self._at(work), part=_part("")))
        return out

    def deltas(self, work: Work, start: int, stop: int) -> list[bytes]:
        """One event for each token."""
        first = self._opened(work)
        tokens = work.tokens()
        if work.call is not None:
            name, more = "response.function_call_arguments.delta", {"item_id": f"fc_{work.id}", "output_index": 0}
        else:
            name, more = "response.output_text.delta", {**self._at(work), "logprobs": []}
        return [_event(name, first + number, **more, delta=tokens[number]) for number in range(start, stop)]

    def closing(self, work: Work) -> list[bytes]:
        """The whole text once more, the parts closed, the response completed; no `[DONE]`."""
        number = self._opened(work) + work.output_tokens
        status = self._status(work)
        item = self._item(work, status)
        words = "".join(work.tokens())
        out: list[bytes] = []
        if work.call is not None:
            where = {"item_id": f"fc_{work.id}", "output_index": 0, "name": work.call.name}
            out.append(_event("response.function_call_arguments.done", number, **where, arguments=words))
        else:
            out.append(_event("response.output_text.done", number, **self._at(work), text=words, logprobs=[]))
            number += 1
            out.append(_event("response.content_part.done", number, **self._at(work), part=_part(words)))
        out.append(_event("response.output_item.done", number + 1, output_index=0, item=item))
        out.append(_event(f"response.{status}", number + 2, response=self._response(work, status, [item])))
        return out

    def _opened(self, work: Work) -> int:
        return 4 if work.call is None else 3

    def _status(self, work: Work) -> str:
        return "incomplete" if work.finish_reason == "length" else "completed"

    def _at(self, work: Work) -> dict[str, Any]:
        return {"item_id": f"msg_{work.id}", "output_index": 0, "content_index": 0}

    def _item(self, work: Work, status: str) -> dict[str, Any]:
        done = status != "in_progress"
        if work.call is not None:
            return {
                "id": f"fc_{work.id}",
                "type": "function_call",
                "status": status,
                "call_id": work.call.id,
                "name": work.call.name,
                "arguments": work.call.arguments if done else "",
            }
        return {
            "id": f"msg_{work.id}",
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [_part("".join(work.tokens()))] if done else [],
        }

    def _response(self, work: Work, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        body = work.body
        return {
            "id": f"resp_{work.id}",
            "object": "response",
            "created_at": work.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": {},
            "model": work.model,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": 1.0,
            "text": body.text or {"format": {"type": "text"}},
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": None if status == "in_progress" else self._usage(work),
        }

    def _usage(self, work: Work) -> dict[str, Any]:
        return {
            "input_tokens": work.prompt_tokens,
            "input_tokens_details": {"cached_tokens": work.cached_tokens},
            "output_tokens": work.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": work.prompt_tokens + work.output_tokens,
        }


def _event(kind: str, position: int, /, **fields: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), dump({"type": kind, "sequence_number": position, **fields}))


def _part(words: str) -> dict[str, Any]:
    return {"type": "output_text", "text": words, "annotations": [], "logprobs": []}


def _item_text(item: dict[str, Any]) -> str:
    for key in ("content", "output", "arguments"):
        value = item.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return content_text([part for part in value if isinstance(part, dict)])
    return f"[{item.get('type', 'item')}]"


def _choose(body: ResponsesRequest, last: str) -> dict[str, Any] | None:
    tools = [tool for tool in body.tools or () if tool.get("type") == "function" and isinstance(tool.get("name"), str)]
    choice = body.tool_choice
    if not tools or choice == "none":
        return None
    if isinstance(choice, dict):
        return next((tool for tool in tools if tool["name"] == choice.get("name")), tools[0])
    items = body.input if isinstance(body.input, list) else []
    if choice == "required":
        called = {item.get("name") for item in items if item.get("type") == "function_call"}
        return next((tool for tool in tools if tool["name"] not in called), tools[-1])
    if items and items[-1].get("type") == "function_call_output":
        return None
    return next((tool for tool in tools if tool["name"] in last), None)
