"""A real engine that loads, dies, hangs and closes its connections, and what a caller sees of it."""

import asyncio

import pytest
from llm_client import AsyncClient, Client, DeadlineExceededError, StreamInterruptedError

pytestmark = pytest.mark.real

QUESTION = [{"role": "user", "content": "Count to ten."}]
SHORT = {"model": "smollm2", "messages": QUESTION, "max_tokens": 2, "temperature": 0.0}
ENDLESS = {**SHORT, "max_tokens": 1500, "extra_body": {"ignore_eos": True}, "stream": True}


def read(stream, seen: list[str], *, then) -> None:
    """Collect a stream's text in `seen`; after ten chunks do something to the engine, and read on."""
    for chunk in stream:
        seen.append(chunk.choices[0].delta.content or "")
        if len(seen) == 10:
            then()


async def aread(stream, seen: list[str], *, then) -> None:
    """The same, awaited."""
    async for chunk in stream:
        seen.append(chunk.choices[0].delta.content or "")
        if len(seen) == 10:
            await asyncio.to_thread(then)


def test_a_call_made_before_the_engine_is_up_is_answered(new_llama):
    """Refused connects, then 503 "Loading model", then the answer: the caller sees only the answer."""
    llama = new_llama()
    with Client(base_url=llama.base_url, api_key="none") as client:
        llama.start(wait=False)
        before = llama.health()
        done = client.chat.completions.create(**SHORT, deadline=60)

    assert before == 0
    assert done.choices[0].message.content
    assert len(done.meta.attempts) >= 2


def test_a_call_made_while_the_model_loads_is_answered(new_llama):
    """A 503 while loading is waited out, and is booked as a refusal."""
    llama = new_llama()
    with Client(base_url=llama.base_url, api_key="none") as client:
        llama.start(wait=False)
        llama.wait_loading()
        done = client.chat.completions.create(**SHORT, deadline=60)

    assert done.choices[0].message.content
    first, *_, last = done.meta.attempts
    assert (first.status, last.status) == (503, 200)
    assert first.refusal


async def test_sigkill_mid_stream_gives_the_text_so_far(new_llama):
    """The stream ends in a StreamInterruptedError whose `partial` is what was delivered."""
    llama = new_llama()
    llama.start()
    seen: list[str] = []
    async with AsyncClient(base_url=llama.base_url, api_key="none") as client:
        stream = await client.chat.completions.create(**ENDLESS)
        with pytest.raises(StreamInterruptedError) as caught:
            await aread(stream, seen, then=llama.kill)

    assert "".join(seen)
    assert caught.value.partial == "".join(seen)
    assert caught.value.kind == "stream_interrupted"


def test_sigkill_mid_stream_is_the_same_for_the_sync_client(new_llama):
    """As above, on a thread."""
    llama = new_llama()
    llama.start()
    seen: list[str] = []
    with (
        Client(base_url=llama.base_url, api_key="none") as client,
        client.chat.completions.create(**ENDLESS) as stream,
        pytest.raises(StreamInterruptedError) as caught,
    ):
        read(stream, seen, then=llama.kill)

    assert "".join(seen)
    assert caught.value.partial == "".join(seen)


async def test_a_restart_is_recovered_from(new_llama):
    """Calls made while the engine is dead are answered once it is back, without help from the caller."""
    llama = new_llama(slots=2)
    llama.start()
    async with AsyncClient(base_url=llama.base_url, api_key="none") as client:
        before = await client.chat.completions.create(**SHORT)
        llama.kill()
        tasks = [asyncio.create_task(client.chat.completions.create(**SHORT, deadline=60)) for _ in range(6)]
        await asyncio.sleep(1.0)
        llama.start(wait=False)
        during = await asyncio.gather(*tasks)
        after = await client.chat.completions.create(**SHORT)

    assert before.choices[0].message.content
    assert all(done.choices[0].message.content for done in during)
    assert len(after.meta.attempts) == 1


def test_a_hung_engine_costs_the_deadline_and_no_more(new_llama):
    """SIGSTOP: the caller hears at the deadline; after SIGCONT the same client is served."""
    llama = new_llama()
    llama.start()
    with Client(base_url=llama.base_url, api_key="none") as client:
        client.chat.completions.create(**SHORT)
        llama.pause()
        with pytest.raises(DeadlineExceededError):
            client.chat.completions.create(**SHORT, deadline=1.5)
        llama.resume()
        done = client.chat.completions.create(**SHORT, deadline=60)

    assert done.choices[0].message.content


def test_a_stream_that_falls_silent_is_cut_by_the_progress_time_out(new_llama):
    """SIGSTOP mid-stream: no FIN ever comes; `timeouts.progress` ends it with the text so far."""
    llama = new_llama()
    llama.start()
    profile = {"timeouts": {"progress": 1.0}}
    seen: list[str] = []
    with (
        Client(base_url=llama.base_url, api_key="none", profile=profile) as client,
        client.chat.completions.create(**ENDLESS) as stream,
        pytest.raises(StreamInterruptedError) as caught,
    ):
        read(stream, seen, then=llama.pause)

    assert "".join(seen)
    assert caught.value.partial == "".join(seen)


def test_the_stale_keep_alive_race_never_reaches_a_sync_caller(llama):
    """150 streams back to back: the engine closes behind most of them, and every one is answered."""
    with Client(base_url=llama.base_url, api_key="none") as client:
        for _ in range(150):
            with client.chat.completions.create(**SHORT, stream=True) as stream:
                assert list(stream)


@pytest.mark.parametrize("parallel", [1, 4])
async def test_the_stale_keep_alive_race_never_reaches_an_async_caller(llama, parallel):
    """The same, one and four at a time."""
    todo = iter(range(150))

    async def worker() -> int:
        answered = 0
        for _ in todo:
            chunks = [chunk async for chunk in await client.chat.completions.create(**SHORT, stream=True)]
            answered += bool(chunks)
        return answered

    async with AsyncClient(base_url=llama.base_url, api_key="none") as client:
        answered = await asyncio.gather(*(worker() for _ in range(parallel)))

    assert sum(answered) == 150
