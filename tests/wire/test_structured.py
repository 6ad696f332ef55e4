"""Structured output: schemas strict, answers parsed, failures with the text and the reason."""

from __future__ import annotations

import dataclasses
import gc
import json
import sys
import typing
import weakref

import pytest
from llm_client.errors import ContentFilterError, LengthFinishReasonError, OutputParseError
from llm_client.wire import chat, responses
from llm_client.wire.chat import ChatCompletion
from llm_client.wire.responses import Response
from llm_client.wire.structured import (
    format_param,
    function_tool,
    parse_chat,
    parse_response,
    parse_text,
    strict_schema,
)
from pydantic import BaseModel, Field, ValidationError
from typing_extensions import TypedDict


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


class Node(BaseModel):
    value: int
    left: Node | None = Field(default=None, description="the smaller ones")
    only: Node = Field(description="a reference with a sibling")


@dataclasses.dataclass
class Pair:
    a: int
    b: int = 0


class Row(TypedDict):
    a: int


def completion(content, finish="stop", **message) -> ChatCompletion:
    body = {"choices": [{"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}]}
    return ChatCompletion.from_dict({**body, "usage": {"completion_tokens": 9}})


def test_a_class_becomes_a_strict_schema_in_the_body():
    """Every property required, no others allowed."""
    body = chat.build_body({"messages": [], "response_format": Person})

    named = body["response_format"]["json_schema"]
    assert (body["response_format"]["type"], named["name"], named["strict"]) == ("json_schema", "Person", True)
    assert named["schema"]["required"] == ["name", "age"]
    assert named["schema"]["additionalProperties"] is False


@pytest.mark.parametrize("shape", [Pair, Row])
def test_dataclasses_and_typed_dicts_work_too(shape):
    """Standard ones, not only pydantic's."""
    schema = format_param(shape)["json_schema"]["schema"]

    assert sorted(schema["properties"]) == sorted(schema["required"])
    assert parse_text('{"a": 1}', shape) in (Pair(1), {"a": 1})


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes typing.TypedDict from 3.12 on")
def test_a_class_pydantic_cannot_read_is_refused_with_its_reason():
    """The remedy is in the message."""
    with pytest.raises(TypeError, match=r"Old cannot be parsed into: .*typing_extensions.TypedDict"):
        format_param(typing.TypedDict("Old", {"a": int}))


@pytest.mark.parametrize("shape", [int, str, dict])
def test_other_classes_are_refused(shape):
    """A schema needs an object at its root."""
    with pytest.raises(TypeError, match="pydantic model, a dataclass or a TypedDict"):
        chat.build_body({"messages": [], "response_format": shape})


def test_a_recursive_class_keeps_its_reference():
    """Writing it out would never end; strict mode allows no siblings, so they go."""
    schema = format_param(Node)["json_schema"]["schema"]

    node = schema["$defs"]["Node"]["properties"]
    assert node["only"] == {"$ref": "#/$defs/Node"}
    assert "default" not in node["left"]
    assert schema["required"] == ["value", "left", "only"]


def test_references_with_siblings_are_written_out():
    """The sibling wins over what the reference says."""
    schema = strict_schema(
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/A", "description": "mine"}, "b": {"allOf": [{"$ref": "#/$defs/A"}]}},
            "$defs": {"A": {"type": "object", "description": "theirs", "properties": {"x": {"type": "integer"}}}},
        }
    )

    written = schema["properties"]["a"]
    assert (written["description"], written["required"], written["additionalProperties"]) == ("mine", ["x"], False)
    assert schema["properties"]["b"] == {"$ref": "#/$defs/A"}


def test_a_reference_outside_the_schema_is_refused():
    """Nothing is fetched."""
    with pytest.raises(ValueError, match="only references inside"):
        strict_schema({"properties": {"a": {"$ref": "https://example.org/a", "description": "d"}}})


def test_classes_made_per_call_are_not_kept_for_ever():
    """The cache of schemas is bounded (openai-python#2146 tells of a leak)."""
    seen = []
    for number in range(300):
        shape = type(f"Made{number}", (BaseModel,), {"__annotations__": {"a": int}})
        format_param(shape)
        parse_text('{"a": 1}', shape)
        seen.append(weakref.ref(shape))
    del shape
    gc.collect()

    assert sum(made() is not None for made in seen) <= 130


def test_type_arguments_make_no_classes():
    """They are for type checkers; one class and one schema serve all."""
    assert ChatCompletion[Person] is ChatCompletion
    assert Response[Person] is Response


def test_parsed_is_an_instance():
    """On the message, the completion, and typed."""
    done = parse_chat(completion('{"name": "A", "age": 3}'), Person)

    assert Person(name="A", age=3) == done.choices[0].message.parsed
    assert Person(name="A", age=3) == done.parsed
    assert "parsed" not in done.to_dict()["choices"][0]["message"]


@pytest.mark.parametrize(
    "done",
    [
        completion(None, refusal="I will not."),
        completion(None, tool_calls=[{"id": "c", "function": {"name": "f", "arguments": "{}"}}]),
    ],
)
def test_a_refusal_or_a_tool_call_leaves_parsed_none(done):
    """Neither is a failure."""
    assert parse_chat(done, Person).parsed is None


@pytest.mark.parametrize(
    ("content", "finish", "kind", "words"),
    [
        ('{"name": "A", "age":', "length", LengthFinishReasonError, "cut at the token limit"),
        (None, "length", LengthFinishReasonError, "cut at the token limit"),
        ("\n" * 1800, "stop", OutputParseError, "1800 characters of white space"),
        (None, "stop", OutputParseError, "white space"),
        ('```json\n{"name": "A", "age": 3}\n```', "stop", OutputParseError, "Markdown fence"),
        ('{"name": "A"}', "stop", OutputParseError, "age: Field required"),
        ("I think", None, OutputParseError, "Invalid JSON"),
    ],
)
def test_a_failure_has_text_reason_and_cause(content, finish, kind, words):
    """Whoever catches it can repair the text, ask again or allow more tokens."""
    with pytest.raises(OutputParseError, match=words) as caught:
        parse_chat(completion(content, finish), Person)

    error = caught.value
    assert kind is type(error)
    assert (content or "", finish, 9) == (error.raw_content, error.finish_reason, error.usage.completion_tokens)
    assert isinstance(error.__cause__, ValidationError)
    assert len(str(error)) <= 500
    assert not content or content not in str(error)


def test_whole_json_followed_by_blanks_up_to_the_limit_is_taken():
    """The answer is complete although generation was cut."""
    assert parse_chat(completion('{"name": "A", "age": 3}' + " \n" * 500, "length"), Person).parsed.age == 3


def test_a_withheld_answer_is_a_content_filter_error():
    """It is no parsing problem."""
    with pytest.raises(ContentFilterError) as caught:
        parse_chat(completion("", "content_filter"), Person)

    assert (caught.value.kind, caught.value.status_code) == ("content_filter", 200)


def test_every_choice_is_parsed():
    """With n > 1."""
    done = completion('{"name": "A", "age": 3}')
    done.choices.append(completion('{"name": "B", "age": 4}').choices[0])

    assert [choice.message.parsed.name for choice in parse_chat(done, Person).choices] == ["A", "B"]


def test_a_tool_is_made_of_a_model():
    """Name, docstring and strict schema."""
    tool = function_tool(Person)

    assert (
        tool["type"],
        tool["function"]["name"],
        tool["function"]["description"],
        tool["function"]["strict"],
    ) == ("function", "Person", "Somebody.", True)
    assert function_tool(Person, name="find", description="d")["function"]["name"] == "find"
    assert "description" not in function_tool(Node)["function"]


def response(text, status="completed", reason=None, **item) -> Response:
    output = [{"type": "message", "content": [{"type": "output_text", "text": text}], **item}]
    details = {"reason": reason} if reason else None
    return Response.from_dict({"status": status, "incomplete_details": details, "output": output, "usage": {}})


def test_a_response_is_parsed_too():
    """As `output_parsed`, where openai-python has it."""
    assert parse_response(response('{"name": "A", "age": 3}'), Person).output_parsed.age == 3
    body = responses.build_body({"input": "Hi", "text_format": Person, "text": {"verbosity": "low"}})
    assert (
        body["text"]["verbosity"],
        body["text"]["format"]["name"],
        body["text"]["format"]["strict"],
    ) == ("low", "Person", True)


def test_commentary_of_a_response_is_not_parsed():
    """Only final text answers the schema."""
    assert parse_response(response("Let me see.", phase="commentary"), Person).output_parsed is None


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (response('{"name":', "incomplete", "max_output_tokens"), LengthFinishReasonError),
        (
            Response.from_dict({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}),
            LengthFinishReasonError,
        ),
        (response("", "incomplete", "content_filter"), ContentFilterError),
        (response("no"), OutputParseError),
    ],
)
def test_a_response_fails_with_the_same_errors(made, kind):
    """Length, filter, other."""
    with pytest.raises(kind):
        parse_response(made, Person)


def test_text_format_and_a_format_of_ones_own_are_refused():
    """They say the same."""
    with pytest.raises(TypeError, match="give one of the two"):
        responses.build_body({"input": "Hi", "text_format": Person, "text": {"format": {"type": "text"}}})


def test_the_schema_in_the_body_is_plain_json():
    """It can be dumped and compared."""
    assert json.loads(json.dumps(format_param(Person))) == format_param(Person)
