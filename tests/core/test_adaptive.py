"""The adaptive limit: growth by one, refusals as capacity, silence, probes, recovery; and what always holds."""

from __future__ import annotations

import random
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_client.core.adaptive import AdaptiveLimit
from llm_client.core.tuning import TUNING
from llm_client.errors import ConfigError
from tests.core.des import Call, Process, Slots, World


def make(limit=None, **options):
    """A limit; with a number, one that was ramped up to it and grows no more by itself."""
    made = AdaptiveLimit(random.Random(1), **options)
    if limit is not None:
        made.limit = made._goal = made._outage.before = float(limit)
        made._ramp = False
    return made


def fill(limit, now=0.0, **options):
    """Send until the limit is full."""
    slots = []
    while limit.may_send(now) == 0.0:
        slots.append(limit.sent(now, stream=options.get("stream", False), prompt=options.get("prompt", 0.0)))
    return slots


def answer(limit, slot, now, output=None):
    limit.done(slot, now, prompt_tokens=None, output_tokens=output)


def test_it_starts_at_four():
    """Nothing is known: four calls may go, the fifth waits for an event."""
    limit = make()

    assert len(fill(limit)) == 4
    assert limit.may_send(0.0) == inf


def test_asking_changes_nothing():
    """`may_send` may be asked any number of times between two events."""
    limit = make()
    fill(limit)
    before = {name: getattr(limit, name) for name in ("limit", "inflight", "epoch", "_goal", "_limited", "_quiet")}
    for now in (0.0, 0.5, 100.0):
        limit.may_send(now)

    assert before == {name: getattr(limit, name) for name in before}


def test_growth_goes_out_one_call_at_a_time():
    """Pressed again in the same instant, the limit answers with the time of the next step."""
    limit = make()
    slots = fill(limit)
    assert limit.press(0.0, 100.0) == 0.1  # silence tells nothing yet
    for slot in slots:
        answer(limit, slot, 0.2)
    fill(limit, 0.2)
    grown = 0
    while limit.press(0.2, 100.0) == 0.0:
        limit.sent(0.2, stream=False)
        grown += 1

    assert grown == 1
    assert limit.press(0.2, 100.0) == pytest.approx(0.2 + TUNING.growth_gap)


def test_silence_is_a_weak_yes_and_ever_weaker():
    """Without any answer four more may go after 0.1, 0.3, 0.7 ... s: 40 in flight after 26 s, not thousands."""
    limit = make()
    fill(limit)
    now, sent_at = 0.0, []
    while now < 26.0:
        at = limit.press(now, 1000.0)
        if at > now:
            now = at
        else:
            limit.sent(now, stream=False)
            sent_at.append(now)

    assert sent_at[0] == pytest.approx(0.1)
    assert 32 <= limit.inflight <= 44


def test_silence_says_nothing_while_first_contents_are_due():
    """A stream's first content clocks the ramp; until it comes nothing grows."""
    limit = make()
    fill(limit, stream=True)

    assert limit.press(10.0, 100.0) == inf


def test_first_contents_double_the_ramp():
    """Each first content of a call that met a full limit raises the goal by one."""
    limit = make()
    slots = fill(limit, stream=True)
    limit.press(0.0, 100.0)
    for slot in slots:
        limit.first(slot, 0.05)

    assert limit._goal == 8.0


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_grows_while_no_call_waits(stream):
    """A client with less work than the limit learns nothing about more."""
    limit = make()
    now = 0.0
    for _ in range(500):
        slot = limit.sent(now, stream=stream)
        now += 0.05
        limit.first(slot, now)
        now += 0.15
        answer(limit, slot, now, output=100.0)

    assert limit.limit == 4.0


def test_a_refusal_tells_the_capacity():
    """Eleven held, the twelfth refused: the limit yields a tenth and knows the ceiling."""
    limit = make(12)
    slots = fill(limit)
    limit.refused(slots[-1], 0.005, 1.0)

    assert limit.limit == pytest.approx(0.9 * 11)
    assert limit._ceiling.level == 11.0


def test_the_self_clock_goes_on_after_a_refusal():
    """Inside Retry-After an answered call may be replaced, and nothing more."""
    limit = make(12)
    slots = fill(limit)
    limit.refused(slots.pop(), 0.005, 5.0)
    assert limit.may_send(0.005) == inf
    answer(limit, slots.pop(), 0.1)
    answer(limit, slots.pop(), 0.1)

    assert limit.may_send(0.1) == 0.0
    limit.sent(0.1, stream=False)
    assert limit.may_send(0.1) == inf


def test_growth_is_frozen_after_a_refusal():
    """For 0.25 s, or two latencies where a Retry-After is named, pressing yields the end of the hold."""
    limit = make(12)
    slots = fill(limit)
    limit.refused(slots.pop(), 0.005, None)

    assert limit.press(0.1, 1e6) == pytest.approx(0.255)


def test_twenty_refusals_of_one_overshoot_are_one_decrease():
    """32 in flight, 20 refused within 5 ms in any order: one epoch, and the limit is what the other 12 leave."""
    for seed in range(20):
        limit = make(32)
        slots = fill(limit)
        refused = slots[12:]
        random.Random(seed).shuffle(refused)
        for n, slot in enumerate(refused):
            limit.refused(slot, 0.00025 * n, 1.0)

        assert limit.epoch == 1
        assert limit._ceiling.level == 12.0
        assert limit.limit == pytest.approx(10.8)


def test_a_stale_refusal_starts_no_second_decrease():
    """What was sent before the decrease belongs to the same overshoot."""
    limit = make(10)
    slots = fill(limit)
    limit.refused(slots.pop(), 0.005, 1.0)
    epoch = limit.epoch
    limit.refused(slots.pop(), 3.0, 1.0)

    assert limit.epoch == epoch


def test_two_refused_replacements_revoke_the_privilege():
    """Growth is frozen and still it refuses: it means this client, so the limit halves."""
    limit = make(12)
    slots = fill(limit)
    limit.refused(slots.pop(), 0.0, 10.0)
    for now in (0.1, 0.2):
        answer(limit, slots.pop(0), now)
        answer(limit, slots.pop(0), now)
        replacement = limit.sent(now, stream=False)
        before = limit.limit
        limit.refused(replacement, now + 0.005, 10.0)

    assert limit.limit <= 0.5 * before


@pytest.mark.parametrize("retry_after", [30.0, None])
def test_a_server_that_refuses_everything_is_left_alone(retry_after):
    """After a handful of refusals there is silence: for Retry-After and a jitter, else doubling."""
    limit = make()
    refusals, now, silences = 0, 0.0, []
    while now < 120.0:
        at = limit.may_send(now)
        if at > now:
            silences.append(at - now)
            now = at
        else:
            slot = limit.sent(now, stream=False)
            now += 0.003
            limit.refused(slot, now, retry_after)
            refusals += 1

    assert refusals <= (5 if retry_after else 20)
    if retry_after:
        assert all(30.0 <= silence <= 37.5 for silence in silences)
    else:
        assert silences[0] <= 1.0
        assert max(silences) <= 20.0


def test_the_first_contact_refused_means_silence_at_once():
    """Nothing of ours is served: no call goes before Retry-After."""
    limit = make()
    limit.refused(limit.sent(0.0, stream=False), 0.003, 2.0)

    assert 2.003 <= limit.may_send(0.003) <= 2.503


def test_an_endless_retry_after_is_cut_to_a_day():
    """A mistake of the server must not silence an endpoint for ever; nor may nonsense do any harm."""
    limit = make()
    limit.refused(limit.sent(0.0, stream=False), 0.0, inf)
    other = make()
    other.refused(other.sent(0.0, stream=False), 0.0, float("nan"))
    third = make()
    third.refused(third.sent(0.0, stream=False), 0.0, -5.0)

    assert limit.may_send(0.0) <= 1.25 * 86400.0
    assert other.may_send(0.0) <= 2.0
    assert third.may_send(0.0) <= 2.0


def test_the_endpoint_scope_silences_everything():
    """The strict reading of Retry-After: every call to the endpoint waits."""
    limit = make(12, retry_after_scope="endpoint")
    slots = fill(limit)
    limit.refused(slots.pop(), 0.0, 3.0)
    answer(limit, slots.pop(), 0.1)
    answer(limit, slots.pop(), 0.1)

    assert 3.0 <= limit.may_send(0.1) <= 3.75


def refuse_one(limit, now, retry_after):
    slots = fill(limit, now)
    limit.refused(slots.pop(), now, retry_after)
    return slots


def round_trips(limit, slots, now, end, backlog):
    """Serve everything in 0.1 s and keep the limit full; return the calls in flight and the time."""
    while now < end:
        now += 0.1
        for slot in slots:
            answer(limit, slot, now)
        slots = fill(limit, now)
        while limit.press(now, backlog) == 0.0:
            slots.append(limit.sent(now, stream=False))
    return slots, now


def test_one_probe_goes_above_the_ceiling_when_it_is_worth_it():
    """With a long queue and enough answers one call tries; with a short queue none does."""
    for backlog, probes in ((1e6, True), (5.0, False)):
        limit = make(8)
        slots = refuse_one(limit, 0.0, 1.0)
        ceiling = limit._ceiling.level
        highest = 0
        now = 0.0
        while now < 4.0 and not limit._ceiling.probing:
            slots, now = round_trips(limit, slots, now, now + 0.1, backlog)
            highest = max(highest, limit.inflight)

        assert (highest > ceiling) == probes


def probing(limit):
    slots = refuse_one(limit, 0.0, 0.2)
    now = 0.0
    while not limit._ceiling.probing:
        slots, now = round_trips(limit, slots, now, now + 0.1, 1e6)
    probe = next(slot for slot in slots if slot.probe)
    return slots, probe, now


def test_an_answered_probe_lifts_the_ceiling():
    """Room was found: nothing is known about the capacity any more."""
    limit = make(8)
    _, probe, now = probing(limit)
    answer(limit, probe, now + 0.1)

    assert limit._ceiling.level == inf


def test_a_refused_probe_waits_longer_next_time():
    """The gap between probes doubles, up to five seconds."""
    limit = make(8)
    _, probe, now = probing(limit)
    limit.refused(probe, now + 0.01, 0.2)

    assert limit._ceiling._gap == 2 * TUNING.probe_gap
    assert limit._ceiling.level <= 8.0


def test_a_dropped_probe_takes_its_place_back():
    """A caller that gave up says nothing about the server."""
    limit = make(8)
    _, probe, now = probing(limit)
    level = limit._ceiling.level
    limit.dropped(probe, now + 0.01)

    assert limit._ceiling.level == level - 1.0
    assert not limit._ceiling.probing


def test_a_retry_after_is_forgotten_a_minute_after_its_end():
    """A 30 s Retry-After makes growth costly; 60 s after its end it is taken for the usual second."""
    limit = make(8)
    refuse_one(limit, 0.0, 30.0)

    assert not limit._worth(89.0, 200.0, inf)
    assert limit._worth(91.0, 200.0, inf)


def test_below_one_the_limit_is_a_pace():
    """At a quarter of a call one goes every four latencies."""
    limit = make(0.25)
    slot = limit.sent(0.0, stream=False)
    assert limit.may_send(0.5) == inf
    answer(limit, slot, 1.0)

    assert limit.may_send(1.0) == 4.0
    assert limit.may_send(4.0) == 0.0


def test_failures_are_neither_samples_nor_growth():
    """A server that fails in milliseconds does not look quick."""
    limit = make()
    now = 0.0
    for _ in range(300):
        for slot in fill(limit, now, stream=True):
            limit.press(now, 100.0)
            limit.failed(slot, now + 0.01)
        now += 0.02

    assert limit.limit == 4.0
    assert limit.inflight == 0


def test_recovery_starts_slowly_from_a_quarter():
    """The breaker closed: a quarter of the old limit, then the ramp."""
    limit = make(40)
    limit.recovered(5.0)

    assert limit.limit == 10.0
    slots = fill(limit, 5.0, stream=True)
    limit.press(5.0, 100.0)
    for slot in slots:
        limit.first(slot, 5.05)
    assert limit._goal == 20.0


def test_recovery_never_falls_below_the_floor():
    """A quarter of almost nothing is the floor, and it still lets a call go."""
    limit = make(0.05)
    limit.recovered(1.0)

    assert limit.limit == TUNING.floor
    assert limit.may_send(1.0) == 0.0


def test_the_maximum_is_kept():
    """`concurrency.max` bounds what an unbounded server would take."""
    world = World(1)
    limit = AdaptiveLimit(random.Random(1), maximum=16)
    process = Process(world, Slots(world, 10**6, 0), limit, random.Random(2), stream=True)
    for _ in range(2000):
        process.queue.append(Call(0.0, inf, 100, 100, 0.2))
    process.pump()
    highest = 0

    def watch():
        nonlocal highest
        highest = max(highest, len(process.flying))
        world.at(world.now + 0.01, watch)

    watch()
    world.run(100.0, lambda: process.done == 2000)

    assert process.done == 2000
    assert highest == 16


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"maximum": 0.5}, "concurrency.max"),
        ({"maximum": float("nan")}, "concurrency.max"),
        ({"retry_after_scope": "pool"}, "concurrency.retry_after_scope"),
    ],
)
def test_bad_options_name_their_field(options, name):
    """The message says which key and what is expected."""
    with pytest.raises(ConfigError, match=name):
        AdaptiveLimit(random.Random(1), **options)


def recover(stream, retry_after, queue, start):
    """32 slots refuse everything for ten seconds, then serve in 0.1 s: limits by answers since, and refusals."""
    world = World(7)
    server = Slots(world, 32, queue, retry_after)
    limit = AdaptiveLimit(random.Random(7))
    process = Process(world, server, limit, random.Random(8), stream=stream)
    for _ in range(6000):  # more than two Retry-Afters of work, else growth is not worth a refusal
        process.queue.append(Call(0.0, inf, 200, 100, 0.1))

    def out():
        server.slots = server.bound = 0

    def back():
        server.bound = queue
        server.resize(32)
        begun.extend((process.done, server.refusals))

    def watch():
        if begun:
            answers = process.done - begun[0]
            for count in (200, 600):
                if answers <= count:
                    best[count] = max(limit.limit, best[count])
        world.at(world.now + 0.01, watch)

    begun, best = [], {200: 0.0, 600: 0.0}
    world.at(start, out)
    world.at(start + 10.0, back)
    world.at(0.0, process.pump)
    world.at(0.0, watch)
    world.run(200.0, lambda: begun and process.done - begun[0] >= 2000)
    return best, (server.refusals - begun[1]) / (process.done - begun[0])


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("retry_after", [None, 1.0, 5.0])
@pytest.mark.parametrize(("queue", "start"), [(0, 5.0), (32, 0.0)])
def test_after_ten_seconds_of_refusals_the_limit_is_back_within_hundreds_of_answers(stream, retry_after, queue, start):
    """FC-CC-12: at least 16 after at most 200 answers, at least 28 after 600, and no more than 5 % refused."""
    best, refused = recover(stream, retry_after, queue, start)

    assert best[200] >= 16.0
    assert best[600] >= 28.0
    assert refused <= 0.05


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["send", "press", "first", "done", "refused", "failed", "dropped", "recovered", "wait"]),
        st.floats(0.0, 5.0),
        st.integers(0, 400),
        st.sampled_from([None, 0.0, 0.5, 1.0, 30.0]),
    ),
    max_size=150,
)


@settings(max_examples=200)
@given(events=EVENTS, scope=st.sampled_from(["call", "endpoint"]), seed=st.integers(0, 3))
def test_whatever_comes_the_limit_keeps_its_bounds_and_its_count(events, scope, seed):
    """Any order, any slot twice: floor <= limit <= max, the count is exact, an idle limit always names a time."""
    limit = AdaptiveLimit(random.Random(seed), maximum=64.0, retry_after_scope=scope)
    now, slots, flying = 0.0, [], set()
    for kind, number, pick, retry_after in events:
        if kind == "wait":
            now += number
        elif kind == "send":
            if limit.may_send(now) <= now:
                slots.append(limit.sent(now, stream=pick % 2 == 0, prompt=float(pick)))
                flying.add(slots[-1])
        elif kind == "press":
            before = limit.limit
            if limit.press(now, number * 100.0) <= now:
                slots.append(limit.sent(now, stream=pick % 2 == 0))
                flying.add(slots[-1])
            assert limit.limit <= max(1.0, before + 1.0)
        elif kind == "recovered":
            limit.recovered(now)
        elif slots:
            slot = slots[pick % len(slots)]
            if kind == "first":
                limit.first(slot, now)
            else:
                epoch, fresh = limit.epoch, slot in flying and slot.epoch == limit.epoch
                if kind == "done":
                    answer(limit, slot, now, output=float(pick) or None)
                elif kind == "refused":
                    limit.refused(slot, now, retry_after)
                    assert limit.epoch == epoch + fresh
                else:
                    getattr(limit, kind)(slot, now)
                flying.discard(slot)
        assert TUNING.floor <= limit.limit <= 64.0
        assert limit.inflight == len(flying)
        assert flying or limit.may_send(now) < inf
        assert limit._streams == sum(slot.stream for slot in flying)

    for slot in slots:
        limit.dropped(slot, now)
        limit.dropped(slot, now)

    assert limit.inflight == 0
    assert limit.may_send(now) < inf


@given(
    numbers=st.lists(st.integers(0, 31), min_size=1, max_size=31, unique=True),
    gaps=st.lists(st.floats(0.0, 0.001), min_size=31, max_size=31),
)
def test_one_overshoot_is_at_most_one_decrease(numbers, gaps):
    """Any subset of 32 calls refused in any order within a round trip is one epoch, never below what is held."""
    limit = make(32)
    slots = fill(limit)
    now = 0.0
    for number, gap in zip(numbers, gaps, strict=False):
        now += gap
        limit.refused(slots[number], now, 1.0)

    assert limit.epoch == 1
    held = 32 - len(numbers)
    assert limit.limit >= max(1.0, min(0.9 * held, held - 1.0)) - 1e-9


@pytest.mark.parametrize("stream", [False, True])
@given(outputs=st.lists(st.integers(1, 2000), min_size=5, max_size=200), load=st.floats(0.1, 0.9))
@settings(max_examples=30)
def test_no_growth_while_the_application_is_the_limit(stream, outputs, load):
    """However fast the answers are, a limit that nobody pressed stays where it was."""
    limit = AdaptiveLimit(random.Random(1))
    now, flying = 0.0, []
    for output in outputs:
        now += 0.1
        if len(flying) >= 4 * load:
            slot = flying.pop(0)
            limit.first(slot, now)
            answer(limit, slot, now + 0.01, output=float(output))
        flying.append(limit.sent(now, stream=stream, prompt=float(output)))

    assert limit.limit <= 4.0
