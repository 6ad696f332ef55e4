"""The typed surface as a user's editor sees it; read by pyright in strict mode, never run.

Lines with an ignore comment have to be errors: an ignore that is not needed is an error itself.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true, reportUnusedFunction=false

from __future__ import annotations

from typing import Any, Literal, TypeVar, Unpack, assert_type, overload

from llm_client.model import Meta
from llm_client.wire.base import split_options
from llm_client.wire.chat import (
    ChatCall,
    ChatCompletion,
    ChatCompletionChunk,
    ChatParams,
    Finish,
    MessageParam,
    ToolCall,
    build_body,
)
from llm_client.wire.completions import Completion, CompletionCall
from llm_client.wire.embeddings import CreateEmbeddingResponse, EmbeddingCall, EmbeddingParams, split_batches
from llm_client.wire.ranking import RerankCall, ScoreCall
from llm_client.wire.responses import Response, ResponsesCall
from llm_client.wire.structured import function_tool, parse_chat, parse_response, parse_text
from llm_client.wire.tokenize import TokenizeCall
from llm_client.wire.transcriptions import TranscriptionCall
from pydantic import BaseModel

T = TypeVar("T")


class Person(BaseModel):
    name: str


@overload
def create(*, response_format: type[T], **call: Unpack[ChatCall]) -> ChatCompletion[T]: ...
@overload
def create(*, stream: Literal[True], **call: Unpack[ChatCall]) -> list[ChatCompletionChunk]: ...
@overload
def create(*, stream: Literal[False] | None = None, **call: Unpack[ChatCall]) -> ChatCompletion: ...
def create(**call: Any) -> Any:
    return split_options(call)


def complete(**call: Unpack[CompletionCall]) -> Completion: ...
def respond(**call: Unpack[ResponsesCall]) -> Response: ...
def embed(**call: Unpack[EmbeddingCall]) -> CreateEmbeddingResponse: ...
def rerank(**call: Unpack[RerankCall]) -> None: ...
def score(**call: Unpack[ScoreCall]) -> None: ...
def tokenize(**call: Unpack[TokenizeCall]) -> None: ...
def transcribe(**call: Unpack[TranscriptionCall]) -> None: ...


def a_chat_call_checks() -> None:
    messages: list[MessageParam] = [{"role": "system", "content": "Be brief."}]
    done = create(
        model="m",
        messages=[
            *messages,
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?"},
                    {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
        ],
        tools=[function_tool(Person), {"type": "function", "function": {"name": "f", "parameters": {}}}],
        tool_choice={"type": "function", "function": {"name": "f"}},
        parallel_tool_calls=False,
        temperature=None,
        stop=["\n"],
        logprobs=True,
        top_k=40,
        min_p=0.05,
        structured_outputs={"regex": "[a-z]+"},
        chat_template_kwargs={"enable_thinking": False},
        ebnf="root ::= x",
        priority="high",
        deadline=10.0,
        tenant="a",
        fallback=None,
        extra_body={"priority": 5},
        extra_headers={"x-a": "b"},
    )

    assert_type(done, ChatCompletion)
    assert_type(done.choices[0].message.content, str | None)
    assert_type(done.choices[0].finish_reason, str | None)
    assert_type(done.choices[0].finish, Finish | None)
    assert_type(done.text, str)
    assert_type(done.reasoning, str | None)
    assert_type(done.meta, Meta)
    assert_type(done.choices[0].message.tool_calls, list[ToolCall] | None)
    if done.usage is not None:
        assert_type(done.usage.total_tokens, int | None)
    messages.append(done.choices[0].message)
    done.choices[0].message.content.strip()  # pyright: ignore[reportOptionalMemberAccess]


def mistakes_are_found() -> None:
    create(messages=[], temprature=1)  # pyright: ignore[reportCallIssue]
    create(model="m")  # pyright: ignore[reportCallIssue]
    create(messages=[{"role": "usr", "content": "a"}])  # pyright: ignore[reportArgumentType]
    create(messages=[], temperature="hot")  # pyright: ignore[reportArgumentType]
    create(messages=[], tool_choice="sometimes")  # pyright: ignore[reportArgumentType]
    create(messages=[], extra_headers={"a": 1})  # pyright: ignore[reportArgumentType]
    embed(model="e")  # pyright: ignore[reportCallIssue]
    transcribe(file="path.wav")  # pyright: ignore[reportArgumentType]


def a_stream_is_a_stream() -> None:
    for chunk in create(messages=[], stream=True, stream_options={"include_usage": True}):
        assert_type(chunk, ChatCompletionChunk)
        assert_type(chunk.choices[0].delta.content, str | None)
        assert_type(chunk.text, str)


def a_class_types_the_answer() -> None:
    done = create(messages=[], response_format=Person)

    assert_type(done, ChatCompletion[Person])
    assert_type(done.parsed, Person | None)
    assert_type(done.choices[0].message.parsed, Person | None)
    assert_type(parse_text("{}", Person), Person)
    assert_type(parse_chat(ChatCompletion(), Person).parsed, Person | None)
    assert_type(parse_response(Response(), Person).output_parsed, Person | None)


def bodies_are_built_from_typed_params() -> None:
    params: ChatParams = {"model": "m", "messages": [{"role": "user", "content": "a"}], "response_format": Person}

    assert_type(build_body(params, {"priority": 1}), dict[str, Any])
    build_body({"messages": [], "n": "two"})  # pyright: ignore[reportArgumentType]


def the_other_routes_check() -> None:
    assert_type(complete(model="m", prompt=[[1, 2]], logprobs=3, echo=True, priority=1).text, str)
    answer = respond(
        model="m",
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "function_call_output", "call_id": "c", "output": "ok"},
            {"type": "some_future_item", "x": 1},
        ],
        tools=[{"type": "function", "name": "f", "parameters": {}, "strict": True}, {"type": "web_search"}],
        reasoning={"effort": "low"},
    )
    assert_type(answer.output_text, str)
    respond(model="m", input=[*answer.output, {"role": "user", "content": "And?"}])
    assert_type(embed(input=["a"], dimensions=8).data[0].embedding, list[float])
    assert_type(embed(input=["a"]).vectors, list[list[float]])
    assert_type(split_batches({"input": ["a"]}), list[EmbeddingParams])
    rerank(query="q", documents=["a", {"text": "b"}], top_n=1, deadline=3)
    score(text_1="a", text_2=["b", "c"])
    tokenize(messages=[{"role": "user", "content": "a"}])
    transcribe(model="w", file=("a.wav", b"x"), timestamp_granularities=["word"], response_format="srt")
