"""Chat answers and chunks: tolerant where servers differ, strict where a half answer would pass for a whole one."""

from __future__ import annotations

import copy
import json
import pickle
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.errors import InvalidResponseError
from llm_client.model import Meta
from llm_client.wire.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage, build_body

WHOLE = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1720000000,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "logprobs": None, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    "kv_transfer_params": None,
}


def answer(message=None, **choice) -> ChatCompletion:
    body = {"choices": [{"message": message, **choice}]}
    return ChatCompletion.from_bytes(json.dumps(body).encode())


def chunk(**choice) -> ChatCompletionChunk:
    return ChatCompletionChunk.from_dict({"choices": [choice]})


def test_it_reads_like_openai_python():
    """The deep look of the official SDK works, and the dump is what the server sent."""
    done = ChatCompletion.from_bytes(json.dumps(WHOLE).encode())

    assert done.choices[0].message.content == "Hello"
    assert done.text == "Hello"
    assert done.usage.total_tokens == 4
    assert done.to_dict() == WHOLE
    assert json.loads(done.to_json()) == WHOLE
    assert done.model_dump()["choices"][0]["message"]["content"] == "Hello"


def test_bytes_and_dict_give_the_same_model():
    """Both ways in lead to one answer."""
    assert ChatCompletion.from_dict(WHOLE) == ChatCompletion.from_bytes(json.dumps(WHOLE).encode())


def test_meta_is_empty_until_attached_and_stays_out_of_the_dump():
    """`meta` tells the story of the call and is not part of the answer."""
    done = ChatCompletion.from_dict(WHOLE)
    before = done.meta

    after = done.with_meta(Meta(endpoint="gpu-a", request_id="req-1"))

    assert Meta() == before
    assert after.meta.endpoint == "gpu-a"
    assert done._request_id == "req-1"
    assert "meta" not in done.to_dict()


def test_a_field_of_the_servers_called_meta_is_kept():
    """Our property hides it and loses nothing."""
    done = ChatCompletion.from_dict({**WHOLE, "meta": {"v": 1}})

    assert done.unknown("meta") == {"v": 1}
    assert done.to_dict()["meta"] == {"v": 1}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"content": None}, ""),
        ({}, ""),
        (None, ""),
        ({"content": "a"}, "a"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab"),
        ({"content": ["a", {"type": "image_url", "image_url": {"url": "u"}}, None]}, "a"),
        ({"content": {"type": "text", "text": "a"}}, "a"),
        ({"content": []}, ""),
        ({"content": 7}, "7"),
        ({"content": True}, ""),
    ],
)
def test_text_is_there_whatever_the_content_is(given, expected):
    """Null, absent, list and odd contents all have a text."""
    assert expected == answer(given).choices[0].message.text


def test_content_parts_survive_dump_pickle_and_copy():
    """A list of parts reads as text and is dumped as the list it was."""
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}]
    done = answer({"role": "assistant", "content": parts})
    message = done.choices[0].message

    assert parts == message.parts
    assert parts == done.to_dict()["choices"][0]["message"]["content"]
    assert parts == json.loads(done.to_json())["choices"][0]["message"]["content"]
    assert parts == pickle.loads(pickle.dumps(done)).choices[0].message.parts
    assert parts == copy.deepcopy(done).choices[0].message.parts
    assert answer({"content": "a"}).choices[0].message.parts == [{"type": "text", "text": "a"}]
    assert answer({"content": None}).choices[0].message.parts == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"reasoning_content": "r"}, "r"),
        ({"reasoning": "r"}, "r"),
        ({"reasoning_content": None, "reasoning": "r"}, "r"),
        ({"reasoning_content": "r", "reasoning": "r"}, "r"),
        ({"reasoning_content": ""}, None),
        ({"reasoning": {"effort": "low"}}, None),
        ({}, None),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "r"}]}]}, "r"),
        ({"content": [{"type": "thinking", "thinking": "r"}, {"type": "text", "text": "a"}]}, "r"),
    ],
)
def test_reasoning_goes_by_either_name(given, expected):
    """`reasoning` and `reasoning_content` read the same, whichever was sent."""
    message = answer(given).choices[0].message

    assert expected == message.reasoning
    assert expected == message.reasoning_content


def test_tool_calls_are_complete_enough_to_be_sent_back():
    """Object arguments become JSON text; a missing id and type are made up; both go back to the server."""
    message = answer({"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}).choices[0].message
    call = message.tool_calls[0]

    sent = build_body({"messages": [message]})["messages"][0]["tool_calls"][0]

    assert json.loads(call.function.arguments) == {"a": 1}
    assert call.id.startswith("call_0_")
    assert {"id": call.id, "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}} == sent


def test_made_up_ids_differ_between_calls_and_repeat_for_the_same_answer():
    """Two calls of one answer never share an id; parsing twice gives the same ids."""
    message = {"tool_calls": [{"function": {"name": "f"}}, {"function": {"name": "f"}}]}

    first, second = (answer(message).choices[0].message.tool_calls for _ in range(2))

    assert first[0].id != first[1].id
    assert [call.id for call in first] == [call.id for call in second]


@pytest.mark.parametrize("body", [{"choices": "x"}, {"choices": {"message": {}}}, [], 3, "text", None])
def test_a_wrong_frame_is_an_error_that_names_the_place(body):
    """What is no chat answer at all is refused."""
    with pytest.raises(InvalidResponseError, match="ChatCompletion") as caught:
        ChatCompletion.from_bytes(json.dumps(body).encode())

    assert caught.value.kind == "protocol"
    assert ("choices" in str(caught.value)) == isinstance(body, dict)


def test_malformed_tool_calls_are_refused_rather_than_dropped():
    """A dropped tool call would look like a finished conversation."""
    with pytest.raises(InvalidResponseError, match="tool_calls"):
        answer({"tool_calls": "f()"})


def test_numbers_and_nulls_of_the_wrong_kind_do_not_spoil_the_text():
    """Counts, times and logprobs that do not fit read as None."""
    done = ChatCompletion.from_dict(
        {
            "id": 7,
            "created": "soon",
            "choices": [{"index": None, "message": {"content": "a"}, "logprobs": "x"}],
            "usage": {"prompt_tokens": None, "completion_tokens": "n/a", "total_tokens": 4.0},
        }
    )

    assert (done.id, done.created, done.text, done.choices[0].logprobs) == ("7", None, "a", None)
    assert (done.usage.prompt_tokens, done.usage.completion_tokens, done.usage.total_tokens) == (None, None, 4)


@pytest.mark.parametrize("usage", [None, [], "x", {}])
def test_usage_may_be_anything(usage):
    """A server without counts still answers."""
    assert ChatCompletion.from_dict({**WHOLE, "usage": usage}).text == "Hello"


def test_logprobs_with_minus_infinity_parse():
    """Null and -Infinity both occur for impossible tokens."""
    body = (
        b'{"choices":[{"message":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-0.1,"bytes":[97],'
        b'"top_logprobs":[{"token":"b","logprob":null},{"token":"c","logprob":-Infinity}]}]}}]}'
    )

    tokens = ChatCompletion.from_bytes(body).choices[0].logprobs.content

    assert [-0.1, None, float("-inf")] == [tokens[0].logprob, *(top.logprob for top in tokens[0].top_logprobs)]


@pytest.mark.parametrize("frame", [b"\xef\xbb\xbf%s", b"\r\n\r\n\n%s", b"%s\n\n", b"\xef\xbb\xbf\n%s"])
def test_marks_and_blanks_around_the_json_do_not_matter(frame):
    """A byte order mark and keep-alive lines come before JSON on some servers."""
    assert ChatCompletion.from_bytes(frame % json.dumps(WHOLE).encode()).text == "Hello"


def test_bytes_that_are_not_utf8_become_replacement_characters():
    """Latin-1 in a proxy's JSON is not worth the whole answer."""
    assert ChatCompletion.from_bytes(b'{"choices":[{"message":{"content":"caf\xe9"}}]}').text == "caf\ufffd"


def test_raw_control_characters_inside_text_are_taken():
    """Some servers do not escape line feeds."""
    assert ChatCompletion.from_bytes(b'{"choices":[{"message":{"content":"a\nb"}}]}').text == "a\nb"


def test_chunks_read_like_openai_python():
    """Delta, role chunk and usage-only chunk."""
    assert chunk(index=0, delta={"content": "a"}).choices[0].delta.content == "a"
    assert chunk(delta={"role": "assistant", "content": ""}).choices[0].delta.role == "assistant"
    last = ChatCompletionChunk.from_dict({"choices": [], "usage": {"prompt_tokens": 1}})
    assert (last.text, last.usage.prompt_tokens) == ("", 1)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"delta": None}, ""),
        ({}, ""),
        ({"delta": {"content": None}}, ""),
        ({"message": {"content": "a"}}, "a"),
        ({"text": "a"}, "a"),
        ({"delta": {"content": [{"type": "text", "text": "a"}]}}, "a"),
        ({"index": 1, "delta": {"content": "b"}}, ""),
        ({"finish_reason": "", "delta": {}}, ""),
    ],
)
def test_a_chunks_text_is_there_whatever_its_form(choice, expected):
    """Null delta, no delta, `message` or `text` in its place, other choices."""
    assert expected == chunk(**choice).text


def test_null_choices_are_no_choices():
    """Azure's first chunk and others."""
    assert ChatCompletionChunk.from_dict({"choices": None}).choices == []
    assert ChatCompletion.from_dict({"choices": None}).text == ""


def test_tool_call_deltas_keep_index_and_pieces():
    """What a collector of tool calls needs."""
    made = chunk(delta={"tool_calls": [{"index": 1, "id": "c", "function": {"name": "f", "arguments": '{"a'}}]})
    delta = made.choices[0].delta.tool_calls[0]

    assert (delta.index, delta.id, delta.function.name, delta.function.arguments) == (1, "c", "f", '{"a')


def test_a_message_can_be_built_by_hand():
    """Fakes in users' tests make messages themselves."""
    message = ChatCompletionMessage(role="assistant", content="a")

    assert build_body({"messages": [message]})["messages"][0] == {"role": "assistant", "content": "a"}


def test_models_have_a_json_schema():
    """Frameworks that document their routes ask for it."""
    schema = ChatCompletion.model_json_schema()

    assert {"anyOf": [{"type": "string"}, {"type": "null"}]}.items() <= (
        schema["$defs"]["ChatCompletionMessage"]["properties"]["content"].items()
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.sampled_from(["stop", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "message", "delta", "content", "usage", "tool_calls", "id"]), inner
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_gives_a_model_or_our_error_and_a_dump_that_encodes(data):
    """No other exception leaves the parser, and whatever was parsed can be written out."""
    for model in (ChatCompletion, ChatCompletionChunk):
        try:
            made = model.from_bytes(json.dumps(data).encode())
        except InvalidResponseError:
            continue
        assert isinstance(made.text, str)
        made.to_json().encode()
        made.to_dict()


@given(st.binary(max_size=60))
def test_any_bytes_give_a_model_or_our_error(body):
    """Garbage is an answer of its own kind, never a crash."""
    assert len(_error_of(body)) <= 500


@pytest.mark.parametrize("depth", [100, 400, 2000, 200_000])
def test_deep_nesting_is_refused_or_read_without_a_crash(depth):
    """A hostile body does not overflow the stack."""
    body = b'{"choices":[],"x":' + b"[" * depth + b"]" * depth + b"}"

    message = _error_of(body)

    assert len(message) <= 500
    assert bool(message) == (depth > 100)


def _error_of(body: bytes) -> str:
    try:
        ChatCompletion.from_bytes(body)
    except InvalidResponseError as error:
        return str(error)
    return ""


def test_parsing_a_chunk_takes_microseconds():
    """A stream of a hundred tokens a second must not be felt; the bound is ten times what was measured."""
    data = {**WHOLE, "choices": [{"index": 0, "delta": {"content": " Hello"}, "finish_reason": None}]}
    ChatCompletionChunk.from_dict(data)

    best = min(_seconds(lambda: ChatCompletionChunk.from_dict(data)) for _ in range(5))

    assert best < 150e-6


def _seconds(call, times=200) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times
