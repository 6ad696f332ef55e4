"""Streams as a user reads them, over sockets, in both colours."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from llm_client import AsyncClient, Client, StreamInterruptedError
from tests.client.kit import DONE, FINISH, GOOD, MESSAGES, streamed, token
from tests.integration.shared import idle
from tests.transport.rawserver import HANG, LAST, RESET, STREAM, RawServer, event

ASK = {"model": "m", "messages": MESSAGES, "stream": True}


def test_text_and_final_answer():
    """Chunks, then the whole; reading again gives nothing and no second request."""
    with RawServer(streamed("The answer", " is 42.")) as server, Client(base_url=server.url("/v1")) as client:
        stream = client.chat.completions.create(**ASK)
        texts = [chunk.text for chunk in stream]

        assert "".join(texts) == stream.text == "The answer is 42."
        assert list(stream) == []
        assert list(stream.text_stream) == []
        done = stream.get_final_completion()
        assert (done.text, done.choices[0].finish_reason) == ("The answer is 42.", "stop")
        assert done.meta.endpoint == stream.meta.endpoint
        assert len(server.requests) == 1
        assert idle(client.pool)


async def test_text_and_final_answer_on_a_loop():
    """The same for event loops, as a context manager."""
    with RawServer(streamed("The answer", " is 42.")) as server:
        async with AsyncClient(base_url=server.url("/v1")) as client:
            async with await client.chat.completions.create(**ASK) as stream:
                assert "".join([piece async for piece in stream.text_stream]) == "The answer is 42."
                assert [piece async for piece in stream.text_stream] == []
            assert (await stream.get_final_completion()).text == "The answer is 42."
            assert [chunk async for chunk in stream] == []
            assert idle(client.pool)


def test_final_answer_without_reading_first():
    """It reads by itself."""
    with RawServer(streamed("a", "b")) as server, Client(base_url=server.url("/v1")) as client:
        assert client.chat.completions.create(**ASK).get_final_completion().text == "ab"


def test_a_class_is_parsed_from_the_final_answer():
    """As from a plain one."""
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str

    with RawServer(streamed('{"name": ', '"Ada"}')) as server, Client(base_url=server.url("/v1")) as client:
        done = client.chat.completions.create(**ASK, response_format=Person).get_final_completion()

        assert done.parsed == Person(name="Ada")
        assert json.loads(server.requests[0].body)["stream"] is True


def test_usage_is_asked_for_only_by_the_caller_and_kept():
    """`stream_options` goes out as given; the chunk with counts and no choices comes through."""
    usage = event({"id": "c", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}})
    script = [STREAM, token("a"), FINISH, usage, DONE, LAST]
    with RawServer(script) as server, Client(base_url=server.url("/v1")) as client:
        stream = client.chat.completions.create(**ASK, stream_options={"include_usage": True})
        chunks = list(stream)

        assert json.loads(server.requests[0].body)["stream_options"] == {"include_usage": True}
        assert chunks[-1].usage.total_tokens == 3
        assert stream.get_final_completion().usage.total_tokens == 3
        client.chat.completions.create(**ASK).get_final_completion()
        assert "stream_options" not in json.loads(server.requests[1].body)


def test_leaving_early_closes_and_frees_the_slot():
    """The server sees it; nothing more is handed out, and no half answer is taken for a whole one."""
    with RawServer([STREAM, token("a"), HANG]) as server, Client(base_url=server.url("/v1")) as client:
        with client.chat.completions.create(**ASK) as stream:
            assert next(stream).text == "a"
        assert server.requests[0].gone.wait(0.5)
        assert idle(client.pool)
        assert list(stream) == []
        assert stream.text == "a"
        with pytest.raises(RuntimeError, match="closed before its end"):
            stream.get_final_completion()
        stream.close()


async def test_leaving_early_on_a_loop():
    """The same for event loops."""
    with RawServer([STREAM, token("a"), HANG]) as server:
        async with AsyncClient(base_url=server.url("/v1")) as client:
            async with await client.chat.completions.create(**ASK) as stream:
                assert (await anext(stream)).text == "a"
            assert server.requests[0].gone.wait(0.5)
            assert idle(client.pool)
            assert [chunk async for chunk in stream] == []
            with pytest.raises(RuntimeError, match="closed before its end"):
                await stream.get_final_completion()
            await stream.close()


def test_a_broken_stream_raises_each_time_it_is_asked():
    """Reading on, asking for the whole, before and after closing."""
    with RawServer([STREAM, token("half"), RESET]) as server, Client(base_url=server.url("/v1")) as client:
        stream = client.chat.completions.create(**ASK)
        with pytest.raises(StreamInterruptedError) as caught:
            list(stream)
        assert caught.value.partial == stream.text == "half"
        for act in (lambda: next(stream), stream.get_final_completion):
            with pytest.raises(StreamInterruptedError):
                act()
        stream.close()
        with pytest.raises(StreamInterruptedError):
            stream.get_final_completion()
        assert idle(client.pool)


def test_plain_json_in_answer_to_a_stream_is_read_as_one():
    """One chunk with the whole text."""
    with RawServer(GOOD) as server, Client(base_url=server.url("/v1")) as client:
        stream = client.chat.completions.create(**ASK)

        assert [chunk.text for chunk in stream] == ["hello"]
        assert stream.get_final_completion().text == "hello"


def test_text_of_a_responses_stream_comes_once():
    """The events that repeat the whole text add none."""
    from llm_client.wire.static import static_completion
    from tests.transport.rawserver import chunk

    body = static_completion("The answer", "m", stream=True, route="responses")
    with RawServer([STREAM, chunk(body), LAST]) as server, Client(base_url=server.url("/v1")) as client:
        stream = client.responses.create(model="m", input="hi", stream=True)

        assert "".join(stream.text_stream) == "The answer"
        assert stream.get_final_completion().output_text == "The answer"


def test_a_fallback_is_streamed_too():
    """A fixed text in the frame of a stream, and marked."""
    from tests.client.kit import refused

    with RawServer(refused(404)) as server, Client(base_url=server.url("/v1")) as client:
        stream = client.chat.completions.create(**ASK, fallback="sorry")

        assert "".join(stream.text_stream) == "sorry"
        assert stream.meta.fallback == "static"


def test_streams_are_not_pickled_and_show_no_text():
    """They hold a connection, and perhaps a secret."""
    with RawServer(streamed("canary")) as server, Client(base_url=server.url("/v1")) as client:
        stream = client.chat.completions.create(**ASK)
        for act in (pickle.dumps, copy.copy):
            with pytest.raises(TypeError, match="cannot be pickled"):
                act(stream)
        list(stream)

        assert "canary" not in repr(stream)
        done = pickle.loads(pickle.dumps(stream.get_final_completion()))
        assert done.text == "canary"


def test_a_raw_answer_is_whole():
    """Status, headers, bytes, and the model on demand; a stream has none of it."""
    with RawServer(GOOD) as server, Client(base_url=server.url("/v1")) as client:
        raw = client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES)

        assert (raw.status_code, raw.headers["Content-Type"], raw.parse().text) == (200, "application/json", "hello")
        assert raw.json()["object"] == "chat.completion"
        assert raw.meta.attempts[0].status == 200
        for options in ({"stream": True}, {"extra_body": {"stream": True}}):
            with pytest.raises(TypeError, match="a stream has no whole body"):
                client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES, **options)
        client.completions.with_raw_response.create(model="m", prompt="a", stream=False)
        assert json.loads(server.requests[-1].body)["stream"] is False
