"""The fixed limit and the absent one: places, refusals, Retry-After."""

from __future__ import annotations

import random
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.core.concurrency import FixedLimit, NoLimit
from llm_client.errors import ConfigError
from tests.core.des import INF, Call, Process, Slots, World


def take(limit, count, now=0.0):
    return [limit.sent(now, stream=False) for _ in range(count)]


def answer(limit, slot, now):
    limit.done(slot, now, prompt_tokens=None, output_tokens=None)


def test_a_fixed_limit_lets_as_many_through_as_it_has_places():
    """Three places: the fourth call waits for an event, and goes when one is answered."""
    limit = FixedLimit(3)
    slots = take(limit, 3)
    assert limit.may_send(0.0) == inf
    answer(limit, slots[0], 1.0)

    assert limit.may_send(1.0) == 0.0
    assert limit.inflight == 2


def test_pressing_a_fixed_limit_moves_nothing():
    """It is what it is."""
    limit = FixedLimit(1)
    take(limit, 1)

    assert limit.press(5.0, 1e9) == inf
    assert limit.limit == 1.0


def test_a_refused_place_stays_closed_until_its_retry_after():
    """Two of three are refused: one place is left, and the others open at the server's times."""
    limit = FixedLimit(3)
    one, two, three = take(limit, 3)
    limit.refused(one, 0.0, 2.0)
    limit.refused(two, 0.0, 1.0)
    assert limit.may_send(0.5) == 1.0
    answer(limit, three, 0.6)

    assert limit.may_send(0.6) == 0.0
    take(limit, 1, 0.6)
    assert limit.may_send(0.6) == 1.0
    assert limit.may_send(1.0) == 0.0
    take(limit, 1, 1.0)
    assert limit.may_send(1.0) == 2.0
    assert limit.refusals == 2


def test_without_a_time_a_refused_place_stays_closed_longer_each_time():
    """Half a second, doubling with each refusal in a row, at most twenty; an answer starts over."""
    limit = FixedLimit(1)
    now, waits = 0.0, []
    for _ in range(8):
        limit.refused(take(limit, 1, now)[0], now, None)
        waits.append(limit.may_send(now) - now)
        now = limit.may_send(now)
    answer(limit, take(limit, 1, now)[0], now)
    limit.refused(take(limit, 1, now)[0], now, None)

    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0]
    assert limit.may_send(now) == now + 0.5


def test_a_server_that_refuses_everything_gets_no_more_than_the_places():
    """400 calls against a server without a place: 12 refusals a second of Retry-After, not 400."""
    world = World(1)
    limit = FixedLimit(12)
    server = Slots(world, 0, 0, 1.0)
    process = Process(world, server, limit, random.Random(2), stream=False)
    process.queue.extend(Call(0.0, INF, 100, 100, 0.2) for _ in range(400))
    process.pump()
    world.run(3.0)

    assert server.refusals <= 12 * 3


def test_a_fixed_limit_that_is_too_high_still_finishes_the_burst():
    """96 places in front of 8 slots and 8 waiting: every second the surplus is refused, no more often."""
    world = World(1)
    server = Slots(world, 8, 8, 1.0)
    process = Process(world, server, FixedLimit(96), random.Random(2), stream=False)
    process.queue.extend(Call(0.0, INF, 100, 100, 0.2) for _ in range(400))
    process.pump()
    world.run(100.0)

    assert process.done == 400
    assert process.answered_at[-1] <= 3.0 * 10.0
    assert process.sends <= 3.0 * 400


def test_the_endpoint_scope_silences_all_places():
    """The strict reading of Retry-After, for fixed and absent limits."""
    for limit in (FixedLimit(3, retry_after_scope="endpoint"), NoLimit(retry_after_scope="endpoint")):
        slots = take(limit, 2)
        limit.refused(slots[0], 0.0, 4.0)
        answer(limit, slots[1], 0.1)

        assert limit.may_send(0.1) == 4.0
        assert limit.press(0.1, 5.0) == 4.0
        assert limit.may_send(4.0) == 0.0


def test_recovery_opens_the_closed_places():
    """The breaker closed: the server's old times are past."""
    limit = FixedLimit(1)
    limit.refused(take(limit, 1)[0], 0.0, 60.0)
    limit.recovered(5.0)

    assert limit.may_send(5.0) == 0.0


def test_rejections_are_counted_apart_from_refusals():
    """What we turned away is not what the server declined."""
    limit = FixedLimit(1)
    slot = take(limit, 1)[0]
    limit.rejected()
    limit.rejected()
    limit.refused(slot, 0.0, 1.0)

    assert (limit.rejections, limit.refusals) == (2, 1)


@pytest.mark.parametrize("number", [0, -3, 2.5, True, "8", None])
def test_a_fixed_limit_is_a_whole_number_of_at_least_one(number):
    """The error names the key."""
    with pytest.raises(ConfigError, match=r"concurrency\.limit"):
        FixedLimit(number)


@pytest.mark.parametrize("kind", [lambda **more: FixedLimit(1, **more), NoLimit])
def test_an_unknown_scope_is_refused(kind):
    """The error names the key and the words that exist."""
    with pytest.raises(ConfigError, match="retry_after_scope: expected call or endpoint"):
        kind(retry_after_scope="account")


def test_no_limit_lets_everything_through():
    """It only counts."""
    limit = NoLimit()
    slots = take(limit, 1000)
    assert limit.may_send(0.0) == 0.0
    limit.refused(slots[0], 0.0, 30.0)
    limit.recovered(0.0)

    assert limit.may_send(0.0) == 0.0
    assert limit.inflight == 999
    assert limit.limit == inf


@pytest.mark.parametrize("make", [lambda: FixedLimit(5), NoLimit])
@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(["send", "first", "done", "refused", "failed", "dropped", "recovered", "wait"]),
            st.integers(0, 50),
            st.sampled_from([None, 0.0, 1.0]),
        ),
        max_size=80,
    )
)
def test_the_count_survives_any_storm(make, events):
    """Settled in any order and any number of times, each call counts once; an idle limit names a time."""
    limit = make()
    now, slots, flying = 0.0, [], set()
    for kind, pick, retry_after in events:
        if kind == "wait":
            now += pick / 10.0
        elif kind == "send":
            if limit.may_send(now) <= now:
                slots.append(limit.sent(now, stream=bool(pick % 2)))
                flying.add(slots[-1])
        elif kind == "recovered":
            limit.recovered(now)
        elif slots:
            slot = slots[pick % len(slots)]
            if kind == "done":
                answer(limit, slot, now)
            elif kind == "refused":
                limit.refused(slot, now, retry_after)
            else:
                getattr(limit, kind)(slot, now)
            if kind != "first":
                flying.discard(slot)
        assert limit.inflight == len(flying) <= limit.limit
        assert flying or limit.may_send(now) < inf

    for slot in slots:
        limit.dropped(slot, now)

    assert limit.inflight == 0
