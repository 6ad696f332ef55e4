"""The clients as a user's editor sees them; read by pyright in strict mode, never run.

Lines with an ignore comment have to be errors: an ignore that is not needed is an error itself.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true, reportUnusedFunction=false

from __future__ import annotations

from typing import assert_type

from llm_client import (
    APIStatusError,
    AsyncClient,
    AsyncOpenAI,
    AsyncStream,
    CircuitOpenError,
    Client,
    LLMClientError,
    Meta,
    OpenAI,
    Pool,
    QueueFullError,
    RateLimitError,
    RejectedError,
    Stream,
    StreamInterruptedError,
    http_client,
    scope,
)
from llm_client.client.raw import RawResponse
from llm_client.core.pressure import Pressure
from llm_client.model import AttemptRecord
from llm_client.wire.chat import ChatCompletion, ChatCompletionChunk
from llm_client.wire.completions import Completion
from llm_client.wire.embeddings import CreateEmbeddingResponse
from llm_client.wire.models import Model, ModelList
from llm_client.wire.ranking import RerankResponse, ScoreResponse
from llm_client.wire.responses import Response, ResponseEvent
from llm_client.wire.transcriptions import Transcription
from pydantic import BaseModel


class Person(BaseModel):
    name: str


class Timeout:
    """An `httpx.Timeout` as far as it matters."""

    read: float | None = 2.0


def clients_are_made(pool: Pool) -> None:
    assert_type(OpenAI, type[Client])
    assert_type(AsyncOpenAI, type[AsyncClient])
    Client(base_url="http://gpu-a:8000/v1", api_key="k", timeout=10, max_retries=2, default_headers={"x-a": "b"})
    Client(base_url="http://gpu-a:8000/v1", api_key=lambda: "token")
    AsyncClient(base_url="http://gpu-a:8000/v1", profile={"retry": {"attempts": 2}}, pool={"queue": {"size": 500}})
    assert_type(Client(pool, "bulk").with_options(timeout=3, profile="interactive"), Client)
    assert_type(Client(pool).with_options(max_retries=0), Client)
    assert_type(Client(pool).pressure(), Pressure)
    assert_type(Pool.load("profiles.yaml"), Pool)
    Pool(base_url="http://gpu-a:8000/v1", api_key=lambda: "token")
    http_client(pool, "interactive", family="httpx2", asynchronous=True)
    http_client(pool, family="requests")  # pyright: ignore[reportArgumentType]
    with scope(deadline=30, priority="high", tenant="a"):
        pass
    with scope(deadine=30):  # pyright: ignore[reportCallIssue]
        pass


def a_sync_call(client: Client) -> None:
    done = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "a"}], priority="high")
    assert_type(done, ChatCompletion)
    assert_type(done.choices[0].message.content, str | None)
    assert_type(done.meta, Meta)
    assert_type(done.meta.attempts, tuple[AttemptRecord, ...])
    assert_type(done.meta.fallback, str | None)
    assert_type(client.completions.create(model="m", prompt="a"), Completion)
    assert_type(client.responses.create(model="m", input="a"), Response)
    assert_type(client.embeddings.create(model="m", input=["a"]), CreateEmbeddingResponse)
    assert_type(client.models.list(), ModelList)
    assert_type(client.models.retrieve("m"), Model)
    assert_type(client.rerank(query="q", documents=["a"]), RerankResponse)
    assert_type(client.score(text_1="a", text_2="b"), ScoreResponse)
    assert_type(client.audio.transcriptions.create(model="w", file=b"x"), Transcription)


def a_class_types_the_answer(client: Client) -> None:
    done = client.chat.completions.create(messages=[], response_format=Person)
    assert_type(done, ChatCompletion[Person])
    assert_type(done.parsed, Person | None)
    assert_type(client.responses.create(input="a", text_format=Person), Response[Person])
    assert_type(client.responses.create(input="a", text_format=Person).output_parsed, Person | None)
    stream = client.chat.completions.create(messages=[], response_format=Person, stream=True)
    assert_type(stream, Stream[ChatCompletionChunk, ChatCompletion[Person]])
    assert_type(stream.get_final_completion().parsed, Person | None)
    assert_type(client.chat.completions.create(messages=[], response_format={"type": "json_object"}), ChatCompletion)
    client.chat.completions.create(messages=[], response_format={"type": "xml"})  # pyright: ignore[reportCallIssue, reportArgumentType]


def a_stream_is_a_stream(client: Client, perhaps: bool) -> None:
    with client.chat.completions.create(messages=[], stream=True, stream_options={"include_usage": True}) as stream:
        assert_type(stream, Stream[ChatCompletionChunk, ChatCompletion])
        for chunk in stream:
            assert_type(chunk, ChatCompletionChunk)
        for piece in stream.text_stream:
            assert_type(piece, str)
        assert_type(stream.text, str)
        assert_type(stream.get_final_completion(), ChatCompletion)
    for event in client.responses.create(input="a", stream=True):
        assert_type(event, ResponseEvent)
    for each in client.completions.create(prompt="a", stream=True):
        assert_type(each, Completion)
    either = client.chat.completions.create(messages=[], stream=perhaps)
    assert_type(either, ChatCompletion | Stream[ChatCompletionChunk, ChatCompletion])


def raw_answers_are_typed(client: Client) -> None:
    raw = client.chat.completions.with_raw_response.create(messages=[])
    assert_type(raw, RawResponse[ChatCompletion])
    assert_type(raw.status_code, int)
    assert_type(raw.headers["x-request-id"], str)
    assert_type(raw.parse(), ChatCompletion)
    typed = client.chat.completions.with_raw_response.create(messages=[], response_format=Person)
    assert_type(typed.parse(), ChatCompletion[Person])
    assert_type(client.responses.with_raw_response.create(input="a").parse(), Response)
    assert_type(client.responses.with_raw_response.create(input="a", text_format=Person).parse(), Response[Person])
    assert_type(client.completions.with_raw_response.create(prompt="a").parse(), Completion)
    client.chat.completions.with_raw_response.create(messages=[], stream=True)  # pyright: ignore[reportArgumentType]


def mistakes_are_found(client: Client) -> None:
    client.chat.completions.create(messages=[], temprature=1)  # pyright: ignore[reportCallIssue]
    client.chat.completions.create(model="m")  # pyright: ignore[reportCallIssue]
    client.chat.completions.create(messages=[], deadline="soon")  # pyright: ignore[reportArgumentType]
    client.chat.completions.create(messages=[], timeout=Timeout())
    client.embeddings.create(model="e")  # pyright: ignore[reportCallIssue]


async def the_same_on_a_loop(client: AsyncClient) -> None:
    async with client:
        done = await client.chat.completions.create(messages=[])
        assert_type(done, ChatCompletion)
        assert_type(await client.chat.completions.create(messages=[], response_format=Person), ChatCompletion[Person])
        assert_type(await client.responses.create(input="a", text_format=Person), Response[Person])
        stream = await client.chat.completions.create(messages=[], stream=True)
        assert_type(stream, AsyncStream[ChatCompletionChunk, ChatCompletion])
        async with stream:
            async for chunk in stream:
                assert_type(chunk, ChatCompletionChunk)
            async for piece in stream.text_stream:
                assert_type(piece, str)
            assert_type(await stream.get_final_completion(), ChatCompletion)
        parsed = await client.chat.completions.create(messages=[], response_format=Person, stream=True)
        assert_type((await parsed.get_final_completion()).parsed, Person | None)
        async for event in await client.responses.create(input="a", stream=True):
            assert_type(event.text_delta, str)
        raw = await client.chat.completions.with_raw_response.create(messages=[], response_format=Person)
        assert_type(raw.parse(), ChatCompletion[Person])
        assert_type(await client.embeddings.create(input="a"), CreateEmbeddingResponse)
        assert_type(await client.models.list(deadline=3), ModelList)
        unawaited = client.chat.completions.create(messages=[])
        print(unawaited.text)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]


def errors_say_what_happened(client: Client) -> None:
    try:
        client.chat.completions.create(messages=[])
    except StreamInterruptedError as error:
        assert_type(error.partial, str)
    except RateLimitError as error:
        assert_type(error.status_code, int)
        assert_type(error.retry_after, float | None)
    except APIStatusError as error:
        assert_type(error.request_id, str | None)
        assert_type(error.code, str | None)
    except (QueueFullError, CircuitOpenError) as error:
        assert_type(error, QueueFullError | CircuitOpenError)
    except RejectedError as error:
        assert_type(error.endpoint, str | None)
    except LLMClientError as error:
        assert_type(error.kind, str)
