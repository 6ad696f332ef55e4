"""LiteLLM in front of an openai client that has our HTTP client under it."""

import os

# Without it LiteLLM fetches its price table from the network when imported.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
import openai
import pytest
from llm_client import Pool, http_client
from tests.hosts.scenarios import Host, cases

pytestmark = pytest.mark.hosts

MODEL = "openai/gpt-4o-mini"


def make_async(pool: Pool, url: str) -> Host:
    """`acompletion`, given an AsyncOpenAI."""
    ours = http_client(pool, "default", family="httpx2", asynchronous=True)
    client = openai.AsyncOpenAI(base_url=url, api_key="none", http_client=ours)

    async def ask(prompt: str) -> str:
        done = await litellm.acompletion(MODEL, [{"role": "user", "content": prompt}], client=client)
        return done.choices[0].message.content

    async def stream(prompt: str) -> str:
        chunks = await litellm.acompletion(MODEL, [{"role": "user", "content": prompt}], client=client, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    return Host(ask, stream)


@pytest.mark.parametrize(("scenario", "make"), cases(asynchronous=make_async))
async def test_protected(scenario, make, tmp_path):
    """Each scenario holds."""
    await scenario(make, tmp_path)
