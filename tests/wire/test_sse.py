"""Server-sent events from any cut of the bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_client.wire.sse import ERROR, HTML, Decoder, ServerEvent


def decode(body: bytes, size: int | None = None, limit: int = 1 << 20) -> tuple[list[ServerEvent], Decoder]:
    decoder = Decoder(limit)
    step = size or max(len(body), 1)
    events = []
    for start in range(0, len(body), step):
        events += decoder.feed(body[start : start + step])
    return events + decoder.end(), decoder


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, None])
def test_every_line_end_of_the_standard_ends_a_line(end, size):
    """CR alone, LF alone and both, however the network cuts them."""
    body = end.join([b"event: a", b"data: 1", b"data: 2", b"", b"data: 3", b"", b""])

    events, _ = decode(body, size)

    assert events == [("a", "1\n2"), ("", "3")]


def test_an_event_that_ends_in_cr_is_not_held_back():
    """The LF that may follow belongs to the CR; waiting for it would delay a token."""
    decoder = Decoder()

    assert decoder.feed(b"data: 1\r\r") == [("", "1")]
    assert decoder.feed(b"\ndata: 2\r\n\r") == [("", "2")]
    assert decoder.feed(b"\n") == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"data:x\n\n", [("", "x")]),
        (b"data:  x\n\n", [("", " x")]),
        (b"data:\tx\n\n", [("", "\tx")]),
        (b"data\n\n", []),
        (b"data:\n\n", []),
        (b"data\ndata\n\n", [("", "\n")]),
        (b": comment\n:\n\n", []),
        (b"id: 1\nretry: 3\nfoo: bar\ndata: x\n\n", [("", "x")]),
        (b"data: x\nevent: error\n\n", [("error", "x")]),
        (b"event: ping\n\ndata: x\n\n", [("", "x")]),
        (b"event: error\n\n", [("error", "")]),
        (b"event:error\ndata:x\n\n", [("error", "x")]),
        (b"\n\n\ndata: x\n\n\n\n", [("", "x")]),
        (b"data: [DONE]\n", [("", "[DONE]")]),
        (b"data: [DONE]", [("", "[DONE]")]),
        (b'data: {"a":1}', [("", '{"a":1}')]),
    ],
)
@pytest.mark.parametrize("size", [1, None])
def test_fields_are_read_as_the_standard_says(body, expected, size):
    """One space after the colon goes, comments and unknown fields go, order within an event is free."""
    events, _ = decode(body, size)

    assert expected == events


@pytest.mark.parametrize("size", [1, 2, 3, None])
def test_one_byte_order_mark_is_dropped(size):
    """Even when the network splits it; a second one is text."""
    events, _ = decode(b"\xef\xbb\xbfdata: \xef\xbb\xbfx\n\n", size)

    assert events == [("", "\ufeffx")]


@pytest.mark.parametrize("size", [1, 2, None])
def test_unicode_separators_are_text(size):
    """U+2028, U+2029, U+0085, VT and FF end no line."""
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg"

    events, _ = decode(f"data: {text}\n\n".encode(), size)

    assert events == [("", text)]


@pytest.mark.parametrize("size", [1, 2, None])
def test_broken_utf8_is_replaced(size):
    """A latin-1 byte costs one character, not the stream."""
    events, _ = decode(b"data: caf\xe9 \xf0\x9f\x98\x80\n\n", size)

    assert events == [("", "caf\ufffd \U0001f600")]


def test_bare_json_lines_are_events():
    """Lemonade's errors, LMDeploy's proxy and NDJSON come without a field name."""
    events, _ = decode(b'data: {"a":1}\n{"b":2}\n{"c":3}')

    assert events == [("", '{"a":1}'), ("", '{"b":2}'), ("", '{"c":3}')]


def test_a_bare_line_that_is_no_json_is_an_unknown_field():
    """A brace alone makes no event."""
    events, _ = decode(b"{oops\ndata: x\n\n")

    assert events == [("", "x")]


def test_the_old_error_field_is_an_error_event():
    """llama.cpp wrote `error:` instead of `data:` until September 2025."""
    events, _ = decode(b'error: {"code":500}\n\ndata: [DONE]\n\n')

    assert events == [(ERROR, '{"code":500}'), ("", "[DONE]")]


def test_a_page_inside_a_stream_is_reported():
    """A proxy's HTML is no event and must not pass for a field."""
    events, _ = decode(b"data: x\n\n<html>\n")

    assert events == [("", "x"), (HTML, "<html>")]


def test_a_cut_event_is_left_over():
    """What does not parse at the end of the body is not dispatched."""
    events, decoder = decode(b'data: {"a":')

    assert events == []
    assert decoder.leftover


def test_comments_are_counted():
    """A stream of nothing else is a queue that does not move."""
    _, decoder = decode(b": a\n\n:\n: b\n")

    assert decoder.comments == 3


@pytest.mark.parametrize(
    "body",
    [b"data: " + b"x" * 3000, b"x" * 3000, b"data: y\n" * 300, b"data\n" * 300, b"event: " + b"n" * 3000],
    ids=["long line", "no field", "many lines", "many empty lines", "long name"],
)
@pytest.mark.parametrize("size", [1, 100])
def test_an_event_beyond_the_bound_is_dropped(body, size):
    """Memory stays bounded whatever an event is made of, and nothing follows it."""
    events, decoder = decode(body + b"\n\ndata: z\n\n", size, limit=2000)

    assert events == []
    assert decoder.overflow
    assert len(decoder._held) + sum(map(len, decoder._data)) <= 2100


@pytest.mark.parametrize("body", [b"data: 12345678\n\n", b"data: 1234\ndata: 5678\n\n", b"data\n\n", b"event: x\n\n"])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_many_small_events_never_reach_the_bound(body, size):
    """The bound is of one event: what was dispatched no longer counts."""
    _, decoder = decode(body * 500, size, limit=200)

    assert not decoder.overflow


@pytest.mark.parametrize("size", [1, 4, 7])
def test_the_bound_holds_for_every_event_alike(size):
    """A second event of many lines is counted from its first line."""
    small, large = b"data: 1\ndata: 2\n\n", b"data: 12345678\n" * 40
    _, decoder = decode(small + large, size, limit=600)

    assert decoder.overflow


def test_a_long_line_in_small_pieces_costs_linear_time():
    """A megabyte byte by byte is copied once or twice, not a million times."""
    decoder = Decoder()
    for _ in range(1 << 17):
        decoder.feed(b"12345678")

    assert len(decoder._held) == 1 << 20


LINES = st.lists(
    st.one_of(
        st.sampled_from([
            b"", b"data", b"data:", b"data: [DONE]", b"event: error", b"event: x", b": c", b"id: 1", b'{"a": 1}', b"{",
            b"<html>", b'error: {"code":500}', b'data: {"choices":[]}', b"\xef\xbb\xbf", b"retry: 1", b"data: \xf0\x9f",
        ]),
        st.binary(max_size=12),
        st.text(max_size=8).map(lambda text: b"data: " + text.encode("utf-8", "replace")),
    ),
    max_size=12,
)  # fmt: skip
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@settings(deadline=None)
@given(LINES, st.lists(ENDS, min_size=12, max_size=12), st.data())
def test_the_cut_of_the_bytes_changes_nothing(lines, ends, data):
    """One piece, single bytes or any other cut: the same events."""
    body = b"".join(line + end for line, end in zip(lines, ends, strict=False))
    whole, _ = decode(body)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    decoder = Decoder()
    events = []
    for start, stop in zip([0, *cuts], [*cuts, len(body)], strict=True):
        events += decoder.feed(body[start:stop])

    assert whole == events + decoder.end()
    assert whole == decode(body, 1)[0]
