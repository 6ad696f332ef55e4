"""HAProxy and Envoy between the client and two servers: their texts and pages are understood, and nothing hangs."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest
from llm_client import AsyncClient, LLMClientError, StreamInterruptedError
from tests.integration import gateways
from tests.integration.replicas import Replica, free_ports
from tests.integration.shared import idle, message

pytestmark = pytest.mark.heavy

ONCE = {"retry": {"attempts": 1}}


@pytest.fixture
def replicas(request):
    """Two reference servers; a number in the test's `seconds` mark is what a request takes."""
    mark = request.node.get_closest_marker("parametrize")
    seconds = request.node.callspec.params.get("seconds", 0.2) if mark is not None else 0.2
    servers = [Replica(port, "--workers", "16", "--seconds", str(seconds), "--admin") for port in free_ports(2)]
    for server in servers:
        server.start()
    for server in servers:
        server.ready()
    yield servers
    for server in servers:
        server.end()


@pytest.fixture(params=["haproxy", "envoy"])
def gateway(request, replicas, tmp_path):
    """The addresses of a gateway in front of both, by policy; "name" tells which it is."""
    with gateways.running(request.param, tmp_path, [each.port for each in replicas]) as addresses:
        yield {"name": request.param, **addresses}


async def many(client, count):
    """Make calls at once; return what became of them, and the attempts of each."""

    async def one(number):
        try:
            done = await client.chat.completions.create(model="m", messages=message(number), max_tokens=4)
        except LLMClientError as error:
            return error.kind, error.attempts
        return "ok", done.meta.attempts

    results = await asyncio.wait_for(asyncio.gather(*(one(number) for number in range(count))), 60)
    return Counter(kind for kind, _ in results), [attempts for _, attempts in results]


def said(calls):
    """Return the kinds, statuses and whether they were refusals of all attempts that failed."""
    return {(each.kind, each.status, each.refusal) for attempts in calls for each in attempts if each.status != 200}


async def test_a_rate_limit_at_the_gateway_is_obeyed(gateway):
    """Five a second, and Retry-After with a page or a text: all are answered, none comes back too early."""
    async with AsyncClient(base_url=gateway["often"]) as client:
        outcomes, calls = await many(client, 20)
        refused = [each for attempts in calls for each in attempts if each.refusal]
        waits = [
            later.started - (before.started + before.elapsed)
            for attempts in calls
            for before, later in pairwise(attempts)
        ]

        assert {"ok": 20} == outcomes
        assert {("rate_limited", 429, 1.0)} == {(each.kind, each.status, each.retry_after) for each in refused}
        assert min(waits) >= 0.99
        assert {"closed"} == {each.breaker.state for each in client.pool.endpoints}
        assert idle(client.pool)


@pytest.mark.parametrize("gateway", ["envoy"], indirect=True)
async def test_a_full_gateway_that_says_so(gateway):
    """Envoy marks its overflow: a refusal, and every call is answered."""
    async with AsyncClient(base_url=gateway["narrow"]) as client:
        outcomes, calls = await many(client, 16)

        assert {"ok": 16} == outcomes
        assert {("overloaded", 503, True)} == said(calls)
        assert idle(client.pool)


@pytest.mark.parametrize("gateway", ["haproxy"], indirect=True)
async def test_a_full_gateway_that_does_not_say_so(gateway):
    """HAProxy's page is that of an outage: a failed attempt, repeated while attempts and retry budget last."""
    async with AsyncClient(base_url=gateway["narrow"]) as client:
        outcomes, calls = await many(client, 16)

        assert {"ok", "unavailable"} >= outcomes.keys()
        assert outcomes["ok"] > 8
        assert {("unavailable", 503, False)} == said(calls)
        assert all(len(attempts) > 1 for attempts in calls if attempts[-1].status != 200)
        assert idle(client.pool)


@pytest.mark.parametrize("seconds", [3.0])
@pytest.mark.parametrize(("policy", "status", "kind"), [("slow", 504, "timeout"), ("nobody", 503, "unavailable")])
async def test_a_gateways_own_words_become_an_error(gateway, seconds, policy, status, kind):
    """By their status, at once, and without their markup."""
    async with AsyncClient(base_url=gateway[policy], profile=ONCE) as client:
        with pytest.raises(LLMClientError) as caught:
            await asyncio.wait_for(client.chat.completions.create(model="m", messages=message()), 10)
        error = caught.value

        assert (status, kind) == (error.attempts[-1].status, error.kind)
        assert "<" not in str(error)
        assert idle(client.pool)


async def test_nobody_behind_one_gateway(gateway):
    """The calls go to the other address."""
    endpoints = [{"name": "dead", "base_url": gateway["nobody"]}, {"name": "live", "base_url": gateway["plain"]}]
    async with AsyncClient(pool={"endpoints": endpoints}) as client:
        outcomes, _ = await many(client, 12)

        assert {"ok": 12} == outcomes


async def test_a_server_that_dies_behind_the_gateway(gateway, replicas):
    """Calls under way are repeated; what the gateway says until it has noticed is a failed attempt."""
    async with AsyncClient(base_url=gateway["plain"]) as client:
        calls = asyncio.ensure_future(many(client, 8))
        await asyncio.sleep(0.1)
        replicas[0].kill()
        outcomes, before = await calls
        later, _ = await many(client, 4)

        assert {"ok": 8} == outcomes
        assert {("unavailable", False)} == {(kind, refusal) for kind, _, refusal in said(before)}
        assert {"ok": 4} == later
        assert idle(client.pool)


async def test_a_stream_that_a_server_cuts(gateway, replicas):
    """What was delivered is there; nothing is sent again."""
    for each in replicas:
        each.faults(cut=3)
    async with AsyncClient(base_url=gateway["plain"]) as client:
        async with asyncio.timeout(10):
            chunks = await client.chat.completions.create(model="m", messages=message(), stream=True)
            with pytest.raises(StreamInterruptedError) as caught:
                await chunks.get_final_completion()

        assert caught.value.partial
        assert len(caught.value.attempts) == 1
        assert idle(client.pool)


@pytest.mark.parametrize(("gateway", "policy"), [("haproxy", "slow"), ("envoy", "short")], indirect=["gateway"])
async def test_a_stream_that_the_gateway_cuts(gateway, policy, replicas):
    """HAProxy when the server is silent for too long, Envoy when the stream lasts too long."""
    for each in replicas:
        each.faults(stall=3)
    async with AsyncClient(base_url=gateway[policy]) as client:
        async with asyncio.timeout(10):
            chunks = await client.chat.completions.create(model="m", messages=message(), stream=True)
            with pytest.raises(StreamInterruptedError) as caught:
                await chunks.get_final_completion()

        assert caught.value.partial
        assert len(caught.value.attempts) == 1
        assert idle(client.pool)
