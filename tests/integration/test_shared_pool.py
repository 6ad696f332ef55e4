"""One pool under threads and event loops at once, over sockets: the limit holds and everything comes back."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest
from llm_client import AsyncClient, Client, LLMClientError, Pool
from tests.integration.replicas import Replica, free_ports
from tests.integration.shared import idle, message


@pytest.fixture
def server():
    """A process of its own: in this one its answers would wait for the interpreter behind ten busy threads."""
    replica = Replica(free_ports(1)[0], "--queue", "1000", "--workers", "64", "--seconds", "0.004", "--admin")
    try:
        yield replica.start().ready()
    finally:
        replica.kill()


@pytest.mark.parametrize("cancelling", [True, False])
def test_six_threads_and_four_loops_hold_one_limit(server, cancelling):
    """Limit 7, 5,000 calls and more, a fifth of them cancelled, one in twenty failing: never more than 7, nothing leaks.

    Without cancellations the server sees exactly 7 at its peak too; with them it may still be working on
    requests whose clients have gone.
    """
    server.faults(status=500, rate=0.05)
    # At first the server, not this process, is what the calls wait for: then it sees as many at once as may be sent.
    server.faults(brownout=100.0, **{"for": 2.0})
    pool = Pool(
        base_url=server.base_url,
        pool={"concurrency": {"kind": "fixed", "limit": 7}, "breaker": "off", "retry_budget": {"burst": 10_000}},
        profile={"retry": {"backoff": {"base": 0.02}}},  # what fails here is no use to wait for
    )
    peak = _watch(pool)
    done = []
    workers = [threading.Thread(target=_thread, args=(pool, 420, done)) for _ in range(6)]
    workers += [threading.Thread(target=_loop, args=(pool, 640, done, cancelling)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    stats = server.stats()

    assert not any(worker.is_alive() for worker in workers)
    assert len(done) == 6 * 420 + 4 * 640
    assert max(peak) == 7
    if not cancelling:
        assert stats["executing_peak"] == 7
        assert all(outcome in {"ok", "server_error"} for outcome in done)
    assert idle(pool)
    pool.close()


def _watch(pool):
    """Record how many permits are out after each grant; the gate is the only one that grants."""
    seen = []
    grant = pool.gate._admission._grant

    def counted(*args):
        grant(*args)
        seen.append(sum(station.outstanding for station in pool.gate.stations))

    pool.gate._admission._grant = counted
    return seen


def _thread(pool, calls, done):
    client = Client(pool)
    for number in range(calls):
        try:
            if number % 10 == 0:
                with client.chat.completions.create(
                    model="m", messages=message(number), max_tokens=2, stream=True
                ) as stream:
                    list(stream)
            else:
                client.chat.completions.create(model="m", messages=message(number), max_tokens=2)
            done.append("ok")
        except LLMClientError as error:
            done.append(error.kind)


def _loop(pool, calls, done, cancelling):
    rng = random.Random(threading.get_ident())

    async def one(client, number):
        try:
            await client.chat.completions.create(model="m", messages=message(number), max_tokens=2)
            done.append("ok")
        except LLMClientError as error:
            done.append(error.kind)
        except asyncio.CancelledError:
            done.append("cancelled")
            raise

    async def main():
        client = AsyncClient(pool)
        gate = asyncio.Semaphore(40)

        async def bounded(number):
            async with gate:
                task = asyncio.ensure_future(one(client, number))
                if cancelling and rng.random() < 0.4:  # with threads never cancelled: a fifth of all
                    await asyncio.sleep(rng.uniform(0, 0.05))
                    task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        await asyncio.gather(*(bounded(number) for number in range(calls)))

    asyncio.run(main())
