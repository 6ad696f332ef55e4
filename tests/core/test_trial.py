"""A lighter load for a moment: when it is tried, when it stays, when it is taken back."""

from __future__ import annotations

import pytest
from llm_client.core.trial import Trial
from llm_client.core.tuning import TUNING
from tests.core.readings import reading


def test_a_load_that_may_be_too_much_is_lightened():
    """Seven tenths of what was in flight."""
    assert Trial(TUNING).begun(reading(), 24.0, 1.0) == pytest.approx(0.7 * 20.0)


@pytest.mark.parametrize("given", [{"sure": True}, {"wait": 0.4}, {"fresh": 0.4}])
def test_nothing_is_tried_without_a_doubt(given):
    """The signal is sure, the answers are quick, or the window says nothing about the limit of now."""
    assert Trial(TUNING).begun(reading(**given), 24.0, 1.0) is None


def test_a_small_load_is_not_lightened():
    """Below four calls a lighter load is idleness."""
    assert Trial(TUNING).begun(reading(), 3.0, 1.0) is None


def test_a_load_that_brought_as_many_answers_stays():
    """And the next trial may come soon."""
    trial = Trial(TUNING)
    trial.begun(reading(), 24.0, 1.0)

    assert trial.ended(reading(rate=9.5), 2.0) is None
    assert trial.begun(reading(), 20.0, 2.0 + 0.9 * TUNING.trial_gap) is None
    assert trial.begun(reading(), 20.0, 2.0 + 1.1 * TUNING.trial_gap) == pytest.approx(0.7 * 20.0)


def test_a_load_that_cost_answers_comes_back_and_is_tried_less():
    """The old limit, and twice the time until the next trial."""
    trial = Trial(TUNING)
    trial.begun(reading(), 24.0, 1.0)

    assert trial.ended(reading(rate=7.0), 2.0) == 24.0
    assert trial.begun(reading(), 24.0, 2.0 + 1.9 * TUNING.trial_gap) is None
    assert trial.begun(reading(), 24.0, 2.0 + 2.1 * TUNING.trial_gap) == pytest.approx(0.7 * 20.0)
