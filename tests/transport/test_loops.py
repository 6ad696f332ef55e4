"""Event loops come and go; connections go with them, and nobody complains."""

import asyncio
import gc
import subprocess
import sys
import threading
import time

import pytest
import uvloop
from llm_client.flow.faults import Fault
from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport.aio import AsyncTransport
from tests.transport.kit import CLOCK, busy, post
from tests.transport.rawserver import HANG, LAST, STREAM, RawServer, answer, chunk, event

SCRIPT = """
import asyncio, gc, sys, time, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
sys.path.insert(0, ".")
from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport.aio import AsyncTransport
from tests.transport.kit import CLOCK, post
from tests.transport.rawserver import HANG, STREAM, RawServer, answer, event

transport = AsyncTransport(HttpSpec(family=sys.argv[1]))
late = []

async def call(url, *, leave):
    exchange = await transport.send(post(url), until=time.monotonic() + 5, connect=5, clock=CLOCK)
    if leave == "unread":
        late.append(exchange)
        await exchange.read(time.monotonic() + 5)
        return
    while await exchange.read(time.monotonic() + 5) is not None:
        pass
    if leave == "in flight":
        task = asyncio.create_task(call(url, leave="no"))
        while len(server.requests) < 5:
            await asyncio.sleep(0.002)

with RawServer([answer()], [answer()], [STREAM, event("a"), HANG], [answer()], [HANG]) as server:
    asyncio.run(call(server.url(), leave="no"))
    asyncio.run(call(server.url(), leave="no"))
    asyncio.run(call(server.url(), leave="unread"))
    asyncio.run(call(server.url(), leave="in flight"))
    late.clear()
    gc.collect()
    del transport
    gc.collect()
    server.wait(lambda: server.open == 0)
print("done")
"""


def test_three_runs_in_a_row_leave_no_warning(family):
    """FC-CC-01: under -W error, with a stream left unread and a request left in flight."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, family], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


async def fetch(transport, url, within=5.0):
    """Send and read to the end."""
    exchange = await transport.send(post(url), until=time.monotonic() + within, connect=5, clock=CLOCK)
    parts = []
    while (part := await exchange.read(time.monotonic() + within)) is not None:
        parts.append(part)
    return b"".join(parts)


def test_a_closed_loop_is_forgotten_by_the_next(family):
    """Its sockets are closed; what is kept does not grow with the number of loops."""
    transport = AsyncTransport(HttpSpec(family=family))
    with RawServer([answer()]) as server:
        for _ in range(5):
            assert asyncio.run(fetch(transport, server.url())) == b"{}"

        assert len(transport._lanes) == 1
        server.wait(lambda: server.open == 1)
        transport.close()
        server.wait(lambda: server.open == 0)


def test_loops_in_threads_share_a_transport(family):
    """Each has connections of its own; closing reaches them all."""
    transport = AsyncTransport(HttpSpec(family=family))
    results = []
    release = threading.Event()

    async def work(url):
        results.extend(await asyncio.gather(*(fetch(transport, url) for _ in range(10))))
        await asyncio.to_thread(release.wait, 5)
        await asyncio.sleep(0.05)

    with RawServer([0.01, answer()]) as server:
        threads = [threading.Thread(target=asyncio.run, args=(work(server.url()),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        server.wait(lambda: len(results) == 40)
        assert len(transport._lanes) == 4
        transport.close()
        release.set()
        server.wait(lambda: server.open == 0)
        for thread in threads:
            thread.join(5)


@pytest.mark.parametrize("outside", [False, True], ids=["aclose", "close"])
async def test_closing_ends_what_is_under_way(family, outside):
    """Requests and reads end with a fault."""
    transport = AsyncTransport(HttpSpec(family=family))
    with RawServer([HANG], [STREAM, event("a"), HANG]) as server:
        waiting = [asyncio.create_task(fetch(transport, server.url())) for _ in range(2)]
        await asyncio.to_thread(server.wait_requests, 2)
        await asyncio.sleep(0.02)
        if outside:
            await asyncio.to_thread(transport.close)
        else:
            await transport.aclose()
        results = await asyncio.gather(*waiting, return_exceptions=True)

        assert [type(result) for result in results] == [Fault, Fault]
        await asyncio.to_thread(server.wait, lambda: server.open == 0)
        with pytest.raises(RuntimeError, match="closed"):
            await fetch(transport, server.url())


def test_a_transport_that_is_dropped_closes_its_idle_connections(family):
    """Without a warning."""
    with RawServer([answer()]) as server:
        transport = AsyncTransport(HttpSpec(family=family))
        asyncio.run(fetch(transport, server.url()))
        del transport
        gc.collect()

        server.wait(lambda: server.open == 0)


class NoWatching(asyncio.SelectorEventLoop):
    """Like the proactor loop of Windows: sockets yes, watching descriptors no."""

    def add_reader(self, *_args):
        raise NotImplementedError

    add_writer = add_reader


@pytest.mark.parametrize("make", [uvloop.new_event_loop, NoWatching], ids=["uvloop", "no watching"])
def test_other_loops(family, make, tls):
    """Plain and TLS, reading, time-outs, cancelling, dropping."""

    async def work(plain, secret):
        transport = AsyncTransport(HttpSpec(family=family, ca_file=tls.ca_file))
        body = b"x" * 3_000_000
        for url in (plain, secret):
            exchange = await transport.send(post(url, body), until=time.monotonic() + 9, connect=5, clock=CLOCK)
            parts = [part async for part in drain(exchange)]
            assert b"".join(parts) == b"onetwo"
            exchange = await transport.send(post(url), until=time.monotonic() + 5, connect=5, clock=CLOCK)
            assert exchange.reused
            with pytest.raises(Fault, match="time-out"):
                await exchange.read(time.monotonic() + 0.02)
            task = asyncio.create_task(fetch(transport, url))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            exchange = await transport.send(post(url), until=time.monotonic() + 5, connect=5, clock=CLOCK)
            del exchange
            await asyncio.sleep(0.01)
        assert busy(transport) == []
        await transport.aclose()

    script = [[STREAM, chunk(b"one"), 0.01, chunk(b"two"), LAST], [STREAM, HANG]]
    with RawServer(*script) as plain, RawServer(*script, tls=tls.server) as secret:
        with asyncio.Runner(loop_factory=make) as runner:
            runner.run(work(plain.url(), secret.url()))
        for server in (plain, secret):
            server.wait(lambda server=server: server.open == 0)


async def drain(exchange):
    """Yield the pieces."""
    while (part := await exchange.read(time.monotonic() + 5)) is not None:
        yield part
