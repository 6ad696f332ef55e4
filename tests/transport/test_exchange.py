"""Sending, reading and leaving an answer, on both libraries and in both colours."""

import time

import pytest
from llm_client.flow.faults import Fault, FaultKind
from llm_client.model import Request
from llm_client.profiles.secret import PrivateMap
from tests.transport.kit import busy, post
from tests.transport.rawserver import FIN, HANG, LAST, STREAM, RawServer, answer, chunk, event, head


def test_an_answer_is_read_to_its_end_and_the_connection_kept(kit):
    """Status, headers in the server's own case, body; the second request travels on the same connection."""
    with RawServer([answer(body=b"hello", X_One="1")]) as server:
        transport = kit.make()
        first = kit.send(transport, post(server.url("/v1/x"), b"question"))
        text = kit.read_all(first)
        second = kit.send(transport, post(server.url("/v1/x")))
        kit.read_all(second)

        assert (first.status, text, first.headers["x-one"]) == (200, b"hello", "1")
        assert ("X-One", "1") in first.headers.pairs
        assert (first.reused, second.reused) == (False, True)
        assert [(seen.method, seen.target, seen.body, seen.connection) for seen in server.requests] == [
            ("POST", "/v1/x", b"question", 0),
            ("POST", "/v1/x", b"{}", 0),
        ]
        assert busy(transport) == []


def test_reading_past_the_end_says_so_again(kit):
    """None stays None."""
    with RawServer([answer(body=b"x")]) as server:
        exchange = kit.send(kit.make(), post(server.url()))

        assert [kit.read(exchange) for _ in range(3)] == [b"x", None, None]


def test_the_request_carries_what_was_given_and_little_else(kit):
    """Own headers win over defaults; framing headers of a foreign client are dropped; no cookie comes back."""
    with RawServer([answer(Set_Cookie="a=b; path=/")]) as server:
        transport = kit.make(headers=PrivateMap({"x-pool": "p", "x-call": "pool"}), query=PrivateMap({"v": "1 2"}))
        headers = (
            ("x-call", "call"),
            ("Content-Length", "999"),
            ("Transfer-Encoding", "chunked"),
            ("Connection", "close"),
            ("Accept-Encoding", "br, zstd, gzip;q=0.5"),
        )
        request = Request(path="/", url=server.url("/a?b=c"), body=b"12", headers=headers, query=(("d", "e"),))
        for _ in range(2):
            kit.read_all(kit.send(transport, request))
        first, second = server.requests

        assert first.target.replace("+", "%20") == "/a?b=c&d=e&v=1%202"
        assert {
            "host": f"127.0.0.1:{server.port}",
            "x-pool": "p",
            "x-call": "call",
            "content-length": "2",
            "accept-encoding": "gzip",
            "accept": "*/*",
            "user-agent": first.headers["user-agent"],
        } == first.headers
        assert first.headers["user-agent"].startswith("resilient-llm-client/")
        assert "cookie" not in second.headers


def test_user_and_password_of_a_url_become_a_header(kit):
    """Unless the request brings its own key."""
    with RawServer([answer()]) as server:
        transport = kit.make()
        url = server.url().replace("http://", "http://user:pa%40ss@")
        kit.read_all(kit.send(transport, post(url)))
        kit.read_all(kit.send(transport, post(url, headers=(("Authorization", "Bearer k"),))))

        assert "pa" not in str(transport._outgoing.target(url).url)  # instrumentation of the library shows it
        assert [seen.headers["authorization"] for seen in server.requests] == ["Basic dXNlcjpwYUBzcw==", "Bearer k"]


def test_a_get_has_no_body(kit):
    """No content-length either."""
    with RawServer([answer()]) as server:
        kit.read_all(kit.send(kit.make(), Request(method="GET", path="/", url=server.url("/v1/models"))))

        assert (server.requests[0].method, server.requests[0].body) == ("GET", b"")
        assert "content-length" not in server.requests[0].headers


def test_a_large_body_goes_out_whole(kit):
    """More than any socket buffer, to a server that reads slowly."""
    body = bytes(range(256)) * 16_384
    with RawServer([answer()]) as server:
        kit.read_all(kit.send(kit.make(), post(server.url(), body)))

        assert body == server.requests[0].body


def test_chunks_arrive_as_they_are_sent(kit):
    """The second piece of a stream is not waited for."""
    with RawServer([STREAM, chunk(b"one"), 0.05, chunk(b"two"), LAST]) as server:
        exchange = kit.send(kit.make(), post(server.url()))
        started = time.monotonic()
        pieces = [(piece, time.monotonic() - started) for piece in kit.pieces(exchange)]

        assert [piece for piece, _ in pieces] == [b"one", b"two"]
        assert pieces[0][1] < 0.04 < pieces[1][1]


def test_fresh_never_reuses_and_is_never_reused(kit):
    """A kept connection is passed over, and the new one is closed afterwards."""
    with RawServer([answer()]) as server:
        transport = kit.make()
        exchanges = []
        for fresh in (False, True, True, False):
            exchange = kit.send(transport, post(server.url()), fresh=fresh)
            kit.read_all(exchange)
            exchanges.append(exchange)

        assert [exchange.reused for exchange in exchanges] == [False, False, False, True]
        assert [seen.connection for seen in server.requests] == [0, 1, 2, 0]
        kit.until(lambda: server.open == 1)


def test_keepalive_zero_keeps_nothing(kit):
    """`keepalive: 0` means a connection for each request."""
    with RawServer([answer()]) as server:
        transport = kit.make(keepalive=0.0)
        for _ in range(3):
            kit.read_all(kit.send(transport, post(server.url())))

        assert [seen.connection for seen in server.requests] == [0, 1, 2]


def test_a_connection_is_not_kept_for_longer_than_keepalive(kit):
    """The server's own idle time-out is longer, as a rule; racing it is what we avoid."""
    with RawServer([answer()]) as server:
        transport = kit.make(keepalive=0.02)
        for _ in range(2):
            kit.read_all(kit.send(transport, post(server.url())))
            time.sleep(0.04)

        assert [seen.connection for seen in server.requests] == [0, 1]


def test_a_connection_that_the_server_closed_in_time_is_not_used(kit):
    """FIN has arrived before the next request: a new connection, and no fault."""
    with RawServer([answer(), FIN], [answer()]) as server:
        transport = kit.make()
        kit.read_all(kit.send(transport, post(server.url())))
        kit.until(lambda: server.open == 0)
        exchange = kit.send(transport, post(server.url()))

        assert kit.read_all(exchange) == b"{}"
        assert not exchange.reused


def test_closing_an_unread_answer_disconnects_at_once(kit):
    """The server must see it, or a GPU goes on computing."""
    with RawServer([STREAM, event("a"), HANG]) as server:
        transport = kit.make()
        exchange = kit.send(transport, post(server.url()))
        kit.read(exchange)
        kit.close(exchange)
        kit.close(exchange)

        assert server.requests[0].gone.wait(0.5)
        assert busy(transport) == []
        with pytest.raises(Fault, match="closed before its end") as caught:
            kit.read(exchange)
        assert FaultKind.EOF is caught.value.kind


def test_finish_keeps_a_connection_whose_end_follows_soon(kit):
    """After [DONE] the last chunk is a packet away."""
    with RawServer([STREAM, event("[DONE]"), 0.01, LAST], [answer()]) as server:
        transport = kit.make()
        exchange = kit.send(transport, post(server.url()))
        kit.read(exchange)
        kit.finish(exchange)
        kit.read_all(kit.send(transport, post(server.url())))

        assert [seen.connection for seen in server.requests] == [0, 0]


@pytest.mark.parametrize("after", [[HANG], [chunk(b"x" * 4096)] * 200 + [HANG], [FIN]], ids=["silent", "babble", "fin"])
def test_finish_closes_a_connection_that_does_not_end(kit, after):
    """It waits 50 ms, reads no more than a little, and raises nothing."""
    with RawServer([STREAM, event("[DONE]"), *after]) as server:
        transport = kit.make()
        exchange = kit.send(transport, post(server.url()))
        kit.read(exchange)
        started = time.monotonic()
        kit.finish(exchange)

        assert time.monotonic() - started < 1
        assert server.requests[0].gone.wait(0.5)
        assert exchange.closed
        assert busy(transport) == []


def test_an_early_answer_is_read_although_the_request_was_not_taken(kit):
    """A server that refuses a large upload answers, and stops reading."""
    refusal = answer(413, body=b"too large", Connection="close")
    with RawServer(on_connect=[refusal, 0.05, FIN]) as server:
        exchange = kit.send(kit.make(), post(server.url(), b"x" * 2_000_000))

        assert (exchange.status, kit.read_all(exchange)) == (413, b"too large")


def test_a_body_may_end_with_the_connection(kit):
    """No length, no chunks: the end of the connection is the end of the body."""
    with RawServer([head(200), b"some", 0.01, b"thing", FIN]) as server:
        assert kit.read_all(kit.send(kit.make(), post(server.url()))) == b"something"


def test_a_closed_transport_refuses_to_send(kit):
    """With a sentence, and closing twice is fine."""
    with RawServer([answer()]) as server:
        transport = kit.make()
        kit.read_all(kit.send(transport, post(server.url())))
        kit.close_all_of(transport)
        kit.close_all_of(transport)

        kit.until(lambda: server.open == 0)
        with pytest.raises(RuntimeError, match="closed"):
            kit.send(transport, post(server.url()))


def test_nobody_waits_inside_the_pool(kit):
    """More answers at once than the library would allow: how many there may be is decided above."""
    with RawServer([STREAM, event("a"), HANG]) as server:
        transport = kit.make()
        exchanges = [kit.send(transport, post(server.url())) for _ in range(120)]

        assert server.connections == 120
        for exchange in exchanges:
            kit.close(exchange)
        assert busy(transport) == []
