"""Whatever bytes arrive, the readers answer with an outcome: no exception, the same for every cut, bounded memory."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from llm_client.errors import LLMClientError
from llm_client.model import Headers
from llm_client.wire.classify import of_response
from llm_client.wire.failure import MAX_MESSAGE, to_error
from llm_client.wire.stream import StreamReader

KEYS = st.sampled_from([
    "choices", "delta", "message", "text", "content", "finish_reason", "index", "error", "code", "type", "usage",
    "tool_calls", "function", "arguments", "id", "object", "response", "status", "output", "detail", "errors", "done",
])  # fmt: skip
WORDS = st.sampled_from([
    "stop", "abort", "error", "overloaded", "queue full", "[DONE]", "response.completed", "response.failed",
    "response.output_text.delta", "\\ud83d", "\ud83d", "\U0001f600", "503", "chat.completion.chunk",
])  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 600) | WORDS | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)
CHUNKS = st.fixed_dictionaries({
    "choices": st.lists(
        st.fixed_dictionaries(
            {"index": st.integers(0, 2)},
            optional={"delta": JSON, "finish_reason": st.none() | WORDS, "text": JSON, "error": JSON, "logprobs": JSON},
        ),
        max_size=2,
    )
})  # fmt: skip
LINES = st.one_of(
    st.one_of(JSON, CHUNKS).map(lambda data: b"data: " + json.dumps(data).encode()),
    CHUNKS.map(lambda data: json.dumps(data).encode()),
    st.sampled_from([
        b"", b"", b"data: [DONE]", b"event: error", b"event: response.completed", b": ping", b"<html>", b"data: {",
        b'error: {"code":500}', b"data: \xff\xfe", b"\xef\xbb\xbf", b"[", b"{", b'{"error":"x"}',
    ]),
    st.binary(max_size=10),
)  # fmt: skip
BODIES = st.one_of(
    st.lists(LINES, max_size=10).map(b"\n".join),
    JSON.map(lambda data: json.dumps(data, indent=1).encode()),
    st.binary(max_size=60),
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "content-type": st.sampled_from(
            ["text/event-stream", "application/json", "text/html", "application/x-ndjson", ""]
        ),
        "retry-after": st.text(max_size=6),
        "x-should-retry": st.sampled_from(["true", "false"]),
        "date": st.text(max_size=6),
    },
)
FAULTS = st.sampled_from([None, "eof_abrupt", "read_timeout", "client_deadline", "decode_error", "reset"])
ROUTES = st.sampled_from(["chat", "completions", "responses"])


def read(route, headers, pieces, fault):
    reader = StreamReader(route, headers=Headers(headers), wall=0.0, max_event_bytes=4096)
    chunks = []
    for piece in pieces:
        chunks += reader.feed(piece)
    outcome = reader.cut(fault) if fault else reader.end()
    return [*chunks, *reader.late], outcome, reader


@settings(max_examples=150, deadline=None)
@given(ROUTES, HEADERS, BODIES, FAULTS, st.integers(1, 5))
def test_any_body_has_one_outcome_however_it_is_cut(route, headers, body, fault, size):
    """Chunks, outcome, text and assembled body agree between one piece and many."""
    chunks, outcome, reader = read(route, headers, [body] if body else [], fault)
    again, second, other = read(route, headers, [body[at : at + size] for at in range(0, len(body), size)], fault)

    assert outcome == second
    assert chunks == again
    assert (reader.text, reader.reasoning, reader.usage) == (other.text, other.reasoning, other.usage)
    assert reader.assemble() == other.assemble()
    json.dumps(reader.assemble())


@settings(max_examples=100, deadline=None)
@given(ROUTES, HEADERS, BODIES, FAULTS)
def test_an_outcome_is_consistent(route, headers, body, fault):
    """Ok or a kind; a retry only while nothing was delivered; an error of our tree for every failure."""
    chunks, outcome, reader = read(route, headers, [body], fault)

    assert outcome.ok == (outcome.kind is None)
    assert not (outcome.retryable and reader.content)
    assert not (outcome.refusal and reader.content)
    if not outcome.ok:
        error = to_error(outcome, body=body, headers=Headers(headers), endpoint="e", partial=reader.text)
        assert isinstance(error, LLMClientError)
        assert len(str(error)) <= MAX_MESSAGE
    for chunk in chunks:
        assert isinstance(chunk.data, dict)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(200, 599), HEADERS, BODIES, st.sampled_from(["chat", "embeddings", "models", "other"]), st.booleans()
)
def test_any_answer_is_classified(status, headers, body, route, truncated):
    """Every status, body and route."""
    outcome = of_response(status, Headers(headers), body, route=route, wall=0.0, truncated=truncated)

    assert outcome.ok == (outcome.kind is None)
    assert outcome.ok <= (200 <= status < 300)
    if not outcome.ok:
        assert len(str(to_error(outcome, body=body))) <= MAX_MESSAGE


@settings(deadline=None)
@given(st.integers(1, 9))
def test_memory_is_bounded_by_the_event_and_not_by_the_stream(size):
    """Ten thousand comments, pings and empty events leave nothing behind."""
    reader = StreamReader("chat", headers=Headers({"content-type": "text/event-stream"}), wall=0.0)
    for _ in range(10_000 // size):
        reader.feed(b": ping\n\nevent: ping\ndata: {}\n\ndata: {}\n\n" * size)

    assert len(reader._decoder._held) == len(reader._decoder._data) == len(reader._body.held) == 0
    assert reader.late == []
