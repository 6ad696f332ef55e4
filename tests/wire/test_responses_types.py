"""Answers and events of the responses route."""

from __future__ import annotations

import pytest
from llm_client.wire.responses import Response, ResponseEvent, build_body

ANSWER = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1720000000.5,
    "model": "m",
    "status": "completed",
    "text": {"format": {"type": "text"}},
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I thought."}]},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}", "id": "fc_1"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hel"}, {"type": "output_text", "text": "lo"}],
        },
        {"type": "something_new", "payload": {"a": 1}},
    ],
    "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5, "output_tokens_details": None},
}


def test_it_reads_like_openai_python():
    """Text, calls, usage, dump."""
    done = Response.from_dict(ANSWER)

    assert done.output_text == "Hello"
    assert [call.name for call in done.function_calls] == ["f"]
    assert (done.usage.input_tokens, done.usage.output_tokens) == (3, 2)
    assert done.reasoning_text == "I thought."
    assert done.to_dict() == ANSWER
    assert done.unknown("text") == {"format": {"type": "text"}}


def test_output_goes_back_as_input():
    """A conversation is continued with the items of the last answer, unknown ones included."""
    done = Response.from_dict(ANSWER)

    body = build_body({"input": [*done.output, {"role": "user", "content": "And?"}]})

    assert [*ANSWER["output"], {"role": "user", "content": "And?"}] == body["input"]


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        ("completed", None, "stop"),
        ("incomplete", "max_output_tokens", "length"),
        ("incomplete", "content_filter", "content_filter"),
        ("incomplete", "steered", "steered"),
        ("incomplete", None, None),
        ("failed", None, None),
        (None, None, None),
    ],
)
def test_the_finish_reason_is_in_the_words_of_chat(status, reason, expected):
    """One vocabulary for both routes."""
    made = Response.from_dict({"status": status, "incomplete_details": reason and {"reason": reason}})

    assert expected == made.finish_reason


@pytest.mark.parametrize("output", [None, []])
def test_no_output_is_an_empty_text(output):
    """A failed answer still parses."""
    made = Response.from_dict({"output": output, "error": {"code": "server_error", "message": "m"}})

    assert (made.output_text, made.reasoning_text, made.error.code) == ("", None, "server_error")


def test_full_reasoning_wins_over_its_summary():
    """VLLM shows the text itself."""
    item = {
        "type": "reasoning",
        "content": [{"type": "reasoning_text", "text": "full"}],
        "summary": [{"text": "short"}],
    }

    assert Response.from_dict({"output": [item]}).reasoning_text == "full"


def test_a_refusal_is_not_text():
    """It is in its part."""
    item = {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}
    made = Response.from_dict({"output": [item]})

    assert (made.output_text, made.output[0].content[0].refusal) == ("", "No.")


def test_events_carry_what_their_type_says():
    """Deltas, whole responses, unknown kinds."""
    delta = ResponseEvent.from_dict({"type": "response.output_text.delta", "delta": "a", "sequence_number": 4})
    thought = ResponseEvent.from_dict({"type": "response.reasoning_text.delta", "delta": "r"})
    done = ResponseEvent.from_dict({"type": "response.completed", "response": ANSWER})
    new = ResponseEvent.from_dict({"type": "response.new.thing", "delta": {"x": 1}, "widget": 2})

    assert (delta.text_delta, delta.reasoning_delta, delta.sequence_number) == ("a", "", 4)
    assert (thought.text_delta, thought.reasoning_delta) == ("", "r")
    assert done.response.output_text == "Hello"
    assert (new.text_delta, new.unknown("widget")) == ("", 2)
