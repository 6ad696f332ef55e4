"""Answers as raw ASGI messages, and the watch for a client that leaves."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .job import Refusal
from .routes import dump
from .settings import Settings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON: tuple[bytes, bytes] = (b"content-type", b"application/json")
EVENTS: tuple[bytes, bytes] = (b"content-type", b"text/event-stream; charset=utf-8")


async def send_whole(send: Send, status: int, body: bytes, headers: Headers) -> None:
    """Send head and body of a complete answer."""
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def read_body(receive: Receive, limit: int, timeout: float) -> bytes:
    """The whole request body.

    Args:
        receive: the ASGI channel.
        limit: largest size in bytes.
        timeout: seconds the client may take.

    Raises:
        Refusal: too large (413) or too slow (408).
        ConnectionError: the client left before it had sent everything.
    """
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout):
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
        raise Refusal(
            "request_timeout",
            f"The request body did not arrive within {timeout:g} seconds.",
            status=408,
            kind="invalid_request_error",
        ) from None


def too_large(limit: int) -> Refusal:
    """The answer to a body beyond the bound."""
    return Refusal(
        "request_too_large",
        f"The request body is larger than {limit} bytes. Send less.",
        status=413,
        kind="invalid_request_error",
    )


def hint(settings: Settings, refusal: Refusal) -> Headers:
    """`Retry-After` in whole seconds, rounded up, and `retry-after-ms`, as the settings want them."""
    policy = settings.retry_after
    if refusal.wait is None or policy == "none":
        return []
    if settings.overflow == "drop" and refusal.code == "queue_full":
        return []
    wait = refusal.wait if isinstance(policy, str) else policy
    return [
        (b"retry-after", b"%d" % max(1, math.ceil(wait)) if isinstance(policy, str) else b"%d" % math.ceil(wait)),
        (b"retry-after-ms", b"%d" % math.ceil(wait * 1000)),
    ]


def refusal_answer(settings: Settings, refusal: Refusal) -> tuple[int, bytes, Headers]:
    """Status, body and headers of a refusal in the shape OpenAI gives its errors."""
    status = refusal.status or settings.status
    body = {
        "error": {
            "message": refusal.message,
            "type": refusal.kind,
            "param": refusal.param,
            "code": refusal.code,
        }
    }
    headers: Headers = [JSON, *hint(settings, refusal)]
    headers.extend((name.encode("latin-1"), value.encode("latin-1")) for name, value in refusal.headers)
    if status in {408, 413}:
        headers.append((b"connection", b"close"))
    return status, dump(body), headers
