"""The GPU engine behind the application: rates, batches, prefix cache, cancellation."""

import asyncio

import pytest
from llm_client.server.batching import PRESETS
from llm_client.server.text import answer


def test_stream_has_the_pace_of_its_preset(inside, simulate):
    """First token after the prompt, then one a step."""

    async def scenario():
        return await inside(engine="h100-8b").chat("hello", stream=True, max_tokens=20)

    got = simulate(scenario())
    times = [when for when, part in got.parts if part]
    preset = PRESETS["h100-8b"]

    assert got.text == answer("hello", 20)
    assert times[0] == pytest.approx(preset.base, rel=0.1)
    assert (times[-1] - times[0]) / 19 == pytest.approx(preset.base, rel=0.1)


def test_speed_makes_its_time_pass_faster(inside, simulate):
    """Ten times faster, the same text."""

    async def scenario(speed):
        return await inside(engine="laptop", speed=speed).chat("hello", max_tokens=20)

    normal, fast = simulate(scenario(1.0)), simulate(scenario(10.0))

    assert normal.took / fast.took == pytest.approx(10.0)
    assert fast.data["choices"] == normal.data["choices"]


def test_batch_serves_many_in_little_more_time_than_one(inside, simulate):
    """Thirty-two at once take less than twice as long as one alone."""

    async def scenario(count):
        server = inside(engine="l40s-7b")
        answers = await asyncio.gather(
            *(server.chat(f"hello {n}", max_tokens=50, ignore_eos=True) for n in range(count))
        )
        assert {one.status for one in answers} == {200}
        return max(one.took for one in answers)

    assert simulate(scenario(32)) < 2 * simulate(scenario(1))


def test_repeated_prompt_is_found_in_the_prefix_cache(inside, simulate):
    """The second answer starts sooner and says how much was cached."""

    async def scenario():
        server = inside(engine="laptop")
        prompt = "the same long prompt " * 100
        return [await server.chat(prompt, max_tokens=1) for _ in range(2)]

    cold, warm = simulate(scenario())

    assert warm.took < cold.took / 3
    assert cold.data["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert warm.data["usage"]["prompt_tokens_details"]["cached_tokens"] > 400


def test_more_than_the_slots_wait_in_the_queue(inside, simulate):
    """The batch is bounded, the queue behind it too."""

    async def scenario():
        server = inside(engine="laptop", queue=10)
        answers = await asyncio.gather(*(server.chat(f"p{n}", max_tokens=5) for n in range(50)))
        return sorted(one.status for one in answers), server.ledger

    statuses, ledger = simulate(scenario())

    assert statuses == [200] * 42 + [429] * 8
    assert ledger.executing_peak == 32


def test_client_that_leaves_frees_cache_and_slot_at_once(inside, simulate):
    """In the middle of a step."""

    async def scenario():
        server = inside(engine="laptop")
        await server.chat("hello", stream=True, max_tokens=60, leave_after=1.0)
        load = server.door.engine.load()
        after = await server.chat("again", max_tokens=2)
        return load, after.status, asyncio.get_running_loop().time()

    load, status, _ = simulate(scenario())

    assert (load.running, load.kv_usage) == (0, 0)
    assert status == 200


def test_preempted_work_still_gets_its_whole_answer(inside, simulate):
    """A cache too small for all: some are computed again, all are answered in full."""

    async def scenario():
        server = inside(engine="laptop", queue=None, context=40_000)
        answers = await asyncio.gather(
            *(server.chat("x" * 8000 + str(n), max_tokens=400, ignore_eos=True) for n in range(18))
        )
        return answers, server.door.engine.load()

    answers, load = simulate(scenario())

    assert load.preemptions > 0
    assert {one.data["usage"]["completion_tokens"] for one in answers} == {400}


def test_engine_that_cannot_keep_up_slows_down_instead_of_spinning(inside):
    """Steps of zero length (a huge speed) must not hold the event loop for ever."""

    async def scenario():
        server = inside(engine="h100-8b", speed=1e6)
        ticks = 0

        async def heart():
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        beating = asyncio.create_task(heart())
        got = await server.chat("hello", max_tokens=2000, ignore_eos=True)
        beating.cancel()
        return got.status, ticks

    status, ticks = asyncio.run(scenario())  # real time: virtual time stands still while a task is always ready

    assert status == 200
    assert ticks > 50
