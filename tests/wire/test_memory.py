"""What a hostile answer costs in memory: the limit that is set for it, and a megabyte."""

import gzip
import itertools

import pytest
from llm_client.errors import LLMClientError
from llm_client.flow.faults import Fault, FaultKind
from llm_client.model import Headers
from llm_client.transport.body import Body
from llm_client.wire.sse import Decoder
from llm_client.wire.stream import StreamReader
from tests.client.kit import call
from tests.transport.kit import Kit, post
from tests.transport.rawserver import FIN, RawServer, answer
from tests.wire.peak import Peak

COLOURS = pytest.mark.parametrize("colour", ["sync", "async"])

LIMIT = 1_000_000
READ = 65_536  # what both HTTP libraries read from a socket at most
SPARE = 1_000_000


def endless(first, more):
    """Twice the limit, in pieces that a socket gives."""
    body = first + more * (2 * LIMIT // len(more))
    return [body[at : at + READ] for at in range(0, len(body), READ)]


HOSTILE = {
    "one line": endless(b"data: ", b"a"),
    "one line without a field": endless(b"x", b"a"),
    "lines of one event": endless(b"", b"data: abcdefgh\n"),
    "short lines of one event": endless(b"", b"data: a\n"),
    "empty lines of one event": endless(b"", b"data\n"),
    "a name": endless(b"event: ", b"a"),
    "a comment": endless(b": ", b"a"),
    "comments": endless(b"", b":\n"),
    "carriage returns": endless(b"data: a", b"\r"),
    "unknown fields": endless(b"", b"ab\n"),
    "errors": endless(b"data: a\n", b"error: b\n"),
}
EVENTS = {"content-type": "text/event-stream"}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_an_event_costs_its_limit(hostile):
    """Whatever the event is made of; nothing is left of it when it is refused."""
    decoder = Decoder(LIMIT)
    with Peak() as peak:
        for piece in HOSTILE[hostile]:
            decoder.feed(piece)

    assert peak.bytes <= LIMIT + SPARE


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_stream_costs_the_limit_of_an_event(hostile):
    """The same through the reader that the client uses."""
    reader = StreamReader("chat", headers=Headers(EVENTS), wall=0.0, max_event_bytes=LIMIT)
    with Peak() as peak:
        for piece in HOSTILE[hostile]:
            reader.feed(piece)

    assert peak.bytes <= LIMIT + SPARE


@COLOURS
@pytest.mark.parametrize("coding", ["", "gzip"])
def test_an_error_body_costs_what_of_it_is_read(colour, coding):
    """64 KiB of ten megabytes, compressed or not."""
    body = b"x" * 10_000_000
    headers = {"Content_Encoding": coding} if coding else {}
    script = [answer(400, gzip.compress(body) if coding else body, content_type="text/plain", **headers)]
    with RawServer(script, script) as server:
        with pytest.raises(LLMClientError):
            call(colour, server)  # what is made once is made now
        with Peak() as peak, pytest.raises(LLMClientError):
            call(colour, server)

    assert peak.bytes <= 65_536 + SPARE


@COLOURS
@pytest.mark.parametrize("family", ["httpx", "httpx2"])
def test_a_plain_body_is_read_up_to_its_limit(family, colour):
    """And no further, with no more than that in memory."""
    kit = Kit(family, colour)
    script = [answer(body=b"x" * 4 * LIMIT), FIN]
    with RawServer(script, script) as server:
        transport = kit.make(max_body=LIMIT)
        kit.close(kit.send(transport, post(server.url())))  # what is made once is made now
        exchange = kit.send(transport, post(server.url()))
        with Peak() as peak, pytest.raises(Fault, match=f"larger than {LIMIT} bytes"):
            list(kit.pieces(exchange))
        kit.close_all()

    assert peak.bytes <= LIMIT + SPARE


def bomb():
    """Ten megabytes that are ten gigabytes: a hundred members of gzip data, one after the other."""
    return gzip.compress(bytes(100_000_000), 9) * 103


def test_ten_megabytes_that_are_ten_gigabytes_are_refused_before_twice_the_limit():
    """Counted in memory, with all of the output kept, as the client keeps a plain answer."""
    wire, limit = bomb(), 20_000_000
    body, kept = Body(Headers({"content-encoding": "gzip"}), limit), []
    with Peak() as peak, pytest.raises(Fault) as caught:  # noqa: PT012 - reads until it raises
        for at in itertools.count(0, READ):
            body.feed(wire[at : at + READ])
            while piece := body.take():
                kept.append(piece)

    assert 9_900_000 <= len(wire) <= 10_500_000
    assert FaultKind.DECODE is caught.value.kind
    assert sum(map(len, kept)) <= limit
    assert peak.bytes <= limit + SPARE
