"""What one call costs here against the library's bare client: `python -m tests.transport.overhead [calls]`.

A trivial server in a process of its own; short blocks of both, taking turns; the client's CPU time, which other load on
the machine disturbs least. Prints microseconds per call (median of the blocks) and the ratio.
"""

import asyncio
import importlib
import multiprocessing
import socket
import statistics
import sys
import threading
import time

from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport.aio import AsyncTransport
from llm_client.transport.sync import SyncTransport
from tests.transport.kit import CLOCK, post

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 300\r\n\r\n" + b"x" * 300
BLOCK = 50


def serve(listener):
    """Answer every request on every connection with the same bytes."""

    def work(sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = b""
        while True:
            while not data.endswith(b"}"):
                part = sock.recv(65536)
                if not part:
                    return
                data += part
            data = b""
            sock.sendall(ANSWER)

    while True:
        sock, _ = listener.accept()
        threading.Thread(target=work, args=(sock,), daemon=True).start()


def report(name, blocks):
    """One line: medians and their ratio."""
    bare, ours = (statistics.median(values) * 1e6 / BLOCK for values in blocks)
    ratios = sorted(b / a for a, b in zip(*blocks, strict=True))
    middle = statistics.median(ratios)
    print(f"{name:14} bare {bare:7.1f} us   ours {ours:7.1f} us   ratio {middle:.2f}")


def run_sync(family, url, calls):
    """Blocking."""
    http = importlib.import_module(family)
    client, transport, request = http.Client(timeout=5), SyncTransport(HttpSpec(family=family)), post(url, b'{"a": 1}')

    def bare():
        response = client.send(client.build_request("POST", url, content=b'{"a": 1}'))
        assert len(response.content) == 300

    def ours():
        exchange = transport.send(request, until=time.monotonic() + 5, connect=5, clock=CLOCK)
        size = 0
        while (piece := exchange.read(time.monotonic() + 5)) is not None:
            size += len(piece)
        exchange.close()
        assert size == 300

    blocks = ([], [])
    for number in range(2 * calls // BLOCK + 2):
        work, started = (bare, ours)[number % 2], time.process_time()
        for _ in range(BLOCK):
            work()
        if number > 1:
            blocks[number % 2].append(time.process_time() - started)
    client.close()
    transport.close()
    report(f"{family} sync", blocks)


async def run_async(family, url, calls):
    """On a loop, one call at a time."""
    http = importlib.import_module(family)
    client, transport = http.AsyncClient(timeout=5), AsyncTransport(HttpSpec(family=family))
    request = post(url, b'{"a": 1}')

    async def bare():
        response = await client.send(client.build_request("POST", url, content=b'{"a": 1}'))
        assert len(response.content) == 300

    async def ours():
        exchange = await transport.send(request, until=time.monotonic() + 5, connect=5, clock=CLOCK)
        size = 0
        while (piece := await exchange.read(time.monotonic() + 5)) is not None:
            size += len(piece)
        await exchange.aclose()
        assert size == 300

    blocks = ([], [])
    for number in range(2 * calls // BLOCK + 2):
        work, started = (bare, ours)[number % 2], time.process_time()
        for _ in range(BLOCK):
            await work()
        if number > 1:
            blocks[number % 2].append(time.process_time() - started)
    await client.aclose()
    await transport.aclose()
    report(f"{family} async", blocks)


def main():
    """Run the four."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    listener = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/chat/completions"
    listener.close()
    for family in ("httpx", "httpx2"):
        run_sync(family, url, calls)
        asyncio.run(run_async(family, url, calls))
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
