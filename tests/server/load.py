"""A load generator for the reference server: thousands of bare sockets in one process, no client library in the way.

    python tests/server/load.py URL --streams 2000 --queued 5000

opens that many streams and plain calls at once and prints what became of them as JSON. With `--seconds N` it keeps
going: an open loop of `--rate` calls a second of which one in ten is dropped in the middle, as by a killed client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import time
from collections import Counter
from typing import Any

_CONNECTING = 100


class Call(asyncio.Protocol):
    """One call on a connection of its own."""

    def __init__(self, request: bytes, done: asyncio.Future[str], leave_after: float | None) -> None:
        self._request = request
        self._done = done
        self._leave_after = leave_after
        self._head = b""
        self._length: int | None = None  # of the body; None for chunked
        self._size = 0
        self._tail = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self._request)
        if self._leave_after is not None:
            asyncio.get_running_loop().call_later(self._leave_after, self._finish, "left")

    def data_received(self, data: bytes) -> None:
        if b"\r\n\r\n" not in self._head:
            head, mark, data = (self._head + data).partition(b"\r\n\r\n")
            self._head = head + mark
            if not mark:
                return
            _, mark, length = head.lower().partition(b"content-length: ")
            self._length = int(length.split(b"\r\n")[0]) if mark else None
        self._size += len(data)
        self._tail = (self._tail + data)[-16:]
        if self._size == self._length or (self._length is None and self._tail.endswith(b"\r\n0\r\n\r\n")):
            self._finish(self._head[9:12].decode())

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(f"lost: {exc!r}" if exc else "closed early")

    def _finish(self, outcome: str) -> None:
        if not self._done.done():
            self._done.set_result(outcome)
        if self.transport is not None:
            self.transport.abort()


def request(number: int, *, stream: bool, tokens: int) -> bytes:
    """The bytes of a chat call."""
    body = json.dumps(
        {
            "model": "m",
            "messages": [{"role": "user", "content": f"call {number}"}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": stream,
        }
    ).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


async def one(host: str, port: int, data: bytes, gate: asyncio.Semaphore, leave_after: float | None = None) -> str:
    """Send one call and say how it ended."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str] = loop.create_future()
    try:
        # Few connect at a time: this process must send its requests before the server loses patience.
        async with gate:
            await loop.create_connection(lambda: Call(data, done, leave_after), host, port)
    except OSError as error:
        return f"no connection: {error!r}"
    return await done


async def burst(host: str, port: int, *, streams: int, queued: int, tokens: int) -> dict[str, Any]:
    """All at once."""
    began = time.monotonic()
    gate = asyncio.Semaphore(_CONNECTING)
    calls = [request(n, stream=True, tokens=tokens) for n in range(streams)]
    calls += [request(n, stream=False, tokens=tokens) for n in range(queued)]
    outcomes = await asyncio.gather(*(one(host, port, call, gate) for call in calls))
    return {"outcomes": Counter(outcomes), "seconds": round(time.monotonic() - began, 2)}


async def soak(host: str, port: int, *, seconds: float, rate: float, tokens: int) -> dict[str, Any]:
    """An open loop; one in ten leaves in the middle."""
    rng = random.Random(1)
    gate = asyncio.Semaphore(_CONNECTING)
    outcomes: Counter[str] = Counter()
    running: set[asyncio.Task[None]] = set()
    end = time.monotonic() + seconds
    number = 0

    async def call(number: int) -> None:
        leave = rng.uniform(0.0, 1.0) if number % 10 == 0 else None
        outcomes[await one(host, port, request(number, stream=number % 2 == 0, tokens=tokens), gate, leave)] += 1

    while time.monotonic() < end:
        number += 1
        task = asyncio.create_task(call(number))
        running.add(task)
        task.add_done_callback(running.discard)
        await asyncio.sleep(rng.expovariate(rate))
    await asyncio.gather(*running)
    return {"outcomes": outcomes, "sent": number}


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description="Load for the reference server")
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--queued", type=int, default=5000)
    parser.add_argument("--tokens", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--rate", type=float, default=50.0)
    given = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    host, port = given.url.removeprefix("http://").rstrip("/").split(":")
    if given.seconds:
        work = soak(host, int(port), seconds=given.seconds, rate=given.rate, tokens=given.tokens)
    else:
        work = burst(host, int(port), streams=given.streams, queued=given.queued, tokens=given.tokens)
    print(json.dumps(asyncio.run(work)))


if __name__ == "__main__":
    main()
