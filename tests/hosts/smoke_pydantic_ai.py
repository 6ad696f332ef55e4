"""pydantic-ai's chat model on an AsyncOpenAI that has our HTTP client under it."""

import openai
import pytest
from llm_client import Pool, http_client
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from tests.hosts.scenarios import Host, cases

pytestmark = pytest.mark.hosts


def make_async(pool: Pool, url: str) -> Host:
    """`run` and `run_stream` of an agent without tools."""
    ours = http_client(pool, "default", family="httpx2", asynchronous=True)
    client = openai.AsyncOpenAI(base_url=url, api_key="none", http_client=ours)
    agent = Agent(OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(openai_client=client)))

    async def ask(prompt: str) -> str:
        return (await agent.run(prompt)).output

    async def stream(prompt: str) -> str:
        async with agent.run_stream(prompt) as answer:
            return await answer.get_output()

    return Host(ask, stream)


@pytest.mark.parametrize(("scenario", "make"), cases(asynchronous=make_async))
async def test_protected(scenario, make, tmp_path):
    """Each scenario holds."""
    await scenario(make, tmp_path)
