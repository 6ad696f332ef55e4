"""LangChain's ChatOpenAI, sync and async."""

import asyncio

import pytest
from langchain_openai import ChatOpenAI
from llm_client import Pool, http_client
from tests.hosts.scenarios import Host, cases

pytestmark = pytest.mark.hosts


def model(pool: Pool, url: str) -> ChatOpenAI:
    """A chat model with both colours of our client under it."""
    return ChatOpenAI(
        model="gpt-4o-mini",
        base_url=url,
        api_key="none",
        http_client=http_client(pool, "default", family="httpx2", asynchronous=False),
        http_async_client=http_client(pool, "default", family="httpx2", asynchronous=True),
    )


def make_sync(pool: Pool, url: str) -> Host:
    """`invoke` and `stream`, called on threads."""
    llm = model(pool, url)

    def stream(prompt: str) -> str:
        return "".join(str(chunk.content) for chunk in llm.stream(prompt))

    async def ask(prompt: str) -> str:
        return str((await asyncio.to_thread(llm.invoke, prompt)).content)

    return Host(ask, lambda prompt: asyncio.to_thread(stream, prompt))


def make_async(pool: Pool, url: str) -> Host:
    """`ainvoke` and `astream`."""
    llm = model(pool, url)

    async def ask(prompt: str) -> str:
        return str((await llm.ainvoke(prompt)).content)

    async def stream(prompt: str) -> str:
        return "".join([str(chunk.content) async for chunk in llm.astream(prompt)])

    return Host(ask, stream)


@pytest.mark.parametrize(("scenario", "make"), cases(sync=make_sync, asynchronous=make_async))
async def test_protected(scenario, make, tmp_path):
    """Each scenario holds."""
    await scenario(make, tmp_path)
