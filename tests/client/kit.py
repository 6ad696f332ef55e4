"""What the client's tests share: chat answers and events as bytes, and one way to call both clients."""

from __future__ import annotations

import asyncio
import json

from llm_client import AsyncClient, Client
from tests.transport.rawserver import LAST, STREAM, answer, event
from tests.virtual import completion

MESSAGES = [{"role": "user", "content": "hi"}]
GOOD = [answer(body=completion(), content_type="application/json")]


def refused(status, message="no", code=None, **headers):
    """An OpenAI-shaped error."""
    body = json.dumps({"error": {"message": message, "type": "t", "param": None, "code": code}}).encode()
    return [answer(status, body, content_type="application/json", **headers)]


def token(text, finish=None):
    """One event of a chat stream."""
    delta = {} if text is None else {"content": text}
    return event(
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
    )


DONE = event("[DONE]")
FINISH = token(None, "stop")


def streamed(*texts):
    """A whole stream."""
    return [STREAM, *map(token, texts), FINISH, DONE, LAST]


def call(colour, server, *, arguments=None, **settings):
    """Make one call with a client of its own, in either colour."""
    given = {"model": "m", "messages": MESSAGES, **(arguments or {})}
    settings.setdefault("base_url", server.url("/v1"))
    if colour == "sync":
        with Client(**settings) as client:
            return client.chat.completions.create(**given)

    async def run():
        async with AsyncClient(**settings) as client:
            return await client.chat.completions.create(**given)

    return asyncio.run(run())
