"""LlamaIndex's OpenAI model on httpx, sync and async."""

import asyncio

import pytest
from llama_index.llms.openai import OpenAI
from llm_client import Pool, http_client
from tests.hosts.scenarios import Host, cases

pytestmark = pytest.mark.hosts


def model(pool: Pool, url: str) -> OpenAI:
    """A model with both colours of our client under it; its own retries are off, as ours replace them."""
    return OpenAI(
        model="gpt-4o-mini",
        api_base=url,
        api_key="none",
        max_retries=0,
        http_client=http_client(pool, "default", family="httpx", asynchronous=False),
        async_http_client=http_client(pool, "default", family="httpx", asynchronous=True),
    )


def make_sync(pool: Pool, url: str) -> Host:
    """`complete` and `stream_complete`, called on threads."""
    llm = model(pool, url)

    def stream(prompt: str) -> str:
        return "".join(part.delta or "" for part in llm.stream_complete(prompt))

    async def ask(prompt: str) -> str:
        return (await asyncio.to_thread(llm.complete, prompt)).text

    return Host(ask, lambda prompt: asyncio.to_thread(stream, prompt))


def make_async(pool: Pool, url: str) -> Host:
    """`acomplete` and `astream_complete`."""
    llm = model(pool, url)

    async def ask(prompt: str) -> str:
        return (await llm.acomplete(prompt)).text

    async def stream(prompt: str) -> str:
        return "".join([part.delta or "" async for part in await llm.astream_complete(prompt)])

    return Host(ask, stream)


@pytest.mark.parametrize(("scenario", "make"), cases(sync=make_sync, asynchronous=make_async))
async def test_protected(scenario, make, tmp_path):
    """Each scenario holds."""
    await scenario(make, tmp_path)
