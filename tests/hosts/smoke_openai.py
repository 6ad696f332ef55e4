"""The official openai SDK, sync and async: openai 3 on httpx2, openai 2 on httpx."""

import asyncio
import importlib

import openai
import pytest
from llm_client import Pool, http_client
from tests.hosts import fakes
from tests.hosts.scenarios import Host, cases, protected

pytestmark = pytest.mark.hosts

FAMILY = "httpx2" if int(openai.__version__.split(".")[0]) >= 3 else "httpx"
QUESTION = {"model": "gpt-4o-mini"}


def messages(prompt: str) -> list:
    """One user message."""
    return [{"role": "user", "content": prompt}]


def make_sync(pool: Pool, url: str) -> Host:
    """`openai.OpenAI`, called on threads."""
    ours = http_client(pool, "default", family=FAMILY, asynchronous=False)
    client = openai.OpenAI(base_url=url, api_key="none", http_client=ours)

    def ask(prompt: str) -> str:
        done = client.chat.completions.create(**QUESTION, messages=messages(prompt))
        return done.choices[0].message.content

    def stream(prompt: str) -> str:
        chunks = client.chat.completions.create(**QUESTION, messages=messages(prompt), stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    return Host(lambda prompt: asyncio.to_thread(ask, prompt), lambda prompt: asyncio.to_thread(stream, prompt))


def make_async(pool: Pool, url: str) -> Host:
    """`openai.AsyncOpenAI`."""
    ours = http_client(pool, "default", family=FAMILY, asynchronous=True)
    client = openai.AsyncOpenAI(base_url=url, api_key="none", http_client=ours)

    async def ask(prompt: str) -> str:
        done = await client.chat.completions.create(**QUESTION, messages=messages(prompt))
        return done.choices[0].message.content

    async def stream(prompt: str) -> str:
        chunks = await client.chat.completions.create(**QUESTION, messages=messages(prompt), stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    return Host(ask, stream)


@pytest.mark.parametrize(("scenario", "make"), cases(sync=make_sync, asynchronous=make_async))
async def test_protected(scenario, make, tmp_path):
    """Each scenario holds."""
    await scenario(make, tmp_path)


@pytest.mark.parametrize("make", [make_sync, make_async])
async def test_a_bad_request_is_passed_on_untouched(make, tmp_path):
    """The SDK raises its own error with the server's own words, after one request."""
    with fakes.Server(lambda _seen, _number: fakes.refused(400, "no_such_thing")) as server:
        async with protected(make, server, tmp_path) as host:
            with pytest.raises(openai.BadRequestError) as caught:
                await host.ask("apples")

    assert caught.value.code == "no_such_thing"
    assert len(server.seen) == 1


@pytest.mark.parametrize("make", [make_sync, make_async])
async def test_a_local_refusal_is_a_503_that_the_sdk_does_not_retry(make, tmp_path):
    """After enough failures the circuit is open: the error's code says so, and nothing is sent."""
    with fakes.Server(lambda _seen, _number: fakes.refused(500, "broken")) as server:
        async with protected(make, server, tmp_path, max_wait="0s") as host:
            for _ in range(2):
                with pytest.raises(openai.InternalServerError):
                    await host.ask("apples")
            sent = len(server.seen)
            with pytest.raises(openai.InternalServerError) as caught:
                await host.ask("pears")

    assert sent == 5
    assert len(server.seen) == sent
    assert caught.value.code == "circuit_open"
    assert caught.value.response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("make", [make_sync, make_async])
async def test_a_cut_stream_is_the_familys_transport_error(make, tmp_path):
    """After the first content nothing is repeated; the SDK sees what it sees without us."""
    family = importlib.import_module(FAMILY)
    with fakes.Server(lambda _seen, _number: fakes.cut_short("One two three")) as server:
        async with protected(make, server, tmp_path) as host:
            with pytest.raises((family.TransportError, openai.APIConnectionError)):
                await host.stream("apples")

    assert len(server.seen) == 1
