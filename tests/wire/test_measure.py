"""How large a call is, in text, token numbers and parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.model import UNSET, Size
from llm_client.wire.chat import ChatCompletionMessage
from llm_client.wire.measure import max_output, measure


def test_text_counts_as_utf8_bytes():
    """Roles are part of what the server sees."""
    assert len("userZoë".encode()) == measure({"messages": [{"role": "user", "content": "Zoë"}]}).text


def test_an_image_is_a_part_and_not_a_million_bytes_of_text():
    """Six megabytes of base64 are one image."""
    parts = [
        {"type": "text", "text": "What?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 6_000_000}},
        {"type": "input_audio", "input_audio": {"data": "A" * 1000, "format": "wav"}},
        {"type": "file", "file": {"file_data": "A" * 1000}},
        {"type": "video_url", "video_url": {"url": "u"}},
    ]
    size = measure({"messages": [{"role": "user", "content": parts}]})

    assert size.text < 30
    assert size.media == 4


def test_responses_input_counts_too():
    """Instructions, messages and images of that route."""
    size = measure(
        {
            "instructions": "abc",
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "de"}, {"type": "input_image"}]}],
        }
    )

    assert size.media == 1
    assert len("abcuserinput_textde") == size.text


def test_arguments_that_are_not_plain_yet_weigh_what_they_will_be():
    """Tuples, models and left-out values, in messages and in the schemas of tools."""
    said = ChatCompletionMessage.from_dict({"role": "assistant", "content": "abc"})
    raw = {"messages": ({"role": "user", "content": UNSET}, said), "tools": ({"name": "f", "arguments": UNSET},)}
    plain = {"messages": [{"role": "user"}, {"role": "assistant", "content": "abc"}], "tools": [{"name": "f"}]}

    assert measure(plain) == measure(raw)
    assert measure(plain).text == len("userassistantabc") + len("namef")


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"prompt": "abc"}, Size(text=3)),
        ({"prompt": ["abc", "de"], "suffix": "f"}, Size(text=6)),
        ({"prompt": [1, 2, 3]}, Size(tokens=3)),
        ({"input": [[1, 2], [3]]}, Size(tokens=3)),
        ({"query": "ab", "documents": ["c", {"text": "d"}]}, Size(text=4)),
        ({"text_1": "ab", "text_2": ["c"]}, Size(text=3)),
        ({"model": "long-name", "temperature": 1, "user": "u"}, Size()),
        ({}, Size()),
        ({"messages": None, "prompt": ""}, Size()),
    ],
)
def test_every_route_has_its_prompt_fields(params, expected):
    """What steers the server costs nothing."""
    assert expected == measure(params)


def test_tool_schemas_count_with_their_keys():
    """They are put into the prompt."""
    tools = [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"city": {}}}}}
    ]

    assert measure({"tools": tools}).text >= len("functionnamefparameterstypeobjectpropertiescity")


def test_models_are_weighed_like_dicts():
    """A message of an earlier answer."""
    message = ChatCompletionMessage(role="assistant", content="abc")

    assert len("assistantabc") == measure({"messages": [message]}).text


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, None),
        ({"max_tokens": None}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 7, "max_tokens": 5}, 7),
        ({"max_output_tokens": 9}, 9),
        ({"max_tokens": 5, "n": 2}, 10),
        ({"max_tokens": 5, "n": 1, "best_of": 3}, 15),
        ({"max_tokens": 5, "prompt": ["a", "b"]}, 10),
        ({"max_tokens": 5, "prompt": [1, 2, 3]}, 5),
        ({"max_tokens": 5, "prompt": [[1], [2]], "n": 2}, 20),
        ({"max_tokens": True}, None),
        ({"max_tokens": "many", "max_output_tokens": 2}, 2),
    ],
)
def test_the_output_bound_covers_all_choices(params, expected):
    """N choices of every prompt may each be that long."""
    assert expected == max_output(params)


@given(st.text())
def test_text_of_any_kind_is_weighed(text):
    """Never an exception."""
    assert len(text.encode("utf-8", "replace")) == measure({"prompt": text}).text
