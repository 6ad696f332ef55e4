"""Refusals in the words of other servers."""

import asyncio
import json

import pytest
from llm_client.server.dialects import DIALECTS

BUSY = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."


def _overloaded(inside, simulate, *, stream=False, **settings):
    async def scenario():
        server = inside(queue=0, **settings)
        first = asyncio.create_task(server.chat("a"))
        await asyncio.sleep(0.1)
        answer = await server.chat("b", stream=stream)
        await first
        return answer, server.ledger

    return simulate(scenario())


@pytest.mark.parametrize(
    ("dialect", "status", "words", "headers"),
    [
        ("openai", 429, "queue is full", {"retry-after": "1"}),
        ("vllm", 503, BUSY, {}),
        ("sglang", 503, "The request queue is full.", {}),
        ("tgi", 429, '"error_type":"overloaded"', {}),
        ("llamacpp", 503, "no slot available", {}),
        ("ollama", 503, "server busy, please try again.  maximum pending requests exceeded", {}),
        ("triton", 503, "Exceeds maximum queue size", {}),
        ("dynamo", 529, '"type":"Overloaded"', {}),
        ("ray", 503, "Request dropped due to backpressure", {"content-type": "text/plain"}),
        ("llmd", 429, "ResourceExhausted", {"x-llm-d-request-dropped-reason": "rejected-saturated"}),
        ("litellm", 429, '"code":"429"', {"llm_provider-retry-after": "60"}),
        ("anthropic", 529, "overloaded_error", {}),
        ("envoy", 503, "reset reason: overflow", {"x-envoy-overloaded": "true", "server": "envoy"}),
        ("nginx", 503, "<center>nginx</center>\r\n", {"content-type": "text/html"}),
        ("kong", 429, "API rate limit exceeded", {"retry-after": "1"}),
    ],
)
def test_overload_sounds_like_the_server_it_plays(inside, simulate, dialect, status, words, headers):  # noqa: PLR0917 - columns
    """Status, words and headers; a hint only where that server gives one."""
    answer, ledger = _overloaded(inside, simulate, dialect=dialect)

    assert answer.status == status
    assert words in answer.body.decode()
    assert headers.items() <= answer.headers.items()
    assert ("retry-after" in answer.headers) is ("retry-after" in headers)
    assert ledger.results["refused"] == 1


def test_every_dialect_is_tested():
    """A new one needs a line above."""
    rows = test_overload_sounds_like_the_server_it_plays.pytestmark[0].args[1]

    assert {row[0] for row in rows} == set(DIALECTS)


@pytest.mark.parametrize(("dialect", "code"), [("vllm", 503), ("sglang", 503), ("tgi", None)])
def test_overloaded_streams_fail_under_200(inside, simulate, dialect, code):
    """An error frame and `[DONE]`; the status says nothing."""
    answer, ledger = _overloaded(inside, simulate, dialect=dialect, stream=True)
    frame, done = answer.events

    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert frame["error"].get("code") == code
    assert done == "[DONE]"
    assert ledger.results["refused"] == 1


def test_overloaded_streams_are_refused_before_the_body_by_default(inside, simulate):
    """The status carries the refusal, whatever was asked for."""
    answer, _ = _overloaded(inside, simulate, stream=True)

    assert answer.status == 429
    assert answer.headers["content-type"] == "application/json"


def test_a_hint_can_be_forced_on_any_dialect(inside, simulate):
    """`retry_after: 3` beats the manners of the server played."""
    answer, _ = _overloaded(inside, simulate, dialect="vllm", retry_after=3.0)

    assert answer.headers["retry-after"] == "3"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True])
def test_every_refusal_has_an_answer_in_every_dialect(inside, simulate, dialect, stream):
    """Bad request, wrong key, expired, loading, draining: a status and a body that is what it claims."""

    async def scenario():
        server = inside(dialect=dialect, api_keys=("k",), seconds=3.0)
        key = {"authorization": "Bearer k"}
        out = [await server.chat(stream=stream)]
        out.append(await server.chat(headers=key, n=0, stream=stream))
        out.append(await server.chat(headers={**key, "x-llm-client-deadline": "0"}, stream=stream))
        server.door.loading_until = asyncio.get_running_loop().time() + 1
        out.append(await server.chat(headers=key, stream=stream))
        server.door.drain()
        out.append(await server.chat(headers=key, stream=stream))
        return out

    for answer in simulate(scenario()):
        assert answer.complete
        assert answer.status == 200 or answer.status >= 400
        if answer.headers["content-type"] == "application/json" and answer.body:
            assert isinstance(json.loads(answer.body), dict)


def test_larger_numbers_are_more_urgent_in_sglangs_words(inside, simulate):
    """The polarity of `priority` follows the dialect."""

    async def scenario(dialect):
        server = inside(dialect=dialect)
        for number in (0, 3):
            await server.call(body={"prompt": "x", "priority": number})
        return [record.priority for record in server.ledger.records]

    assert simulate(scenario("vllm")) == ["critical", "low"]
    assert simulate(scenario("sglang")) == ["low", "critical"]


def test_vllm_sends_its_head_before_there_is_a_slot(inside, simulate):
    """200 at once and silence until the first token, as its clients know it."""

    async def scenario(dialect):
        server = inside(dialect=dialect, seconds=2.0)
        first = asyncio.create_task(server.chat("a"))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(server.chat("b", stream=True))
        await asyncio.sleep(0.1)
        early = [record.status for record in server.ledger.records]
        head = (await asyncio.gather(first, second))[1]
        return early, head.status, "x-queue-time" in head.headers

    assert simulate(scenario("vllm"))[1:] == (200, False)
    assert simulate(scenario("openai"))[1:] == (200, True)
