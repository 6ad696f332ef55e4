"""The retry budget."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.core.budget import FLOOR_INTERVAL, RetryBudget
from llm_client.errors import ConfigError


def test_starts_full_and_is_refilled_by_successes():
    """Ten retries are saved up; then ten deposits of 0.1 buy exactly one."""
    budget = RetryBudget(ratio=0.1, burst=10)
    assert [budget.withdraw(0.0) for _ in range(11)] == [True] * 10 + [False]

    for _ in range(9):
        budget.deposit()
    assert not budget.withdraw(1.0)

    budget.deposit()
    assert budget.withdraw(1.0)
    assert not budget.withdraw(1.0)


def test_deposits_stop_at_the_burst():
    """A quiet month does not pay for a storm."""
    budget = RetryBudget(ratio=1.0, burst=2)
    for _ in range(100):
        budget.deposit()

    assert budget.tokens == 2.0


def test_one_retry_in_ten_seconds_is_always_free():
    """Without traffic that could pay, a lone failure is still retried."""
    budget = RetryBudget(ratio=0.0, burst=0.0)

    granted = [at for at in range(40) if budget.withdraw(float(at))]
    assert granted == [0, 10, 20, 30]


@given(
    st.lists(st.tuples(st.sampled_from(["deposit", "withdraw", "withdraw"]), st.floats(0, 3)), max_size=200),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.integers(0, 10),
)
def test_retries_never_exceed_what_was_paid(steps, ratio, burst):
    """Over any run, retries are at most ratio * accepted + burst + one in ten seconds."""
    budget, now, accepted, retries = RetryBudget(ratio, burst), 0.0, 0, 0
    for step, gap in steps:
        now += gap
        if step == "deposit":
            budget.deposit()
            accepted += 1
        else:
            retries += budget.withdraw(now)

        assert retries <= ratio * accepted + burst + now / FLOOR_INTERVAL + 1


@pytest.mark.parametrize(("name", "value"), [("ratio", -0.1), ("ratio", nan), ("burst", -1), ("burst", inf)])
def test_bad_numbers_are_named(name, value):
    """The error says which key is wrong."""
    with pytest.raises(ConfigError, match=f"retry_budget.{name}") as caught:
        RetryBudget(**{name: value})

    assert f"pool.retry_budget.{name}" == caught.value.path
