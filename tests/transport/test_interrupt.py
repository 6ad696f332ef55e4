"""KeyboardInterrupt in the blocking transport: out at once, disconnected, nothing left in use."""

import signal
import threading
import time

import pytest
from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport import sync
from llm_client.transport.sync import SyncTransport
from tests.transport.kit import CLOCK, busy, post
from tests.transport.rawserver import HANG, STREAM, RawServer, answer, event


@pytest.fixture
def transport(family):
    """A blocking one."""
    made = SyncTransport(HttpSpec(family=family))
    yield made
    made.close()


def interrupt_when(condition):
    """Send SIGINT to this process as soon as a condition holds."""

    def work():
        end = time.monotonic() + 5
        while not condition() and time.monotonic() < end:
            time.sleep(0.002)
        time.sleep(0.02)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=work).start()


def send(transport, url):
    """Send with plenty of time."""
    return transport.send(post(url), until=time.monotonic() + 5, connect=5, clock=CLOCK)


def test_while_waiting_for_the_answer(transport):
    """FC-RT-06: KeyboardInterrupt leaves at once and the server sees the end."""
    with RawServer([HANG], [answer()]) as server:
        interrupt_when(lambda: len(server.requests) == 1)
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            send(transport, server.url())

        assert time.monotonic() - started < 1
        assert server.requests[0].gone.wait(0.5)
        assert busy(transport) == []
        assert len(server.requests) == 1


def test_between_two_steps(transport, monkeypatch):
    """The answer has come, and nobody has it yet: the connection is cut all the same."""

    def interrupted(*_args):
        raise KeyboardInterrupt

    with RawServer([STREAM, event("a"), HANG]) as server:
        monkeypatch.setattr(sync, "Flight", interrupted)
        with pytest.raises(KeyboardInterrupt):
            send(transport, server.url())

        assert server.requests[0].gone.wait(0.5)


def test_while_reading(transport):
    """The exchange is closed behind it."""
    with RawServer([STREAM, event("a"), HANG]) as server:
        exchange = send(transport, server.url())
        exchange.read(time.monotonic() + 5)
        interrupt_when(lambda: True)
        with pytest.raises(KeyboardInterrupt):
            exchange.read(time.monotonic() + 5)

        assert exchange.closed
        assert server.requests[0].gone.wait(0.5)
        assert busy(transport) == []


def test_while_connecting(transport):
    """Nothing was sent, and no connection stays."""
    with RawServer(on_connect=[HANG]) as server:
        interrupt_when(lambda: server.connections == 1)
        with pytest.raises(KeyboardInterrupt):
            send(transport, server.url().replace("http:", "https:"))

        server.wait(lambda: server.open == 0)
        assert busy(transport) == []
