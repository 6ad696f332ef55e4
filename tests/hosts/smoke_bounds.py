"""FC-PK-01: both colours on both HTTP libraries, with the versions of this environment, and no deprecation warning."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.hosts import fakes

pytestmark = pytest.mark.hosts

ROOT = Path(__file__).parents[2]

# In a process of its own: only there can the filter be set before the first import.
CALLS = """
import asyncio, sys, warnings
warnings.filterwarnings("error", category=DeprecationWarning, module="llm_client")
from llm_client import AsyncClient, Client
family, url = sys.argv[1:]
question = {"model": "m", "messages": [{"role": "user", "content": "apples"}]}
settings = {"base_url": url, "api_key": "none", "pool": {"http": {"family": family}}}
with Client(**settings) as client:
    print(client.chat.completions.create(**question).choices[0].message.content)
    with client.chat.completions.create(**question, stream=True) as stream:
        print("".join(chunk.choices[0].delta.content or "" for chunk in stream))
async def main():
    async with AsyncClient(**settings) as client:
        print((await client.chat.completions.create(**question)).choices[0].message.content)
        stream = await client.chat.completions.create(**question, stream=True)
        print("".join([chunk.choices[0].delta.content or "" async for chunk in stream]))
asyncio.run(main())
"""


@pytest.mark.parametrize("family", ["httpx", "httpx2"])
def test_both_colours_are_answered(family):
    """Sync and async client, plain and streamed."""
    with fakes.Server() as server:
        done = subprocess.run(
            [sys.executable, "-c", CALLS, family, server.url],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.stdout.splitlines() == [fakes.said("apples")] * 4, done.stderr
