"""The latency signal: what counts as waiting inside a server, and what is its work."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.core.concurrency import Slot
from llm_client.core.floor import Floor
from llm_client.core.signal import Signal
from llm_client.core.slope import Slope
from llm_client.core.tuning import TUNING


class Feed:
    """Plays calls to a signal: `wait` seconds of queue, then work; collects the readings."""

    def __init__(self, limit=8.0, seed=1):
        self.signal = Signal(TUNING)
        self.limit = limit
        self.now = 0.0
        self.readings = []
        self.rng = random.Random(seed)

    def keep(self, reading):
        if reading is not None:
            self.readings.append(reading)

    def stream(self, wait, *, base=0.0, prompt=100.0, prefill=0.0, service=5.0, gap=0.2):
        """One stream: first content after wait, base and prefill; `service` seconds later the end."""
        slot = Slot(self.now, int(self.limit), True, prompt)
        slot.first_after = wait + base + prefill * prompt
        slot.seen = True
        first = self.now + slot.first_after
        self.signal.first(slot, first)
        if not self.signal.late:
            self.keep(self.signal.take(slot, first, 0.0, self.limit, 0.0))
        self.signal.answer(slot, first + service, 200.0)
        if self.signal.late:
            self.keep(self.signal.take(slot, first + service, 200.0, self.limit, 0.0))
        self.now += gap

    def plain(self, wait, output, *, base=0.0, prompt=100.0, prefill=0.0, per_token=0.03, gap=0.2):
        """One plain answer: wait, base, prefill, and so many tokens."""
        slot = Slot(self.now, int(self.limit), False, prompt)
        end = self.now + wait + base + prefill * prompt + per_token * output
        self.signal.answer(slot, end, output)
        self.keep(self.signal.take(slot, end, output, self.limit, 0.0))
        self.now += gap

    def tokens(self, mean=200.0, sigma=0.8):
        return max(1.0, float(round(self.rng.lognormvariate(math.log(mean) - sigma**2 / 2.0, sigma))))


def test_a_stream_waits_as_long_as_its_first_content_is_late():
    """First contents that were at once and now take 0.8 s tell a wait of 0.8 s."""
    feed = Feed()
    for _ in range(40):
        feed.stream(0.02)
    for n in range(80):
        feed.stream(0.02 + 0.01 * n)

    assert feed.readings[0].wait == 0.0
    assert feed.readings[-1].wait == pytest.approx(0.7, abs=0.15)
    assert feed.readings[-1].sure


def test_before_the_first_whole_answer_work_bounds_no_target():
    """Slots of 30 s: first contents after 50 ms must not look long beside an unknown service time."""
    signal = Signal(TUNING)
    readings = []
    for n in range(16):
        slot = Slot(0.01 * n, n + 1, True, 0.0)
        readings.append(signal.take(slot, 0.01 * n + 0.6, 0.0, 16.0, 0.0))
        signal.first(slot, 0.01 * n + 0.6)
    reading = next(each for each in readings if each is not None)

    assert reading.service == math.inf
    assert reading.target == pytest.approx(TUNING.target / 4.0)


def test_a_constant_base_is_work():
    """A network and a scheduler of 0.6 s: nothing waits."""
    feed = Feed(limit=64.0)
    for _ in range(200):
        feed.stream(0.0, base=0.6)

    assert all(reading.wait <= 1e-9 for reading in feed.readings)


def test_a_base_that_scatters_is_work():
    """First contents of 0.8 s on average, independent of each other: nothing waits."""
    feed = Feed(limit=64.0)
    for _ in range(400):
        feed.stream(0.0, base=feed.rng.lognormvariate(math.log(0.8) - 0.125, 0.5))
    waits = [reading.wait for reading in feed.readings[1:]]

    assert sum(waits) / len(waits) <= 0.15


def test_a_queue_that_moves_is_no_work():
    """The same mean and spread, but neighbours alike: it waits."""
    feed = Feed(limit=2.0)
    for n in range(400):
        feed.stream(0.8 + 0.7 * math.sin(n / 30.0), base=0.0)
    waits = [reading.wait for reading in feed.readings[2:]]

    assert max(waits) >= 1.2


def test_long_prompts_are_work():
    """Prompts of 500 to 20 000 tokens at 8000 a second: seconds of prefill, and no wait."""
    feed = Feed(limit=32.0)
    for _ in range(300):
        feed.stream(0.0, base=0.05, prompt=feed.tokens(mean=6000.0), prefill=1 / 8000.0)
    late = feed.readings[len(feed.readings) // 2 :]

    assert feed.signal._streams.per_prompt == pytest.approx(1 / 8000.0, rel=0.05)
    assert max(reading.wait for reading in late) <= 0.1


def test_a_wait_is_seen_through_long_prompts():
    """Two seconds more for every call of a window are a wait, whatever the prompts."""
    feed = Feed(limit=32.0)
    for _ in range(200):
        feed.stream(0.0, base=0.05, prompt=feed.tokens(mean=6000.0), prefill=1 / 8000.0)
    for _ in range(20):
        feed.stream(2.0, base=0.05, prompt=feed.tokens(mean=6000.0), prefill=1 / 8000.0)

    assert feed.readings[-1].wait >= 1.5


@pytest.mark.parametrize("share", [0.8, 1.0])
def test_first_contents_that_come_late_tell_no_more_than_answers(share):
    """Hidden thought or a gateway that buffers: streams are judged as whole answers, by their tokens."""
    feed = Feed(limit=32.0)
    for _ in range(100):
        output = feed.tokens()
        work = 0.03 * output
        slot = Slot(feed.now, 32, True, 100.0)
        slot.first_after, slot.seen = share * work, True
        feed.signal.first(slot, feed.now + share * work)
        feed.signal.answer(slot, feed.now + work, output)
        if feed.signal.late:
            feed.keep(feed.signal.take(slot, feed.now + work, output, 32.0, 0.0))
        feed.now += 0.2

    assert feed.signal.late
    assert feed.readings
    assert max(reading.wait for reading in feed.readings[1:]) <= 0.1


def test_a_queue_does_not_make_first_contents_late():
    """0.2 s of work behind 0.6 s of queue, after a quiet second: still judged by first contents."""
    feed = Feed()
    for n in range(200):
        feed.stream(0.0 if n < 5 else 0.6, base=0.05, service=0.15, gap=0.1)

    assert not feed.signal.late


def test_answers_of_varied_length_tell_the_wait_apart_from_the_work():
    """0.03 s per token: the wait of a second shows, the 6 s of an answer do not."""
    feed = Feed()
    for _ in range(100):
        feed.plain(0.0, feed.tokens())
    quiet = feed.readings[-1]
    for n in range(100):
        feed.plain(min(1.5, 0.03 * n), feed.tokens())
    busy = feed.readings[-1]

    assert quiet.wait <= 0.05
    assert quiet.sure
    assert busy.wait == pytest.approx(1.5, abs=0.2)


def test_one_stuck_call_does_not_tilt_the_slope():
    """Least squares took an answer that waited 20 s for slow tokens, or for no tokens at all; the median does not."""
    feed = Feed()
    for n in range(100):
        feed.plain(20.0 if n % 25 == 24 else 0.0, feed.tokens())

    assert feed.signal._answers.per_output == pytest.approx(0.03, rel=0.05)


def test_long_prompts_of_plain_answers_are_work():
    """The prompt is a second regressor: a second of prefill is no wait."""
    feed = Feed(limit=32.0)
    for _ in range(400):
        feed.plain(0.0, feed.tokens(), prompt=feed.tokens(mean=8000.0), prefill=1 / 8000.0)
    late = feed.readings[len(feed.readings) // 2 :]

    assert feed.signal._answers.per_prompt == pytest.approx(1 / 8000.0, rel=0.1)
    assert max(reading.wait for reading in late) <= 0.1


@pytest.mark.parametrize("seconds", [0.2, 2.0, 5.0])
def test_a_constant_answer_time_is_no_wait(seconds):
    """Token counts vary and do not matter: the whole time must not pass for queueing."""
    feed = Feed(limit=32.0)
    for _ in range(200):
        feed.plain(seconds, feed.tokens(), per_token=0.0)
    late = feed.readings[len(feed.readings) // 4 :]

    assert all(reading.wait <= 0.1 for reading in late)


def test_answers_all_alike_are_congested_at_three_times_the_best():
    """No tokens to tell apart: twice the best median is fine, four times is not, and never for sure."""
    feed = Feed(limit=64.0)
    verdicts = {}
    for factor in (1.0, 2.0, 4.0):
        for _ in range(64):
            feed.plain(0.0, 200.0, per_token=0.001 * factor, gap=0.05)
        verdicts[factor] = feed.readings[-1].wait > feed.readings[-1].target

    assert verdicts == {1.0: False, 2.0: False, 4.0: True}
    assert not feed.readings[-1].sure
    assert feed.readings[-1].least == 1.0


def test_two_answers_are_enough_when_both_waited_seconds():
    """One of 64 processes sees few answers; 8 s of wait in two of them is a window."""
    feed = Feed(limit=1.0)
    for _ in range(24):
        feed.plain(0.0, feed.tokens(), gap=8.0)
    count = len(feed.readings)
    feed.signal.restart(feed.now)
    feed.plain(8.0, 100.0, gap=8.0)
    feed.plain(8.0, 300.0, gap=8.0)

    assert len(feed.readings) == count + 1
    assert feed.readings[-1].wait >= 5.0


def test_calls_given_up_without_a_first_content_tell_a_wait():
    """Two streams cancelled after 20 s: the wait was at least that; alone they lower no limit below one."""
    signal = Signal(TUNING)
    readings = [signal.lost(Slot(0.0, 4, True, 0.0), 20.0, 4.0, 0.0) for _ in range(2)]

    assert readings[0] is None
    assert readings[1].wait == pytest.approx(20.0, abs=0.1)
    assert readings[1].least == 1.0


def test_calls_given_up_early_tell_nothing():
    """A user who cancels after a second has not seen a queue."""
    signal = Signal(TUNING)

    assert all(signal.lost(Slot(0.0, 4, True, 0.0), 1.0, 4.0, 0.0) is None for _ in range(10))


def test_one_long_answer_given_up_does_not_count_among_others():
    """A call of thousands of tokens that met its deadline is outvoted by those that came back."""
    feed = Feed()
    for _ in range(60):
        feed.plain(0.0, feed.tokens())
    feed.signal.restart(feed.now)
    feed.keep(feed.signal.lost(Slot(feed.now - 60.0, 8, False, 100.0), feed.now, 8.0, 0.0))
    for _ in range(40):
        feed.plain(0.0, feed.tokens())

    assert all(reading.wait <= 0.1 for reading in feed.readings[3:])


def test_the_histories_take_no_more_than_ten_calls_a_second():
    """At a thousand answers a second most would teach nothing and cost microseconds each."""
    feed = Feed(limit=200.0)
    for _ in range(3000):
        feed.plain(0.0, 200.0, gap=0.001)

    assert TUNING.history + 25 <= feed.signal._learned <= TUNING.history + 35


def test_a_fast_window_keeps_its_last_calls():
    """Of a round trip with hundreds of answers the last ones decide: they were sent after the growth."""
    signal = Signal(TUNING)
    reading = None
    for n in range(400):
        now = 1.0 + 0.001 * n
        slot = Slot(now - 0.3, n, False, 0.0)
        signal.answer(slot, now, 0.0)
        reading = signal.take(slot, now, 0.0, 400.0, 0.9) or reading

    assert reading.level >= 200.0


@given(
    slope=st.floats(0.001, 1.0),
    tokens=st.lists(st.integers(1, 4000), min_size=30, max_size=60, unique=True),
    stuck=st.sets(st.integers(0, 59), max_size=4),
)
def test_the_median_slope_is_the_speed(slope, tokens, stuck):
    """Exact without noise, and close to it when a few calls were stuck for a minute."""
    learned = Slope(TUNING)
    for n, count in enumerate(tokens):
        learned.note(float(n), float(count), 0.5 + slope * count + (60.0 if n in stuck else 0.0))
    learned.renew()

    if len(learned) >= 4 * TUNING.pairs_min and not stuck:
        assert learned.value == pytest.approx(slope, rel=1e-6)
    assert learned.value >= 0.0


@given(
    delays=st.lists(st.floats(0.0, 30.0), min_size=1, max_size=200),
    gap=st.floats(0.01, 20.0),
    limit=st.floats(0.05, 1000.0),
)
def test_a_floor_is_never_negative_and_knows_no_more_than_it_saw(delays, gap, limit):
    """The base lies between nothing and the largest delay; the allowance is finite and not negative."""
    floor = Floor(TUNING)
    now = 0.0
    for delay in delays:
        now += gap
        floor.note(now + delay, now, delay, 5.0)

    assert 0.0 <= floor.base <= max(delays)
    assert 0.0 <= floor.allowance(limit) < math.inf


def test_a_small_share_gets_no_allowance_for_a_standing_queue():
    """One of 64 processes must not take the others' queue for work: two seconds that move slowly."""
    floor = Floor(TUNING)
    for n in range(300):
        floor.note(15.0 * n, 15.0 * n, 2.0 + math.sin(n / 8.0), 8.0)

    assert floor.base >= 0.5
    assert floor.allowance(0.5) <= 0.01
    assert floor.allowance(32.0) == floor.base
