"""One case of the wire corpus turned into bytes, and read with the pure readers.

`script` is what a socket-level server needs as well: status, headers, chunks, and how the connection ends.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from llm_client.model import Headers, Outcome
from llm_client.wire import PEEKED, route_of
from llm_client.wire.classify import of_fault, of_response
from llm_client.wire.stream import StreamReader

CASES = Path(__file__).parents[1] / "cases" / "wire.json"
WALL = 1_790_000_000.0


@dataclass(frozen=True, kw_only=True)
class Script:
    """What a server does in one case. `status` is None where no answer comes."""

    id: str
    status: int | None
    headers: list[tuple[str, str]]
    chunks: list[bytes]
    transport: str | None
    path: str
    stream: bool
    wall: float


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the readers made of a case."""

    outcome: Outcome
    text: str | None = None
    texts: tuple[str, ...] = ()
    finish_reason: str | None = None
    usage: Any = None
    reasoning: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()
    body: dict[str, Any] | None = None


def load() -> list[dict[str, Any]]:
    """Return all cases."""
    return json.loads(CASES.read_text(encoding="utf-8"))


def script(case: dict[str, Any]) -> Script:
    """Turn one case into what the server does."""
    raw = case["body_chunks"] if "body_chunks" in case else [case.get("body") or ""]
    headers = case["headers"]
    now = case.get("now")
    return Script(
        id=case["id"],
        status=case["status"],
        headers=list(headers.items()) if isinstance(headers, dict) else [(name, value) for name, value in headers],
        chunks=[_bytes(one, case.get("encoding")) for one in raw],
        transport=case.get("transport"),
        path=case.get("endpoint") or "/v1/chat/completions",
        stream=bool(case.get("stream")),
        wall=datetime.fromisoformat(now).timestamp() if now else WALL,
    )


def recut(chunks: list[bytes], size: int | None) -> list[bytes]:
    """Cut a body anew into pieces of `size` bytes; None leaves it in one."""
    whole = b"".join(chunks)
    return [whole] if size is None else [whole[start : start + size] for start in range(0, len(whole), size)]


def read(case: Script, chunks: list[bytes] | None = None) -> Reading:
    """Read a case as the client does: streams and documents by one reader, everything else as a whole."""
    chunks = case.chunks if chunks is None else chunks
    headers = Headers(case.headers)
    route = route_of(case.path)
    if case.status is None:
        return Reading(outcome=of_fault(case.transport or "other"))
    if not (200 <= case.status < 300 and case.status != 202 and route in PEEKED):
        outcome = of_response(
            case.status, headers, b"".join(chunks), route=route, wall=case.wall, truncated=case.transport is not None
        )
        return Reading(outcome=outcome)
    reader = StreamReader(route, headers=headers, wall=case.wall, status=case.status)
    delivered = []
    for chunk in chunks:
        delivered += reader.feed(chunk)
    outcome = reader.cut(case.transport) if case.transport else reader.end()
    delivered += reader.late
    body = reader.assemble()
    choices = body.get("choices") or []
    message = (choices[0].get("message") or {}) if choices else {}
    return Reading(
        outcome=outcome,
        text=reader.text if outcome.ok or reader.content else None,
        texts=tuple(reader.text_of(index) for index, _ in enumerate(choices)),
        finish_reason=reader.finish_reason,
        usage=reader.usage,
        reasoning=reader.reasoning,
        tool_calls=tuple(
            {"id": call.get("id"), **{key: call.get("function", {}).get(key) for key in ("name", "arguments")}}
            for call in message.get("tool_calls") or []
        ),
        body=body,
    )


def verdict(outcome: Outcome) -> str:
    """Return the corpus' word for what to do."""
    return "ok" if outcome.ok else "retry" if outcome.retryable else "fail"


def _bytes(text: str, encoding: str | None) -> bytes:
    if encoding == "base64":
        return base64.b64decode(text)
    return text.encode(encoding or "utf-8")
