"""HTTP/2: requests share a connection, and each can be given up without the others noticing."""

import asyncio
import ssl
import time

import h2.errors
import pytest
from llm_client.flow.faults import Fault, FaultKind
from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport.aio import AsyncTransport
from tests.transport.h2server import H2Server, opened, whole
from tests.transport.kit import CLOCK, busy, post

CANCEL = h2.errors.ErrorCodes.CANCEL


@pytest.fixture(scope="module")
def h2tls(tls):
    """A server context that speaks HTTP/2."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.leaf.configure_cert(context)
    context.set_alpn_protocols(["h2"])
    return context


def first_hangs(connection, stream, number):
    """The first request gets nothing, the second a piece, later ones a whole answer."""
    if number == 2:
        opened(connection, stream)
    elif number > 2:
        whole(connection, stream)


def begin_then_whole(connection, stream, number):
    """The first request gets a piece, later ones a whole answer."""
    (opened if number == 1 else whole)(connection, stream)


def test_requests_share_a_connection(kit, tls, h2tls):
    """One after the other, and while another is being read."""
    with H2Server(h2tls, begin_then_whole) as server:
        transport = kit.make(ca_file=tls.ca_file, http2=True)
        reading = kit.send(transport, post(server.url))
        assert kit.read(reading) == b"data: a\n\n"
        assert [kit.fetch(transport, server.url) for _ in range(3)] == [b"{}"] * 3

        assert server.connections == 1
        kit.close(reading)


def test_a_closed_answer_is_reset_and_the_others_go_on(kit, tls, h2tls):
    """The server hears CANCEL for that stream only."""
    with H2Server(h2tls, begin_then_whole) as server:
        transport = kit.make(ca_file=tls.ca_file, http2=True)
        exchange = kit.send(transport, post(server.url))
        kit.read(exchange)
        kit.close(exchange)
        kit.tick(0.01)
        server.wait(lambda: server.resets == [(1, CANCEL)])

        assert kit.fetch(transport, server.url) == b"{}"
        assert server.connections == 1
        assert busy(transport) == []


def test_a_dropped_answer_is_reset(kit, tls, h2tls):
    """At once on a loop; in threads with the next call, as a finalizer may not wait for the connection's lock."""
    with H2Server(h2tls, begin_then_whole) as server:
        transport = kit.make(ca_file=tls.ca_file, http2=True)
        exchange = kit.send(transport, post(server.url))
        kit.read(exchange)
        del exchange
        if kit.loop is None:
            kit.fetch(transport, server.url)
        kit.tick(0.02)
        server.wait(lambda: server.resets == [(1, CANCEL)])

        assert kit.fetch(transport, server.url) == b"{}"
        assert server.connections == 1


async def test_a_cancelled_request_is_reset(family, tls, h2tls):
    """Before its answer began, while another stream is being read."""
    with H2Server(h2tls, first_hangs) as server:
        transport = AsyncTransport(HttpSpec(family=family, ca_file=tls.ca_file, http2=True))

        def send():
            return transport.send(post(server.url), until=time.monotonic() + 5, connect=2, clock=CLOCK)

        task = asyncio.create_task(send())
        await asyncio.to_thread(server.wait, lambda: server.begun == [1])
        other = await send()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(server.wait, lambda: server.resets == [(1, CANCEL)])

        assert await other.read(time.monotonic() + 5) == b"data: a\n\n"
        third = await send()
        assert await third.read(time.monotonic() + 5) == b"{}"
        assert server.connections == 1
        await other.aclose()
        await transport.aclose()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (lambda c, s, n: c.reset_stream(s, error_code=h2.errors.ErrorCodes.REFUSED_STREAM), FaultKind.REFUSED_STREAM),
        (lambda c, s, n: c.reset_stream(s, error_code=h2.errors.ErrorCodes.INTERNAL_ERROR), FaultKind.RESET),
        (lambda c, s, n: c.close_connection(last_stream_id=s), FaultKind.GOAWAY),
    ],
    ids=["refused", "reset", "goaway"],
)
def test_what_the_server_says_has_a_word(kit, tls, h2tls, answer, kind):
    """Refused before it was processed, reset, or going away."""
    with H2Server(h2tls, answer) as server:
        transport = kit.make(ca_file=tls.ca_file, http2=True)
        with pytest.raises(Fault) as caught:
            kit.send(transport, post(server.url))

        assert caught.value.kind is kind


async def test_a_server_that_takes_one_stream_at_a_time(family, tls, h2tls):
    """The wait for a stream is bounded by the request's time."""
    with H2Server(h2tls, begin_then_whole, streams=1) as server:
        transport = AsyncTransport(HttpSpec(family=family, ca_file=tls.ca_file, http2=True))
        first = await transport.send(post(server.url), until=time.monotonic() + 5, connect=2, clock=CLOCK)
        with pytest.raises(Fault) as caught:
            await transport.send(post(server.url), until=time.monotonic() + 0.05, connect=2, clock=CLOCK)
        assert (caught.value.kind, caught.value.sent) == (FaultKind.CONNECT_TIMEOUT, False)
        await first.aclose()
        second = await transport.send(post(server.url), until=time.monotonic() + 5, connect=2, clock=CLOCK)

        assert await second.read(time.monotonic() + 5) == b"{}"
        assert len(server.begun) == 2
        await transport.aclose()


def test_a_server_without_it_is_spoken_to_in_http_1(kit, tls):
    """`http2: true` is an offer."""
    from tests.transport.rawserver import RawServer, answer

    with RawServer([answer()], tls=tls.server) as server:
        transport = kit.make(ca_file=tls.ca_file, http2=True)

        assert kit.fetch(transport, server.url()) == b"{}"
