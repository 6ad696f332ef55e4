"""Field reports about typed models, as far as parsing and building show them; one id a test.

Each recipe and its expectation come from public reports against other clients, named in the docstrings.
"""

from __future__ import annotations

import json

import pytest
from llm_client.errors import InvalidResponseError, LengthFinishReasonError, OutputParseError
from llm_client.wire import chat, completions
from llm_client.wire.body import dump
from llm_client.wire.chat import ChatCompletion, ChatCompletionChunk
from llm_client.wire.structured import parse_chat
from pydantic import BaseModel, ValidationError


def answer(message=None, finish="stop", **fields) -> bytes:
    choice = {"index": 0, "message": message or {"role": "assistant", "content": "a"}, "finish_reason": finish}
    return json.dumps({"id": "1", "model": "m", "choices": [choice], **fields}).encode()


@pytest.mark.parametrize(
    ("reason", "kept", "category"),
    [
        ("error", "error", "other"),
        ("guardrail_intervened", "guardrail_intervened", "other"),
        ("sensitive", "sensitive", "other"),
        ("eos", "eos", "other"),
        ("", None, None),
        (None, None, None),
        ("stop", "stop", "stop"),
        ("length", "length", "length"),
    ],
)
def test_fc_tm_01_any_finish_reason_parses(reason, kept, category):
    """FC-TM-01 (pydantic-ai#2844, #7816, litellm#20732): a server's own word never spoils the answer."""
    whole = ChatCompletion.from_bytes(answer(finish=reason)).choices[0]
    chunk = ChatCompletionChunk.from_dict({"choices": [{"delta": {"content": "a"}, "finish_reason": reason}]}).choices[
        0
    ]
    older = completions.Completion.from_dict({"choices": [{"text": "a", "finish_reason": reason}]}).choices[0]

    assert [(kept, category)] * 3 == [(made.finish_reason, made.finish) for made in (whole, chunk, older)]
    assert whole.message.text == "a"


CALLS = [
    {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
]


@pytest.mark.parametrize(
    ("message", "text", "calls", "refusal"),
    [
        ({"content": None}, "", [], None),
        ({"content": None, "tool_calls": CALLS}, "", ["f", "g"], None),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab", [], None),
        ({"role": "assistant"}, "", [], None),
        ({"content": None, "refusal": "No."}, "", [], "No."),
    ],
)
def test_fc_tm_02_content_may_be_null_absent_or_a_list(message, text, calls, refusal):
    """FC-TM-02 (HolmesGPT#1676): `.text` is a string, never an exception; calls and refusal are there."""
    made = ChatCompletion.from_bytes(answer(message)).choices[0].message

    assert text == made.text
    assert calls == [call.function.name for call in made.tool_calls or []]
    assert refusal == made.refusal


LOGIN = b"<!DOCTYPE html>\r\n<html><head><title>Wi-Fi login</title></head><body>" + b"x" * 300_000 + b"</body></html>"


def test_fc_tm_04_a_login_page_with_status_200_is_an_invalid_response():
    """FC-TM-04 (notion-sdk-py#119, nylas-python#402): status and content type are told, the page is not."""
    with pytest.raises(InvalidResponseError, match="200") as caught:
        ChatCompletion.from_bytes(LOGIN, status_code=200, content_type="text/html; charset=utf-8")

    assert caught.value.status_code == 200
    assert "text/html" in str(caught.value)
    assert "base_url" in str(caught.value)
    assert len(str(caught.value)) <= 500
    assert caught.value.kind == "protocol"


@pytest.mark.parametrize("body", [b"", b"upstream timeout", b"   "])
def test_fc_tm_04_a_body_that_is_no_json_is_an_invalid_response(body):
    """FC-TM-04: never a JSON error that hides the status."""
    with pytest.raises(InvalidResponseError, match="status 200"):
        ChatCompletion.from_bytes(body, status_code=200, content_type="text/plain")


def test_fc_tm_07_a_proper_pair_becomes_one_character():
    """FC-TM-07 (inspect_ai#3802, llm#768): an escaped pair is an ordinary character."""
    body = b'{"choices":[{"message":{"content":"\\ud83c\\udf78"}}]}'

    assert ChatCompletion.from_bytes(body).text == "🍸"


LONE = b'{"choices":[{"message":{"role":"assistant","content":"ok \\ud83d end","reasoning":"\\udf78 hm"}}]}'


@pytest.mark.parametrize("made", [ChatCompletion.from_bytes(LONE), ChatCompletion.from_dict(json.loads(LONE))])
def test_fc_tm_07_half_a_pair_breaks_nothing(made, tmp_path):
    """FC-TM-07: U+FFFD takes its place in text and unknown fields; file, log line and next request are valid."""
    line = made.to_json()
    target = tmp_path / "out.jsonl"
    target.write_text(line + "\n", encoding="utf-8")
    again = dump(chat.build_body({"messages": [made.choices[0].message]}))

    assert (made.text, made.choices[0].message.reasoning) == ("ok \ufffd end", "\ufffd hm")
    assert json.loads(target.read_bytes())["choices"][0]["message"]["content"] == "ok \ufffd end"
    assert json.loads(again)["messages"][0]["content"] == "ok \ufffd end"
    f"{made!r}".encode()


def test_fc_tm_07_half_a_pair_in_a_prompt_is_sent_as_u_fffd():
    """FC-TM-07: the input side of the same report."""
    body = dump(chat.build_body({"messages": [{"role": "user", "content": "ok \ud83d end"}]}))

    assert json.loads(body)["messages"][0]["content"] == "ok \ufffd end"


class Person(BaseModel):
    name: str
    age: int


@pytest.mark.parametrize(
    ("content", "finish", "kind"),
    [
        ('{"name": "A", "age":', "length", LengthFinishReasonError),
        ("\n" * 1800, "stop", OutputParseError),
        ('```json\n{"name": "A", "age": 3}\n```', "stop", OutputParseError),
    ],
    ids=["cut", "blanks", "fence"],
)
def test_fc_tm_09_unparsable_output_keeps_text_reason_usage_and_cause(content, finish, kind):
    """FC-TM-09 (openai-python#1763, #2917): a typed error with everything needed to go on."""
    usage = {"prompt_tokens": 1, "completion_tokens": 1800, "total_tokens": 1801}
    done = ChatCompletion.from_bytes(answer({"role": "assistant", "content": content}, finish, usage=usage))

    with pytest.raises(OutputParseError) as caught:
        parse_chat(done, Person)

    error = caught.value
    assert kind is type(error)
    assert (content, finish, 1800) == (error.raw_content, error.finish_reason, error.usage.completion_tokens)
    assert isinstance(error.__cause__, ValidationError)
    assert ("token limit" in str(error)) == (finish == "length")


def test_fc_tm_10_extra_request_fields_reach_the_top_level():
    """FC-TM-10 (aiperf#139, vllm#24365): unknown fields are sent, known ones are never overwritten silently."""
    extra = {"priority": 5, "top_k": 40, "guided_json": {"type": "object"}}
    messages = [{"role": "user", "content": "Hi"}]

    assert extra.items() <= json.loads(dump(chat.build_body({"messages": messages}, extra))).items()
    with pytest.raises(TypeError, match="top_k"):
        chat.build_body({"messages": messages, "top_k": 5}, extra)


def test_fc_tm_10_extra_response_fields_are_kept():
    """FC-TM-10: readable, and in the JSONL output."""
    choice = {"message": {"role": "assistant", "content": "a", "reasoning_content": "r", "x": 1}, "stop_reason": 128009}
    done = ChatCompletion.from_dict({"choices": [choice], "prompt_logprobs": None, "timings": {"ms": 1.5}})
    made = done.choices[0]

    assert (made.message.reasoning_content, made.message.x, made.stop_reason) == ("r", 1, 128009)
    assert done.timings == {"ms": 1.5}
    assert {"choices": [choice], "prompt_logprobs": None, "timings": {"ms": 1.5}} == json.loads(done.to_json())
