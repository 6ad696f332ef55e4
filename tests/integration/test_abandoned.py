"""Streams that nobody reads to the end: the slot and the server are free within half a second."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest
from llm_client import AsyncClient, Client, Pool
from tests.integration.shared import idle, message, until


def pool_of_one(server):
    return Pool(base_url=server.base_url, pool={"concurrency": {"kind": "fixed", "limit": 1}})


@pytest.mark.llm_server(workers=4, seconds=20.0)
@pytest.mark.parametrize("waiter", ["sync", "async", "other loop"])
@pytest.mark.parametrize("holder", ["sync", "async"])
def test_a_dropped_stream_lets_the_parked_call_start(llm_server, waiter, holder):
    """Limit 1, an unread stream is dropped and collected: whoever waits starts, the server saw the disconnect."""
    pool = pool_of_one(llm_server)
    started = threading.Event()
    dropped = threading.Event()
    freed = {}

    async def wait_async():
        task = asyncio.ensure_future(
            AsyncClient(pool).chat.completions.create(model="m", messages=message(2), stream=True)
        )
        while not task.done():
            await asyncio.sleep(0.005)
        await (await task).close()

    def wait_sync():
        with Client(pool).chat.completions.create(model="m", messages=message(2), stream=True):
            pass

    def waiting():
        started.set()
        wait_sync() if waiter == "sync" else asyncio.run(wait_async())

    async def hold_async():
        stream = await AsyncClient(pool).chat.completions.create(model="m", messages=message(1), stream=True)
        await anext(stream)
        if waiter == "async":
            task = asyncio.ensure_future(wait_async())
            await asyncio.sleep(0.1)
            del stream
            gc.collect()  # holds the interpreter for a while: the clock starts when it is over
            freed["dropped"] = time.time()
            await asyncio.wait_for(task, 5)
        else:
            thread = threading.Thread(target=waiting)
            thread.start()
            await asyncio.to_thread(started.wait)
            await asyncio.sleep(0.1)
            del stream
            gc.collect()  # holds the interpreter for a while: the clock starts when it is over
            freed["dropped"] = time.time()
            await asyncio.to_thread(thread.join, 5)
        dropped.set()

    if holder == "async":
        asyncio.run(hold_async())
    else:
        stream = Client(pool).chat.completions.create(model="m", messages=message(1), stream=True)
        next(stream)
        thread = threading.Thread(target=waiting)
        thread.start()
        time.sleep(0.15)
        del stream
        gc.collect()  # holds the interpreter for a while: the clock starts when it is over
        freed["dropped"] = time.time()
        thread.join(5)

    assert llm_server.requests[1].arrived - freed["dropped"] < 0.5
    assert until(lambda: llm_server.stats()["abandoned"] >= 1, 0.5)
    assert idle(pool)
    pool.close()


@pytest.mark.llm_server(workers=8, seconds=20.0)
@pytest.mark.parametrize("how", ["break", "exception", "cancel"])
async def test_leaving_a_stream_early_frees_slot_and_server(llm_server, how):
    """Fifty streams left after three tokens, by break, by an exception and by cancellation, then a normal call (FC-ST-12)."""
    async with AsyncClient(base_url=llm_server.base_url, pool={"concurrency": {"kind": "fixed", "limit": 5}}) as client:

        async def leave():
            async with await client.chat.completions.create(model="m", messages=message(), stream=True) as stream:
                count = 0
                async for _ in stream:
                    count += 1
                    if count == 3:
                        if how == "exception":
                            raise ZeroDivisionError
                        if how == "cancel":
                            asyncio.current_task().cancel()
                            await asyncio.sleep(1)
                        break

        for _ in range(10):
            await asyncio.gather(*(asyncio.ensure_future(leave()) for _ in range(5)), return_exceptions=True)
        await asyncio.sleep(0.3)
        stats = llm_server.stats()

        assert stats["arrived"] == 50
        assert stats["abandoned"] == 50
        assert idle(client.pool)

        llm_server.clear_faults()
        async with await client.chat.completions.create(model="m", messages=message(), stream=True) as stream:
            assert await anext(stream)


@pytest.mark.llm_server(workers=2, seconds=0.02)
def test_three_event_loops_in_a_row_use_one_client(llm_server):
    """`asyncio.run` three times with one module-level client leaves no warning and no connection (FC-CC-01)."""
    client = AsyncClient(base_url=llm_server.base_url)
    answers = [asyncio.run(client.chat.completions.create(model="m", messages=message(n))).text for n in range(3)]
    pool = client.pool
    del client
    gc.collect()

    assert all(answers)
    assert idle(pool)
    pool.close()
    asyncio.run(pool.aclose())


@pytest.mark.llm_server(workers=2, seconds=0.02)
async def test_the_sync_client_works_inside_a_running_loop(llm_server):
    """As in a notebook cell: plain and streamed calls just block (FC-CC-09)."""
    with Client(base_url=llm_server.base_url) as client:
        assert client.chat.completions.create(model="m", messages=message()).text
        with client.chat.completions.create(model="m", messages=message(), stream=True) as stream:
            assert "".join(stream.text_stream)


@pytest.mark.llm_server(workers=2, seconds=0.5)
async def test_the_sync_client_raises_where_it_would_deadlock(llm_server):
    """The loop it blocks holds the only slot: waiting for it could never end."""
    pool = pool_of_one(llm_server)
    client = AsyncClient(pool)
    task = asyncio.ensure_future(client.chat.completions.create(model="m", messages=message()))
    await asyncio.sleep(0.1)

    with pytest.raises(RuntimeError, match=r"would deadlock: .*use AsyncClient here"):
        Client(pool).chat.completions.create(model="m", messages=message())

    await task

    assert idle(pool)
    await pool.aclose()
