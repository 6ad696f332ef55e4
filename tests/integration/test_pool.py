"""A pool over real sockets: rolling restarts, a replica that joins, two requests at once."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from contextlib import ExitStack

import pytest
from llm_client import AsyncClient, Client, ConfigError, LLMClientError, Pool, StreamInterruptedError, http_client
from tests.integration.replicas import Replica, free_ports
from tests.integration.shared import idle, message, pool_of, until

WORKERS, SECONDS, REPLICAS = 4, 0.4, 4
OPTIONS = ("--workers", str(WORKERS), "--seconds", f"{SECONDS}", "--queue", "20", "--drain", "10")


@pytest.fixture
def replicas():
    """Four servers with four workers each."""
    made = [Replica(port, *OPTIONS) for port in free_ports(REPLICAS)]
    with ExitStack() as stack:
        for each in made:
            stack.callback(each.kill)
            each.start()
        for each in made:
            each.ready()
        yield made


async def roll(replicas, how):
    """Take one replica after the other down and up again."""
    for each in replicas:
        await asyncio.to_thread(each.end, how)
        each.start()
        await asyncio.to_thread(each.ready)
        await asyncio.sleep(0.5)


async def load(client, rate, stop, seed=1):
    """An open loop of plain and streamed calls; returns what became of each."""
    rng, tasks = random.Random(seed), []

    async def one(number):
        stream = number % 3 == 0
        try:
            if stream:
                got = []
                async with await client.chat.completions.create(
                    model="m", messages=message(number), max_tokens=8, stream=True
                ) as chunks:
                    got = [chunk async for chunk in chunks]
                return ("stream", "ok" if got else "empty")
            done = await client.chat.completions.create(model="m", messages=message(number), max_tokens=8)
        except LLMClientError as error:
            return ("stream" if stream else "plain", type(error).__name__)
        return ("plain", "ok" if done.text else "empty")

    while not stop.is_set():
        tasks.append(asyncio.ensure_future(one(len(tasks))))
        await asyncio.sleep(rng.expovariate(rate))
    return await asyncio.gather(*tasks)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])
async def test_a_rolling_restart_loses_no_call(replicas, how):
    """Four replicas at 60 % load, one after the other restarted: with a drain every call is answered.

    Killed without one, only streams that had begun to deliver may break off.
    """
    stop = asyncio.Event()
    async with AsyncClient(pool_of(replicas)) as client:
        loading = asyncio.ensure_future(load(client, 0.6 * REPLICAS * WORKERS / SECONDS, stop))
        await asyncio.sleep(1.0)
        await roll(replicas, how)
        stop.set()
        results = await loading
        counts = Counter(results)
        pool = client.pool

        assert idle(pool)
        assert all(each.breaker.state == "closed" or each.outstanding == 0 for each in pool.endpoints)

        used = [each.stats()["answered"] for each in replicas]

    await pool.aclose()

    assert len(results) > 100
    allowed = {("plain", "ok"), ("stream", "ok")}
    if how == signal.SIGKILL:
        allowed.add(("stream", StreamInterruptedError.__name__))

    assert set(counts) <= allowed, counts
    assert all(count > 0 for count in used[:-1])  # each came back to work


@pytest.mark.llm_server(workers=2, seconds=0.3)
async def test_a_new_replica_is_used_within_two_seconds(start_llm_server):
    """Calls wait for the first; the second takes its share as soon as it is added."""
    first, second = start_llm_server(), start_llm_server()
    stop = asyncio.Event()
    async with AsyncClient(base_url=first.base_url) as client:
        loading = asyncio.ensure_future(load(client, 12.0, stop))
        await asyncio.sleep(0.7)
        client.pool.add_endpoint({"name": "second", "base_url": second.base_url})
        added = time.monotonic()
        while not second.stats()["arrived"] and time.monotonic() - added < 5.0:
            await asyncio.sleep(0.02)
        taken = time.monotonic() - added
        await asyncio.sleep(0.5)
        client.pool.drain_endpoint("second")
        stop.set()
        results = await loading

        assert taken < 2.0
        assert {"ok"} == {outcome for _, outcome in results}
        assert until(lambda: len(client.pool.endpoints) == 1)


HEDGED = {"priority": "high", "hedge": {"after": 0.3, "budget": 1.0}}


@pytest.mark.llm_server(workers=4, seconds=0.05)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_loser_of_two_requests_is_closed_at_once(start_llm_server, stream):
    """The slow server sees a disconnect, the quick one answers; the permit of both is free."""
    slow, quick = start_llm_server(seconds=20.0), start_llm_server()
    if stream:
        slow.faults(stall=0, stall_for=20.0)  # its first content would come soon
    endpoints = [
        {"name": "slow", "base_url": slow.base_url, "weight": 100},
        {"name": "quick", "base_url": quick.base_url},
    ]
    async with AsyncClient(pool={"endpoints": endpoints}, profile=HEDGED) as client:
        began = time.monotonic()
        if stream:
            async with await client.chat.completions.create(model="m", messages=message(), stream=True) as chunks:
                got = [chunk async for chunk in chunks]

            assert got

            meta = chunks.meta
        else:
            meta = (await client.chat.completions.create(model="m", messages=message())).meta
        took = time.monotonic() - began

        assert 0.3 <= took < 3.0
        assert [("slow", "cancelled"), ("quick", None)] == [(each.endpoint, each.kind) for each in meta.attempts]
        assert "quick" == meta.endpoint
        assert until(lambda: slow.stats()["abandoned"] == 1)
        assert idle(client.pool)


@pytest.mark.llm_server(workers=4, seconds=20.0)
async def test_a_cancelled_call_closes_both_requests(start_llm_server):
    """Neither server works on."""
    one, two = start_llm_server(), start_llm_server()
    endpoints = [{"name": "one", "base_url": one.base_url}, {"name": "two", "base_url": two.base_url}]
    async with AsyncClient(pool={"endpoints": endpoints}, profile=HEDGED) as client:
        task = asyncio.ensure_future(client.chat.completions.create(model="m", messages=message()))
        while not (one.stats()["arrived"] and two.stats()["arrived"]):
            await asyncio.sleep(0.02)
        task.cancel()
        (error,) = await asyncio.gather(task, return_exceptions=True)

        assert isinstance(error, asyncio.CancelledError)
        assert until(lambda: one.stats()["abandoned"] == two.stats()["abandoned"] == 1)
        assert idle(client.pool)


@pytest.mark.llm_server(workers=16, seconds=0.1)
async def test_many_races_leave_nothing(start_llm_server):
    """A hundred hedged calls, a third of them cancelled somewhere: no permit is left, no task, no connection leaks."""
    one, two = start_llm_server(), start_llm_server()
    endpoints = [{"name": "one", "base_url": one.base_url}, {"name": "two", "base_url": two.base_url}]
    rng = random.Random(4)
    profile = {"priority": "high", "hedge": {"after": 0.05, "budget": 1.0}}
    pool = {"endpoints": endpoints, "retry_budget": {"burst": 1000}, "concurrency": {"kind": "fixed", "limit": 30}}
    async with AsyncClient(pool=pool, profile=profile) as client:

        async def one_call(number):
            await asyncio.sleep(rng.uniform(0.0, 1.0))
            task = asyncio.ensure_future(client.chat.completions.create(model="m", messages=message(number)))
            if number % 3 == 0:
                await asyncio.sleep(rng.uniform(0.0, 0.2))
                task.cancel()
            return (await asyncio.gather(task, return_exceptions=True))[0]

        results = await asyncio.gather(*(one_call(number) for number in range(100)))
        answered = [each for each in results if not isinstance(each, BaseException)]

        assert len(answered) >= 66
        assert any(len(each.meta.attempts) == 2 for each in answered)
        assert all(isinstance(each, asyncio.CancelledError) for each in results if isinstance(each, BaseException))
        assert idle(client.pool)
        assert {asyncio.current_task()} == asyncio.all_tasks()


@pytest.mark.llm_server(workers=1)
def test_a_sync_user_with_a_hedge_is_refused(llm_server):
    """At construction: a thread cannot do two things at once."""
    endpoints = [{"name": name, "base_url": llm_server.base_url} for name in ("one", "two")]
    pool = Pool(pool={"endpoints": endpoints}, profile=HEDGED)
    for make in (lambda: Client(pool), lambda: http_client(pool)):
        with pytest.raises(ConfigError, match="hedge sends two requests at once"):
            make()
    AsyncClient(pool)
    http_client(pool, asynchronous=True)
    pool.close()
