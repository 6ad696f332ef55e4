"""An answer that nobody closes: dropped, collected, or let go from a finalizer."""

import asyncio
import gc
import threading
import time
import weakref

import pytest
from llm_client.flow.faults import Fault
from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport.aio import AsyncTransport
from llm_client.transport.sync import SyncTransport
from tests.transport.kit import CLOCK, busy, pools, post
from tests.transport.rawserver import HANG, LAST, STREAM, RawServer, answer, event


def test_a_dropped_answer_disconnects_at_once(kit):
    """No close, no loop turn, no next call: the server sees the end when the last reference goes."""
    with RawServer([STREAM, event("a"), HANG], [answer()]) as server:
        transport = kit.make()
        exchange = kit.send(transport, post(server.url()))
        kit.read(exchange)
        del exchange

        assert server.requests[0].gone.wait(0.5)
        kit.tick(0.005)
        assert kit.fetch(transport, server.url()) == b"{}"
        assert busy(transport) == []


def test_an_answer_in_a_cycle_is_dropped_by_the_collector(kit):
    """The library's generators are not closed from inside the collector: they would take the pool's lock."""
    with RawServer([STREAM, event("a"), HANG], [answer()]) as server:
        transport = kit.make()
        exchange = kit.send(transport, post(server.url()))
        kit.read(exchange)
        parts = weakref.ref(exchange._flight.parts)
        exchange.itself = exchange
        pool = pools(transport)[0] if kit.loop is None else None
        del exchange
        if pool is not None:
            with pool._optional_thread_lock:
                gc.collect()
                assert parts() is not None
        else:
            gc.collect()

        assert server.requests[0].gone.wait(0.5)
        kit.tick(0.005)
        assert kit.fetch(transport, server.url()) == b"{}"
        assert busy(transport) == []


def test_abandon_is_idempotent_and_ends_reading(kit):
    """As if closed."""
    with RawServer([STREAM, event("a"), HANG]) as server:
        transport = kit.make()
        exchange = kit.send(transport, post(server.url()))
        exchange.abandon()
        exchange.abandon()
        kit.close(exchange)

        assert server.requests[0].gone.wait(0.5)
        with pytest.raises(Fault):
            kit.read(exchange)


def test_an_answer_read_to_its_end_is_not_abandoned(kit):
    """Its connection stays."""
    with RawServer([answer()]) as server:
        transport = kit.make()
        exchange = kit.send(transport, post(server.url()))
        kit.read_all(exchange)
        exchange.abandon()
        del exchange
        kit.fetch(transport, server.url())

        assert [seen.connection for seen in server.requests] == [0, 0]


async def test_abandoned_from_another_thread(family):
    """The loop cleans up, wherever the finalizer ran."""
    transport = AsyncTransport(HttpSpec(family=family))
    with RawServer([STREAM, event("a"), HANG]) as server:
        exchange = await transport.send(post(server.url()), until=time.monotonic() + 5, connect=1, clock=CLOCK)
        thread = threading.Thread(target=exchange.abandon)
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.001)
        await asyncio.to_thread(server.requests[0].gone.wait, 0.5)

        assert server.requests[0].disconnected is not None
        await asyncio.sleep(0.01)
        assert busy(transport) == []
        await transport.aclose()


def test_abandoned_after_its_loop_was_closed(family):
    """A late finalizer finds nobody to call, and says nothing."""
    transport = AsyncTransport(HttpSpec(family=family))
    with RawServer([STREAM, event("a"), HANG]) as server:

        async def begin():
            return await transport.send(post(server.url()), until=time.monotonic() + 5, connect=1, clock=CLOCK)

        exchange = asyncio.run(begin())
        del exchange

        assert server.requests[0].gone.wait(0.5)
        transport.close()


def test_closing_wakes_a_reader_in_another_thread(family):
    """The reader gets a fault, and cleans up behind itself."""
    transport = SyncTransport(HttpSpec(family=family))
    with RawServer([STREAM, event("a"), HANG]) as server:
        exchange = transport.send(post(server.url()), until=time.monotonic() + 5, connect=1, clock=CLOCK)
        exchange.read(time.monotonic() + 5)
        caught = []

        def read():
            try:
                exchange.read(time.monotonic() + 5)
            except Fault as fault:
                caught.append(fault)

        thread = threading.Thread(target=read)
        thread.start()
        time.sleep(0.03)
        exchange.close()
        thread.join(1)

        assert not thread.is_alive()
        assert len(caught) == 1
        assert exchange.closed
        assert busy(transport) == []
        transport.close()


def test_closing_the_transport_wakes_every_reader(family):
    """From another thread, in the middle of head and body."""
    transport = SyncTransport(HttpSpec(family=family))
    with RawServer([HANG], [STREAM, event("a"), HANG]) as server:
        caught = []

        def fetch():
            try:
                exchange = transport.send(post(server.url()), until=time.monotonic() + 5, connect=1, clock=CLOCK)
                while exchange.read(time.monotonic() + 5) is not None:
                    pass
            except Fault as fault:
                caught.append(fault)

        threads = [threading.Thread(target=fetch) for _ in range(4)]
        for thread in threads:
            thread.start()
        server.wait_requests(4)
        time.sleep(0.02)
        transport.close()
        for thread in threads:
            thread.join(1)

        assert len(caught) == 4
        server.wait(lambda: server.open == 0)


def test_many_threads_drop_answers(family):
    """Threads share one transport; a third of the answers is dropped in the middle."""
    transport = SyncTransport(HttpSpec(family=family))
    with RawServer([STREAM, event("a"), event("b"), LAST]) as server:
        done = []

        def work(number):
            for turn in range(20):
                exchange = transport.send(post(server.url()), until=time.monotonic() + 9, connect=9, clock=CLOCK)
                exchange.read(time.monotonic() + 5)
                if (turn + number) % 3:
                    while exchange.read(time.monotonic() + 5) is not None:
                        pass
                    done.append(1)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        exchange = transport.send(post(server.url()), until=time.monotonic() + 9, connect=9, clock=CLOCK)
        exchange.close()

        assert len(done) == 80
        assert busy(transport) == []
        transport.close()
        server.wait(lambda: server.open == 0)
