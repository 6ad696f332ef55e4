"""A 2xx answer read as it arrives: what counts as content, and when the answer is whole."""

import json

import pytest
from llm_client.model import Headers, Kind, Usage
from llm_client.wire.stream import Chunk, StreamReader

EVENTS = {"content-type": "text/event-stream"}
DOCUMENT = {"content-type": "application/json"}


def frame(data, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def delta(content=None, *, index=0, finish=None, **more):
    fields = {**({} if content is None else {"content": content}), **more}
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


def reader(route="chat", headers=EVENTS, **options) -> StreamReader:
    return StreamReader(route, headers=Headers(headers), wall=0.0, **options)


def feed(stream: StreamReader, *frames) -> list[Chunk]:
    chunks = []
    for one in frames:
        chunks += stream.feed(one if isinstance(one, bytes) else frame(one))
    return chunks


DONE = frame("[DONE]")


def test_chunks_come_out_in_order_and_whole():
    """Data, text and name of every chunk, the end marker excluded."""
    stream = reader()

    chunks = feed(stream, delta(role="assistant"), delta("Hel"), delta("lo", finish="stop"), DONE)

    assert [chunk.data for chunk in chunks] == [delta(role="assistant"), delta("Hel"), delta("lo", finish="stop")]
    assert json.loads(chunks[1].raw) == delta("Hel")
    assert stream.ended
    assert stream.end().ok
    assert (stream.text, stream.finish_reason) == ("Hello", "stop")


@pytest.mark.parametrize(
    "data",
    [
        delta(role="assistant", content=""),
        delta(""),
        delta(None),
        delta(reasoning=""),
        delta(tool_calls=[]),
        delta(tool_calls=None, reasoning_content=None),
        delta([]),
        delta([{"type": "text", "text": ""}]),
        {"choices": [], "usage": {"prompt_tokens": 3}},
        {"choices": []},
        {"usage": {"completion_tokens": 3}},
        {"id": "x"},
    ],
)
def test_a_chunk_that_says_nothing_is_no_content(data):
    """Roles, empty text and usage do not start an answer."""
    stream = reader()

    assert len(feed(stream, data)) == 1
    assert (stream.content, stream.progress) == (False, 0)


@pytest.mark.parametrize(
    "data",
    [
        delta("x"),
        delta([{"type": "text", "text": "x"}]),
        delta(reasoning="x"),
        delta(reasoning_content="x"),
        delta(refusal="x"),
        delta(tool_calls=[{"index": 0, "function": {"name": "f"}}]),
        delta(function_call={"name": "f"}),
        delta("x", index=3),
        {"choices": [{"index": 0, "text": "x"}]},
        {"choices": [{"index": 0, "message": {"content": "x"}}]},
    ],
)
def test_any_real_delta_is_progress(data):
    """Text, reasoning, refusals and tool calls of any choice."""
    stream = reader()
    feed(stream, data)
    once = stream.progress
    feed(stream, data)

    assert stream.content
    assert stream.progress > once > 0


def test_comments_and_named_events_are_no_progress():
    """Keep-alives leave the counter alone, so that a no-progress clock can run out."""
    stream = reader()
    feed(stream, delta("x"))
    before = stream.progress
    feed(stream, b": ping\n\n", frame({"type": "ping"}, "ping"), b"\n")

    assert before == stream.progress


def test_an_error_frame_ends_the_stream_at_once():
    """The failure is known without waiting for the end, and what follows is not read."""
    stream = reader()

    chunks = feed(stream, {"error": {"message": "The request queue is full.", "code": 503}}, delta("x"), DONE)

    assert chunks == []
    assert stream.ended
    assert (stream.failure.kind, stream.failure.retryable, stream.failure.refusal) == (Kind.OVERLOADED, True, True)
    assert (stream.failure.status, stream.failure.overload) == (503, True)
    assert stream.end() == stream.failure


def test_the_finish_reason_beside_an_error_is_kept():
    """The choices of an error chunk say why the answer ended, and nothing more."""
    stream = reader()
    feed(stream, delta("x"), {"error": {"code": 502, "message": "m"}, **delta("y", finish="error")})

    assert (stream.failure.kind, stream.finish_reason, stream.text) == (Kind.UNAVAILABLE, "error", "x")


def test_after_content_nothing_is_repeated():
    """The same error frame later is no refusal and must not be retried."""
    stream = reader()
    feed(stream, delta("x"), {"error": {"message": "The request queue is full.", "code": 503}})

    assert (stream.failure.kind, stream.failure.retryable, stream.failure.refusal) == (Kind.OVERLOADED, False, False)


@pytest.mark.parametrize(
    ("frames", "kind", "retryable"),
    [
        ([delta("x", finish="abort"), DONE], Kind.STREAM_INTERRUPTED, False),
        ([delta("", finish="abort"), DONE], Kind.STREAM_INTERRUPTED, True),
        ([delta("x", finish="error"), DONE], Kind.SERVER_ERROR, False),
        ([delta("", finish="error")], Kind.SERVER_ERROR, True),
        ([delta("", finish="error"), {"error": {"code": 429, "message": "slow down"}}], Kind.RATE_LIMITED, True),
        ([delta("x", finish="stop"), {"error": {"code": 500, "message": "late"}}], Kind.SERVER_ERROR, False),
        ([delta("x", finish="stop"), delta("", index=1, finish="abort"), DONE], Kind.STREAM_INTERRUPTED, False),
        ([{"choices": [{"index": 0, "finish_reason": "error", "error": {"code": 502}}]}], Kind.UNAVAILABLE, True),
    ],
)
def test_a_finish_reason_may_be_a_failure(frames, kind, retryable):
    """`abort` and `error` come with 200 and [DONE]; an explicit error says more."""
    stream = reader()
    feed(stream, *frames)
    outcome = stream.end()

    assert (kind, retryable) == (outcome.kind, outcome.retryable)


@pytest.mark.parametrize(
    ("frames", "strict", "ok", "unfinished"),
    [
        ([delta("x", finish="stop")], True, True, False),
        ([delta("x"), DONE], False, True, True),
        ([delta("x"), DONE], True, False, False),
        ([delta("x"), delta("y", index=1, finish="stop"), DONE], False, True, True),
        ([delta("x"), delta("y", index=1, finish="stop")], False, False, False),
        ([delta("x", finish="anything"), DONE], True, True, False),
    ],
)
def test_what_makes_an_answer_whole(frames, strict, ok, unfinished):
    """Every choice finished; or the end marker after something, unless the reader is strict."""
    stream = reader(strict=strict)
    feed(stream, *frames)

    assert (ok, unfinished) == (stream.end().ok, stream.unfinished)


@pytest.mark.parametrize(
    ("fault", "kind", "breaker"),
    [
        ("eof_abrupt", Kind.STREAM_INTERRUPTED, True),
        ("reset", Kind.STREAM_INTERRUPTED, True),
        ("h2_goaway", Kind.STREAM_INTERRUPTED, True),
        ("read_timeout", Kind.TIMEOUT, True),
        ("client_deadline", Kind.DEADLINE, False),
        ("decode_error", Kind.PROTOCOL, True),
    ],
)
def test_a_cut_stream_is_named_by_what_cut_it(fault, kind, breaker):
    """The network, a clock or the encoding; retryable only before the first content."""
    early, late = reader(), reader()
    feed(early, delta(role="assistant"))
    feed(late, delta("x"))
    first, second = early.cut(fault), late.cut(fault)

    assert (kind, breaker) == (first.kind, first.breaker)
    assert first.retryable == (kind in {Kind.STREAM_INTERRUPTED, Kind.TIMEOUT})
    assert (kind, False) == (second.kind, second.retryable)


@pytest.mark.parametrize("fault", ["eof_abrupt", "read_timeout", "client_deadline"])
def test_a_finished_answer_survives_its_connection(fault):
    """Nothing was missing when the connection went."""
    stream = reader()
    feed(stream, delta("x", finish="stop"))

    assert stream.cut(fault).ok


@pytest.mark.parametrize("fault", [None, "eof_abrupt", "read_timeout", "client_deadline"])
@pytest.mark.parametrize("sign", [b": ping\n\n", b"\n\n", frame("x", "heartbeat")])
def test_nothing_but_keep_alives_is_overload(sign, fault):
    """A queue that does not move: the limiter hears of it, the breaker does not."""
    stream = reader()
    feed(stream, sign, sign)
    outcome = stream.cut(fault) if fault else stream.end()

    assert (outcome.overload, outcome.breaker) == (True, False)


def test_asking_twice_changes_nothing():
    """The end is decided once, whoever asks again and how."""
    stream = reader(headers=DOCUMENT)
    feed(stream, json.dumps({"choices": [{"index": 0, "message": {"content": "x"}}]}).encode())
    first = stream.end()

    assert first is stream.end() is stream.cut("reset")
    assert (stream.text, len(stream.late), stream.progress) == ("x", 1, 1)


# One document.


def complete(content="Hi", finish="stop", **more):
    return {
        "id": "c1",
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": content, **more}, "finish_reason": finish}
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    }


@pytest.mark.parametrize("size", [1, 3, None])
@pytest.mark.parametrize("headers", [DOCUMENT, EVENTS, {}, {"content-type": "text/plain"}])
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("lead", [b"", b"\xef\xbb\xbf", b"\n" * 100, b"\xef\xbb\xbf \r\n" + b" " * 80])
def test_a_document_answers_a_stream_whatever_its_label(lead, indent, headers, size):
    """One line or many, blank lines first, any content type: the body is the answer, and one late chunk says it."""
    stream = reader(headers=headers)
    body = lead + json.dumps(complete(), indent=indent).encode()
    step = size or len(body)
    chunks = []
    for start in range(0, len(body), step):
        chunks += stream.feed(body[start : start + step])
    outcome = stream.end()

    assert outcome.ok
    assert (stream.text, stream.finish_reason, stream.usage.total_tokens) == ("Hi", "stop", 4)
    assembled = stream.assemble()
    assert assembled["choices"][0]["message"] == {"role": "assistant", "content": "Hi"}
    assert [chunk.data["choices"][0]["finish_reason"] for chunk in [*chunks, *stream.late]] == ["stop"]


def test_the_late_chunk_of_a_document_has_numbered_tool_calls():
    """A caller who iterates sees deltas as a stream would have sent them."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    stream = reader(headers=DOCUMENT)
    feed(stream, json.dumps(complete(None, "tool_calls", tool_calls=[call])).encode())
    stream.end()
    chunk = stream.late[0].data

    assert chunk["object"] == "chat.completion.chunk"
    assert chunk["choices"][0]["delta"]["tool_calls"] == [{"index": 0, **call}]
    assert "message" not in chunk["choices"][0]
    assert stream.content


def test_the_late_chunk_of_a_completions_document_is_itself():
    """That route's stream and its plain answer have one shape."""
    body = {"object": "text_completion", "choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]}
    stream = reader("completions", headers=DOCUMENT)
    feed(stream, json.dumps(body).encode())

    assert stream.end().ok
    assert [chunk.data for chunk in stream.late] == [body]


@pytest.mark.parametrize(
    ("body", "fault", "kind", "retryable"),
    [
        (b'{"choices":[{"index":0,', "eof_abrupt", Kind.STREAM_INTERRUPTED, True),
        (b'{"choices":[{"index":0,', None, Kind.STREAM_INTERRUPTED, True),
        (b'{"choices":[{"index":0,', "read_timeout", Kind.TIMEOUT, True),
        (b'{"choices": oops}', None, Kind.PROTOCOL, False),
        (b"[1,2", "client_deadline", Kind.DEADLINE, False),
        (b"<html><title>Sign in</title>", None, Kind.PROTOCOL, False),
        (b'{"id":"x","status":"IN_QUEUE"}', None, Kind.PROTOCOL, False),
        (b'{"choices":[]}', None, Kind.PROTOCOL, False),
        (b"[]", None, Kind.PROTOCOL, False),
        (b"OK", None, Kind.PROTOCOL, False),
        (b"dat", None, Kind.PROTOCOL, False),
        (b"It works!\n\ndata: no\n\n", None, Kind.PROTOCOL, False),
        (b"", None, Kind.PROTOCOL, True),
        (b"  \n", None, Kind.PROTOCOL, True),
        (b"", "eof_abrupt", Kind.STREAM_INTERRUPTED, True),
        (b'{"error":{"code":429,"message":"m"}}', None, Kind.RATE_LIMITED, True),
        (b'{"error":{"code":429,"message":"m"}}', "eof_abrupt", Kind.RATE_LIMITED, True),
    ],
)
def test_a_bad_document_is_named(body, fault, kind, retryable):
    """Cut, broken, a page, somebody else's JSON, nothing, an error."""
    stream = reader(headers=DOCUMENT)
    feed(stream, body)
    outcome = stream.cut(fault) if fault else stream.end()

    assert (kind, retryable) == (outcome.kind, outcome.retryable)
    assert not stream.content


def test_a_whole_document_survives_its_connection():
    """The JSON is complete, so is the answer."""
    stream = reader(headers=DOCUMENT)
    feed(stream, json.dumps(complete()).encode())

    assert stream.cut("eof_abrupt").ok


def test_an_aborted_document_was_never_delivered():
    """Unlike a stream, it may be asked for again."""
    stream = reader(headers=DOCUMENT)
    feed(stream, json.dumps(complete("half", "abort")).encode())
    outcome = stream.end()

    assert (outcome.kind, outcome.retryable, stream.late) == (Kind.STREAM_INTERRUPTED, True, [])


def test_a_document_without_end_is_given_up(monkeypatch):
    """Memory stays bounded."""
    monkeypatch.setattr("llm_client.wire.stream.MAX_DOCUMENT_BYTES", 1000)
    stream = reader(headers=DOCUMENT)
    for _ in range(11):
        feed(stream, b'{"x":' + b" " * 100)

    assert (stream.ended, stream.failure.kind) == (True, Kind.PROTOCOL)


def test_json_lines_stream_even_when_labelled_json():
    """The second line shows that the first was no document; nothing is lost."""
    stream = reader(headers=DOCUMENT)
    line = json.dumps(delta("a")).encode() + b"\n"
    last = json.dumps(delta("b", finish="stop")).encode() + b"\n"

    assert feed(stream, line) == []
    assert len(feed(stream, last)) == 2
    assert stream.end().ok
    assert stream.text == "ab"


def test_ollamas_own_lines_are_read():
    """Proxies pass them through; their last line may be an error."""
    stream = reader(headers={"content-type": "application/x-ndjson"})
    feed(
        stream, b'{"model":"m","message":{"role":"assistant","content":"Hel"},"done":false}\n{"error":"runner died"}\n'
    )
    outcome = stream.end()

    assert (outcome.kind, outcome.retryable, stream.text) == (Kind.SERVER_ERROR, False, "Hel")

    fine = reader(headers={"content-type": "application/x-ndjson"})
    feed(
        fine,
        b'{"message":{"content":"Hi"},"done":false}\n{"message":{"content":""},"done":true,"done_reason":"length"}\n',
    )
    assert fine.end().ok
    assert (fine.text, fine.finish_reason) == ("Hi", "length")


# Oddities of events.


def test_a_broken_event_stops_the_stream_and_shows_little_of_itself():
    """At most 200 characters, and no retry once text is out."""
    stream = reader()
    feed(stream, delta("x"), frame('{"choices": oops' + "y" * 1000))

    assert (stream.failure.kind, stream.failure.retryable) == (Kind.PROTOCOL, False)
    assert len(stream.failure.message) < 300


@pytest.mark.parametrize("data", ["null", "1", '"text"', "[]", "{}"])
def test_json_that_is_no_chunk_is_passed_over(data):
    """It says nothing, and nothing is missing."""
    stream = reader()
    feed(stream, frame(data), delta("x", finish="stop"), DONE)

    assert stream.end().ok


def test_an_event_beyond_its_bound_is_a_protocol_error():
    """The bound is the reader's; the error is ours."""
    stream = reader(max_event_bytes=1000)
    feed(stream, b"data: " + b"x" * 2000)

    assert (stream.ended, stream.failure.kind, stream.failure.retryable) == (True, Kind.PROTOCOL, False)


@pytest.mark.parametrize("key", ["content", "reasoning"])
def test_halves_of_a_character_are_joined_across_deltas(key):
    """The caller never sees half an emoji, in a chunk or in the text."""
    stream = reader()
    chunks = feed(
        stream,
        frame('{"choices":[{"index":0,"delta":{"KEY":"a\\ud83d"}}]}'.replace("KEY", key)),
        frame('{"choices":[{"index":0,"delta":{"KEY":"\\ude00b"},"finish_reason":"stop"}]}'.replace("KEY", key)),
    )
    seen = [chunk.data["choices"][0]["delta"][key] for chunk in chunks]

    assert seen == ["a", "\U0001f600b"]
    assert (stream.text if key == "content" else stream.reasoning) == "a\U0001f600b"
    json.dumps(stream.assemble(), ensure_ascii=False).encode()


def test_half_a_character_that_stays_alone_is_replaced():
    """Followed by other text, or by the end."""
    stream = reader()
    feed(
        stream,
        frame('{"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}'),
        delta("x"),
        frame('{"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}'),
        delta(None, finish="stop"),
    )

    assert stream.text == "\ufffdx\ufffd"


def test_usage_is_the_last_one_sent():
    """Running totals are not added up, nulls are unknown."""
    stream = reader()
    feed(
        stream,
        {**delta("x"), "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}},
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": None, "total_tokens": -1}},
        {"choices": [], "usage": None},
    )

    assert stream.usage == Usage(prompt_tokens=5, completion_tokens=None, total_tokens=None)


def test_groqs_usage_is_found():
    """It hides in `x_groq` of the last chunk."""
    stream = reader()
    feed(stream, {**delta("x", finish="stop"), "x_groq": {"usage": {"prompt_tokens": 2}}})

    assert stream.usage == Usage(prompt_tokens=2)


def test_the_request_id_of_the_answer_is_kept():
    """On success and on failure, from whichever header carries it."""
    headers = {**EVENTS, "X-Request-Id": "r1"}
    good, bad = reader(headers=headers), reader(headers=headers)
    feed(good, delta("x", finish="stop"))
    feed(bad, {"error": "boom"})

    assert (good.end().request_id, bad.end().request_id) == ("r1", "r1")


# The Responses API.

CREATED = {"type": "response.created", "response": {"id": "r", "status": "in_progress"}}


def text_delta(text):
    return {"type": "response.output_text.delta", "item_id": "i", "delta": text}


def final(status, **more):
    output = [{"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}]
    response = {
        "id": "r",
        "object": "response",
        "status": status,
        "output": output,
        "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
        **more,
    }
    return {"type": f"response.{status}", "response": response}


@pytest.mark.parametrize("named", [True, False])
def test_a_response_stream_ends_with_its_terminal_event(named):
    """Named events or bare ones; no [DONE] is needed, and the last event holds the body."""
    stream = reader("responses")
    events = [CREATED, text_delta("Hel"), text_delta("lo"), final("completed")]

    chunks = feed(stream, *(frame(one, one["type"] if named else "") for one in events))

    assert [chunk.name for chunk in chunks] == [one["type"] for one in events]
    assert stream.ended
    assert stream.end().ok
    assert (stream.text, stream.finish_reason, stream.progress) == ("Hello", "stop", 2)
    assert stream.usage == Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5)
    assert stream.assemble() == final("completed")["response"]


def test_an_incomplete_response_is_an_answer_that_ran_out():
    """Out of tokens is `length`, as the chat API says it."""
    stream = reader("responses")
    feed(stream, text_delta("Hello"), final("incomplete", incomplete_details={"reason": "max_output_tokens"}))

    assert stream.end().ok
    assert stream.finish_reason == "length"


@pytest.mark.parametrize(
    ("events", "kind", "retryable"),
    [
        ([CREATED, final("failed", error={"code": "server_error", "message": "m"})], Kind.SERVER_ERROR, True),
        ([CREATED, final("failed", error={"code": "rate_limit_exceeded", "message": "m"})], Kind.RATE_LIMITED, True),
        ([text_delta("x"), final("failed", error={"code": "server_error"})], Kind.SERVER_ERROR, False),
        ([CREATED, final("failed", error=None)], Kind.SERVER_ERROR, True),
        ([CREATED, final("cancelled")], Kind.STREAM_INTERRUPTED, True),
        ([CREATED, text_delta("x")], Kind.STREAM_INTERRUPTED, False),
        ([CREATED], Kind.STREAM_INTERRUPTED, True),
        ([{"type": "error", "code": "rate_limit_exceeded", "message": "m"}], Kind.RATE_LIMITED, True),
    ],
)
def test_a_response_stream_may_fail(events, kind, retryable):
    """Failed, cancelled, cut, or refused by an error event."""
    stream = reader("responses")
    feed(stream, *(frame(one, one["type"]) for one in events))
    outcome = stream.end()

    assert (kind, retryable) == (outcome.kind, outcome.retryable)


def test_other_deltas_of_a_response_are_progress():
    """Reasoning and function arguments count, items and parts do not."""
    stream = reader("responses")
    feed(
        stream,
        {"type": "response.output_item.added", "item": {"type": "function_call", "name": "f"}},
        {"type": "response.reasoning_text.delta", "delta": "hm"},
        {"type": "response.function_call_arguments.delta", "delta": "{}"},
        {"type": "response.content_part.added", "part": {"text": ""}},
    )

    assert (stream.progress, stream.reasoning, stream.text) == (2, "hm", "")


def test_a_response_document_is_an_answer():
    """A plain Responses answer; its text and usage are read like a stream's."""
    stream = reader("responses", headers=DOCUMENT)
    feed(stream, json.dumps(final("completed")["response"]).encode())

    assert stream.end().ok
    assert (stream.text, stream.finish_reason, stream.usage.total_tokens) == ("Hello", "stop", 5)
    assert stream.late[0].data["type"] == "response.completed"


def test_a_failed_response_document_is_a_failure():
    """Status 200 and status failed."""
    stream = reader("responses", headers=DOCUMENT)
    body = final("failed", error={"code": "server_error", "message": "m"})["response"]
    feed(stream, json.dumps(body).encode())

    assert stream.end().kind is Kind.SERVER_ERROR


def test_a_cut_response_stream_still_assembles():
    """What was said so far, in the shape of a response."""
    stream = reader("responses")
    feed(stream, CREATED, text_delta("Hel"))
    stream.cut("reset")

    assert stream.assemble()["output"][0]["content"][0]["text"] == "Hel"
