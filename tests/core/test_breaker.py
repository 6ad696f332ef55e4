"""The circuit: when it opens, what a half-open one admits, what closes it."""

import random
import subprocess
import sys
from math import inf

import pybreaker
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.core.breaker import Breaker, BreakerConfig, Pass, Refused, judge
from llm_client.errors import ConfigError
from llm_client.model import OK, Kind, Outcome

FAILURES = frozenset({"failures"})


def make(seed=1, **config):
    return Breaker("gpu-a", BreakerConfig(**config), random.Random(seed))


def fail(breaker, now, times=1, **told):
    for _ in range(times):
        breaker.settle(breaker.acquire(now), now, "failure", **told)


def opened(now=0.0, **config):
    """Return a breaker that has just opened."""
    breaker = make(**config)
    fail(breaker, now, 5)
    assert breaker.state == "open"
    return breaker


def test_consecutive_failures_open_it():
    """Five in a row open it; a success in between starts the count again."""
    breaker = make()
    fail(breaker, 0.0, 4)
    breaker.settle(breaker.acquire(0.0), 0.0, "success")
    fail(breaker, 1.0, 4)
    assert breaker.state == "closed"

    fail(breaker, 1.0)
    assert breaker.state == "open"
    assert breaker.drain() == [("closed", "open", breaker.until, "consecutive failures")]
    assert breaker.drain() == []


def test_a_stream_that_still_delivers_vetoes_consecutive_failures():
    """Bytes within two seconds prove life, whatever becomes of calls sent together; without them the next one opens."""
    breaker = make()
    breaker.alive(9.0)
    sent = [breaker.acquire(9.0) for _ in range(9)]
    for each in sent[:8]:
        breaker.settle(each, 10.0, "failure")
    assert breaker.state == "closed"

    breaker.settle(sent[8], 11.0, "failure")
    assert breaker.state == "open"


def test_answers_to_old_calls_do_not_keep_a_circuit_closed_that_fails_all_new_ones():
    """A server going out of service finishes what it has; five calls sent since its first failure, and failed, open."""
    breaker = make()
    old = [breaker.acquire(0.0) for _ in range(8)]
    for number in range(5):
        assert breaker.state == "closed"
        breaker.alive(1.0)
        fail(breaker, 1.0)
        breaker.settle(old[number], 1.0, "success")

    assert breaker.state == "open"
    assert breaker.drain()[0].reason == "nothing but failures since the first"


@pytest.mark.parametrize("proof", ["answered", "under way"])
def test_a_call_that_was_sent_since_and_is_not_lost_keeps_it_closed(proof):
    """A server that fails a tenth of its calls at once and works for seconds on the rest is not out of service."""
    breaker = make(failure_rate=None)
    old = [breaker.acquire(0.0) for _ in range(20)]
    fail(breaker, 1.0)
    since = breaker.acquire(1.0)
    if proof == "answered":
        breaker.settle(since, 1.0, "success")
    for each in old[:8]:
        fail(breaker, 1.0)
        breaker.settle(each, 1.0, "success")
        if proof == "answered" and breaker.failures == 0:
            breaker.settle(breaker.acquire(1.0), 1.0, "success")
    assert breaker.state == "closed"


def test_a_streak_belongs_to_one_process():
    """A call of the parent that nobody in the child of a fork will settle is no proof that the server is at work."""
    breaker = make()
    fail(breaker, 0.0)
    breaker.acquire(0.0)
    breaker.abandon()
    old = [breaker.acquire(0.0) for _ in range(8)]
    for each in old[:5]:
        assert breaker.state == "closed"
        fail(breaker, 1.0)
        breaker.settle(each, 1.0, "success")

    assert breaker.state == "open"


def test_b1_stale_failures_never_move_the_open_time():
    """B1, B5, S9: fifty calls of the closed time fail late: no transition, no longer wait."""
    breaker = make()
    late = [breaker.acquire(0.0) for _ in range(50)]
    fail(breaker, 0.0, 5)
    until, told = breaker.until, breaker.drain()
    for number, each in enumerate(late):
        breaker.settle(each, number * 1.2, "failure", retry_after=100.0)

    assert len(told) == 1
    assert breaker.drain() == []
    assert breaker.until == until


def test_b2_a_thousand_callers_get_two_probes():
    """B2, S8: when the open time ends, two calls go; everybody else is told when to come back."""
    breaker = opened()
    now = breaker.until
    answers = [breaker.acquire(now) for _ in range(1000)]

    assert sum(isinstance(each, Pass) for each in answers) == 2
    assert set(answers[2:]) == {Refused(now + 30.0)}
    assert breaker.ready_at(now) == now + 30.0


def test_b3_a_neutral_probe_gives_its_place_back():
    """B3: cancelled or refused probes change nothing and block nobody."""
    breaker = opened()
    now = breaker.until
    first, second = breaker.acquire(now), breaker.acquire(now)
    breaker.settle(first, now, "neutral")

    assert breaker.state == "half_open"
    assert breaker.ready_at(now) == now
    assert isinstance(breaker.acquire(now), Pass)
    assert breaker.probing == 2
    assert not second.settled


def test_b4_settling_twice_is_settling_once():
    """B4: the second telling has no effect, whatever it says."""
    breaker = make()
    one = breaker.acquire(0.0)
    breaker.settle(one, 0.0, "success")
    for _ in range(20):
        breaker.settle(one, 0.0, "failure")

    assert breaker.state == "closed"
    assert breaker.counted(0.0) == (1, 0, 0)


def test_b6_half_failing_opens_by_rate_at_the_tenth():
    """B6: alternating outcomes never reach five in a row, the rate sees them."""
    breaker = make()
    for number in range(10):
        assert breaker.state == "closed"
        breaker.settle(breaker.acquire(0.0), 0.0, "success" if number % 2 == 0 else "failure")

    assert breaker.state == "open"
    assert breaker.drain()[0].reason == "failure rate"


def test_rates_need_samples_and_room_in_the_pool():
    """Nine outcomes are too few; a guarded endpoint stays in service whatever its rate."""
    breaker = make(failures=None)
    fail(breaker, 0.0, 9)
    assert breaker.state == "closed"

    fail(breaker, 0.0, guarded=True)
    assert breaker.state == "closed"

    fail(breaker, 0.0)
    assert breaker.state == "open"


def test_slow_first_tokens_open_it():
    """Eight slow of ten open it, also when the slow ones had no outcome of their own."""
    breaker = make()
    for number in range(10):
        assert breaker.state == "closed"
        verdict = "neutral" if number >= 2 and number % 2 else "success"
        breaker.settle(breaker.acquire(0.0), 0.0, verdict, slow=number >= 2)

    assert breaker.state == "open"
    assert breaker.drain()[0].reason == "slow first tokens"


def test_seven_slow_of_ten_do_not_open_it():
    """The share decides, not the count."""
    breaker = make()
    for number in range(10):
        breaker.settle(breaker.acquire(0.0), 0.0, "success", slow=number >= 3)

    assert breaker.state == "closed"


def test_half_of_the_open_time_is_random():
    """Clients that lost a server together do not come back together."""
    waits = []
    for seed in range(400):
        breaker = make(seed, failures=1, open_base=8.0)
        fail(breaker, 0.0)
        waits.append(breaker.until)

    assert 4.0 <= min(waits) < 4.1
    assert 7.9 < max(waits) <= 8.0


def test_b7_lost_probes_free_their_places_within_the_lease():
    """B7: probes that nobody settles hold their places for thirty seconds, not for ever."""
    breaker = opened()
    now = breaker.until
    for _ in range(2):
        breaker.acquire(now)
    assert isinstance(breaker.acquire(now + 29.9), Refused)

    assert isinstance(breaker.acquire(now + 30.0), Pass)
    assert breaker.state == "half_open"


def test_probes_lost_twice_reopen_it_with_more_patience():
    """Silence is an answer; but slow probes must be able to close it in the end."""
    breaker = opened()
    now = breaker.until
    for later in (0.0, 30.0):
        breaker.acquire(now + later), breaker.acquire(now + later)

    assert isinstance(breaker.acquire(now + 60.0), Refused)
    assert breaker.state == "open"
    assert breaker.drain()[-1].reason == "probes lost"

    now = breaker.until
    first, second = breaker.acquire(now), breaker.acquire(now)
    assert breaker.ready_at(now) == now + 60.0

    breaker.settle(first, now + 55.0, "success")
    breaker.settle(second, now + 56.0, "success")
    assert breaker.state == "closed"


@given(st.integers(0, 12), st.one_of(st.none(), st.floats(0.01, 119.0)), st.integers(0, 1000))
def test_b8_open_time_is_bounded_on_both_sides(trips, retry_after, seed):
    """B8: between max(d/2, RA) and max(d, 1.1 RA + 0.25), d growing by half up to the cap."""
    breaker, now = make(seed, failures=1), 0.0
    for _ in range(trips):
        fail(breaker, now)
        now = breaker.until
    fail(breaker, now, retry_after=retry_after)

    wait, asked = breaker.until - now, retry_after or 0.0
    grown = min(60.0, 0.5 * 1.5**trips)
    assert max(grown / 2, asked) - 1e-9 <= wait
    assert wait <= max(grown, asked * 1.1 + 0.25, asked + 0.25 if asked else 0.0) + 1e-9


def test_a_retry_after_above_the_cap_opens_for_the_cap():
    """A day of silence is asked for: the circuit looks again after two minutes."""
    breaker = make(failures=1)
    fail(breaker, 0.0, retry_after=86_400.0)

    assert 120.0 <= breaker.until <= 132.0


def test_b9_only_probes_of_this_epoch_close_it():
    """B9: S successes of the present half-open time; those of an earlier one count for nothing."""
    breaker = opened()
    now = breaker.until
    old, failing = breaker.acquire(now), breaker.acquire(now)
    breaker.settle(failing, now, "failure")
    now = breaker.until
    first, second = breaker.acquire(now), breaker.acquire(now)
    breaker.settle(old, now, "success")
    breaker.settle(first, now, "success")
    assert breaker.state == "half_open"

    breaker.settle(second, now, "success")
    assert breaker.state == "closed"
    assert [each.new for each in breaker.drain()] == ["open", "half_open", "open", "half_open", "closed"]


def test_a_failed_probe_lengthens_the_open_time_until_it_was_closed_for_a_minute():
    """S22: a flapping endpoint is asked ever less; sixty quiet seconds forgive it."""
    breaker = make(open_base=16.0, open_cap=60.0)
    now, waits = 0.0, []
    for _ in range(6):
        fail(breaker, now, 1 if waits else 5)
        waits.append(breaker.until - now)
        now = breaker.until
    assert [d / 2 <= w <= d for d, w in zip([16, 24, 36, 54, 60, 60], waits, strict=True)] == [True] * 6

    def close(at):
        for each in [breaker.acquire(at), breaker.acquire(at)]:
            breaker.settle(each, at, "success")

    close(now)
    fail(breaker, now + 59.0, 5)
    assert breaker.until - (now + 59.0) >= 30.0

    now = breaker.until
    close(now)
    fail(breaker, now + 60.0, 5)
    assert breaker.until - (now + 60.0) <= 16.0


def test_equal_base_and_cap_are_exact():
    """The classic reset time is a promise: ten seconds, every time, without jitter."""
    breaker = make(failures=3, open_base=10.0, open_cap=10.0, counts=FAILURES | {"rate_limited"})
    fail(breaker, 5.0, 3)
    assert breaker.until == 15.0

    fail(breaker, 15.0)
    assert breaker.until == 25.0


def test_the_classic_form_ignores_signs_of_life():
    """Three failures mean three, although a stream still delivers."""
    breaker = make(failures=3, counts=FAILURES | {"overloaded"})
    breaker.alive(0.0)
    fail(breaker, 0.0, 3)

    assert breaker.state == "open"


def test_refusals_trip_only_when_nothing_of_ours_is_in_flight():
    """S23: a busy server may refuse for ever; one that refuses an empty-handed client is left alone."""
    breaker = make()
    for _ in range(1000):
        breaker.settle(breaker.acquire(0.0), 0.0, "neutral", lonely=False)
    assert breaker.state == "closed"

    for _ in range(4):
        breaker.settle(breaker.acquire(0.0), 0.0, "neutral", lonely=True)
    breaker.settle(breaker.acquire(0.0), 0.0, "success")
    for number in range(5):
        assert breaker.state == "closed"
        breaker.settle(breaker.acquire(0.0), 0.0, "neutral", lonely=True, retry_after=7.0 if number == 4 else None)
    assert breaker.state == "open"
    assert 7.0 <= breaker.until <= 7.7 + 1e-9


def test_a_server_that_only_refuses_opens_again_at_the_first_lonely_probe():
    """The row of refusals goes on through the probes: one probe, not a stream of them."""
    breaker = make(open_base=1.0, open_cap=1.0)
    for _ in range(5):
        breaker.settle(breaker.acquire(0.0), 0.0, "neutral", lonely=True)
    breaker.settle(breaker.acquire(1.0), 1.0, "neutral", lonely=True)

    assert breaker.state == "open"
    assert breaker.until == 2.0


def test_refusals_never_silence_a_client_for_a_minute():
    """A full server works for others: we come back every few seconds, to find the slot that they leave."""
    circuit, now, waits = make(open_base=0.5, open_cap=60.0), 0.0, []
    for _ in range(20):
        while circuit.state != "open":
            circuit.settle(circuit.acquire(now), now, "neutral", lonely=True)
        waits.append(circuit.until - now)
        now = circuit.until
        circuit.settle(circuit.acquire(now), now, "neutral", lonely=True)

    assert max(waits) <= 4.0
    assert min(waits[6:]) >= 1.9

    fail(circuit, circuit.until)
    assert circuit.until - now > 4.0


def test_the_defaults_are_those_of_the_built_in_profile():
    """A changed default is a changed promise: here it is said twice."""
    config = BreakerConfig()

    assert (config.enabled, config.failures, config.failure_rate, config.window) == (True, 5, 0.5, 30.0)
    assert (config.open_base, config.open_cap, config.probes, config.successes) == (0.5, 60.0, 2, 2)
    assert (config.minimum, config.slow_rate, config.slow_first_token, config.counts) == (10, 0.8, None, FAILURES)
    assert (config.liveness, config.lease, config.settled_after, config.retry_after_cap) == (2.0, 30.0, 60.0, 120.0)
    assert BreakerConfig(failure_rate=1.0, slow_rate=1.0).failure_rate == 1.0


def test_a_stream_that_breaks_after_acceptance_is_a_failure_of_its_own():
    """Accepted at its first content, cut later: one success and one failure, told at most once."""
    breaker = make(failures=None)
    stream = breaker.acquire(0.0)
    breaker.settle(stream, 0.0, "success")
    for _ in range(3):
        breaker.broke(stream, 1.0)
    assert breaker.counted(1.0) == (2, 1, 0)

    unsettled = breaker.acquire(1.0)
    breaker.broke(unsettled, 1.0)
    assert breaker.counted(1.0) == (3, 2, 0)


def test_a_break_of_an_earlier_generation_is_stale():
    """A stream of the closed time that dies while open moves nothing."""
    breaker = make()
    stream = breaker.acquire(0.0)
    breaker.settle(stream, 0.0, "success")
    fail(breaker, 0.0, 5)
    until = breaker.until
    breaker.broke(stream, 0.1)

    assert breaker.until == until


def test_isolate_refuses_until_reset():
    """An operator's no has no end of its own and survives outcomes."""
    breaker = make()
    before = breaker.acquire(0.0)
    breaker.isolate()
    breaker.settle(before, 0.0, "success")

    assert breaker.state == "isolated"
    assert breaker.acquire(1e9) == Refused(inf)
    assert breaker.ready_at(1e9) == inf

    breaker.reset()
    assert isinstance(breaker.acquire(0.0), Pass)
    assert [each[:2] for each in breaker.drain()] == [("closed", "isolated"), ("isolated", "closed")]


@pytest.mark.parametrize(("mode", "counted"), [("disable", (0, 0, 0)), ("metrics_only", (50, 50, 0))])
def test_disabled_and_metrics_only_let_everything_through(mode, counted):
    """Both admit all; only the second counts."""
    breaker = opened()
    getattr(breaker, mode)()
    fail(breaker, 0.0, 50)

    assert breaker.ready_at(0.0) == 0.0
    assert breaker.counted(0.0) == counted
    assert breaker.drain()[-1].old == "open"

    breaker.reset()
    assert (breaker.state, breaker.counted(0.0)) == ("closed", (0, 0, 0))


def test_disabled_by_configuration_never_opens():
    """`enabled: false` is the disabled state from the start."""
    breaker = make(enabled=False)
    fail(breaker, 0.0, 50)

    assert breaker.state == "disabled"


def test_reset_while_half_open_forgets_probes():
    """Probes of before the reset are stale after it."""
    breaker = opened()
    probe = breaker.acquire(breaker.until)
    breaker.reset()
    breaker.settle(probe, breaker.config.window, "failure")

    assert breaker.state == "closed"
    assert breaker.failures == 0


def test_abandoned_probes_free_their_places():
    """The child of a fork settles nothing of its parent's and must not wait for it."""
    breaker = opened()
    now = breaker.until
    breaker.acquire(now), breaker.acquire(now)
    breaker.abandon()

    assert isinstance(breaker.acquire(now), Pass)


@pytest.mark.parametrize(
    ("outcome", "counts", "verdict"),
    [
        (OK, FAILURES, "success"),
        (Outcome(kind=Kind.UNAVAILABLE, breaker=True, status=503), FAILURES, "failure"),
        (Outcome(kind=Kind.TIMEOUT, breaker=True), FAILURES, "failure"),
        (Outcome(kind=Kind.TIMEOUT, breaker=True), frozenset({"rate_limited"}), "neutral"),
        (Outcome(kind=Kind.RATE_LIMITED, refusal=True, status=429), FAILURES, "neutral"),
        (Outcome(kind=Kind.RATE_LIMITED, refusal=True, status=429), FAILURES | {"rate_limited"}, "failure"),
        (Outcome(kind=Kind.OVERLOADED, refusal=True, status=503), FAILURES | {"overloaded"}, "failure"),
        (Outcome(kind=Kind.TIMEOUT, status=408), FAILURES | {"timeout"}, "failure"),
        (Outcome(kind=Kind.BAD_REQUEST, permanent=True, status=400), FAILURES, "success"),
        (Outcome(kind=Kind.NOT_FOUND, permanent=True, status=404), FAILURES, "success"),
        (Outcome(kind=Kind.QUOTA_EXHAUSTED, permanent=True, status=429), FAILURES, "neutral"),
        (Outcome(kind=Kind.UNAVAILABLE, refusal=True, loading=True, status=503), FAILURES, "neutral"),
        (Outcome(kind=Kind.DEADLINE), FAILURES, "neutral"),
        (Outcome(kind=Kind.CANCELLED), FAILURES, "neutral"),
    ],
)
def test_outcomes_are_judged(outcome, counts, verdict):
    """Refusals, cancellation, loading and an empty purse are neutral; a client's error proves life."""
    assert judge(outcome, counts) == verdict


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("failures", 0),
        ("probes", 0),
        ("successes", 0),
        ("failure_rate", 0.0),
        ("slow_rate", 1.5),
        ("window", 0.0),
        ("open_base", inf),
        ("counts", frozenset({"refusals"})),
        ("counts", frozenset()),
    ],
)
def test_bad_numbers_are_named(field, value):
    """The error names the key and what it takes."""
    with pytest.raises(ConfigError, match=f"breaker.{field}: expected"):
        BreakerConfig(**{field: value})


def test_a_cap_below_the_base_is_refused():
    """The open time cannot shrink."""
    with pytest.raises(ConfigError, match=r"open_for.cap"):
        BreakerConfig(open_base=10.0, open_cap=1.0)


def test_pybreaker_holds_the_state():
    """The state machine underneath is pybreaker's, in step with ours."""
    breaker = opened()
    assert breaker._circuit.current_state == pybreaker.STATE_OPEN

    breaker.acquire(breaker.until)
    assert breaker._circuit.current_state == pybreaker.STATE_HALF_OPEN


def test_pybreaker_is_imported_by_the_first_breaker_only():
    """It pulls redis and tornado where they are installed: importing us must not."""
    code = """
import random, sys
from llm_client.core import breaker
assert "pybreaker" not in sys.modules
assert type(breaker.circuit_open_error("x")).__mro__[1].__name__ == "RejectedError"
breaker.Breaker("a", breaker.BreakerConfig(), random.Random(1))
assert "pybreaker" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
