"""Waits between tries: ours, tenacity's, and both together."""

import random
import subprocess
import sys
from dataclasses import replace
from functools import partial
from math import inf, nan

import pytest
import tenacity
from hypothesis import given
from hypothesis import strategies as st
from llm_client.core import backoff as module
from llm_client.core.backoff import (
    KINDS,
    LONGEST,
    Constant,
    Decorrelated,
    EqualJitter,
    Exponential,
    FullJitter,
    backoff,
    delay,
    require_sync,
)
from llm_client.errors import ConfigError

ERROR = ValueError("boom")


def draws(strategy, attempt, count=400):
    rng = random.Random(7)
    return [delay(strategy, attempt, ERROR, 1.0, rng) for _ in range(count)]


@pytest.mark.parametrize("attempt", [1, 2, 3, 6, 7, 50, 10_000])
def test_full_jitter_fills_the_interval(attempt):
    """U(0, b_n): nearly nothing and nearly everything both occur."""
    bound = min(20.0, 0.5 * 2.0 ** min(attempt - 1, 60))
    seen = draws(FullJitter(base=0.5, cap=20.0), attempt)

    assert FullJitter().bound(attempt) == bound
    assert 0.0 <= min(seen) < 0.05 * bound
    assert 0.95 * bound < max(seen) <= bound


def test_equal_jitter_keeps_half():
    """b/2 + U(0, b/2)."""
    seen = draws(EqualJitter(base=1.0, cap=8.0), 3)

    assert 2.0 <= min(seen) < 2.1
    assert 3.9 < max(seen) <= 4.0


def test_exponential_and_constant_are_exact():
    """No jitter where none was asked for."""
    assert [draws(Exponential(base=1.0, cap=5.0), n, 1)[0] for n in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, 5.0]
    assert [draws(Constant(base=3.0), n, 1)[0] for n in (1, 9)] == [3.0, 3.0]
    assert Constant(base=3.0).bound(9) == 3.0


def test_decorrelated_walks_between_base_and_cap():
    """Every wait lies in [base, min(cap, 3**n base)], and the walk reaches the cap."""
    strategy = Decorrelated(base=1.0, cap=10.0)

    assert all(1.0 <= each <= 3.0 for each in draws(strategy, 1))
    assert max(draws(strategy, 8)) == 10.0
    assert strategy.bound(1) == 3.0
    assert strategy.bound(60) == 10.0


def test_the_generator_given_is_the_one_used():
    """Two runs with one seed agree, two seeds differ."""
    same = [delay(FullJitter(), 3, ERROR, 0.0, random.Random(seed)) for seed in (1, 1, 2)]

    assert same[0] == same[1] != same[2]


def test_ours_serve_in_a_plain_tenacity_retry():
    """A wait strategy is a wait strategy, with a generator of its own."""
    slept = []
    retrying = tenacity.Retrying(
        wait=replace(FullJitter(base=1.0, cap=4.0), rng=random.Random(1)) + tenacity.wait_fixed(10),
        stop=tenacity.stop_after_attempt(4),
        sleep=slept.append,
        reraise=True,
    )

    with pytest.raises(ZeroDivisionError):
        retrying(lambda: 1 / 0)
    assert [10.0 <= each <= 10.0 + top for each, top in zip(slept, (1.0, 2.0, 4.0), strict=True)] == [True] * 3


def test_without_a_generator_tenacity_gets_an_error_that_says_so():
    """No global generator is used behind anybody's back."""
    retrying = tenacity.Retrying(wait=FullJitter(), sleep=lambda _: None)

    with pytest.raises(ConfigError, match=r"rng=random.Random\(\)"):
        retrying(lambda: 1 / 0)


@pytest.mark.parametrize(
    "strategy",
    [
        tenacity.wait_fixed(1) + Constant(base=2.0),
        Constant(base=2.0) + tenacity.wait_fixed(1),
        sum([Constant(base=2.0), tenacity.wait_fixed(1)]),
        Constant(base=2.0) + Constant(base=1.0),
        tenacity.wait_chain(tenacity.wait_fixed(9), Constant(base=3.0)),
        lambda state: state.attempt_number + 1,
        tenacity.wait_exception(lambda error: 3.0 if error is ERROR else 0.0),
        partial(lambda extra, state: state.attempt_number + extra, 1),
    ],
)
def test_strategies_of_both_houses_combine(strategy):
    """Sums, chains, functions and exceptions all answer three seconds at the second try."""
    require_sync(strategy, "wait")

    assert delay(strategy, 2, ERROR, 1.0, random.Random(1)) == 3.0


def test_tenacity_reads_our_clock():
    """`seconds_since_start` is the call's own time, not the process's."""
    assert delay(lambda state: state.seconds_since_start, 1, ERROR, 42.5, random.Random(1)) == 42.5


@pytest.mark.parametrize(
    ("answer", "seconds"), [(nan, LONGEST), (inf, LONGEST), (-inf, 0.0), (-3.0, 0.0), (0, 0.0), (300, 300.0)]
)
def test_answers_are_sanitised(answer, seconds):
    """Nothing sleeps for ever and nothing sleeps backwards."""
    assert delay(lambda _: answer, 1, ERROR, 0.0, random.Random(1)) == seconds


def test_an_answer_that_is_no_number_is_named():
    """A strategy that forgot its return is told so."""
    with pytest.raises(ConfigError, match=r"retry\.wait: expected seconds"):
        delay(lambda _: None, 1, ERROR, 0.0, random.Random(1))


async def asynchronous(state):
    return 1.0


class AsyncCallable:
    async def __call__(self, state):
        return 1.0


@pytest.mark.parametrize(
    "strategy",
    [
        asynchronous,
        AsyncCallable(),
        partial(asynchronous),
        tenacity.wait_fixed(1) + asynchronous,
        tenacity.wait_chain(tenacity.wait_fixed(1), asynchronous),
        Constant() + asynchronous,
        tenacity.wait_exception(asynchronous),
        tenacity.retry_if_exception(asynchronous),
        tenacity.retry_any(tenacity.retry_never, asynchronous),
    ],
)
def test_async_strategies_are_refused_when_built(strategy):
    """Also inside sums and chains."""
    with pytest.raises(ConfigError, match=r"retry\.wait: .* is async"):
        require_sync(strategy, "wait")


def test_a_hidden_awaitable_is_refused_when_asked():
    """A plain function may still return a coroutine; it is closed, not leaked."""
    with pytest.raises(ConfigError, match="returned an awaitable"):
        delay(asynchronous, 1, ERROR, 0.0, random.Random(1))


def test_what_is_no_callable_is_refused():
    """A number is no strategy."""
    with pytest.raises(ConfigError, match=r"retry\.stop: expected a tenacity strategy"):
        require_sync(3, "stop")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_profiles_name_strategies(kind):
    """Each name makes its class."""
    made = backoff(kind, 1.0, 4.0)

    assert (type(made), made.base, made.cap) == (KINDS[kind], 1.0, 4.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: backoff("linear", 1.0, 4.0), "backoff.kind: expected one of full_jitter"),
        (lambda: FullJitter(base=-1.0), "backoff.base: expected seconds >= 0"),
        (lambda: FullJitter(cap=nan), "backoff.cap: expected seconds >= 0"),
        (lambda: FullJitter(base=5.0, cap=1.0), "backoff.cap: expected at least backoff.base"),
    ],
)
def test_bad_numbers_are_named(make, words):
    """The error names the key and what it takes."""
    with pytest.raises(ConfigError, match=words):
        make()


@given(st.sampled_from(sorted(KINDS)), st.integers(-5, 10**6), st.floats(0, 1e3), st.integers(0, 100))
def test_waits_stay_between_zero_and_the_bound(kind, attempt, base, seed):
    """For every strategy, base and try."""
    strategy = backoff(kind, base, base * 40)

    assert 0.0 <= strategy.draw(attempt, random.Random(seed)) <= strategy.bound(attempt) * (1 + 1e-12)


def test_tenacity_is_imported_only_when_a_users_strategy_is_asked():
    """`import llm_client` stays light."""
    code = f"""
import random, sys
from llm_client.core import backoff, retry
backoff.delay(backoff.FullJitter(), 1, ValueError(), 0.0, random.Random(1))
assert "tenacity" not in sys.modules, {module.__name__!r}
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
