"""A token function that hung took the call with it: no deadline of ours reached into it.

`api_key=` takes a function, which mostly asks a directory over HTTP. When that directory stopped answering, the call
waited for as long as the function did: for ever, and with a permit in hand. A sync function under an `AsyncClient`
stopped the whole event loop on top. Now a function has as long as its call has.
"""

import asyncio
import threading
import time
from math import inf

import pytest
from llm_client import AsyncClient, Client, DeadlineExceededError
from llm_client.flow.effects import Sleep
from llm_client.profiles import built_in
from tests.integration.shared import idle
from tests.transport.rawserver import RawServer
from tests.virtual import IDLE, Bench

CALL = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def hang():
    """A sync function that gives nothing until the test is over."""
    over = threading.Event()
    yield lambda: "t" if over.wait(20.0) else "late"
    over.set()


def test_a_sync_client_hears_at_its_deadline(hang):
    """The error names the function's endpoint; nothing was sent."""
    with RawServer() as server, Client(base_url=server.url("/v1"), api_key=hang) as client:
        began = time.monotonic()
        with pytest.raises(DeadlineExceededError, match="auth of endpoint"):
            client.chat.completions.create(**CALL, deadline=0.2)

        assert time.monotonic() - began < 2.0
        assert server.connections == 0
        assert idle(client.pool)


async def test_an_event_loop_goes_on_while_a_sync_function_hangs(hang):
    """Three calls hang side by side, each for its own time, and the loop ticks all along."""
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    with RawServer() as server:
        async with AsyncClient(base_url=server.url("/v1"), api_key=hang) as client:
            ticking = asyncio.create_task(tick())
            calls = [client.chat.completions.create(**CALL, deadline=each) for each in (0.2, 0.3, 0.4)]
            began = time.monotonic()
            errors = await asyncio.gather(*calls, return_exceptions=True)
            ticking.cancel()

            assert all(isinstance(error, DeadlineExceededError) for error in errors)
            assert time.monotonic() - began < 2.0
            assert ticks > 10
            assert server.connections == 0


async def test_an_async_function_is_cancelled():
    """So that what it holds is given back."""
    seen = []

    async def hang():
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    with RawServer() as server:
        async with AsyncClient(base_url=server.url("/v1"), api_key=hang) as client:
            with pytest.raises(DeadlineExceededError, match="auth of endpoint"):
                await client.chat.completions.create(**CALL, deadline=0.2)

    assert seen == ["cancelled"]


def test_in_virtual_time_as_well():
    """A function that sleeps in virtual time is bounded to the second, and leaves nothing behind."""

    def slow(seconds):
        yield Sleep(seconds)
        return "t"

    bench = Bench(file=built_in("http://a/v1", lambda: slow(1.0 if not bench.server.requests else inf), env={}))
    first = bench.start(deadline=5.0)
    bench.run()
    second = bench.start(deadline=5.0)
    bench.run()

    assert first.ok
    assert isinstance(second.error, DeadlineExceededError)
    assert pytest.approx(5.0) == second.elapsed
    assert bench.idle() == IDLE


async def test_a_function_that_times_out_by_itself_is_heard():
    """Its own TimeoutError is not taken for ours."""

    async def impatient():
        raise TimeoutError("the directory is slow")

    with RawServer() as server:
        async with AsyncClient(base_url=server.url("/v1"), api_key=impatient) as client:
            with pytest.raises(TimeoutError, match="the directory is slow"):
                await client.chat.completions.create(**CALL, deadline=5.0)


async def test_many_calls_do_not_fetch_a_token_at_once():
    """A sync function runs one at a time on a loop, so the others find what the first one kept."""
    running, most = 0, 0

    def token():
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.02)
        running -= 1
        return "t"

    with RawServer() as server:
        async with AsyncClient(base_url=server.url("/v1"), api_key=token) as client:
            calls = [client.chat.completions.create(**CALL, deadline=1.0) for _ in range(5)]
            await asyncio.gather(*calls, return_exceptions=True)

    assert most == 1
