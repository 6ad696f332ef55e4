"""What the protection adds to a call: `python -m tests.benchmarks.call_cost [calls]`.

The same HTTP engine and the same typed answer with and without queue, limit, circuit, retry, deadline and budget; short
blocks of both, taking turns, on one event loop; the client's CPU time, which other load disturbs least. Prints
microseconds per call (median of the blocks), what is added, and the ratio.
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
from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport.aio import AsyncTransport
from llm_client.wire.chat import ChatCompletion
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


async def run(family, base, calls):
    """Print one line."""
    transport = AsyncTransport(HttpSpec(family=family))
    client = AsyncClient(base_url=base, api_key="none", pool={"http": {"family": family}})
    request = post(base + "/chat/completions", json.dumps({"model": "m", "messages": MESSAGES}).encode())

    async def bare():
        exchange = await transport.send(request, until=time.monotonic() + 5, connect=5, clock=CLOCK)
        pieces = []
        while (piece := await exchange.read(time.monotonic() + 5)) is not None:
            pieces.append(piece)
        await exchange.aclose()
        assert ChatCompletion.model_validate_json(b"".join(pieces)).choices[0].message.content == "ok"

    async def protected():
        done = await client.chat.completions.create(model="m", messages=MESSAGES)
        assert done.choices[0].message.content == "ok"

    blocks = ([], [])
    for number in range(2 * calls // BLOCK + 4):
        work, started = (bare, protected)[number % 2], time.process_time()
        for _ in range(BLOCK):
            await work()
        if number > 3:
            blocks[number % 2].append(time.process_time() - started)
    await transport.aclose()
    await client.close()
    plain, full = (statistics.median(values) * 1e6 / BLOCK for values in blocks)
    ratio = statistics.median(b / a for a, b in zip(*blocks, strict=True))
    print(
        f"{family:8} engine {plain:7.1f} us   protected {full:7.1f} us   added {full - plain:6.1f} us   ratio {ratio:.2f}"
    )


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
