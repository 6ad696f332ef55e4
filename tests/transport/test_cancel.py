"""Cancelling an asyncio request: before it is sent, while it is answered, while it is read."""

import asyncio
import collections
import contextlib
import random
import threading
import time
from functools import partial

import pytest
import uvloop
from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport.aio import AsyncTransport
from tests.transport.kit import CLOCK, busy, post
from tests.transport.rawserver import FIN, HANG, LAST, STREAM, RawServer, event


def send(transport, url, *, within=5.0, **options):
    """A coroutine that sends."""
    return transport.send(post(url), until=time.monotonic() + within, connect=2.0, clock=CLOCK, **options)


async def settled(transport, timeout=2.0):
    """Wait until no task of the transport runs, and nothing is in use."""
    end = time.monotonic() + timeout
    while busy(transport) or any(lane.tasks for lane in transport._lanes.values()):
        assert time.monotonic() < end, busy(transport)
        await asyncio.sleep(0.002)


@pytest.fixture
async def transport(family):
    """Closed again in the same loop."""
    made = AsyncTransport(HttpSpec(family=family))
    yield made
    await made.aclose()


async def test_cancelled_while_connecting_it_is_never_sent(transport):
    """The caller goes at once; the connection is finished, and closed without a byte of the request."""
    release = threading.Event()
    with RawServer(on_connect=[release, FIN]) as server:
        task = asyncio.create_task(send(transport, server.url().replace("http:", "https:")))
        await asyncio.sleep(0.02)
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert time.monotonic() - started < 0.25
        assert sum(len(lane.tasks) for lane in transport._lanes.values()) == 1
        release.set()
        await settled(transport)
        assert server.requests == []


async def test_cancelled_just_before_the_head_it_is_never_sent(transport):
    """Whatever turn of the loop the cancellation comes in: either it is in time, or the server sees a disconnect."""
    in_time = 0
    with RawServer([HANG]) as server:
        for turns in range(40):
            task = asyncio.create_task(send(transport, server.url(f"/{turns}"), fresh=True))
            for _ in range(turns):
                await asyncio.sleep(0)
            lane = next(iter(transport._lanes.values()), None)
            sent = lane is not None and any(attempt_of(one).sent for one in lane.tasks)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await settled(transport)
            if sent:
                await asyncio.to_thread(server.wait, partial(seen_gone, server, turns))
            else:
                in_time += 1
                assert by_path(server, turns) == []

    assert 3 < in_time < 37


def by_path(server, number):
    """The requests of one round."""
    return [seen for seen in server.requests if seen.target == f"/{number}"]


def seen_gone(server, number):
    """Whether the server saw that request, and its client's end."""
    return any(seen.gone.is_set() for seen in by_path(server, number))


def attempt_of(task):
    """The attempt that a sending task works on."""
    return task.get_coro().cr_frame.f_locals["attempt"]


@pytest.mark.parametrize("script", [[HANG], [b"HTTP/1.1 200 OK\r\n", HANG]], ids=["silent", "half a head"])
async def test_cancelled_on_the_wire_the_server_sees_it(transport, script):
    """When the cancellation has come out, the disconnect is done."""
    with RawServer(script) as server:
        task = asyncio.create_task(send(transport, server.url()))
        await asyncio.to_thread(server.wait_requests, 1)
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert time.monotonic() - started < 0.25
        assert busy(transport) == []
        assert server.requests[0].gone.wait(0.2)


async def test_cancelled_while_reading_the_server_sees_it(transport):
    """FC-RT-06, FC-ST-12: out within 50 ms, disconnected, nothing left in use."""
    with RawServer([STREAM, event("a"), HANG]) as server:
        exchange = await send(transport, server.url())
        await exchange.read(time.monotonic() + 5)
        task = asyncio.create_task(exchange.read(time.monotonic() + 5))
        await asyncio.sleep(0.01)
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert time.monotonic() - started < 0.25
        assert server.requests[0].gone.wait(0.2)
        await exchange.aclose()
        await settled(transport)


async def test_wait_for_ends_the_work(transport):
    """FC-RT-06 (a): the time-out leaves in time, and no request follows."""
    with RawServer([HANG]) as server:
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send(transport, server.url()), 0.05)

        assert time.monotonic() - started < 0.25
        assert server.requests[0].gone.wait(0.2)
        assert len(server.requests) == 1
        await settled(transport)


async def test_cancelled_twice(transport):
    """The second cancellation does not leave things half closed."""
    with RawServer([HANG]) as server:
        for pause in range(12):
            task = asyncio.create_task(send(transport, server.url()))
            await asyncio.to_thread(server.wait_requests, pause + 1)
            task.cancel()
            for _ in range(pause):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await settled(transport)


async def test_cancelled_in_the_step_in_which_the_answer_came(transport):
    """The answer is closed, not lost."""
    with RawServer([STREAM, event("a"), HANG]) as server:
        for steps in range(60):
            task = asyncio.create_task(send(transport, server.url()))
            await asyncio.to_thread(server.wait_requests, steps + 1)
            for _ in range(steps % 20):
                await asyncio.sleep(0)
            task.cancel()
            result = (await asyncio.gather(task, return_exceptions=True))[0]
            if not isinstance(result, asyncio.CancelledError):
                await result.aclose()
            await settled(transport)
            assert server.requests[steps].gone.wait(0.5)


@pytest.mark.parametrize(
    "again", [None, 0, 1, 2], ids=["once", "twice", "twice, a turn later", "twice, two turns later"]
)
@pytest.mark.parametrize("kept", [False, True], ids=["new connection", "kept connection"])
async def test_cancelled_in_any_turn_of_the_loop(transport, kept, again):
    """From the first step to the last, once or twice: nothing stays in use, and the next call is served."""
    serving = set()

    async def serve(reader, writer):
        serving.add(asyncio.current_task())
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n{}")
                for part in (STREAM, event("a"), event("b") + LAST):
                    writer.write(part)
                    await asyncio.sleep(0)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    turns, finished = 0, 0
    while finished < 5:
        if kept:
            await fetch(transport, url)
        task = asyncio.create_task(fetch(transport, url, fresh=not kept))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        if again is not None:
            for _ in range(again):
                await asyncio.sleep(0)
            task.cancel()
        result = (await asyncio.gather(task, return_exceptions=True))[0]
        finished += isinstance(result, bytes)
        await settled(transport)
        turns += 1

    assert turns > 10
    assert await fetch(transport, url) == b"data: a\n\ndata: b\n\n"
    await transport.aclose()
    server.close()
    await asyncio.wait(serving, timeout=2)


@pytest.mark.parametrize(
    ("calls", "loop"),
    [
        (1_000, asyncio.new_event_loop),
        (400, uvloop.new_event_loop),
        pytest.param(10_000, asyncio.new_event_loop, marks=pytest.mark.heavy),
    ],
    ids=["asyncio", "uvloop", "many"],
)
def test_random_cancellations_leave_the_pool_idle(family, calls, loop):
    """FC-CC-03: whatever the moment, no slot is lost, and each connection is seen to end."""
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(cancel_at_random(family, calls))


async def cancel_at_random(family, calls):
    """Twenty workers, and a server in the same loop."""
    rng = random.Random(20261130)
    transport = AsyncTransport(HttpSpec(family=family))
    outcomes = collections.Counter()
    served = collections.Counter()

    async def serve(reader, writer):
        served["connections"] += 1
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n{}")
                served["begun"] += 1
                for part in (STREAM, event("a"), event("b"), LAST):
                    await asyncio.sleep(rng.random() * 0.002)
                    writer.write(part)
                served["ended"] += 1
        except (OSError, RuntimeError, asyncio.IncompleteReadError):  # uvloop has RuntimeError for a write to nobody
            pass
        finally:
            served["gone"] += 1
            writer.close()

    async def worker(number):
        for _ in range(number):
            task = asyncio.create_task(fetch(transport, url, fresh=rng.random() < 0.2))
            await asyncio.wait({task}, timeout=rng.choice([0, 0.003 * rng.random(), 0.03 * rng.random(), 5]))
            for _ in range(rng.randrange(8)):
                await asyncio.sleep(0)
            task.cancel()
            if rng.random() < 0.2:
                await asyncio.sleep(0)
                task.cancel()
            result = (await asyncio.gather(task, return_exceptions=True))[0]
            outcomes["answered" if isinstance(result, bytes) else type(result).__name__] += 1

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=512)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    await asyncio.gather(*(worker(calls // 20) for _ in range(20)))
    await settled(transport)

    assert {"answered", "CancelledError"} == set(outcomes)
    assert calls == sum(outcomes.values())
    assert outcomes["CancelledError"] > calls // 3
    lane = next(iter(transport._lanes.values()))
    assert {shard.active for shards in lane._shards.values() for shard in shards._shards} == {0}
    for _ in range(20):
        assert await fetch(transport, url) == b"data: a\n\ndata: b\n\n"
    assert len(next(iter(transport._lanes.values())).sockets) <= 20
    await transport.aclose()
    server.close()
    end = time.monotonic() + 2
    while served["gone"] < served["connections"]:
        assert time.monotonic() < end, served
        await asyncio.sleep(0.001)


async def fetch(transport, url, **options):
    """Send and read to the end."""
    exchange = await send(transport, url, **options)
    parts = []
    while (piece := await exchange.read(time.monotonic() + 5)) is not None:
        parts.append(piece)
    return b"".join(parts)
