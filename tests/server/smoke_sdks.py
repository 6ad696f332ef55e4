"""Foreign SDKs against the reference server, unchanged; run inside their environment: `python smoke_sdks.py URL`."""

import asyncio
import sys

import openai
import pytest
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

URL = sys.argv[1]
HELLO = [{"role": "user", "content": "hello"}]
START = "2cf24dba"  # of the hash of "hello": every answer to it begins so


class City(BaseModel):
    """Structured output."""

    name: str
    inhabitants: int


def openai_sdk() -> None:
    """Chat, streams, tools, structured output, completions, responses, embeddings, models, errors."""
    client = openai.OpenAI(base_url=URL, api_key="k", max_retries=0)
    chat = client.chat.completions.create(model="m", messages=HELLO, logprobs=True, top_logprobs=2, max_tokens=5)
    assert chat.choices[0].message.content.startswith(START)
    assert len(chat.choices[0].logprobs.content) == 5
    assert chat.usage.completion_tokens == 5

    stream = client.chat.completions.create(
        model="m", messages=HELLO, max_tokens=5, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == chat.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == 5

    with client.chat.completions.stream(model="m", messages=HELLO) as helper:
        assert helper.get_final_completion().choices[0].finish_reason == "stop"

    parsed = client.chat.completions.parse(model="m", messages=HELLO, response_format=City)
    assert isinstance(parsed.choices[0].message.parsed, City)

    tool = openai.pydantic_function_tool(City)
    called = client.chat.completions.create(model="m", messages=HELLO, tools=[tool], tool_choice="required")
    City.model_validate_json(called.choices[0].message.tool_calls[0].function.arguments)

    assert client.completions.create(model="m", prompt="hello", max_tokens=3).choices[0].text.startswith(START)
    assert client.responses.create(model="m", input="hello").output_text.startswith(START)
    with client.responses.stream(model="m", input="hello") as helper:
        deltas = [each.delta for each in helper if each.type == "response.output_text.delta"]
        assert "".join(deltas) == helper.get_final_response().output_text
    structured = client.responses.parse(model="m", input="hello", text_format=City)
    assert isinstance(structured.output_parsed, City)

    vectors = client.embeddings.create(model="m", input=["a", "b"], dimensions=8).data
    assert [len(row.embedding) for row in vectors] == [8, 8]
    assert client.models.list().data[0].id == "reference"
    assert client.models.retrieve("reference").id == "reference"

    for wish, error in (
        ("status=429", openai.RateLimitError),
        ("status=503", openai.InternalServerError),
        ("status=401", openai.AuthenticationError),
        ("cut=0", openai.APIConnectionError),
        ("overload", openai.RateLimitError),
    ):
        with pytest.raises(error):
            client.chat.completions.create(model="m", messages=HELLO, extra_headers={"x-llm-fault": wish})
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m", messages=[])
    assert (caught.value.param, caught.value.code) == ("messages", "invalid_request")


async def openai_async() -> None:
    """The async client streams too."""
    async with openai.AsyncOpenAI(base_url=URL, api_key="k") as client:
        stream = await client.chat.completions.create(model="m", messages=HELLO, max_tokens=5, stream=True)
        text = "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
        assert text.startswith(START)


def langchain() -> None:
    """Invoke, stream, structured output, tools, embeddings."""
    model = ChatOpenAI(base_url=URL, api_key="k", model="m", max_retries=0)
    assert model.invoke("hello").content.startswith(START)
    assert "".join(chunk.content for chunk in model.stream("hello")).startswith(START)
    assert isinstance(model.with_structured_output(City).invoke("hello"), City)
    assert model.bind_tools([City], tool_choice="any").invoke("hello").tool_calls[0]["name"] == "City"
    vectors = OpenAIEmbeddings(base_url=URL, api_key="k", model="m", check_embedding_ctx_length=False)
    assert len(vectors.embed_documents(["a", "b"])) == 2


async def use_a_tool(model: object) -> list[str]:
    """An agent with a tool of its own: what the tool was called with."""
    agent = Agent(model)
    seen = []

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather."""
        seen.append(city)
        return "sunny"

    assert (await agent.run("call weather now")).output
    return seen


async def pydantic_ai() -> None:
    """Text, structured output by tool, a tool of the agent's own, streams; by chat and by responses."""
    provider = OpenAIProvider(base_url=URL, api_key="k")
    for model in (OpenAIChatModel("m", provider=provider), OpenAIResponsesModel("m", provider=provider)):
        assert (await Agent(model).run("hello")).output.startswith(START)
        assert isinstance((await Agent(model, output_type=City).run("hello")).output, City)

        seen = await use_a_tool(model)
        assert len(seen) == 1
        async with Agent(model).run_stream("hello") as result:
            assert (await result.get_output()).startswith(START)


openai_sdk()
asyncio.run(openai_async())
langchain()
asyncio.run(pydantic_ai())
print("all well")
