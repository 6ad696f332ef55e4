"""What the protection adds to a call: `python -m tests.benchmarks.call_cost [calls]`.

Three ways to the same typed answer, by the same HTTP engine:

- `engine`: a ready request is sent, the body collected and made a model.
- `sdk`: the call of an SDK without protection. Arguments are checked and become a body, the body is dumped, the usual
  headers go with it; the answer is read (an error inside a 200, an event stream nobody asked for, a body cut short) and
  becomes a model. Nothing waits, is counted, estimated, identified, bounded in time, tried again or told.
- `protected`: what users call, with queue, limit, circuit, retry, deadline, budget and the story of the call.

Short blocks of the three, taking turns, on one event loop; the client's CPU time, which other load disturbs least.
Prints microseconds per call (medians of the blocks), and what the protection adds to each of the two others, with the
ratio (medians over the turns).
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import statistics
import sys
import time

from llm_client import AsyncClient
from llm_client.client.options import parted
from llm_client.client.sending import bearer, with_headers, with_query
from llm_client.flow.prepare import USER_AGENT, address
from llm_client.model import Request
from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport.aio import AsyncTransport
from llm_client.wire import chat
from llm_client.wire.body import dump
from llm_client.wire.chat import ChatCompletion
from llm_client.wire.failure import to_error
from llm_client.wire.stream import StreamReader
from tests.transport import overhead
from tests.transport.kit import CLOCK, post
from tests.virtual import completion

BODY = completion("ok")
overhead.ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(BODY),
    BODY,
)
MESSAGES = [{"role": "user", "content": "Say ok. " * 16}]
BLOCK = 50
HEADERS = (
    ("user-agent", USER_AGENT),
    ("content-type", "application/json"),
    ("accept", "application/json"),
    ("authorization", bearer("api_key", "none")),
)


async def unprotected(transport, base, **arguments):
    """Do what any SDK does for a chat call, and no more."""
    options, fields = parted(arguments)
    body = chat.build_body(fields, options.get("extra_body"))
    exchange = await transport.send(
        Request(
            path="chat/completions",
            url=address(base, "chat/completions"),
            headers=with_headers("extra_headers", HEADERS, options.get("extra_headers")),
            query=with_query("extra_query", (), options.get("extra_query")),
            body=dump(body),
        ),
        until=time.monotonic() + 5,
        connect=5,
        clock=CLOCK,
    )
    content_type = exchange.headers.get("content-type", "")
    reader = StreamReader(
        "chat", headers=exchange.headers, wall=time.time(), content_type=content_type, status=exchange.status
    )
    pieces = []
    while (piece := await exchange.read(time.monotonic() + 5)) is not None:
        pieces.append(piece)
        reader.feed(piece)
    outcome = reader.end()
    await exchange.finish()
    whole = b"".join(pieces)
    if not outcome.ok:
        raise to_error(outcome, body=whole, headers=exchange.headers)
    return ChatCompletion.from_bytes(whole, status_code=exchange.status, content_type=content_type)


async def run(family, base, calls):
    """Print one line."""
    transport = AsyncTransport(HttpSpec(family=family))
    client = AsyncClient(base_url=base, api_key="none", pool={"http": {"family": family}})
    request = post(base + "/chat/completions", json.dumps({"model": "m", "messages": MESSAGES}).encode())

    async def engine():
        exchange = await transport.send(request, until=time.monotonic() + 5, connect=5, clock=CLOCK)
        pieces = []
        while (piece := await exchange.read(time.monotonic() + 5)) is not None:
            pieces.append(piece)
        await exchange.aclose()
        assert ChatCompletion.model_validate_json(b"".join(pieces)).choices[0].message.content == "ok"

    async def sdk():
        done = await unprotected(transport, base, model="m", messages=MESSAGES)
        assert done.choices[0].message.content == "ok"

    async def protected():
        done = await client.chat.completions.create(model="m", messages=MESSAGES)
        assert done.choices[0].message.content == "ok"

    works = (engine, sdk, protected)
    turns = [[await spent(work) for work in works] for _ in range(calls // BLOCK + 2)][2:]
    await transport.aclose()
    await client.close()
    plain, bare, full = (statistics.median(values) for values in zip(*turns, strict=True))
    print(f"{family:8} engine {plain:7.1f} us   sdk {bare:7.1f} us   protected {full:7.1f} us")
    for place, name in enumerate(("engine", "sdk")):
        added = statistics.median(turn[2] - turn[place] for turn in turns)
        ratio = statistics.median(turn[2] / turn[place] for turn in turns)
        print(f"{'':8} protected over {name:6} {added:+8.1f} us   ratio {ratio:.2f}")


async def spent(work):
    """Return the microseconds of CPU time per call of a block."""
    started = time.process_time()
    for _ in range(BLOCK):
        await work()
    return (time.process_time() - started) * 1e6 / BLOCK


def main():
    """Both families."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    listener = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.get_context("fork").Process(target=overhead.serve, args=(listener,), daemon=True)
    server.start()
    base = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    listener.close()
    for family in ("httpx", "httpx2"):
        asyncio.run(run(family, base, calls))
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
