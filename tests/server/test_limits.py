"""Token buckets, ceilings and shedding by latency, in virtual time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.server.job import Refusal
from llm_client.server.limits import LatencyShedder, Rate, RateLimits, TokenBucket, ceiling, go_duration, rate


def _limits(**given):
    rates = {"key_requests": None, "key_tokens": None, "service_requests": None, "service_tokens": None}
    return RateLimits(**{**rates, **given})


def test_rates_are_read_with_their_period():
    """Ten a second, six hundred a minute."""
    assert rate("10/s") == Rate(10, 1)
    assert rate("600 / min").each_second == 10
    with pytest.raises(ValueError, match="10/s"):
        rate("10")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0, "0ms"), (0.02, "20ms"), (1.0, "1s"), (1.5, "1.5s"), (60.052, "1m0.052s"), (360, "6m0s"), (7200, "2h0m0s")],
)
def test_durations_are_written_as_openai_writes_them(seconds, expected):
    """`20ms`, `1s`, `6m0s`."""
    assert go_duration(seconds) == expected


def test_bucket_gives_its_burst_at_once_and_then_its_rate():
    """Ten a second: ten at once, the next one after a tenth of a second."""
    bucket = TokenBucket(Rate(10, 1), now=0.0)
    for _ in range(10):
        assert bucket.wait(1, 0.0) == 0
        bucket.take(1, 0.0)

    assert bucket.wait(1, 0.0) == pytest.approx(0.1)
    assert bucket.wait(1, 0.1) == 0
    assert bucket.reset(0.1) == pytest.approx(0.9)


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 10)), max_size=60))
def test_bucket_never_gives_more_than_burst_plus_rate(steps):
    """Over any stretch of time at most the size and what flowed in."""
    bucket = TokenBucket(Rate(10, 2), now=0.0)
    now, given_out = 0.0, 0
    for pause, cost in steps:
        now += pause
        if bucket.wait(cost, now) == 0:
            bucket.take(cost, now)
            given_out += cost
        assert given_out <= 10 + 5 * now + 1e-6


def test_refusal_names_the_wait_of_the_slowest_bucket():
    """A key at ten a second and a service at one a second: the service decides."""
    limits = _limits(key_requests=Rate(10, 1), service_requests=Rate(1, 1))
    limits.admit("a", 1, 0.0)

    with pytest.raises(Refusal) as caught:
        limits.admit("a", 1, 0.0)

    assert caught.value.code == "rate_limit_exceeded"
    assert caught.value.status == 429
    assert caught.value.wait == pytest.approx(1.0)
    assert "service" in caught.value.message


def test_refused_request_charges_no_bucket():
    """All buckets are charged, or none."""
    limits = _limits(key_requests=Rate(10, 1), key_tokens=Rate(100, 1))
    with pytest.raises(Refusal):
        limits.admit("a", 1000, 0.0)

    assert dict(limits.headers("a", 0.0))[b"x-ratelimit-remaining-requests"] == b"10"


def test_request_larger_than_the_bucket_is_told_that_waiting_does_not_help():
    """No `Retry-After` for what never fits."""
    limits = _limits(key_tokens=Rate(30_000, 60))

    with pytest.raises(Refusal, match=r"Request too large.*Limit 30000/60s, Requested 342389") as caught:
        limits.admit("a", 342_389, 0.0)

    assert caught.value.wait is None


def test_keys_do_not_share_their_buckets():
    """One greedy key leaves the other alone."""
    limits = _limits(key_requests=Rate(1, 1))
    limits.admit("a", 1, 0.0)

    limits.admit("b", 1, 0.0)
    with pytest.raises(Refusal):
        limits.admit("a", 1, 0.0)


def test_unused_tokens_come_back():
    """A short answer does not cost what a long one would have."""
    limits = _limits(key_tokens=Rate(100, 60))
    limits.admit("a", 100, 0.0)
    limits.settle("a", 60, 0.0)

    assert dict(limits.headers("a", 0.0))[b"x-ratelimit-remaining-tokens"] == b"60"


def test_a_flood_of_keys_is_forgotten_again():
    """Made-up keys must not eat memory."""
    limits = _limits(key_requests=Rate(1, 1))
    for number in range(10_500):
        limits.admit(str(number), 1, 0.0)

    assert len(limits._keys) == 10_000


def test_ceilings_shed_low_classes_first():
    """Critical work has no ceiling; without thresholds nobody has."""
    thresholds = (0.9, 0.7, 0.5)

    assert [ceiling(rank, thresholds) for rank in range(4)] == [float("inf"), 0.9, 0.7, 0.5]
    assert ceiling(3, None) == float("inf")


def _passes(shedder, rank, now):
    try:
        shedder.admit(rank, now)
    except Refusal:
        return False
    return True


@pytest.mark.parametrize(
    ("latency", "expected"),
    [
        (0.9, [True, True, True, True]),
        (1.1, [True, True, True, False]),
        (1.3, [True, True, False, False]),
        (9.0, [True, False, False, False]),
    ],
)
def test_slower_answers_shed_higher_classes(latency, expected):
    """Above the target low goes, above 1.25 times normal, above 1.5 times high, critical never."""
    shedder = LatencyShedder(1.0)
    for _ in range(100):
        shedder.observe(latency, 0.0)

    assert [_passes(shedder, rank, 0.0) for rank in range(4)] == expected


def test_server_that_shed_everything_finds_out_that_it_is_fast_again():
    """Old samples are forgotten, or nothing would ever be admitted again."""
    shedder = LatencyShedder(1.0)
    shedder.observe(60.0, 0.0)

    assert not _passes(shedder, 3, 4.9)
    assert _passes(shedder, 3, 5.1)
    assert shedder.ratio(5.1) == 0


def test_mean_is_taken_over_the_window():
    """A hundred samples, the oldest replaced first."""
    shedder = LatencyShedder(1.0, window=2)
    for latency in (9.0, 1.0, 2.0):
        shedder.observe(latency, 0.0)

    assert shedder.ratio(0.0) == pytest.approx(1.5)
