"""One way to write a transport test for both libraries and both colours.

`Kit` has the same synchronous face for the blocking and the asyncio transport, so that a behaviour is written once. The
asyncio one runs on a loop of its own, step by step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

from llm_client.model import Request
from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport.aio import AsyncTransport
from llm_client.transport.sync import SyncTransport


class RealClock:
    """The system's clocks."""

    @staticmethod
    def monotonic() -> float:
        return time.monotonic()

    @staticmethod
    def wall() -> float:
        return time.time()


CLOCK = RealClock()


def post(url: str, body: bytes = b"{}", **options: Any) -> Request:
    """A request with its URL set."""
    return Request(path="/", url=url, body=body, headers=options.pop("headers", ()), **options)


class Kit:
    """A transport with blocking methods, whatever its colour."""

    def __init__(self, family: str, colour: str) -> None:
        self.family, self.colour = family, colour
        self.loop = asyncio.new_event_loop() if colour == "async" else None
        self._open: list[Any] = []

    def make(self, **options: Any) -> Any:
        max_body = {"max_body": options.pop("max_body")} if "max_body" in options else {}
        spec = HttpSpec(family=self.family, **options)
        transport = SyncTransport(spec, **max_body) if self.loop is None else AsyncTransport(spec, **max_body)
        self._open.append(transport)
        return transport

    def run(self, result: Any) -> Any:
        """Wait for a coroutine on the loop; pass anything else through."""
        return self.loop.run_until_complete(result) if asyncio.iscoroutine(result) else result

    def send(self, transport: Any, request: Request, *, within: float = 5.0, **options: Any) -> Any:
        options = {"connect": 2.0, "clock": CLOCK, **options}
        return self.run(transport.send(request, until=time.monotonic() + within, **options))

    def read(self, exchange: Any, *, within: float = 5.0) -> bytes | None:
        return self.run(exchange.read(time.monotonic() + within))

    def read_all(self, exchange: Any, *, within: float = 5.0) -> bytes:
        return b"".join(self.pieces(exchange, within=within))

    def pieces(self, exchange: Any, *, within: float = 5.0) -> Iterator[bytes]:
        while (piece := self.read(exchange, within=within)) is not None:
            yield piece

    def close(self, exchange: Any) -> None:
        self.run(exchange.close() if self.loop is None else exchange.aclose())

    def finish(self, exchange: Any, **options: Any) -> None:
        self.run(exchange.finish(**options))

    def fetch(self, transport: Any, url: str, **options: Any) -> bytes:
        return self.read_all(self.send(transport, post(url), **options))

    def tick(self, seconds: float = 0.0) -> None:
        """Let the loop run; a blocking transport needs no such thing."""
        if self.loop is not None:
            self.run(asyncio.sleep(seconds))

    def until(self, condition: Callable[[], bool], timeout: float = 2.0) -> None:
        """Wait for something, with the loop running."""
        end = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < end, "did not happen in time"
            self.tick()
            time.sleep(0.002)

    def shards(self, transport: Any) -> list[Any]:
        owners = [transport] if self.loop is None else list(transport._lanes.values())
        return [shards for owner in owners for shards in owner._shards.values()]

    def close_all_of(self, transport: Any) -> None:
        self.run(transport.close() if self.loop is None else transport.aclose())

    def close_all(self) -> None:
        for transport in self._open:
            self.close_all_of(transport)
        self._open.clear()
        if self.loop is not None:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()


def pools(transport: Any) -> list[Any]:
    """Every connection pool of a transport, to ask whether it is idle."""
    if isinstance(transport, SyncTransport):
        clients = [client for shards in transport._shards.values() for client in shards]
    else:
        clients = [client for lane in transport._lanes.values() for client in lane.clients()]
    return [one._pool for client in clients for one in (client._transport, *client._mounts.values()) if one]


def busy(transport: Any) -> list[str]:
    """What a transport still has in use: requests in a pool, and connections that are not idle."""
    found: list[str] = []
    for pool in pools(transport):
        found += [f"request {request}" for request in pool._requests]
        found += [repr(connection) for connection in pool.connections if not connection.is_idle()]
    return found
