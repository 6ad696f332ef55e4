"""Answers as bytes: the body of a request in, a refusal in the words of the dialect out."""

from __future__ import annotations

import asyncio
import math

from .dialects import DIALECTS, render
from .job import Refusal
from .settings import Settings
from .writer import Headers, Receive

JSON: tuple[bytes, bytes] = (b"content-type", b"application/json")
EVENTS: tuple[bytes, bytes] = (b"content-type", b"text/event-stream; charset=utf-8")


async def read_body(receive: Receive, limit: int, seconds: float) -> bytes:
    """The whole request body.

    Args:
        receive: the ASGI channel.
        limit: largest size in bytes.
        seconds: how long the client may take.

    Raises:
        Refusal: too large (413) or too slow (408).
        ConnectionError: the client left before it had sent everything.
    """
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ConnectionError("the client left while it sent its request")
                part = message.get("body", b"")
                size += len(part)
                if size > limit:
                    raise too_large(limit)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        text = f"The request body did not arrive within {seconds:g} seconds."
        raise Refusal("request_timeout", text, status=408, kind="invalid_request_error") from None


def too_large(limit: int) -> Refusal:
    """The answer to a body beyond the bound."""
    text = f"The request body is larger than {limit} bytes. Send less."
    return Refusal("request_too_large", text, status=413, kind="invalid_request_error")


def hint(settings: Settings, refusal: Refusal, *, dialect_hints: bool) -> Headers:
    """`Retry-After` in whole seconds, rounded up, and `retry-after-ms`, as the settings want them.

    Args:
        settings: `auto` follows the dialect and the drain time, a number is always sent, `none` never.
        refusal: knows the drain time.
        dialect_hints: whether this dialect names a time in this answer.
    """
    policy = settings.retry_after
    silent = policy == "none" or (settings.overflow == "drop" and refusal.code in {"queue_full", "displaced"})
    if refusal.wait is None or silent or (isinstance(policy, str) and not dialect_hints):
        return []
    if isinstance(policy, str):
        wait, seconds = refusal.wait, max(1, math.ceil(refusal.wait))
    else:
        wait, seconds = policy, math.ceil(policy)
    return [(b"retry-after", b"%d" % seconds), (b"retry-after-ms", b"%d" % math.ceil(wait * 1000))]


def refusal_answer(settings: Settings, refusal: Refusal) -> tuple[int, bytes, Headers]:
    """Status, body and headers of a refusal in the words of the dialect."""
    answer = DIALECTS[settings.dialect].answer(refusal)
    status = answer.status or refusal.status or settings.status
    headers: Headers = [(b"content-type", answer.content_type.encode())]
    headers.extend(hint(settings, refusal, dialect_hints=answer.hint))
    for name, value in (*answer.headers, *refusal.headers):
        headers.append((name.encode("latin-1"), value.encode("latin-1")))
    if status in {408, 413}:
        headers.append((b"connection", b"close"))
    return status, render(answer, status, refusal), headers
