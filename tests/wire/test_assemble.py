"""Chunks folded into the answer they spell."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_client.wire.assemble import Assembly
from llm_client.wire.tool_calls import ToolCalls


def fold(*deltas, route="chat", **head):
    assembly = Assembly(route)
    for delta in deltas:
        assembly.add({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    return assembly


def message(*deltas):
    return fold(*deltas).body()["choices"][0]["message"]


def call(arguments=None, *, name=None, **more):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**more, "function": function}


def calls(*deltas):
    """Fold lists of tool-call deltas; return (id, name, arguments) of each call."""
    folded = ToolCalls()
    for delta in deltas:
        folded.add(delta)
    return [(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in folded.finished("r1")]


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        (  # by index, interleaved
            [
                [call("{", name="f", index=0, id="a")],
                [call("[", name="g", index=1, id="b")],
                [call("}", index=0)],
                [call("]", index=1)],
            ],
            [("a", "f", "{}"), ("b", "g", "[]")],
        ),
        (  # a new id on a used index, then a continuation of the newer call
            [[call("{}", name="f", index=0, id="a")], [call("[", name="g", index=0, id="b")], [call("]", index=0)]],
            [("a", "f", "{}"), ("b", "g", "[]")],
        ),
        (  # null and empty never overwrite
            [
                [call("{", name="f", index=0, id="a")],
                [{"index": 0, "id": None, "function": {"name": None, "arguments": "}"}}],
                [{"index": 0, "id": "", "function": {"name": "", "arguments": ""}}],
            ],
            [("a", "f", "{}")],
        ),
        (  # no index: the id decides
            [[call("{", name="f", id="a")], [call("[", name="g", id="b")], [call("}", id="a")]],
            [("a", "f", "{}"), ("b", "g", "[")],
        ),
        ([[call("{", name="f", id="a")], [call("}")]], [("a", "f", "{}")]),  # neither: the last goes on
        ([[call("{}", name="f"), call("[]", name="f")]], [("call_r1_0", "f", "{}"), ("call_r1_1", "f", "[]")]),
        ([[call("{}", name="f")], [call("[]", name="g")]], [("call_r1_0", "f", "{}"), ("call_r1_1", "g", "[]")]),
        ([[call({"a": 1}, name="f", index=0, id="a")]], [("a", "f", '{"a":1}')]),  # arguments as an object
        ([[call("{}", name="f", index=0)]], [("call_r1_0", "f", "{}")]),  # an id is made up
        ([[call("{}", name="f", index=0)], [call(index=0, id="late")]], [("late", "f", "{}")]),
        ([[call("{}", name="f", index="0", id="a")]], [("a", "f", "{}")]),
        ([[call("{}", name="f", index=True, id="a")]], [("a", "f", "{}")]),
        ([[None, "x", 3]], []),
        (["x", None, {}], []),
        ([[{"index": 0, "function": None}]], [("call_r1_0", "", "")]),
    ],
)
def test_tool_calls_are_put_together_however_they_are_numbered(deltas, expected):
    """Index, id, both, neither; nothing set is ever lost."""
    assert expected == calls(*deltas)


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([{"content": None}], None),
        ([{}], None),
        ([{"role": "assistant", "content": ""}], ""),
        ([{"content": "a"}, {"content": None}, {"content": "b"}], "ab"),
        ([{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "ab"),
        ([{"content": ""}, {"tool_calls": [call("{}", name="f", index=0, id="a")]}], None),
        ([{"content": "x"}, {"tool_calls": [call("{}", name="f", index=0, id="a")]}], "x"),
        ([{"content": {"odd": 1}}], None),
        ([{"content": 3}], None),
    ],
)
def test_content_is_text_or_null(deltas, expected):
    """Null stays null, parts are joined, an empty text is a text unless calls took its place."""
    assert expected == message(*deltas)["content"]


def test_reasoning_is_taken_once_and_under_its_own_name():
    """Servers that send both fields send the same text in both."""
    twice = message({"reasoning": "a", "reasoning_content": "a"}, {"reasoning": "b", "reasoning_content": "b"})
    plain = message({"reasoning_content": "a"}, {"reasoning_content": "b", "reasoning": None})

    assert twice["reasoning"] == "ab"
    assert "reasoning_content" not in twice
    assert plain["reasoning_content"] == "ab"


def test_mistrals_thinking_parts_are_reasoning():
    """They come inside the content."""
    part = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}

    assert message({"content": [part]})["reasoning_content"] == "hm"


def test_a_refusal_and_a_function_call_are_kept():
    """The older spelling of a call as well."""
    spelled = message(
        {"refusal": "I "},
        {"refusal": "won't"},
        {"function_call": {"name": "f", "arguments": "{"}},
        {"function_call": {"arguments": "}"}},
    )

    assert spelled["refusal"] == "I won't"
    assert spelled["function_call"] == {"name": "f", "arguments": "{}"}


def test_what_a_server_adds_is_kept():
    """On the message, the choice and the whole answer; nulls are dropped."""
    assembly = Assembly("chat")
    assembly.add({"id": "c", "created": 1, "model": "m", "provider": "P", "choices": []})
    assembly.add({
        "id": "",
        "created": 0,
        "model": "",
        "system_fingerprint": "fp",
        "service_tier": None,
        "choices": [
            {
                "index": 0,
                "delta": {"content": "x", "annotations": [1], "audio": None},
                "finish_reason": "stop",
                "matched_stop": 7,
                "stop_reason": None,
            }
        ],
        "timings": {"prompt_n": 3},
    })  # fmt: skip
    body = assembly.body()

    assert body == {
        "id": "c",
        "created": 1,
        "model": "m",
        "provider": "P",
        "system_fingerprint": "fp",
        "timings": {"prompt_n": 3},
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "x", "annotations": [1]},
                "logprobs": None,
                "finish_reason": "stop",
                "matched_stop": 7,
            }
        ],
    }


def test_the_role_is_the_servers():
    """Null, empty or missing ones change nothing."""
    assert message({"role": "model", "content": ""}, {"role": None, "content": "x"}, {"role": ""})["role"] == "model"
    assert message({"content": "x"})["role"] == "assistant"


def test_log_probabilities_are_strung_together():
    """Lists grow; the chunks themselves are left alone."""
    assembly = Assembly("chat")
    first = {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [1], "refusal": None}}]}
    assembly.add(first)
    assembly.add({"choices": [{"index": 0, "delta": {"content": "b"}, "logprobs": {"content": [2]}}]})

    assert assembly.body()["choices"][0]["logprobs"] == {"content": [1, 2], "refusal": None}
    assert first["choices"][0]["logprobs"]["content"] == [1]


def test_choices_are_sorted_and_finish_each_on_its_own():
    """The first finish reason of a choice stays."""
    assembly = Assembly("chat")
    for index, finish in ((1, None), (0, "stop"), (0, None), (0, "length"), (1, "")):
        assembly.add({"choices": [{"index": index, "delta": {"content": str(index)}, "finish_reason": finish}]})

    assert not assembly.finished
    assembly.add({"choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]})
    assert assembly.finished
    assert [(one["index"], one["finish_reason"]) for one in assembly.body()["choices"]] == [(0, "stop"), (1, "stop")]


def test_choices_without_an_index_are_told_apart_by_their_place():
    """As in a plain answer with n > 1 from a server that numbers nothing."""
    assembly = Assembly("chat")
    assembly.add({"choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}]})

    assert [assembly.text(0), assembly.text(1)] == ["a", "b"]


def test_completions_have_text_instead_of_a_message():
    """The older route, by its own shape."""
    assembly = Assembly("completions")
    assembly.add({"choices": [{"index": 0, "text": "Hel"}]})
    assembly.add({"choices": [{"index": 0, "text": "lo", "finish_reason": "stop"}]})
    body = assembly.body()

    assert body["object"] == "text_completion"
    assert body["choices"][0]["text"] == "Hello"
    assert "message" not in body["choices"][0]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from([
            "choices", "index", "delta", "message", "text", "content", "role", "finish_reason", "tool_calls",
            "function", "id", "name", "arguments", "usage", "reasoning", "refusal", "function_call", "logprobs",
            "x_groq", "audio", "type", "done", "response", "prompt_tokens",
        ]),
        inner,
        max_size=5,
    ),
    max_leaves=25,
)  # fmt: skip


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["choices", "usage", "id", "done", "message"]), JSON, max_size=4), max_size=4
    )
)
def test_no_chunk_breaks_the_fold(chunks):
    """Any types in any place: the fold goes on and its result is JSON."""
    assembly = Assembly("chat")
    for chunk in chunks:
        assembly.add(chunk)

    json.dumps(assembly.body())
    assert isinstance(assembly.text(), str)
    assert assembly.finished in {True, False}
    assert assembly.tokens is None or assembly.tokens is not assembly.usage
