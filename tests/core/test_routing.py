"""Which of several free endpoints takes a call: load, weight, failures, prompts that begin alike, load reports."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.core.breaker import Breaker, BreakerConfig
from llm_client.core.concurrency import NoLimit
from llm_client.core.cooldown import CoolDown
from llm_client.core.routing import BOUND, SCAN, Router
from llm_client.core.station import NEWS, Station

RNG = random.Random(3)


def station(name="a", **options):
    return Station(
        name=name, limit=NoLimit(), breaker=Breaker(name, BreakerConfig(), RNG), cooldown=CoolDown(), **options
    )


def stations(count, **options):
    return [station(f"s{n}", **options) for n in range(count)]


def router(seed=1):
    return Router(random.Random(seed))


def shares(pick, calls):
    """Keep every call in flight and count who got it."""
    counts = Counter()
    for _ in range(calls):
        chosen = pick()
        chosen.outstanding += 1
        counts[chosen.name] += 1
    return counts


def test_the_least_outstanding_goes_first():
    """Whoever has the fewest calls of ours."""
    free = stations(3)
    free[0].outstanding, free[1].outstanding, free[2].outstanding = 4, 2, 3

    assert router().pick(free, 0.0) is free[1]


def test_equals_are_chosen_at_random():
    """No endpoint is the first of a fleet of clients."""
    free, route = stations(4), router()
    counts = Counter(route.pick(free, 0.0).name for _ in range(4000))

    assert all(850 < count < 1150 for count in counts.values())


def test_weights_share_the_calls():
    """Weight 3 holds three times the calls of weight 1."""
    free = [station("big", weight=3.0), station("small")]
    route = router()

    assert shares(lambda: route.pick(free, 0.0), 400) == {"big": 300, "small": 100}


def test_recent_failures_repel():
    """A replica that only fails looks ten times as full, and is forgiven within seconds."""
    bad = station()
    for _ in range(20):
        bad.note(0.0, failed=True)

    assert pytest.approx(10.0) == bad.score(0.0)
    assert pytest.approx(5.5) == bad.score(5.0)
    assert bad.score(60.0) < 1.01


def test_above_sixteen_two_are_drawn():
    """The better of two random ones: close to even without looking at all (power of two choices)."""
    free, route = stations(SCAN + 8), router()
    seen = []
    route.rng.sample = lambda population, k: seen.append(k) or random.Random(len(seen)).sample(population, k)
    counts = shares(lambda: route.pick(free, 0.0), 2400)

    assert {2} == set(seen)
    assert max(counts.values()) - min(counts[each.name] for each in free) <= 8


def test_sixteen_are_looked_at_all():
    """No draw while a full scan is cheap: the single idle one is always found."""
    free, route = stations(SCAN), router()
    for each in free[1:]:
        each.outstanding = 1

    assert {"s0"} == {route.pick(free, 0.0).name for _ in range(50)}


def test_a_prompt_keeps_its_endpoint():
    """Calls one after the other that begin alike go to one place; other prompts spread."""
    free, route = stations(4), router()
    chosen = {prefix: {route.prefer(prefix, free, free, 0.0).name for _ in range(10)} for prefix in prefixes(400)}
    counts = Counter(next(iter(names)) for names in chosen.values())

    assert all(len(names) == 1 for names in chosen.values())
    assert all(70 < count < 130 for count in counts.values())


def test_every_process_ranks_alike():
    """The order depends on names alone, not on seeds or the order of the list."""
    free = stations(5)
    other = [station(each.name) for each in reversed(free)]

    assert all(
        router(1).prefer(prefix, free, free, 0.0).name == router(2).prefer(prefix, other, other, 0.0).name
        for prefix in prefixes(50)
    )


def test_a_lost_endpoint_moves_only_its_own_prompts():
    """Rendezvous hashing: what was elsewhere stays where its cache is."""
    free, route = stations(5), router()
    before = {prefix: route.prefer(prefix, free, free, 0.0).name for prefix in prefixes(300)}
    less = free[1:]
    after = {prefix: route.prefer(prefix, less, less, 0.0).name for prefix in before}
    moved = {prefix for prefix in before if before[prefix] != after[prefix]}

    assert {prefix for prefix, name in before.items() if name == "s0"} == moved


@given(calls=st.integers(1, 200), count=st.integers(2, 9), seed=st.integers(0, 5))
def test_no_endpoint_is_loaded_above_its_bound(calls, count, seed):
    """One prompt for all: each has at most 1.25 times the mean, rounded up to whole calls."""
    free, route = stations(count), router(seed)
    counts = shares(lambda: route.prefer(b"x", free, free, 0.0), calls)

    assert max(counts.values()) <= BOUND * calls / count + 1


def test_weights_hold_for_prompts_too():
    """Twice the weight, twice the prompts."""
    free, route = [station("big", weight=2.0), station("small")], router()
    counts = Counter(route.prefer(prefix, free, free, 0.0).name for prefix in prefixes(3000))

    assert 1850 < counts["big"] < 2150


def test_a_failing_favourite_is_left():
    """A warm cache is no reason to be refused."""
    free, route = stations(3), router()
    favourite = route.prefer(b"x", free, free, 0.0)
    for _ in range(5):
        favourite.note(0.0, failed=True)

    assert route.prefer(b"x", free, free, 0.0) is not favourite


def test_when_all_are_above_their_share_the_least_loaded_goes():
    """A preference never makes a call wait."""
    eligible = stations(3)
    eligible[0].outstanding, eligible[1].outstanding = 50, 40

    assert router().prefer(b"x", eligible[:2], eligible, 0.0) is eligible[1]


def test_a_load_report_breaks_ties_only():
    """Of two with as many calls of ours, the one that says it has less; it never outweighs what we know."""
    free, route = stations(2), router()
    free[0].told(None, 30.0, 0.0)

    assert {"s1"} == {route.pick(free, 1.0).name for _ in range(50)}

    free[1].outstanding = 1

    assert {"s0"} == {route.pick(free, 1.0).name for _ in range(50)}


def test_an_old_load_report_is_no_news():
    """After a few seconds it says nothing."""
    free, route = stations(2), router()
    free[0].told(None, 30.0, 0.0)

    assert {"s0", "s1"} == {route.pick(free, NEWS + 0.1).name for _ in range(50)}


def prefixes(count):
    return [n.to_bytes(16, "big") for n in range(count)]
