"""Field reports about cancellation, abandoned work and event loops, over sockets. Ids are in the docstrings."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from llm_client import AsyncClient, Client, LLMClientError, Pool
from tests.integration.shared import idle, message, until

ONE = {"concurrency": {"kind": "fixed", "limit": 1}}


async def _cancelled_once(client, ready):
    """Cancel a call as soon as `ready()` holds; return how long it took to leave."""
    task = asyncio.ensure_future(client.chat.completions.create(model="m", messages=message()))
    end = time.monotonic() + 10.0
    while not ready() and time.monotonic() < end:
        await asyncio.sleep(0.02)
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return time.monotonic() - began


@pytest.mark.llm_server(workers=4, seconds=5.0)
async def test_cancelling_a_request_in_flight(llm_server):
    """FC-RT-06 (a): the caller is out at once, the server sees it, nothing more is sent, everything is back."""
    async with AsyncClient(base_url=llm_server.base_url) as client:
        left = await _cancelled_once(client, lambda: llm_server.stats()["in_flight"] == 1)
        await asyncio.sleep(0.3)

        assert left < 0.5
        assert llm_server.stats()["arrived"] == 1
        assert llm_server.stats()["abandoned"] == 1
        assert idle(client.pool)


@pytest.mark.llm_server(workers=4, seconds=0.0)
async def test_cancelling_a_wait_for_retry_after(llm_server):
    """FC-RT-06 (b): a call that sleeps ten seconds wakes for its cancellation and sends nothing."""
    llm_server.faults(status=429, headers={"retry-after": "10"})
    async with AsyncClient(base_url=llm_server.base_url) as client:
        left = await _cancelled_once(client, lambda: client.pool.gate.waiting == 1)

        assert left < 0.5
        assert llm_server.stats()["arrived"] == 1
        assert idle(client.pool)


@pytest.mark.llm_server(workers=4, seconds=3.0)
async def test_cancelling_a_queued_call(llm_server):
    """FC-RT-06 (c): a queued call leaves the queue; the server never hears of it."""
    async with AsyncClient(base_url=llm_server.base_url, pool=ONE) as client:
        first = asyncio.ensure_future(client.chat.completions.create(model="m", messages=message(1)))
        left = await _cancelled_once(
            client, lambda: client.pool.gate.waiting == 1 and llm_server.stats()["arrived"] == 1
        )

        assert left < 0.5
        assert llm_server.stats()["arrived"] == 1
        assert client.pool.gate.waiting == 0

        first.cancel()
        await asyncio.gather(first, return_exceptions=True)

        assert idle(client.pool)


SCRIPT = """
import sys, threading
from llm_client import Client, Pool
pool = Pool(base_url=sys.argv[1], pool={"concurrency": {"kind": "fixed", "limit": 1}})
client = Client(pool)
if sys.argv[2] == "park":
    hold = threading.Thread(target=lambda: client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hold"}]), daemon=True)
    hold.start()
    while not pool.endpoints[0].outstanding:
        pass
print("ready", flush=True)
try:
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
except KeyboardInterrupt:
    left = pool.endpoints[0].outstanding - (sys.argv[2] == "park")
    print("interrupted", pool.gate.waiting, left, flush=True)
"""


@pytest.mark.llm_server(workers=4, seconds=8.0)
@pytest.mark.parametrize("where", ["send", "park"])
def test_a_real_interrupt_gets_through(llm_server, where):
    """FC-RT-06: SIGINT while a thread waits for the answer, or for its turn: KeyboardInterrupt, slot and place given back."""
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, llm_server.base_url, where], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline().strip() == "ready"
        assert until(lambda: llm_server.stats()["arrived"] == 1, 5)
        time.sleep(0.3)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        said = child.stdout.readline().strip()
        took = time.monotonic() - began
    finally:
        child.kill()
        child.communicate()

    assert said == "interrupted 0 0"
    assert took < 2.0


@pytest.mark.llm_server(workers=64, queue=1000, seconds=0.05)
async def test_random_cancellations_cost_no_connection(llm_server):
    """FC-CC-03: twenty callers on ten slots, cancelled at random for a while; twenty calls afterwards all succeed."""
    rng = random.Random(3)
    pool = {"concurrency": {"kind": "fixed", "limit": 10}}
    async with AsyncClient(base_url=llm_server.base_url, pool=pool) as client:
        end = time.monotonic() + 2.0

        async def caller():
            while time.monotonic() < end:
                task = asyncio.ensure_future(client.chat.completions.create(model="m", messages=message()))
                await asyncio.sleep(rng.uniform(0, 0.08))
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        await asyncio.gather(*(caller() for _ in range(20)))

        assert idle(client.pool)

        began = time.monotonic()
        for number in range(20):
            await client.chat.completions.create(model="m", messages=message(number))

        assert time.monotonic() - began < 5.0


@pytest.mark.llm_server(workers=64, queue=1000, seconds=0.002)
def test_threads_interrupted_while_they_wait(llm_server):
    """FC-CC-10: many threads, a limit of 16, some failing, some giving up while they wait: the books balance."""
    llm_server.faults(status=503, rate=0.05)
    pool = Pool(
        base_url=llm_server.base_url,
        pool={"concurrency": {"kind": "fixed", "limit": 16}, "breaker": "off", "retry_budget": {"burst": 100_000}},
    )
    done, calls = [], 60

    def worker(number):
        client = Client(pool)
        rng = random.Random(number)
        for _ in range(calls):
            patience = {"deadline": 0.001} if rng.random() < 0.01 else {}
            try:
                client.chat.completions.create(model="m", messages=message(number), max_tokens=1, **patience)
                done.append("ok")
            except LLMClientError as error:
                done.append(error.kind)

    threads = [threading.Thread(target=worker, args=(number,)) for number in range(32)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)

    assert not any(each.is_alive() for each in threads)
    assert 32 * calls == len(done)
    assert llm_server.stats()["executing_peak"] <= 16
    assert idle(pool)
    pool.close()


@pytest.mark.llm_server(workers=1, seconds=0.5)
async def test_the_event_loop_never_stops(llm_server):
    """FC-CC-14: used-up buckets and a full limit park calls without blocking: a heartbeat of 10 ms goes on."""
    pool = {
        "concurrency": {"kind": "fixed", "limit": 1},
        "limits": {"total": {"requests": {"rate": "12/min", "burst": 2}}},
    }
    async with AsyncClient(base_url=llm_server.base_url, pool=pool) as client:
        gaps = []

        async def heartbeat():
            last = time.monotonic()
            while True:
                await asyncio.sleep(0.01)
                now = time.monotonic()
                gaps.append(now - last)
                last = now

        beat = asyncio.ensure_future(heartbeat())
        calls = [
            asyncio.ensure_future(client.chat.completions.create(model="m", messages=message(n), deadline=2.0))
            for n in range(200)
        ]
        done = await asyncio.gather(*calls, return_exceptions=True)
        beat.cancel()

        assert all(isinstance(each, LLMClientError) or each.text for each in done)
        assert sorted(gaps)[len(gaps) // 2] < 0.1
        assert idle(client.pool)
