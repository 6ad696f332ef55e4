"""Content decoding: right at every cut, bounded at every step."""

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.flow.faults import Fault, FaultKind
from llm_client.model import Headers
from llm_client.transport.body import STEP, Body, accept_encoding
from tests.transport.kit import post
from tests.transport.rawserver import FIN, STREAM, RawServer, answer, chunk, head


def raw_deflate(data):
    """What some servers call deflate."""
    squeezer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return squeezer.compress(data) + squeezer.flush()


CODINGS = {
    "": lambda data: data,
    "identity": lambda data: data,
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP ": gzip.compress,
    "deflate": zlib.compress,
    "deflate raw": raw_deflate,
}


def body_of(coding, **headers):
    """A body with that content-encoding."""
    pairs = [("Content-Encoding", coding)] if coding else []
    return Body(Headers([*pairs, *headers.items()]))


def decode(body, parts):
    """Feed parts, return everything that comes out."""
    out = []
    for part in parts:
        body.feed(part)
        while piece := body.take():
            assert len(piece) <= STEP
            out.append(piece)
    body.end()
    return b"".join(out)


@given(st.binary(max_size=300), st.sampled_from(sorted(CODINGS)), st.lists(st.integers(1, 40), max_size=30))
def test_decoding_does_not_depend_on_the_cuts(data, coding, cuts):
    """Every coding, cut anywhere."""
    wire, parts = CODINGS[coding](data), []
    for cut in cuts:
        parts.append(wire[:cut])
        wire = wire[cut:]
    parts.append(wire)
    parts = [part for part in parts if part]

    assert data == decode(body_of(coding.removesuffix(" raw")), parts)


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=4), st.integers(1, 30))
def test_gzip_may_have_several_members_and_padding(members, size):
    """Members are joined, zeros at the end ignored (RFC 1952, 2.2)."""
    wire = b"".join(map(gzip.compress, members))
    parts = [wire[start : start + size] for start in range(0, len(wire), size)]

    assert b"".join(members) == decode(body_of("gzip"), [*parts, b"\x00\x00", b"\x00"])


def test_broken_data_is_refused():
    """Not compressed at all, or damaged on the way."""
    damaged = bytearray(gzip.compress(b"hello" * 100))
    damaged[20] ^= 0xFF
    for coding, wire in [("gzip", b"hello"), ("gzip", bytes(damaged)), ("deflate", b"\xff\xff\xff")]:
        with pytest.raises(Fault) as caught:
            decode(body_of(coding), [wire])

        assert FaultKind.DECODE is caught.value.kind


def test_data_that_ends_too_early_is_refused():
    """But an empty body is empty in every coding, and a stream's events tell whether it is whole."""
    wire = gzip.compress(b"hello" * 100)[:-9]
    with pytest.raises(Fault, match="ended too early"):
        decode(body_of("gzip"), [wire])

    assert decode(body_of("gzip"), []) == b""
    assert decode(body_of("gzip", **{"content-type": "text/event-stream; x"}), [wire]) == b"hello" * 100


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "aes128gcm"])
def test_an_unknown_coding_is_left_in_place(coding):
    """And named, so that the bytes are not taken for text."""
    body = body_of(coding)

    assert decode(body, [b"\x1f\x8b"]) == b"\x1f\x8b"
    assert coding == body.unknown


def bomb(size):
    """Zeros, about a thousand to one."""
    squeezer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    block = bytes(1 << 20)
    return b"".join(squeezer.compress(block) for _ in range(size >> 20)) + squeezer.flush()


def test_a_bomb_is_refused_before_it_is_large():
    """Memory stays at a few steps, output below limit plus one step."""
    wire, limit = bomb(64 << 20), 8 << 20
    body, out = Body(Headers({"content-encoding": "gzip"}), limit), 0
    tracemalloc.start()
    body.feed(wire)
    with pytest.raises(Fault, match=f"larger than {limit} bytes"):  # noqa: PT012 - counts until it raises
        while piece := body.take():
            out += len(piece)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert limit - STEP <= out <= limit
    assert peak < 8 << 20


def test_a_bomb_is_refused_on_the_wire(kit):
    """256 MiB is the bound unless told otherwise; the connection is closed."""
    wire = bomb(24 << 20)
    with RawServer([answer(body=wire, Content_Encoding="gzip"), FIN]) as server:
        exchange = kit.send(kit.make(max_body=4 << 20), post(server.url()))
        out = 0
        with pytest.raises(Fault) as caught:  # noqa: PT012 - counts until it raises
            for piece in kit.pieces(exchange):
                assert len(piece) <= STEP
                out += len(piece)

        assert FaultKind.DECODE is caught.value.kind
        assert out <= 4 << 20
        assert exchange.closed


def test_the_bound_counts_plain_bytes_too_unless_lifted(kit):
    """Streams are passed on piece by piece, and have none; neither has an answer that is only passed on."""
    with RawServer([answer(body=b"x" * 2000), FIN]) as server:
        transport = kit.make(max_body=1000)
        with pytest.raises(Fault, match="larger than 1000 bytes"):
            kit.fetch(transport, server.url())
        exchange = kit.send(transport, post(server.url()))
        exchange.unbound()

        assert len(kit.read_all(exchange)) == 2000
    with RawServer([STREAM, chunk(b"x" * 2000), b"0\r\n\r\n"]) as server:
        assert len(kit.fetch(kit.make(max_body=1000), server.url())) == 2000


def test_a_compressed_stream_comes_out_event_by_event(kit):
    """Each flush of the server's compressor is one piece here."""
    squeezer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    events = [b"data: one\n\n", b"data: two\n\n"]
    wire = [chunk(squeezer.compress(one) + squeezer.flush(zlib.Z_SYNC_FLUSH)) for one in events]
    opening = head(content_type="text/event-stream", transfer_encoding="chunked", content_encoding="gzip")
    with RawServer([opening, wire[0], 0.01, wire[1], b"0\r\n\r\n"]) as server:
        assert events == list(kit.pieces(kit.send(kit.make(), post(server.url()))))


def test_an_unknown_coding_arrives_raw(kit):
    """With its name on the exchange."""
    with RawServer([answer(body=b"\x0b\x02", Content_Encoding="br")]) as server:
        exchange = kit.send(kit.make(), post(server.url()))

        assert (kit.read_all(exchange), exchange.unknown_encoding) == (b"\x0b\x02", "br")


def test_only_codings_that_can_be_undone_are_asked_for():
    """Whatever the caller's own library could undo."""
    cases = {None: "gzip, deflate", "gzip": "gzip", "br": "identity", "*": "identity", "identity": "identity"}

    assert cases == {wished: accept_encoding(wished) for wished in cases}
    assert accept_encoding("gzip, deflate, br, zstd;q=0.1") == "gzip, deflate"
