"""Server windows, as their headers tell them."""

import pytest
from llm_client.core.quota import LONGEST, Quota


def test_what_is_left_is_spread_evenly_until_the_reset():
    """Three left in six seconds: at 0, 2 and 4, then nothing before the reset."""
    quota = Quota()
    quota.observe(3.0, 6.0, 0.0, scarce=True, refill=60.0)
    sent = []
    for tenth in range(80):
        now = tenth / 10
        if quota.wait(1.0, now) == 0.0:
            quota.take(1.0, now)
            sent.append(now)

    assert sent[:3] == [0.0, 2.0, 4.0]
    assert sent[3] == 6.0


def test_a_cost_above_the_rest_waits_for_the_reset():
    """Half a call cannot be sent."""
    quota = Quota()
    quota.observe(100.0, 6.0, 0.0, scarce=True, refill=60.0)

    assert quota.wait(101.0, 1.0) == 5.0
    assert quota.wait(100.0, 1.0) == 0.0
    assert quota.wait(1e9, 6.0) == 0.0


def test_headers_never_lengthen():
    """Later answers may only lower what is left and bring the reset nearer."""
    quota = Quota()
    quota.observe(5.0, 10.0, 0.0, scarce=True, refill=60.0)
    quota.observe(50.0, 20.0, 1.0, scarce=False, refill=60.0)
    assert quota.wait(6.0, 1.0) == 9.0

    quota.observe(1.0, 4.0, 2.0, scarce=True, refill=60.0)
    assert quota.wait(2.0, 2.0) == 4.0


def test_plenty_holds_nobody_back():
    """A window with enough left is not paced."""
    quota = Quota()
    quota.observe(500.0, 6.0, 0.0, scarce=False, refill=10.0)

    assert quota.wait(1e9, 0.0) == 0.0


def test_a_bucket_that_refills_all_the_time_is_recognised():
    """Its reset names the time until full and moves as our rate predicts: there is no window to wait for."""
    quota = Quota()
    quota.observe(30.0, 57.0, 0.0, scarce=True, refill=57.0)
    assert quota.wait(31.0, 0.0) == 57.0

    quota.observe(28.0, 57.2, 3.0, scarce=True, refill=57.2)
    assert quota.wait(31.0, 3.0) == 0.0

    quota.observe(0.0, 60.0, 4.0, scarce=True, refill=60.0)
    assert quota.wait(1.0, 4.0) == 0.0


def test_a_fixed_window_is_not_mistaken_for_one():
    """Its end stands still, or has nothing to do with our rate."""
    quota = Quota()
    quota.observe(30.0, 57.0, 0.0, scarce=True, refill=57.0)
    quota.observe(28.0, 54.0, 3.0, scarce=True, refill=57.2)
    assert quota.wait(29.0, 3.0) == 54.0

    static = Quota()
    static.observe(2.0, 6.0, 0.0, scarce=True, refill=59.8)
    static.observe(2.0, 6.0, 3.0, scarce=True, refill=59.8)
    assert static.wait(3.0, 3.0) == 3.0


@pytest.mark.parametrize(
    ("reset", "refill", "rolling"),
    [
        (58.1, 57.0, False),  # the end moved by 2.1 s of 60: within what latency and rounding do
        (60.0, 57.0, True),
        (60.0, 54.0, False),  # 6 s off what our rate predicts
        (60.0, 66.0, True),
        (62.0, 54.9, False),
    ],
)
def test_a_moving_end_must_fit_our_rate(reset, refill, rolling):
    """Both signs are needed: the end moves by more than noise, and stands where our rate puts it."""
    quota = Quota()
    quota.observe(30.0, 57.0, 0.0, scarce=True, refill=57.0)
    quota.observe(29.0, reset, 1.0, scarce=True, refill=refill)

    assert (quota.wait(31.0, 1.0) == 0.0) == rolling


def test_short_windows_may_wobble_by_a_second():
    """Whole-second headers round."""
    quota = Quota()
    quota.observe(5.0, 2.0, 0.0, scarce=True, refill=2.0)
    quota.observe(4.0, 2.0, 0.9, scarce=True, refill=2.0)
    assert quota.wait(6.0, 0.9) == pytest.approx(1.1)

    quota.observe(4.0, 2.0, 1.5, scarce=True, refill=2.0)
    assert quota.wait(6.0, 1.5) == 0.0


def test_a_window_of_half_a_second_counts():
    """Hosted services reset within milliseconds."""
    quota = Quota()
    quota.observe(0.0, 0.5, 0.0, scarce=True, refill=60.0)

    assert quota.wait(1.0, 0.0) == 0.5


def test_the_longest_hold_is_two_minutes():
    """As for every advisory wait."""
    assert LONGEST == 120.0


@pytest.mark.parametrize("reset", [None, 0.0, -1.0, float("nan"), float("inf")])
def test_a_reset_nobody_can_wait_for_is_ignored(reset):
    """Sentinels and nonsense hold nothing back."""
    quota = Quota()
    quota.observe(0.0, reset, 0.0, scarce=True, refill=60.0)

    assert quota.wait(1.0, 0.0) == 0.0


def test_a_daily_reset_is_asked_again_after_two_minutes():
    """Reset headers advise; an advice holds for two minutes."""
    quota = Quota()
    quota.observe(0.0, 86_400.0, 0.0, scarce=True, refill=60.0)

    assert quota.wait(1.0, 0.0) == LONGEST


def test_the_last_of_a_window_closes_it():
    """Taking all that is left leaves nothing to pace."""
    quota = Quota()
    quota.observe(0.0, 6.0, 0.0, scarce=True, refill=60.0)
    quota.take(0.0, 1.0)

    assert quota.wait(0.0, 1.0) == 5.0
