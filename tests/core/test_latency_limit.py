"""The latency form: mean answer time against a target."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.core.latency_limit import LatencyLimit, LatencyWindow
from llm_client.errors import ConfigError
from tests.core.des import INF, Call, Process, Slots, World


def test_load_is_mean_latency_over_target():
    """Two seconds are 1.0; pressure is watch above it and refuse above 1.5."""
    window = LatencyWindow()
    seen = []
    for latency in (1.0, 3.0, 3.5, 8.0):
        window.note(latency)
        seen.append((round(window.load, 4), window.pressure))

    assert seen == [(0.5, "low"), (1.0, "low"), (1.25, "watch"), (1.9375, "refuse")]


def test_no_answer_is_no_load():
    """Nothing is known before the first answer."""
    assert LatencyWindow().load == 0.0
    assert LatencyWindow().pressure == "low"


@given(latencies=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=300), size=st.integers(1, 120))
def test_the_window_is_the_last_answers(latencies, size):
    """The running mean equals the mean of the last `window` latencies."""
    window = LatencyWindow(window=size)
    for latency in latencies:
        window.note(latency)
    last = latencies[-size:]

    assert window.load == pytest.approx(sum(last) / len(last) / 2.0, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"target": 0.0}, "latency.target"),
        ({"window": 0}, "latency.window"),
        ({"watch": 2.0}, "latency.watch"),
        ({"watch": 0.0}, "latency.watch"),
    ],
)
def test_bad_options_name_their_field(options, name):
    """Each number has a range."""
    with pytest.raises(ConfigError, match=name):
        LatencyLimit(**options)


def drive(limit, latency, rounds, now=0.0):
    """Keep the limit full of calls that all take the same time, with one always waiting."""
    for _ in range(rounds):
        slots = []
        while limit.may_send(now) == 0.0:
            slots.append(limit.sent(now, stream=False))
        limit.press(now, 10.0)
        now += latency
        for slot in slots:
            limit.done(slot, now, prompt_tokens=None, output_tokens=None)
    return now


def test_fast_answers_raise_the_limit_by_one_a_round():
    """Below the target each full round adds a call."""
    limit = LatencyLimit()
    drive(limit, 0.5, 10)

    assert limit.limit == pytest.approx(14.0, abs=0.7)


def test_without_waiting_calls_it_stays():
    """A limit that is not the limit learns nothing."""
    limit = LatencyLimit()
    for n in range(100):
        slot = limit.sent(float(n), stream=False)
        limit.done(slot, n + 0.5, prompt_tokens=None, output_tokens=None)

    assert limit.limit == 4.0


def test_between_watch_and_refuse_it_holds():
    """A load of 1.25 neither grows nor shrinks the limit."""
    limit = LatencyLimit()
    drive(limit, 2.5, 20)

    assert limit.limit == 4.0
    assert limit.pressure == "watch"


def test_slow_answers_lower_it_once_per_window_and_never_below_one():
    """A load of 2 halves the limit; what was sent before does not count again."""
    limit = LatencyLimit()
    now = drive(limit, 0.5, 10)
    before = limit.limit
    slots = []
    while limit.may_send(now) == 0.0:
        slots.append(limit.sent(now, stream=False))
    for slot in slots:
        limit.done(slot, now + 40.0, prompt_tokens=None, output_tokens=None)

    assert 0.5 * before <= limit.limit < before
    drive(limit, 40.0, 60, now + 40.0)
    assert limit.limit == 1.0


def test_recovery_starts_from_a_quarter():
    """As with the other limits, a server that came back is met slowly."""
    limit = LatencyLimit()
    drive(limit, 0.5, 20)
    before = limit.limit
    limit.recovered(100.0)

    assert limit.limit == pytest.approx(before / 4.0)


@pytest.mark.parametrize("slots", [4, 64])
def test_it_keeps_equal_work_near_the_target(slots):
    """Embeddings of 0.2 s on a server that never refuses: answered within the target, at full speed."""
    world = World(3)
    limit = LatencyLimit()
    process = Process(world, Slots(world, slots, 10**9), limit, random.Random(1), stream=False)
    process.queue.extend(Call(0.0, INF, 0, 100, 0.2) for _ in range(200 * slots))
    process.pump()
    world.run(1000.0)

    assert process.done == 200 * slots
    assert process.answered_at[-1] <= 1.25 * 200 * 0.2
    assert process.latency <= 1.5 * 2.0
