"""Answers we write ourselves are whole by every client's rules."""

from __future__ import annotations

import json

import pytest
from llm_client.wire.chat import ChatCompletion, ChatCompletionChunk
from llm_client.wire.completions import Completion
from llm_client.wire.responses import Response, ResponseEvent
from llm_client.wire.static import static_completion

TEXT = 'Busy, try later.\n"Zoë" 🍸 \u2028 end'


def events(body: bytes) -> list[tuple[str, str]]:
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((fields.get("event", ""), fields["data"]))
    return found


def test_a_plain_chat_answer():
    """Text, stop, usage of zero."""
    made = ChatCompletion.from_bytes(static_completion(TEXT, "m", stream=False, created=5))

    assert (made.text, made.choices[0].finish_reason, made.model, made.created) == (TEXT, "stop", "m", 5)
    assert made.usage.total_tokens == 0


def test_a_chat_stream():
    """Role, text, finish, `[DONE]`."""
    *chunks, (_, last) = events(static_completion(TEXT, "m", stream=True))
    made = [ChatCompletionChunk.from_dict(json.loads(data)) for _, data in chunks]

    assert last == "[DONE]"
    assert made[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.text for chunk in made) == TEXT
    assert [chunk.choices[0].finish_reason for chunk in made] == [None, None, "stop"]


@pytest.mark.parametrize("route", ["chat", "completions"])
def test_a_stream_has_usage_where_it_was_asked_for(route):
    """As `stream_options.include_usage` promises: null, null, then the counts with no choices."""
    data = [
        json.loads(data) for _, data in events(static_completion("a", "m", True, route=route, include_usage=True))[:-1]
    ]

    assert (data[-1]["choices"], data[-1]["usage"]["total_tokens"]) == ([], 0)
    assert all(chunk["usage"] is None for chunk in data[:-1])
    assert "usage" not in json.loads(events(static_completion("a", "m", True, route=route))[0][1])


def test_completions_plain_and_as_a_stream():
    """The same for the older route."""
    plain = Completion.from_bytes(static_completion(TEXT, "m", stream=False, route="completions"))
    *chunks, (_, last) = events(static_completion(TEXT, "m", stream=True, route="completions"))
    made = [Completion.from_dict(json.loads(data)) for _, data in chunks]

    assert (plain.text, plain.choices[0].finish_reason) == (TEXT, "stop")
    assert (last, "".join(chunk.text for chunk in made), made[-1].choices[0].finish_reason) == ("[DONE]", TEXT, "stop")


def test_responses_plain_and_as_a_stream():
    """Named events from created to completed, numbered, no `[DONE]`."""
    plain = Response.from_bytes(static_completion(TEXT, "m", stream=False, route="responses"))
    found = events(static_completion(TEXT, "m", stream=True, route="responses"))
    made = [ResponseEvent.from_dict(json.loads(data)) for _, data in found]

    assert (plain.output_text, plain.finish_reason) == (TEXT, "stop")
    assert [name for name, _ in found] == [event.type for event in made]
    assert list(range(9)) == [event.sequence_number for event in made]
    assert (made[0].type, made[-1].type) == ("response.created", "response.completed")
    assert TEXT == "".join(event.text_delta for event in made) == made[-1].response.output_text


@pytest.mark.parametrize("route", ["chat", "completions", "responses"])
def test_no_line_of_a_stream_is_cut_by_the_text(route):
    """Line feeds are escaped, so that a text cannot forge an event."""
    body = static_completion("a\n\ndata: [DONE]\r\n\r\nevent: x", "m", stream=True, route=route)

    assert b"\r" not in body
    assert body.count(b"\ndata: [DONE]") + (route == "responses") == 1


def test_a_lone_half_in_the_text_does_not_break_it():
    """A text may come from a file."""
    assert ChatCompletion.from_bytes(static_completion("\ud83d", "m", stream=False)).text == "\ufffd"


@pytest.mark.parametrize("route", ["embeddings", "rerank", "other"])
def test_a_text_cannot_answer_other_routes(route):
    """An embedding of zeros would poison an index."""
    with pytest.raises(ValueError, match="not"):
        static_completion("a", "m", stream=False, route=route)
