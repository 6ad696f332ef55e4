"""What the less urgent may have on the way, by itself."""

from __future__ import annotations

from math import inf

import pytest
from llm_client.core.proven import Proven
from llm_client.core.tuning import TUNING
from tests.core.readings import reading


def window(**given):
    """Twelve calls in flight, a third of their time spent waiting."""
    return reading(**{"wait": 0.4, "service": 0.8, "target": 0.4, "level": 12.0} | given)


def room(proven, limit):
    """Count the calls that may be on the way together."""
    calls = 0
    while proven.clear_at(calls, limit) == 0.0:
        calls += 1
    return calls


def test_half_of_what_waits_is_left_to_the_urgent():
    """Of twelve calls eight are worked on: ten may be of the less urgent."""
    proven = Proven(TUNING, 4.0)
    proven.weighed(window())

    assert room(proven, 12.0) == 10


def test_one_odd_window_does_not_decide():
    """Every window counts a quarter."""
    proven = Proven(TUNING, 4.0)
    proven.weighed(window(wait=0.1, level=10.0))
    proven.weighed(window(wait=0.8, level=4.0))

    assert room(proven, 12.0) == 10


def test_a_window_without_waiting_frees_the_whole_limit():
    """Else a limit that few urgent calls press would hardly grow."""
    proven = Proven(TUNING, 4.0)
    proven.weighed(window())
    proven.weighed(window(wait=0.0))

    assert room(proven, 12.0) == 12


def test_where_answers_are_alike_the_calls_of_the_windows_count():
    """Whoever sees the shorter wait of a shared queue must not gain by it."""
    proven = Proven(TUNING, 4.0)
    proven.weighed(window(alike=True, level=8.0))

    assert room(proven, 12.0) == 10


@pytest.mark.parametrize("limit", [0.05, 0.5, 1.0, inf])
def test_one_call_is_always_proven(limit):
    """A share below one call is a pace; it would never come to the less urgent."""
    proven = Proven(TUNING, 1.0)
    proven.weighed(window(level=0.4))

    assert proven.clear_at(0, limit) == 0.0


def test_a_ramp_has_what_answers_and_time_have_proven():
    """Four at the start, one more for eight answers, twice as many after five seconds."""
    proven = Proven(TUNING, 4.0)
    proven.sent(100.0)
    assert room(proven, inf) == 4

    assert proven.clear_at(4, inf) == pytest.approx(100.85, abs=0.01)
    assert proven.clear_at(8, inf) == pytest.approx(105.4, abs=0.1)

    for _ in range(8):
        proven.answered()
    assert room(proven, inf) == 5
