"""Several real servers behind one pool: a stampede, a black hole, unequal speeds, one that comes and goes.

Short forms run always; the minutes that limits need to be found, and circuits to grow patient, are `heavy`.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import ExitStack

import pytest
from llm_client import AsyncClient, LLMClientError
from tests.integration.replicas import Replica, free_ports
from tests.integration.shared import idle, message, pool_of


@pytest.fixture
def fleet():
    """A function that starts servers, each with words of its own, and gives them back when they listen."""
    with ExitStack() as stack:

        def start(*options):
            made = [
                Replica(port, "--admin", "--request-log", "100000", *words)
                for port, words in zip(free_ports(len(options)), options, strict=True)
            ]
            for each in made:
                stack.callback(each.kill)
                each.start()
            for each in made:
                each.ready()
            return made

        yield start


def sizes(workers, seconds, queue=64):
    return ("--workers", str(workers), "--seconds", str(seconds), "--queue", str(queue))


async def open_loop(client, rate, seconds, *, stream=False, seed=1):
    """Poisson arrivals; return for each call when it began, seconds to its first content, and its error."""
    rng, tasks, out = random.Random(seed), [], []

    async def one(number):
        began = time.monotonic()
        try:
            done = await client.chat.completions.create(
                model="m", messages=message(number), max_tokens=4, stream=stream
            )
            first = time.monotonic()
            if stream:
                async with done:
                    async for chunk in done:
                        if chunk.text:
                            first = time.monotonic()
                            break
                    async for _ in done:
                        pass
        except LLMClientError as error:
            out.append((began, time.monotonic() - began, error))
        else:
            out.append((began, first - began, None))

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tasks.append(asyncio.ensure_future(one(len(tasks))))
        await asyncio.sleep(rng.expovariate(rate))
    await asyncio.gather(*tasks)
    return out


async def test_a_thousand_waiting_calls_send_two_probes(fleet):
    """The circuit opens, calls pile up; at its end at most `probes` are sent until their verdict (S8)."""
    (server,) = fleet(sizes(64, 0.5, 2000))
    pool = pool_of([server], {"retry": {"attempts": 1}}, breaker={"failures": 3, "open_for": "2s"})
    server.faults(status=500, times=3)
    async with AsyncClient(pool) as client:
        for number in range(3):
            with pytest.raises(LLMClientError):
                await client.chat.completions.create(model="m", messages=message(number), max_tokens=4)
        until = pool.endpoints[0].breaker.until

        assert pool.endpoints[0].breaker.state == "open"

        server.faults(latency=1.5, times=2)
        tasks = [
            asyncio.ensure_future(client.chat.completions.create(model="m", messages=message(n), max_tokens=4))
            for n in range(1000)
        ]
        await asyncio.sleep(until + 0.3 - time.monotonic())  # long before the verdict of a probe

        assert server.stats()["arrived"] - 3 <= 2

        await asyncio.gather(*tasks)

        assert server.stats()["answered"] == 1000
        assert idle(pool)

    await pool.aclose()


async def test_a_black_hole_starves(fleet):
    """One of four fails at once at 60 % load: at most 5 % of the requests after 2 s, 1 % failed for the caller (S11)."""
    servers = fleet(*[sizes(8, 0.5)] * 4)
    servers[0].faults(status=500)
    async with AsyncClient(pool_of(servers)) as client:
        begin = time.time()
        results = await open_loop(client, 0.6 * 4 * 8 / 0.5, 8.0)
        late = [
            [record for record in each.stats(log=100_000)["log"] if record["arrived"] > begin + 2.0] for each in servers
        ]
        failed = [error for _, _, error in results if error is not None]

        assert len(late[0]) <= 0.05 * sum(map(len, late))
        assert len(failed) <= 0.01 * len(results)
        assert idle(client.pool)

        await client.pool.aclose()


@pytest.mark.heavy
@pytest.mark.parametrize(("clients", "bound"), [(1, 1.5), (16, 4.0)])
async def test_unequal_speeds(fleet, clients, bound):
    """Speeds 1, 1, 1 and 0.5 at 85 % load: p95 of first contents in the second minute (S12)."""
    servers = fleet(*[sizes(16, 2.0)] * 3, sizes(16, 4.0))
    pools = [pool_of(servers) for _ in range(clients)]
    rate = 0.85 * (3 * 16 / 2.0 + 16 / 4.0)
    begin = time.monotonic()
    results = await asyncio.gather(
        *(
            open_loop(AsyncClient(pool), rate / clients, 120.0, stream=True, seed=seed)
            for seed, pool in enumerate(pools)
        )
    )
    firsts = sorted(first for each in results for began, first, _ in each if began > begin + 60.0)
    for pool in pools:
        await pool.aclose()

    assert [error for each in results for _, _, error in each if error is not None] == []
    assert firsts[int(0.95 * len(firsts))] <= bound


@pytest.mark.heavy
async def test_a_flapping_endpoint_is_asked_less_and_less(fleet):
    """5 s up, 5 s down, and another beside it: after the third cycle at most 10 % meet the down phase (S22)."""
    servers = fleet(sizes(16, 0.2), sizes(16, 0.2))
    for at in range(5, 120, 10):
        servers[0].faults(status=500, at=float(at), **{"for": 5.0})
    async with AsyncClient(pool_of(servers)) as client:
        begin = time.time()
        results = await open_loop(client, 10.0, 120.0)
        logs = [each.stats(log=100_000)["log"] for each in servers]
        late = [record for log in logs for record in log if record["arrived"] > begin + 30.0]
        down = [record for record in late if record["status"] == 500]

        assert [error for _, _, error in results if error is not None] == []
        assert len(down) <= 0.1 * len(late)

        await client.pool.aclose()
