"""How the health of endpoints is asked after: what it decides, in which thread, and when that ends."""

from __future__ import annotations

import gc
import threading
import time

import pytest
from llm_client import AsyncClient, Client, Pool
from tests.virtual import Bench, error_body, status

THREAD = "llm_client.housekeeping"


OTHERS = set()


@pytest.fixture(autouse=True)
def threads_of_other_tests():
    """Pools that an earlier test of this process dropped may still have theirs."""
    OTHERS.clear()
    OTHERS.update(threading.enumerate())


def housekeepers():
    return [thread for thread in threading.enumerate() if thread.name == THREAD and thread not in OTHERS]


def broken_bench():
    """An endpoint whose circuit has just opened."""
    bench = Bench(pool={"breaker": {"failures": 2, "open_for": 1.0}}, profile={"retry": {"attempts": 1}})
    bench.server.script(*[status(500, error_body("boom"))] * 2)
    for _ in range(2):
        bench.start()
        bench.run()

    assert bench.station.breaker.state == "open"

    return bench


def test_bad_health_holds_the_first_probe_back():
    """An open circuit is not probed while the health route says no; when the verdict is old, it is."""
    bench = broken_bench()
    bench.station.sick_until = bench.world.now + 20.0
    result = bench.start()
    bench.run()

    assert result.ok
    assert pytest.approx(20.0, abs=0.2) == result.elapsed


def test_good_health_neither_closes_nor_shortens():
    """Only calls close a circuit: the probe waits for the open time."""
    bench = broken_bench()
    bench.station.sick_until = float("-inf")
    result = bench.start()

    assert bench.station.breaker.state == "open"

    bench.run()

    assert pytest.approx(1.1, abs=0.1) == result.elapsed


def test_bad_health_does_not_stop_a_closed_circuit():
    """Answers are better evidence than a health route."""
    bench = Bench()
    bench.station.sick_until = 100.0
    result = bench.start()
    bench.run()

    assert pytest.approx(0.1) == result.elapsed


HEALTH = {"health": {"every": 0.5}}


@pytest.mark.llm_server(seconds=0.0)
async def test_health_is_asked_over_the_network(llm_server):
    """From its own thread, for a pool that only an event loop uses; a dead server is known as sick."""
    pool = Pool(
        pool={
            "endpoints": [
                {"name": "up", "base_url": llm_server.base_url, **HEALTH},
                {"name": "down", "base_url": "http://127.0.0.1:9/v1", "health": {"every": 0.5, "path": "/health"}},
            ]
        }
    )

    assert housekeepers() == []

    async with AsyncClient(pool) as client:
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        up, down = pool.endpoints
        end = time.monotonic() + 3.0
        while down.sick_until < time.monotonic() and time.monotonic() < end:
            time.sleep(0.01)

        assert down.sick_until > time.monotonic()
        assert float("-inf") == up.sick_until
        assert len(housekeepers()) == 1

    await pool.aclose()

    assert gone()


@pytest.mark.llm_server(seconds=0.0)
def test_the_thread_ends_with_the_pool(llm_server):
    """Closed, or dropped without a word."""
    endpoints = [{"name": "a", "base_url": llm_server.base_url, **HEALTH}]
    for close in (True, False):
        pool = Pool(pool={"endpoints": endpoints})
        Client(pool).chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])

        assert len(housekeepers()) == 1

        if close:
            pool.close()
        del pool
        gc.collect()

        assert gone()


def gone():
    """Wait until no thread of ours is left."""
    end = time.monotonic() + 3.0
    while housekeepers() and time.monotonic() < end:
        gc.collect()  # once is not enough: the thread itself may hold the pool while it asks a server
        time.sleep(0.05)
    return not housekeepers()


@pytest.mark.llm_server(seconds=0.0)
def test_nobody_works_in_the_background_unasked(llm_server):
    """No key asks for it, so there is no thread."""
    with Client(base_url=llm_server.base_url) as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])

        assert housekeepers() == []
        assert client.pool.works.house is None
