"""A forked child forgets the parent's connections without the parent noticing."""

import os
import time
import warnings

import pytest
from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport.sync import SyncTransport
from tests.transport.kit import CLOCK, Kit, busy, pools, post
from tests.transport.rawserver import LAST, STREAM, RawServer, answer, event

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def in_child(work):
    """Run something in a forked child; return whether it went well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of the test server; the child touches none
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_the_parent_goes_on_with_its_connections(kit, tls, secure):
    """An idle one and one in the middle of an answer; the child opens its own, and its exit closes nothing."""
    script = [[answer()], [STREAM, event("a"), 0.05, event("b"), LAST], [answer()]]
    with RawServer(*script, tls=tls.server if secure else None) as server:
        transport = kit.make(ca_file=tls.ca_file)
        kit.fetch(transport, server.url())
        other = kit.make(ca_file=tls.ca_file)
        reading = kit.send(other, post(server.url()))
        first = kit.read(reading)

        def child():
            assert len(sockets_of(transport)) == len(sockets_of(other)) == 0
            assert busy(transport) == busy(other) == []
            if kit.loop is None:
                assert kit.fetch(transport, server.url()) == b"{}"
                transport.close()

        assert in_child(child)
        assert first + kit.read_all(reading) == b"data: a\n\ndata: b\n\n"
        exchange = kit.send(transport, post(server.url()))
        kit.read_all(exchange)
        assert exchange.reused


def sockets_of(transport):
    """The open sockets of a transport."""
    if isinstance(transport, SyncTransport):
        return transport._sockets
    return [sock for lane in transport._lanes.values() for sock in lane.sockets._open]


def test_a_child_may_begin_a_loop_of_its_own(family):
    """After the parent's transport was used on a loop."""
    kit = Kit(family, "async")
    with RawServer([answer()]) as server:
        transport = kit.make()
        kit.fetch(transport, server.url())

        def child():
            mine = Kit(family, "async")
            assert mine.fetch(transport, server.url()) == b"{}"

        assert in_child(child)
        exchange = kit.send(transport, post(server.url()))
        kit.read_all(exchange)
        assert exchange.reused
        kit.close_all()


def test_a_lock_held_by_another_thread_is_not_inherited(family):
    """The child's locks are new."""
    with RawServer([answer()]) as server:
        transport = SyncTransport(HttpSpec(family=family))
        pool = pools(transport)[0]

        def child():
            exchange = transport.send(
                post(server.url()), until=time.monotonic() + 5, connect=5, clock=CLOCK, fresh=True
            )
            assert exchange.status == 200

        with transport._lock, transport._trust._lock, pool._optional_thread_lock:
            assert in_child(child)
        transport.close()
