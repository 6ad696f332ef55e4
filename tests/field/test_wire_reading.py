"""Field cases about how an answer is read, as far as bytes alone decide them. Each test names its case."""

import json
import time

import pytest
from llm_client.core.retry_after import parse_delay, parse_reset, read_hint
from llm_client.model import Headers, Kind, Usage
from llm_client.wire.classify import of_response
from llm_client.wire.failure import to_error
from llm_client.wire.stream import StreamReader
from llm_client.wire.unicode import clean

EVENTS = Headers({"content-type": "text/event-stream"})


def chunk(content, *, finish=None):
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}]}


def data(obj, *, ascii_only=True) -> bytes:
    return b"data: " + json.dumps(obj, ensure_ascii=ascii_only).encode() + b"\n\n"


def read(body: bytes, *, size: int | None = None, headers: Headers = EVENTS):
    reader = StreamReader("chat", headers=headers, wall=0.0)
    chunks = []
    for start in range(0, len(body), size or len(body)):
        chunks += reader.feed(body[start : start + (size or len(body))])
    return reader, reader.end(), [*chunks, *reader.late]


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the platform cannot change its time zone")
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Jerusalem", "Asia/Kolkata", "UTC"])
def test_fc_ra_04_an_http_date_is_utc_in_every_time_zone(zone, monkeypatch):
    """FC-RA-04: two minutes stay two minutes west of Greenwich."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        now = 1_593_120_492.0  # Thu, 25 Jun 2020 21:28:12 GMT

        assert parse_delay("Thu, 25 Jun 2020 21:30:12 GMT", wall=now) == pytest.approx(120, abs=1)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after-ms": "350", "x-ms-retry-after-ms": "900", "Retry-After": "1"}, 0.35),
        ({"X-MS-Retry-After-MS": "900", "RETRY-AFTER": "1"}, 0.9),
        ({"retry-after": "1"}, 1.0),
        ({"Retry-After-Ms": "abc", "Retry-After": "2"}, 2.0),
    ],
)
def test_fc_ra_07_milliseconds_come_before_seconds(status, headers, expected):
    """FC-RA-07: precedence of the headers, garbage skipped, any case, 503 like 429."""
    outcome = of_response(status, Headers(headers), b"", route="chat", wall=0.0)

    assert expected == pytest.approx(outcome.hint.seconds)
    assert outcome.hint.directive


def test_fc_ra_09_an_epoch_in_retry_after_is_not_slept():
    """FC-RA-09: 56 years are ignored as out of range, whatever was meant."""
    outcome = of_response(429, Headers({"Retry-After": "1767225600"}), b"", route="chat", wall=1_767_225_570.0)

    assert outcome.hint is None
    assert outcome.retryable


@pytest.mark.parametrize("dimension", ["requests", "tokens"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("6m0s", 360),
        ("1m30s", 90),
        ("2m30.5s", 150.5),
        ("88ms", 0.088),
        ("60s", 60),
        ("60", 60),
        ("1h0m5s", 3605),
        ("2024-01-15T10:30:00Z", 30),
        ("1705314630", 60),
        ("garbage", None),
    ],
)
def test_fc_ra_15_reset_headers_come_in_every_spelling(dimension, value, expected):
    """FC-RA-15: Go durations, seconds, ISO, epoch; garbage is no exception."""
    now = 1_705_314_570.0  # 2024-01-15T10:29:30Z
    headers = Headers({f"x-ratelimit-remaining-{dimension}": "0", f"x-ratelimit-reset-{dimension}": value})
    found = read_hint(headers, wall=now)

    assert parse_reset(value, wall=now) == (None if expected is None else pytest.approx(expected))
    assert (None if expected is None else pytest.approx(min(expected, 120))) == (found and found.seconds)


@pytest.mark.parametrize(
    ("code", "kind", "name", "retryable", "breaker"),
    [
        (504, Kind.TIMEOUT, "InternalServerError", True, True),
        (429, Kind.RATE_LIMITED, "RateLimitError", True, False),
        (400, Kind.BAD_REQUEST, "BadRequestError", False, False),
        ("503", Kind.UNAVAILABLE, "InternalServerError", True, True),
    ],
)
def test_fc_st_07_an_error_object_in_a_stream_is_an_error(code, kind, name, retryable, breaker):
    """FC-ST-07: never an empty success; the class belongs to the code and the message is kept."""
    frame = {"error": {"message": "TimeoutError", "type": "GatewayTimeout", "code": code}}
    reader, outcome, chunks = read(data(frame) + b"data: [DONE]\n\n")
    error = to_error(outcome)

    assert chunks == []
    assert reader.failure == outcome
    assert (kind, retryable, breaker) == (outcome.kind, outcome.retryable, outcome.breaker)
    assert name == type(error).__name__
    assert int(code) == error.status_code
    assert "TimeoutError" in str(error)


@pytest.mark.parametrize("size", [1, 2, 3, 7, None])
def test_fc_st_09_unicode_separators_split_nothing(size):
    """FC-ST-09: raw U+2028, U+2029, U+0085 and the check mark; U+000B escaped, as JSON demands."""
    text = "a\u2028b\u2029c\u0085d\x0be \u2705"
    body = data(chunk(text), ascii_only=False) + data(chunk("", finish="stop")) + b"data: [DONE]\n\n"
    reader, outcome, chunks = read(body, size=size)

    assert outcome.ok
    assert text == reader.text
    assert len(chunks) == 2


@pytest.mark.parametrize(
    "last",
    [
        {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 50, "total_tokens": 60}},
        {"usage": {"prompt_tokens": 10, "completion_tokens": 50, "total_tokens": 60}},
    ],
)
def test_fc_st_11_a_chunk_with_usage_alone_is_no_surprise(last):
    """FC-ST-11: choices empty or missing; the text is untouched and usage counted once."""
    reader, outcome, chunks = read(data(chunk("Hi", finish="stop")) + data(last) + b"data: [DONE]\n\n")

    assert outcome.ok
    assert reader.text == "Hi"
    assert reader.usage == Usage(prompt_tokens=10, completion_tokens=50, total_tokens=60)
    assert reader.assemble()["usage"] == last["usage"]
    assert len(chunks) == 2


HELLO = json.dumps(chunk("Hello"))
STOP = json.dumps(chunk("", finish="stop"))
COMMA = HELLO.index(",") + 1


@pytest.mark.parametrize("size", [1, 3, None])
@pytest.mark.parametrize(
    "body",
    [
        f"data: {HELLO}\r\n\r\ndata: {STOP}\r\n\r\ndata: [DONE]\r\n\r\n",
        f"data:{HELLO}\n\ndata:{STOP}\n\ndata:[DONE]\n\n",
        f"data: {HELLO[:COMMA]}\ndata: {HELLO[COMMA:]}\n\ndata: {STOP}\n\n",
        f"data:\n\ndata: {HELLO}\n\ndata\n\ndata: {STOP}\n\n",
        f": c\n\ndata: {HELLO}\n: c\n\n:\ndata: {STOP}\n\n",
        f"\ufeffdata: {HELLO}\n\ndata: {STOP}\n\n",
        f"id: 1\nretry: 10\ndata: {HELLO}\n\nid: 2\ndata: {STOP}\n\n",
        f"data: {HELLO}\n\ndata: {STOP}",
    ],
    ids=["CRLF", "no space", "two lines", "empty events", "comments", "BOM", "id and retry", "no last blank line"],
)
def test_fc_st_17_every_layout_gives_the_same_tokens(body, size):
    """FC-ST-17: exactly the expected tokens, empty events skipped."""
    reader, outcome, chunks = read(body.encode(), size=size)

    assert outcome.ok
    assert [one.data["choices"][0]["delta"]["content"] for one in chunks] == ["Hello", ""]
    assert reader.text == "Hello"


def test_fc_st_17_malformed_json_is_a_stream_error_that_shows_little():
    """FC-ST-17: ours, and with at most 200 characters of the event."""
    _, outcome, _ = read(b'data: {"choices": ' + b"z" * 1000 + b"\n\n")
    error = to_error(outcome)

    assert outcome.kind is Kind.PROTOCOL
    assert type(error).__name__ == "InvalidResponseError"
    assert 0 < str(error).count("z") <= 200


CALLS = [{"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for number in range(2)]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"role": "assistant", "content": None}, ""),
        ({"role": "assistant", "content": None, "tool_calls": CALLS}, ""),
        ({"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab"),
        ({"role": "assistant"}, ""),
        ({"role": "assistant", "content": None, "refusal": "no"}, ""),
    ],
)
def test_fc_tm_02_content_may_be_null_parts_or_absent(message, text, streamed):
    """FC-TM-02: text is always a string; tool calls and refusals are there."""
    if streamed:
        calls = [{"index": at, **one} for at, one in enumerate(message.get("tool_calls", []))]
        delta = {**message, **({"tool_calls": calls} if calls else {})}
        body = data({"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]}) + b"data: [DONE]\n\n"
        reader, outcome, _ = read(body)
    else:
        body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
        reader, outcome, _ = read(body, headers=Headers({"content-type": "application/json"}))
    spelled = reader.assemble()["choices"][0]["message"]

    assert outcome.ok
    assert text == reader.text
    assert message.get("tool_calls", []) == spelled.get("tool_calls", [])
    assert message.get("refusal") == spelled.get("refusal")


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("escaped", "expected"), [(r"ok \ud83d end", "ok \ufffd end"), (r"\ud83c\udf78", "\U0001f378")]
)
def test_fc_tm_07_half_a_surrogate_pair_is_replaced(escaped, expected, streamed):
    """FC-TM-07: a pair is one character, a lone half is U+FFFD, and the line encodes."""
    key = "delta" if streamed else "message"
    body = f'{{"choices":[{{"index":0,"{key}":{{"content":"{escaped}"}},"finish_reason":"stop"}}]}}'
    headers = EVENTS if streamed else Headers({"content-type": "application/json"})
    reader, outcome, chunks = read(f"data: {body}\n\n".encode() if streamed else body.encode(), headers=headers)

    assert outcome.ok
    assert expected == reader.text == clean(reader.text)
    json.dumps(reader.assemble(), ensure_ascii=False).encode()
    json.dumps(chunks[0].data, ensure_ascii=False).encode()
