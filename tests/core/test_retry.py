"""Whether a failed attempt is repeated, and when."""

import asyncio
import random
from math import inf

import pytest
import tenacity
from hypothesis import given
from hypothesis import strategies as st
from llm_client.core.backoff import Constant, Exponential, FullJitter
from llm_client.core.retry import SHORTEST, Retry, RetryPolicy, Stop, Why
from llm_client.errors import ConfigError
from llm_client.model import OK, Kind, Outcome, RetryHint

FAILED = Outcome(kind=Kind.UNAVAILABLE, retryable=True, breaker=True, status=503)
REFUSED = Outcome(kind=Kind.RATE_LIMITED, retryable=True, refusal=True, overload=True, status=429)
UNSENT = Outcome(kind=Kind.UNAVAILABLE, retryable=True, breaker=True, sent=False)


def decide(policy, outcome, *, attempt=1, refusals=0, elapsed=0.0, now=100.0, deadline=None, error=None, seed=1):
    return policy.decide(
        outcome,
        error or ValueError(),
        attempt=attempt,
        refusals=refusals,
        elapsed=elapsed,
        now=now,
        deadline=deadline,
        rng=random.Random(seed),
    )


def hinted(outcome, seconds, directive=True):
    return Outcome(
        kind=outcome.kind,
        retryable=True,
        refusal=outcome.refusal,
        status=outcome.status,
        hint=RetryHint(seconds=seconds, directive=directive),
    )


def test_attempts_are_counted_in():
    """Five attempts are five requests, not five repetitions."""
    policy = RetryPolicy(attempts=5)

    assert isinstance(decide(policy, FAILED, attempt=4), Retry)
    assert decide(policy, FAILED, attempt=5) == Stop(Why.ATTEMPTS)


@pytest.mark.parametrize("outcome", [REFUSED, UNSENT])
def test_refusals_and_failed_connects_cost_no_attempt(outcome):
    """They go on when attempts are used up, at most `refusals` times."""
    policy = RetryPolicy(attempts=2, refusals=50)
    verdict = decide(policy, outcome, attempt=9, refusals=50)

    assert isinstance(verdict, Retry)
    assert verdict.refusal
    assert decide(policy, outcome, attempt=0, refusals=51) == Stop(Why.REFUSALS)


def test_a_failure_is_told_apart_from_a_refusal():
    """The caller takes budget for the one and not for the other."""
    assert not decide(RetryPolicy(), FAILED).refusal


def test_one_attempt_implies_no_refusals():
    """`attempts: 1` means one request on the wire."""
    policy = RetryPolicy(attempts=1, refusals=50)

    assert policy.refusals == 0
    assert decide(policy, REFUSED, attempt=0, refusals=1) == Stop(Why.REFUSALS)
    assert decide(policy, FAILED) == Stop(Why.ATTEMPTS)


@pytest.mark.parametrize(
    ("outcome", "error", "why"),
    [
        (OK, ValueError(), Why.OK),
        (FAILED, KeyboardInterrupt(), Why.CANCELLED),
        (FAILED, asyncio.CancelledError(), Why.CANCELLED),
        (FAILED, GeneratorExit(), Why.CANCELLED),
        (Outcome(kind=Kind.BAD_REQUEST, permanent=True, status=400), ValueError(), Why.PERMANENT),
        (Outcome(kind=Kind.QUOTA_EXHAUSTED, permanent=True, status=429), ValueError(), Why.PERMANENT),
        (Outcome(kind=Kind.STREAM_INTERRUPTED, breaker=True, status=200), ValueError(), Why.DELIVERED),
        (Outcome(kind=Kind.UNAVAILABLE, status=503), ValueError(), Why.NOT_RETRYABLE),
    ],
)
def test_what_is_never_repeated(outcome, error, why):
    """Also a strategy that says yes to everything cannot revive what is final, and never runs on after a cancel."""
    assert decide(RetryPolicy(), outcome, error=error) == Stop(why)
    if why is not Why.NOT_RETRYABLE:
        assert decide(RetryPolicy(retry=tenacity.retry_always), outcome, error=error) == Stop(why)


@given(st.floats(0, 120), st.integers(1, 50), st.integers(0, 10**6), st.booleans())
def test_a_hint_is_a_floor_with_additive_jitter(seconds, refusals, seed, directive):
    """RA + U(0, max(RA/2, b_n)): never sooner, at most half of it (or the step of the backoff) later."""
    verdict = decide(RetryPolicy(), hinted(REFUSED, seconds, directive), attempt=0, refusals=refusals, seed=seed)
    step = min(20.0, 0.5 * 2.0 ** min(refusals, 60))

    assert max(SHORTEST, seconds) <= verdict.after <= seconds + max(SHORTEST, seconds / 2, step)


def test_a_directive_above_the_cap_ends_the_call():
    """It is not slept, and nothing shorter is put in its place; an advice is cut to the cap instead."""
    policy = RetryPolicy(cap=60.0)

    assert decide(policy, hinted(REFUSED, 75.0), refusals=1) == Stop(Why.HINT_ABOVE_CAP)
    assert isinstance(decide(policy, hinted(REFUSED, 60.0), refusals=1), Retry)
    assert 60.0 <= decide(policy, hinted(REFUSED, 75.0, directive=False), refusals=1).after <= 90.0


def test_a_hint_past_the_deadline_ends_the_call_at_once():
    """Sleeping for an answer that comes too late helps nobody."""
    assert decide(RetryPolicy(), hinted(REFUSED, 5.0), refusals=1, deadline=105.0) == Stop(Why.DEADLINE)
    assert decide(RetryPolicy(), FAILED, deadline=100.0) == Stop(Why.DEADLINE)


@given(st.floats(0.06, 30.0), st.integers(0, 10**6), st.sampled_from([FAILED, REFUSED, hinted(REFUSED, 3.0)]))
def test_no_wait_ends_after_the_deadline(room, seed, outcome):
    """Jitter shrinks to the room that is left; what does not fit is not slept."""
    verdict = decide(RetryPolicy(), outcome, attempt=4, refusals=9, deadline=100.0 + room, seed=seed)

    if isinstance(verdict, Retry):
        assert 100.0 + verdict.after < 100.0 + room
    else:
        assert verdict == Stop(Why.DEADLINE)
        assert outcome.hint is not None
        assert room <= 3.0 + 1e-9


def test_the_exponent_grows_although_the_server_says_zero():
    """Retry-After: 0 falls back on the backoff, step by step, and never to nothing."""
    tops = []
    for refusals in range(1, 6):
        waits = [
            decide(RetryPolicy(), hinted(REFUSED, 0.0), attempt=0, refusals=refusals, seed=seed).after
            for seed in range(300)
        ]
        assert min(waits) >= SHORTEST
        tops.append(max(waits))

    assert [0.9 * top < seen <= top for seen, top in zip(tops, [1.0, 2.0, 4.0, 8.0, 16.0], strict=True)] == [True] * 5


def test_failures_begin_at_the_base_and_refusals_one_step_later():
    """0.5 s against 1 s: too much work takes longer to pass than a slip."""
    failed = max(decide(RetryPolicy(), FAILED, seed=seed).after for seed in range(300))
    refused = max(decide(RetryPolicy(), REFUSED, attempt=0, refusals=1, seed=seed).after for seed in range(300))

    assert 0.45 < failed <= 0.5
    assert 0.9 < refused <= 1.0


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(kind=Kind.UNAVAILABLE, retryable=True),
        Outcome(kind=Kind.TIMEOUT, retryable=True),
        Outcome(kind=Kind.TIMEOUT, retryable=True, status=504),
        Outcome(kind=Kind.STREAM_INTERRUPTED, retryable=True, status=200),
    ],
)
def test_unknown_outcomes_are_repeated_only_where_allowed(outcome):
    """The server may have done (and billed) the work: the profile decides, and the reason says so."""
    assert isinstance(decide(RetryPolicy(), outcome), Retry)
    assert decide(RetryPolicy(unknown_outcome=False), outcome) == Stop(Why.OUTCOME_UNKNOWN)


MOVED = Outcome(kind=Kind.PROTOCOL, retryable=True, status=300)


@pytest.mark.parametrize("outcome", [REFUSED, UNSENT, FAILED, MOVED])
def test_known_outcomes_are_repeated_anyway(outcome):
    """A refusal, an unsent request and a 503 did no work."""
    assert isinstance(decide(RetryPolicy(unknown_outcome=False), outcome, refusals=1), Retry)


def test_users_stop_strategies_are_asked_with_the_coming_wait():
    """`stop_before_delay` sees our clock and our wait."""
    policy = RetryPolicy(wait=Constant(base=5.0), stop=tenacity.stop_before_delay(30))

    assert decide(policy, FAILED, elapsed=24.0) == Retry(5.0, refusal=False)
    assert decide(policy, FAILED, elapsed=25.0) == Stop(Why.STOP)


def test_stop_after_attempt_counts_attempts_not_refusals():
    """A user's stop rule is about requests that failed."""
    policy = RetryPolicy(wait=tenacity.wait_fixed(1), stop=tenacity.stop_after_attempt(3))

    assert isinstance(decide(policy, REFUSED, attempt=2, refusals=30), Retry)
    assert decide(policy, FAILED, attempt=3) == Stop(Why.STOP)


def test_users_wait_strategies_see_the_free_tries():
    """Their exponent grows with refusals as ours does."""
    policy = RetryPolicy(wait=tenacity.wait_exponential(multiplier=1))

    assert decide(policy, REFUSED, attempt=0, refusals=4).after == 8.0
    assert decide(policy, FAILED, attempt=2).after == 2.0


def test_a_users_wait_is_never_below_the_shortest():
    """`wait_none` against a server that refuses at once is a hot loop."""
    assert decide(RetryPolicy(wait=tenacity.wait_none()), REFUSED, refusals=1).after == SHORTEST


def test_a_users_wait_past_the_deadline_stops():
    """An exact wait is not shortened."""
    policy = RetryPolicy(wait=tenacity.wait_fixed(5))

    assert decide(policy, FAILED, deadline=105.0) == Stop(Why.DEADLINE)
    assert decide(RetryPolicy(wait=Exponential(base=5.0)), FAILED, deadline=105.0) == Stop(Why.DEADLINE)


def test_users_retry_strategies_replace_the_verdict_of_the_outcome():
    """Both ways: less and more than the built-in table."""
    only_values = RetryPolicy(retry=tenacity.retry_if_exception_type(ValueError))
    unlisted = Outcome(kind=Kind.BAD_REQUEST, status=418)

    assert decide(only_values, FAILED, error=KeyError()) == Stop(Why.NOT_RETRYABLE)
    assert isinstance(decide(only_values, unlisted), Retry)


def test_the_defaults_are_those_of_the_built_in_profile():
    """A changed default is a changed promise: here it is said twice."""
    policy = RetryPolicy()

    assert (policy.attempts, policy.refusals, policy.cap, policy.unknown_outcome) == (5, 50, 120.0, True)
    assert policy.wait == FullJitter(base=0.5, cap=20.0)
    assert RetryPolicy(cap=0.0, refusals=0).cap == 0.0


async def asynchronous(state):
    return True


@pytest.mark.parametrize("name", ["wait", "stop", "retry"])
def test_async_strategies_are_a_config_error(name):
    """Told when the policy is built, not at the first failure."""
    with pytest.raises(ConfigError, match=rf"retry\.{name}: .* is async"):
        RetryPolicy(**{name: asynchronous})


@pytest.mark.parametrize(("name", "value"), [("attempts", 0), ("refusals", -1), ("cap", -1.0), ("cap", inf)])
def test_bad_numbers_are_named(name, value):
    """The error names the key."""
    with pytest.raises(ConfigError, match=rf"retry\..*{name}: expected"):
        RetryPolicy(**{name: value})


@given(
    st.lists(st.sampled_from(["fail", "refuse", "hint", "unsent"]), min_size=1, max_size=80),
    st.integers(1, 6),
    st.integers(0, 20),
    st.floats(1.0, 200.0),
    st.integers(0, 100),
)
def test_total_time_and_attempts_are_bounded(story, attempts, refusals, deadline, seed):
    """Whatever a server does: attempts <= max, free tries <= refusals, and no wait past the deadline."""
    policy, rng = RetryPolicy(attempts=attempts, refusals=refusals), random.Random(seed)
    now, failed, free = 0.0, 0, 0
    for step in story:
        outcome = {"fail": FAILED, "refuse": REFUSED, "hint": hinted(REFUSED, 2.0), "unsent": UNSENT}[step]
        failed += step == "fail"
        free += step != "fail"
        verdict = policy.decide(
            outcome, ValueError(), attempt=failed, refusals=free, elapsed=now, now=now, deadline=deadline, rng=rng
        )
        if isinstance(verdict, Stop):
            break
        now += verdict.after
        assert now < deadline
    assert failed <= attempts
    assert free <= policy.refusals + 1
