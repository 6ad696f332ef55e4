"""The memory of withdrawals, against a replay of all of them."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_client.core import ledger as module
from llm_client.core.ledger import Ledger

STEPS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.5, 3.0]), st.booleans(), st.floats(0.01, 3.0), st.integers(0, 10**6)),
    max_size=60,
)


def replay(taken: list[list[float]]) -> float:
    """Return when a bucket that knew all costs from the start would be full."""
    full_at = 0.0
    for at, cost in taken:
        full_at = max(at, full_at) + cost
    return full_at


def run(steps, shrink):
    """Drive a ledger; yield (now, full_at, truth) after every step."""
    ledger, now, full_at = Ledger(), 0.0, 0.0
    taken, numbers, under_way = [], [], []
    for gap, take, cost, pick in steps:
        now += gap
        if take or not under_way:
            numbers.append(ledger.note(max(0.0, full_at - now)))
            full_at = max(now, full_at) + cost
            under_way.append(len(taken))
            taken.append([now, cost])
        else:
            index = under_way.pop(pick % len(under_way))
            actual = taken[index][1] * shrink(pick)
            surplus = taken[index][1] - actual
            full_at -= ledger.surplus(numbers[index], surplus) if surplus > 0 else surplus
            taken[index][1] = actual
        yield now, full_at, replay(taken)


@given(STEPS)
@settings(max_examples=300)
def test_surpluses_come_back_exactly_as_a_replay_says(steps):
    """With estimates that were never too low, the bucket stands where one that knew the costs would stand."""
    for now, full_at, truth in run(steps, lambda pick: (0.0, 0.3, 1.0)[pick % 3]):
        assert abs(max(now, truth) - max(now, full_at)) < 1e-9


@given(STEPS)
@settings(max_examples=300)
def test_nothing_is_given_back_that_was_not_there(steps):
    """With estimates that were wrong both ways, the bucket is never fuller than one that knew the costs."""
    for now, full_at, truth in run(steps, lambda pick: (0.0, 0.5, 1.0, 2.5)[pick % 4]):
        assert max(now, full_at) >= max(now, truth) - 1e-9


@given(STEPS, st.sampled_from([2, 4, 8]))
@settings(max_examples=300)
def test_thinning_errs_on_the_side_of_the_limit(steps, most):
    """With room for a few leads only, still nothing is given back that was not there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST", most)
        for now, full_at, truth in run(steps, lambda pick: (0.0, 0.3, 1.0)[pick % 3]):
            assert max(now, full_at) >= max(now, truth) - 1e-9


@given(
    st.lists(st.tuples(st.floats(0, 50), st.integers(0, 40), st.floats(0, 9)), max_size=60), st.sampled_from([4, 256])
)
def test_leads_and_marks_grow_together(steps, most):
    """The two lists stay equally long and increasing, so that one bisection finds the least lead."""
    ledger = Ledger()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST", most)
        for lead, number, surplus in steps:
            newest = ledger.note(lead)
            ledger.surplus(min(number, newest), surplus)

            assert len(ledger._leads) == len(ledger._marks) <= most + 1
            assert all(one < two for one, two in pairwise(ledger._marks))
            assert all(one <= two for one, two in pairwise(ledger._leads))
            assert ledger._marks[-1] == newest


def test_a_late_surplus_that_spilled_over_is_worth_nothing():
    """The bucket had refilled before the second withdrawal: nothing of the first is left to return."""
    ledger = Ledger()
    first = ledger.note(0.0)
    ledger.note(0.0)

    assert ledger.surplus(first, 5.0) == 0.0


def test_memory_is_bounded():
    """A ramp of ten thousand different leads is thinned, to the caller's disadvantage only."""
    ledger = Ledger()
    numbers = [ledger.note(float(lead)) for lead in range(10_000)]

    assert len(ledger._leads) <= 257
    assert 9_999.0 >= ledger.surplus(numbers[-2], 1e9) > 9_000.0
