"""Calls to a real engine: an answer, a stream, many at once, and what a cancelled call leaves behind."""

import asyncio

import pytest
from llm_client import AsyncClient, Client, Pool

pytestmark = pytest.mark.real

QUESTION = [{"role": "user", "content": "Count to ten."}]
SHORT = {"model": "smollm2", "messages": QUESTION, "max_tokens": 8, "temperature": 0.0}
ENDLESS = {**SHORT, "max_tokens": 1500, "extra_body": {"ignore_eos": True}}


def test_a_chat_is_answered(llama):
    """The sync client, text, usage and the story of the call."""
    with Client(base_url=llama.base_url, api_key="none") as client:
        done = client.chat.completions.create(**SHORT)

    assert done.choices[0].message.content
    assert 1 <= done.usage.completion_tokens <= 8
    assert len(done.meta.attempts) == 1
    assert done.meta.fallback is None


async def test_a_stream_says_what_the_plain_answer_says(llama):
    """At temperature 0 the joined chunks are the text of the non-streaming answer."""
    async with AsyncClient(base_url=llama.base_url, api_key="none") as client:
        whole = await client.chat.completions.create(**SHORT)
        chunks = [chunk async for chunk in await client.chat.completions.create(**SHORT, stream=True)]

    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert whole.choices[0].message.content == text
    assert chunks[-1].choices[0].finish_reason in {"stop", "length"}


async def test_more_calls_than_slots_are_all_answered(llama):
    """24 calls to 4 slots: each answered, each sent about once."""
    async with AsyncClient(base_url=llama.base_url, api_key="none") as client:
        answers = await asyncio.gather(*(client.chat.completions.create(**SHORT) for _ in range(24)))

    assert all(answer.choices[0].message.content for answer in answers)
    assert sum(len(answer.meta.attempts) for answer in answers) <= 28


async def test_interactive_and_bulk_share_one_pool(llama):
    """Two clients on one pool, one of them streaming."""
    async with Pool(base_url=llama.base_url, api_key="none") as pool:
        web, jobs = AsyncClient(pool), AsyncClient(pool)
        stream = await web.chat.completions.create(**SHORT, stream=True, priority="high")
        done = await jobs.chat.completions.create(**SHORT, priority="low")
        chunks = [chunk async for chunk in stream]

    assert done.choices[0].message.content
    assert chunks


async def test_cancelling_a_plain_call_hangs_up(new_llama):
    """The connection is closed at once; this engine computes a non-streaming answer to its end all the same."""
    llama = new_llama()
    llama.start()
    async with AsyncClient(base_url=llama.base_url, api_key="none") as client:
        task = asyncio.create_task(client.chat.completions.create(**{**ENDLESS, "max_tokens": 100}))
        await asyncio.to_thread(llama.wait_busy, 1)
        before = llama.connections()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(llama.wait_hung_up)
        done = await client.chat.completions.create(**SHORT)

    assert before == 1
    assert done.choices[0].message.content


async def test_cancelling_a_stream_frees_its_slot(new_llama):
    """A task cancelled between two chunks stops its stream on the server."""
    llama = new_llama()
    llama.start()
    flowing = asyncio.Event()

    async def read() -> None:
        async for _ in await client.chat.completions.create(**ENDLESS, stream=True):
            flowing.set()

    async with AsyncClient(base_url=llama.base_url, api_key="none") as client:
        task = asyncio.create_task(read())
        await flowing.wait()
        await asyncio.to_thread(llama.wait_busy, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(llama.wait_busy, 0, 6.0)
        done = await client.chat.completions.create(**SHORT)

    assert done.choices[0].message.content


def test_closing_a_sync_stream_frees_its_slot(new_llama):
    """`close` on a half-read stream stops it on the server, and the next call is served."""
    llama = new_llama()
    llama.start()
    with Client(base_url=llama.base_url, api_key="none") as client:
        stream = client.chat.completions.create(**ENDLESS, stream=True)
        next(iter(stream))
        llama.wait_busy(1)
        stream.close()
        llama.wait_busy(0, 6.0)
        done = client.chat.completions.create(**SHORT)

    assert done.choices[0].message.content
