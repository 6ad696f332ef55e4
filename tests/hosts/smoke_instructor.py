"""instructor, which parses answers into models, on an openai client that has our HTTP client under it."""

import asyncio
import json

import instructor
import openai
import pydantic
import pytest
from llm_client import Pool, http_client
from tests.hosts import fakes
from tests.hosts.scenarios import protected

pytestmark = pytest.mark.hosts


class Fruit(pydantic.BaseModel):
    """What the model is asked to name."""

    name: str


def make(pool: Pool, url: str) -> instructor.AsyncInstructor:
    """Patch an AsyncOpenAI in JSON mode."""
    ours = http_client(pool, "default", family="httpx2", asynchronous=True)
    client = openai.AsyncOpenAI(base_url=url, api_key="none", http_client=ours)
    return instructor.from_openai(client, mode=instructor.Mode.JSON)


def answer(_prompt: str) -> str:
    """What the fake model says."""
    return json.dumps({"name": "apple"})


async def ask(client: instructor.AsyncInstructor) -> Fruit:
    """One parsed answer."""
    messages = [{"role": "user", "content": "Name a fruit."}]
    return await client.chat.completions.create(
        model="gpt-4o-mini", response_model=Fruit, messages=messages, max_retries=0
    )


async def test_an_answer_is_parsed(tmp_path):
    """One request, one model."""
    with fakes.Server(text=answer) as server:
        async with protected(make, server, tmp_path) as client:
            fruit = await ask(client)

    assert fruit.name == "apple"
    assert len(server.seen) == 1


async def test_a_storm_of_refusals_is_absorbed(tmp_path):
    """Ten at once to a server that takes two: every one is parsed, and no request is the SDK's own retry."""
    with fakes.Server(text=answer, slots=2, seconds=0.05) as server:
        async with protected(make, server, tmp_path) as client:
            fruits = await asyncio.gather(*(ask(client) for _ in range(10)))

    assert [fruit.name for fruit in fruits] == ["apple"] * 10
    assert server.refusals > 0
    assert {seen.headers["x-stainless-retry-count"] for seen in server.seen} == {"0"}


async def test_one_attempt_for_one_of_ours(tmp_path):
    """A server that always fails sees our three attempts."""
    with fakes.Server(lambda _seen, _number: fakes.refused(500, "broken")) as server:
        async with protected(make, server, tmp_path) as client:
            with pytest.raises(Exception, match="scripted broken"):
                await ask(client)

    assert [int(seen.headers["x-llm-client-attempt"]) for seen in server.seen] == [1, 2, 3]
