"""Request bodies: what is sent, what is not, and what is refused."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json

import pytest
from llm_client.model import UNSET
from llm_client.wire.base import OPTION_NAMES, split_options
from llm_client.wire.body import Route, dump, plain
from llm_client.wire.chat import build_body
from pydantic import BaseModel

HELLO = [{"role": "user", "content": "Hello"}]


class NotGiven:
    """Stands for openai-python's sentinel, which we know by its name and module."""


NotGiven.__module__ = "openai._types"


def test_none_is_sent_and_a_missing_argument_is_not():
    """As openai-python has it."""
    body = build_body({"messages": HELLO, "temperature": None, "stop": UNSET, "n": NotGiven()})

    assert body == {"messages": HELLO, "temperature": None}


def test_an_unknown_argument_names_the_nearest_and_extra_body():
    """A typing error is found at once, and a server's own field has a way out."""
    with pytest.raises(TypeError, match=r"no argument 'temprature'; did you mean 'temperature'\?.*extra_body="):
        build_body({"messages": HELLO, "temprature": 1})


def test_an_argument_like_no_other_is_refused_without_a_guess():
    """No wild guesses."""
    with pytest.raises(TypeError, match=r"no argument 'zzz'\. A field that only your server knows"):
        build_body({"messages": HELLO, "zzz": 1})


def test_a_missing_argument_is_named():
    """Before anything is sent."""
    with pytest.raises(TypeError, match=r"chat\.completions\.create needs the argument 'messages'"):
        build_body({"model": "m"})


def test_extra_body_may_supply_a_required_field():
    """It is part of the body like any other."""
    assert build_body({}, {"messages": HELLO}) == {"messages": HELLO}


def test_extra_body_adds_at_the_top_level():
    """Fields of the server's own, its numeric priority among them."""
    extra = {"priority": 5, "top_k": 40, "guided_json": {"type": "object"}}

    assert {"messages": HELLO, **extra} == build_body({"messages": HELLO}, extra)


def test_extra_body_never_changes_a_typed_field():
    """Neither silently wins."""
    with pytest.raises(TypeError, match="temperature was given by name and in extra_body"):
        build_body({"messages": HELLO, "temperature": 0.1}, {"temperature": 0.2})


def test_extra_body_may_repeat_a_typed_field():
    """The same value twice says one thing."""
    body = build_body({"messages": HELLO, "temperature": 1}, {"temperature": 1.0, "seed": UNSET})

    assert body == {"messages": HELLO, "temperature": 1}


def test_extra_body_has_to_be_a_mapping():
    """A list of pairs is a mistake."""
    with pytest.raises(TypeError, match="extra_body: expected a mapping"):
        build_body({"messages": HELLO}, [("a", 1)])


class Part(BaseModel):
    type: str = "text"
    text: str
    at: dt.date | None = None


@dataclasses.dataclass
class Message:
    role: str
    content: object


class Role(enum.Enum):
    USER = "user"


class Word(str):
    __slots__ = ()


def test_models_dataclasses_enums_and_iterables_become_json():
    """At any depth; fields of a model that were not set are not sent, as in openai-python."""
    parts = (Part(text=text, type="text") for text in ("a", Word("b")))

    body = build_body({"messages": (Message(Role.USER.value, parts),), "stop": Word("x"), "metadata": {"r": Role.USER}})

    expected = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert {"messages": [expected], "stop": "x", "metadata": {"r": "user"}} == body
    assert str is type(body["stop"])


def test_dates_go_as_text():
    """As openai-python has it."""
    assert plain([dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 3, 4, 5)]) == ["2026-01-02", "2026-01-02T03:04:05"]  # noqa: DTZ001


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"x", "messages: bytes have no JSON form: encode them as base64"),
        ([{"role": "user", "content": bytearray(b"x")}], "messages: bytes have no JSON form"),
        (object(), "messages: object has no JSON form"),
        ([Part], "messages: the class Part is not a value"),
        ([1j], "messages: complex has no JSON form"),
    ],
)
def test_what_has_no_json_form_is_refused_by_name(value, message):
    """The error names the field."""
    with pytest.raises(TypeError, match=message):
        build_body({"messages": value})


def test_a_conversation_may_grow_while_its_call_waits():
    """Appending to the caller's list does not change the body."""
    messages, stop = list(HELLO), ["a"]
    body = build_body({"messages": messages, "stop": stop})

    messages.append({"role": "assistant", "content": "late"})
    stop.append("b")

    assert body == {"messages": HELLO, "stop": ["a"]}


def test_the_callers_arguments_are_left_as_they_were():
    """Building a body writes nothing back."""
    messages = [{"role": "user", "content": [Part(text="a")], "name": UNSET}]

    body = build_body({"messages": messages})

    assert body == {"messages": [{"role": "user", "content": [{"text": "a"}]}]}
    assert [{"role": "user", "content": [Part(text="a")], "name": UNSET}] == messages


def test_bodies_are_utf8_json():
    """No escapes where none are needed."""
    assert '{"a":"Zoë 🍸"}'.encode() == dump({"a": "Zoë 🍸"})


def test_half_a_surrogate_pair_does_not_stop_a_request():
    """What a model once said may come back in the next prompt."""
    assert json.loads(dump({"a": "\ud83d", "b": ["\ud83c\udf78"]})) == {"a": "\ufffd", "b": ["🍸"]}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_json_does_not_have_are_refused_by_name(number):
    """Servers answer them with a riddle."""
    with pytest.raises(ValueError, match="temperature: JSON has no NaN"):
        dump({"messages": HELLO, "temperature": number})


def test_the_words_nan_and_infinity_may_stand_in_a_text():
    """Only numbers are refused."""
    assert json.loads(dump({"a": "NaN and Infinity"})) == {"a": "NaN and Infinity"}


def test_options_are_parted_from_fields():
    """None of them reaches the body by itself."""
    options, fields = split_options({"model": "m", "priority": "high", "deadline": 3.0, "extra_body": {"a": 1}})

    assert options == {"priority": "high", "deadline": 3.0, "extra_body": {"a": 1}}
    assert fields == {"model": "m"}


def test_timeout_and_deadline_together_are_refused():
    """They are one thing under two names."""
    with pytest.raises(TypeError, match="give one of the two"):
        split_options({"timeout": 1, "deadline": 2})


def test_no_route_has_a_field_with_the_name_of_an_option():
    """Else it could never be sent by name."""
    from llm_client.wire import chat, completions, embeddings, ranking, responses, tokenize, transcriptions

    routes = [
        chat.ROUTE,
        completions.ROUTE,
        embeddings.ROUTE,
        responses.ROUTE,
        transcriptions.ROUTE,
        ranking.RERANK,
        ranking.SCORE,
        tokenize.TOKENIZE,
        tokenize.DETOKENIZE,
    ]

    assert set() == OPTION_NAMES & frozenset().union(*(route.fields for route in routes))


def test_a_choice_of_required_fields_takes_any_of_them():
    """Routes whose servers disagree on names."""
    route = Route(call="r", fields=frozenset({"a", "b"}), required=(("a", "b"),))

    assert route.build({"b": 1}) == {"b": 1}
    with pytest.raises(TypeError, match="r needs the argument 'a' or 'b'"):
        route.build({})
