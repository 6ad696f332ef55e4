"""Time-outs change from read to read: first token, progress, what is left of a deadline."""

import time

import pytest
from llm_client.flow.faults import Fault, FaultKind
from tests.transport.kit import CLOCK, busy, post
from tests.transport.rawserver import HANG, LAST, STREAM, RawServer, answer, chunk, event


def test_each_read_has_a_time_of_its_own(kit):
    """A long one for the head, a short one between pieces: the library fixes the first, we do not."""
    with RawServer([STREAM, event("a"), 0.03, event("b"), HANG]) as server:
        exchange = kit.send(kit.make(), post(server.url()), within=10)
        kit.read(exchange, within=10)
        kit.read(exchange, within=1)
        started = time.monotonic()
        with pytest.raises(Fault) as caught:
            kit.read(exchange, within=0.05)

        assert FaultKind.READ_TIMEOUT is caught.value.kind
        assert 0.045 < time.monotonic() - started < 1
        assert server.requests[0].gone.wait(0.5)
        assert exchange.closed


def test_a_later_read_may_take_longer_than_the_first(kit):
    """The other direction: the bound of the head is not the bound of the body."""
    with RawServer([STREAM, 0.05, event("a"), LAST]) as server:
        exchange = kit.send(kit.make(), post(server.url()), within=0.03)

        assert kit.read(exchange, within=2) == b"data: a\n\n"


def test_no_bound_at_all(kit):
    """Infinity is a time, and so is a year."""
    with RawServer([STREAM, 0.01, event("a"), LAST]) as server:
        transport = kit.make()
        for until in (float("inf"), time.monotonic() + 3e7):
            request = transport.send(post(server.url()), until=until, connect=None, clock=CLOCK)
            exchange = kit.run(request)

            assert kit.run(exchange.read(until)) == b"data: a\n\n"
            assert kit.run(exchange.read(until)) is None


def test_a_time_that_has_passed_ends_the_read_although_data_is_there(kit):
    """A fast server does not outlive a deadline."""
    with RawServer([STREAM, *([chunk(b"x" * 60_000)] * 50), HANG]) as server:
        exchange = kit.send(kit.make(), post(server.url()))
        until = time.monotonic() + 0.02
        with pytest.raises(Fault) as caught:  # noqa: PT012 - reads until it raises
            while True:
                kit.run(exchange.read(until))

        assert FaultKind.READ_TIMEOUT is caught.value.kind
        assert time.monotonic() - until < 1


def test_connecting_has_its_own_bound_and_the_deadline_above_it(kit):
    """The smaller one counts."""
    with RawServer(on_connect=[HANG]) as server:
        url = server.url().replace("http:", "https:")
        for options in (
            {"connect": 0.03, "within": 5},
            {"connect": 5, "within": 0.03},
            {"connect": None, "within": 0.03},
        ):
            started = time.monotonic()
            with pytest.raises(Fault) as caught:
                kit.send(kit.make(), post(url), **options)

            assert FaultKind.CONNECT_TIMEOUT is caught.value.kind
            assert time.monotonic() - started < 1


def test_the_connect_time_out_ends_with_connecting(kit):
    """A slow answer on a quick connection is no connect time-out."""
    with RawServer([0.05, answer()]) as server:
        assert kit.fetch(kit.make(), server.url(), connect=0.02) == b"{}"


def test_a_time_out_does_not_touch_the_other_requests(kit):
    """Each has its own connection and its own clock."""
    with RawServer([HANG], [0.05, answer()]) as server:
        transport = kit.make()
        with pytest.raises(Fault):
            kit.send(transport, post(server.url()), within=0.3)

        assert kit.fetch(transport, server.url()) == b"{}"
        assert busy(transport) == []
