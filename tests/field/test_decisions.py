"""Field cases, as far as the decisions alone can show them; each name carries the case's id."""

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import isfinite
from statistics import pstdev

import pybreaker
import pytest
from llm_client.core.breaker import Breaker, BreakerConfig, Pass, Refused, judge
from llm_client.core.bucket import Bucket, BucketSet, Member, Rate
from llm_client.core.cooldown import CoolDown
from llm_client.core.cost import Estimator
from llm_client.core.retry import Retry, RetryPolicy, Stop, Why
from llm_client.model import Cost, Kind, Outcome, RetryHint, Usage
from llm_client.wire.measure import measure

UNAVAILABLE = Outcome(kind=Kind.UNAVAILABLE, retryable=True, breaker=True, status=503)


def refused(hint=None, directive=True):
    return Outcome(
        kind=Kind.RATE_LIMITED,
        retryable=True,
        refusal=True,
        overload=True,
        status=429,
        hint=None if hint is None else RetryHint(seconds=hint, directive=directive),
    )


def decide(policy, outcome, *, attempt=0, refusals=1, now=0.0, deadline=None, seed=1):
    return policy.decide(
        outcome,
        ValueError(),
        attempt=attempt,
        refusals=refusals,
        elapsed=now,
        now=now,
        deadline=deadline,
        rng=random.Random(seed),
    )


def breaker(seed=1, **config):
    return Breaker("gpu-a", BreakerConfig(**config), random.Random(seed))


def send(circuit, now, outcome):
    """Make one call if the circuit lets it; return whether it did."""
    lease = circuit.acquire(now)
    if isinstance(lease, Refused):
        return False
    circuit.settle(lease, now, judge(outcome, circuit.config.counts))
    return True


# -- retry


def test_fc_rt_10_forbidden_repetition_says_outcome_unknown():
    """A connection that closed without an answer is repeated, or ends the call with that reason."""
    closed = Outcome(kind=Kind.UNAVAILABLE, retryable=True)

    assert isinstance(decide(RetryPolicy(unknown_outcome=True), closed, attempt=1), Retry)
    assert decide(RetryPolicy(unknown_outcome=False), closed, attempt=1) == Stop(Why.OUTCOME_UNKNOWN)


def test_fc_rt_14_failed_callers_do_not_come_back_together():
    """Fifty callers that failed at once are spread: no 100 ms hold more than 30 % of them."""
    from llm_client.core.backoff import FullJitter

    policy = RetryPolicy(wait=FullJitter(base=1.0, cap=8.0))
    for seed in range(5):
        rng = random.Random(seed)
        waits = sorted(
            policy.decide(
                UNAVAILABLE, ValueError(), attempt=1, refusals=0, elapsed=0.0, now=0.0, deadline=None, rng=rng
            ).after
            for _ in range(50)
        )

        assert pstdev(waits) >= 0.15
        assert max(sum(start <= each < start + 0.1 for each in waits) for start in waits) <= 15
    assert decide(policy, UNAVAILABLE, attempt=1, seed=1) != decide(policy, UNAVAILABLE, attempt=1, seed=2)


# -- Retry-After


def test_fc_ra_01_a_wait_above_a_minute_is_kept_or_refused_never_shortened():
    """75 s under a cap of 120 is slept in full; over a cap of 60 it ends the call."""
    for seed in range(50):
        assert 75.0 <= decide(RetryPolicy(cap=120.0), refused(75.0), seed=seed).after <= 75.0 + 37.5
    assert decide(RetryPolicy(cap=60.0), refused(75.0)) == Stop(Why.HINT_ABOVE_CAP)


def test_fc_ra_06_a_zero_hint_leaves_the_backoff_growing():
    """refusals=5 allows five more requests, with gaps that are never 0 and keep growing."""
    policy = RetryPolicy(refusals=5)
    means = []
    for seed in range(200):
        rng, now, gaps = random.Random(seed), 0.0, []
        for number in range(1, 10):
            verdict = policy.decide(
                refused(0.0), ValueError(), attempt=0, refusals=number, elapsed=now, now=now, deadline=None, rng=rng
            )
            if isinstance(verdict, Stop):
                break
            gaps.append(verdict.after)
            now += verdict.after

        assert verdict == Stop(Why.REFUSALS)
        assert len(gaps) + 1 == 6
        assert min(gaps) >= 0.05
        means.append(gaps)
    mean = [sum(column) / 200 for column in zip(*means, strict=True)]
    assert all(later > 1.5 * earlier for earlier, later in pairwise(mean))


@pytest.mark.parametrize("hint", [86_400.0, 121.0])
def test_fc_ra_10_a_day_is_not_slept(hint):
    """Above the cap, or past the deadline, the call ends at once."""
    assert decide(RetryPolicy(), refused(hint)) == Stop(Why.HINT_ABOVE_CAP)
    assert decide(RetryPolicy(cap=1e9), refused(hint), deadline=10.0) == Stop(Why.DEADLINE)


def test_fc_ra_12_callers_with_the_same_hint_wake_apart():
    """Twenty callers, one hint of 5 s: none early, no 50 ms with more than three, the last within the spread."""
    for seed in range(5):
        rng = random.Random(seed)
        waits = sorted(
            RetryPolicy()
            .decide(refused(5.0), ValueError(), attempt=0, refusals=1, elapsed=0.0, now=0.0, deadline=None, rng=rng)
            .after
            for _ in range(20)
        )

        assert waits[0] >= 5.0
        assert waits[-1] <= 7.5
        assert max(sum(start <= each < start + 0.05 for each in waits) for start in waits) <= 3


# -- breaker


def test_fc_br_01_two_failures_open_and_the_third_call_is_not_sent():
    """fail_max=2, reset 60 s: exactly two requests."""
    circuit = breaker(failures=2, open_base=60.0, open_cap=60.0)

    assert [send(circuit, float(at), UNAVAILABLE) for at in range(3)] == [True, True, False]
    assert circuit.until == 61.0


def test_fc_br_02_one_probe_of_a_hundred_callers():
    """half_open_max=1: one call goes, ninety-nine are refused until it settles."""
    circuit = breaker(failures=1, probes=1, successes=1)
    send(circuit, 0.0, UNAVAILABLE)
    now = circuit.until
    answers = [circuit.acquire(now) for _ in range(100)]

    assert [isinstance(each, Pass) for each in answers] == [True] + [False] * 99
    circuit.settle(answers[0], now + 0.2, "success")
    assert circuit.state == "closed"


def test_fc_br_05_bad_requests_are_no_failures_of_the_endpoint():
    """Twenty 400, five 404, five 422: closed, and the healthy call goes."""
    circuit = breaker(failures=3)
    for kind, times in ((Kind.BAD_REQUEST, 20), (Kind.NOT_FOUND, 5), (Kind.BAD_REQUEST, 5)):
        for _ in range(times):
            assert send(circuit, 0.0, Outcome(kind=kind, permanent=True))

    assert circuit.state == "closed"
    assert isinstance(circuit.acquire(0.0), Pass)


def test_fc_br_08_a_prompt_that_is_too_long_counts_nothing():
    """The counters of a healthy route do not move."""
    circuit = breaker()
    send(circuit, 0.0, Outcome(kind=Kind.CONTEXT_LENGTH, permanent=True, status=400))

    assert (circuit.failures, circuit.counted(0.0)[1]) == (0, 0)


def test_fc_br_10_steps_of_the_wall_clock_have_no_effect(monkeypatch):
    """An hour back, a day forward: open for thirty seconds of the monotonic clock, then half-open."""

    class Stepped(datetime):
        offset = timedelta()

        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz or UTC) + cls.offset

    monkeypatch.setattr(pybreaker, "datetime", Stepped)
    circuit = breaker(failures=1, open_base=30.0, open_cap=30.0)
    send(circuit, 1000.0, UNAVAILABLE)
    for offset in (timedelta(hours=-1), timedelta(days=1)):
        Stepped.offset = offset
        assert circuit.ready_at(1015.0) == 1030.0
        assert circuit.acquire(1029.9) == Refused(1030.0)
        assert circuit.state == "open"

    assert isinstance(circuit.acquire(1031.0), Pass)
    assert circuit.state == "half_open"


def test_fc_br_12_one_lucky_success_does_not_readmit_everybody():
    """success_threshold=3, half_open_max=1, fifty callers: at most one in flight, at most two requests per flap."""
    circuit = breaker(failures=1, probes=1, successes=3, open_base=1.0, open_cap=1.0)
    send(circuit, 0.0, UNAVAILABLE)
    now = 0.0
    for _ in range(10):
        now = circuit.until
        sent = 0
        for healthy in (True, False):
            answers = [circuit.acquire(now) for _ in range(50)]
            going = [each for each in answers if isinstance(each, Pass)]
            assert len(going) == 1
            sent += 1
            circuit.settle(going[0], now, "success" if healthy else "failure")
            assert circuit.state == ("half_open" if healthy else "open")
        assert sent == 2
        assert all(isinstance(circuit.acquire(now), Refused) for _ in range(50))


def test_the_exercise_three_failures_then_ten_seconds():
    """The classic form: three refusals open it, it stays so for exactly ten seconds, and traffic resumes by itself."""
    counts = frozenset({"failures", "rate_limited", "overloaded", "timeout"})
    circuit = breaker(failures=3, open_base=10.0, open_cap=10.0, counts=counts)

    assert [send(circuit, 0.1, refused()) for _ in range(20)] == [True] * 3 + [False] * 17
    assert not send(circuit, 10.0, refused())
    assert [send(circuit, 10.1, Outcome(ok=True)) for _ in range(20)] == [True] * 20
    assert [each.new for each in circuit.drain()] == ["open", "half_open", "closed"]


def test_s23_overload_is_not_failure():
    """32 slots, offered 3.3 times what they serve: 70 % is refused in milliseconds, the circuit stays closed."""
    circuit, serving, refusals = breaker(), [], 0
    for step in range(50_000):
        now = step * 0.003
        while serving and serving[0][0] <= now:
            circuit.settle(serving.pop(0)[1], now, "success")
        lease = circuit.acquire(now)
        if len(serving) >= 32:
            refusals += 1
            circuit.settle(lease, now + 0.002, "neutral", lonely=not serving)
        else:
            serving.append((now + 0.32, lease))

    assert circuit.state == "closed"
    assert circuit.drain() == []
    assert 0.65 < refusals / 50_000 < 0.75


def test_s24_cool_downs_keep_the_latest_end():
    """LiteLLM #40130: one second first, then a default of sixty."""
    cool = CoolDown()
    cool.extend(0.0, 1.0, "unavailable")
    cool.extend(0.2, 60.0, "unavailable")
    cool.extend(0.4, 1.0, "unavailable")

    assert cool.ready_at(1.0) == 60.2


def test_s22_a_flapping_endpoint_is_asked_ever_less():
    """Five seconds up, five down: after the third cycle at most 10 % of the calls meet the down phase."""
    circuit, met, offered = breaker(seed=2, open_base=2.0), 0, 0
    for step in range(60_000):
        now = step * 0.01
        down = now % 10 >= 5
        if send(circuit, now, UNAVAILABLE if down else Outcome(ok=True)) and now >= 30.0:
            offered += 1
            met += down

    assert offered > 0
    assert met <= 0.1 * offered


# -- bucket


def test_fc_bk_01_a_call_above_the_bucket_goes_into_debt():
    """TPM 100, 200 tokens: sent from a full bucket; the next hundred wait a minute more and longer."""
    bucket = Rate(amount=100, period=60).bucket(0.0)
    tokens = BucketSet([Member("account prod", "tokens", bucket)])
    tokens.take(Cost(prompt=200), 0.0)

    assert bucket.level(0.0) == pytest.approx(-100)
    assert 60.0 <= tokens.wait(Cost(prompt=100), 0.0) == pytest.approx(120.0)
    # A wait longer than the deadline is known at once, with the names and numbers that the error needs.
    binding = tokens.binding(Cost(prompt=200), 0.0)
    assert (binding.scope, binding.dimension, binding.bucket.burst) == ("account prod", "tokens", 100)
    assert isfinite(tokens.wait(Cost(prompt=1e9), 0.0))


@pytest.mark.parametrize(
    "text", ["explain <|endoftext|> and <|im_start|>", "", "🦜🔥" * 40, pytest.param(" " * 1_000_000, id="1MB")]
)
def test_fc_bk_03_any_text_is_estimated(text):
    """Special tokens, nothing, emoji, a megabyte of spaces: an int, no exception, and the text is untouched."""
    body = {"messages": [{"role": "user", "content": text}]}
    before = str(body)
    cost = Estimator().estimate("m", measure(body))

    assert isinstance(cost.prompt, int)
    assert cost.prompt >= 0
    assert str(body) == before


@pytest.mark.parametrize(
    ("usage", "consumed"),
    [(Usage(prompt_tokens=52, completion_tokens=68, total_tokens=120), 120), (None, 1050)],
)
def test_fc_bk_06_a_reservation_is_settled_by_usage_or_kept(usage, consumed):
    """1,050 reserved, 120 used: 120 consumed; without usage the reservation stands, never 0 and never negative."""
    bucket = Rate(amount=10_000, period=60).bucket(0.0)
    reservation = BucketSet([Member("endpoint", "tokens", bucket)]).take(Cost(prompt=50, output=1000), 0.0)
    if usage is None:
        reservation.keep(0.0)
    else:
        reservation.settle(usage.total_tokens, 0.0)

    assert bucket.consumed == consumed
    assert bucket.level(0.0) == pytest.approx(10_000 - consumed)


def test_fc_bk_07_refusals_charge_no_dimension():
    """RPM 10, TPM 1,000 with 50 left: twenty refusals later ten requests are still there, and ten calls pass."""
    requests, tokens = Rate(amount=10, period=60).bucket(0.0), Rate(amount=1000, period=60).bucket(0.0)
    tokens.settle(tokens.take(950, 0.0), 950, 0.0)
    both = BucketSet([Member("key", "requests", requests), Member("key", "tokens", tokens)])
    cost = Cost(prompt=80)
    for _ in range(20):
        assert both.wait(cost, 0.0) > 0.0

    assert requests.level(0.0) == 10.0
    assert tokens.level(0.0) == pytest.approx(50.0)
    later = 57.0  # 950 tokens have come in
    for _ in range(10):
        assert both.wait(cost, later) == 0.0
        both.take(cost, later)


def test_fc_bk_08_prompts_count():
    """TPM 1,000: the second prompt of 900 tokens waits; at least 900 are consumed by the first."""
    bucket = Rate(amount=1000, period=60).bucket(0.0)
    tokens = BucketSet([Member("key", "tokens", bucket)])
    cost = Cost(prompt=900, output=10)
    tokens.take(cost, 0.0).settle(905, 0.0)

    assert tokens.wait(cost, 0.0) > 0.0
    assert bucket.consumed >= 900


def test_fc_bk_11_a_long_sleep_fills_the_bucket_once():
    """Eight hours of suspend, then a hundred calls: ten go at once, then one per second."""
    bucket = Rate(amount=60, period=60, burst=10).bucket(0.0)
    now, granted = 28_800.0, []
    for _ in range(100):
        now += bucket.wait(1, now)
        bucket.settle(bucket.take(1, now), 1, now)
        granted.append(now)

    assert granted[:10] == [28_800.0] * 10
    assert [round(b - a, 6) for a, b in pairwise(granted[9:])] == [1.0] * 90


def test_fc_bk_12_slept_time_is_credited_once():
    """Capacity 10, 1/s, empty: five at t=5, five more at t=10."""
    bucket = Bucket(1.0, 10.0, 0.0)
    bucket.settle(bucket.take(10, 0.0), 10, 0.0)
    first = bucket.wait(5, 0.0)
    bucket.take(5, first)

    assert first == 5.0
    assert first + bucket.wait(5, first) == 10.0


@pytest.mark.parametrize(
    ("burst", "instants"),
    [(None, [0, 0, 0, 10 / 3, 20 / 3]), (3, [0, 0, 0, 10 / 3, 20 / 3]), (1, [0, 10 / 3, 20 / 3, 10, 40 / 3])],
)
def test_fc_bk_13_small_limits_do_what_the_words_say(burst, instants):
    """Of "3 per 10 s" three go at once, unless a burst of one is asked for; the default is visible."""
    rate = Rate(amount=3, period=10, burst=burst)
    bucket, now, granted = rate.bucket(0.0), 0.0, []
    for _ in range(5):
        now += bucket.wait(1, now)
        bucket.settle(bucket.take(1, now), 1, now)
        granted.append(now)

    assert granted == pytest.approx(instants)
    assert rate.effective_burst == (burst or 3)


def test_fc_bk_14_server_headers_hold_calls_back():
    """RPM 600, "2 left, reset in 6 s": at most two of ten go before t=6, and the balance never grows by a header."""
    bucket = Rate(amount=600, period=60).bucket(0.0)
    bucket.settle(bucket.take(1, 0.0), 1, 0.0)
    bucket.observe(2, 6.0, 0.0, limit=600)
    now, sent = 0.0, []
    while len(sent) < 10:
        now += bucket.wait(1, now)
        level = bucket.level(now)
        bucket.settle(bucket.take(1, now), 1, now)
        bucket.observe(2, 6.0, now, limit=600)
        assert bucket.level(now) <= level
        sent.append(now)

    assert sum(at < 6.0 for at in sent) <= 2
    assert sent[1] > 0.0


def test_fc_pk_06_estimates_need_no_vocabulary(monkeypatch):
    """No outside network: an estimate opens no socket and no file."""
    import builtins
    import socket

    def forbidden(*_, **__):
        raise AssertionError("an estimate reads nothing")

    monkeypatch.setattr(socket, "socket", forbidden)
    monkeypatch.setattr(builtins, "open", forbidden)
    estimator = Estimator()
    for _ in range(20):
        body = {"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 5}
        size = measure(body)
        assert estimator.estimate("m", size, max_tokens=5).total > 0
        estimator.learn("m", size, Usage(prompt_tokens=9, completion_tokens=3))
