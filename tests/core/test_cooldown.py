"""Cool-downs."""

from math import inf, nan

import pytest
from llm_client.core.cooldown import CoolDown


def test_the_latest_end_wins_and_names_its_reason():
    """S24: a second, longer wish extends the silence; a shorter one changes nothing."""
    cool = CoolDown()

    assert cool.extend(0.0, 1.0, "loading")
    assert cool.extend(0.5, 60.0, "unavailable")
    assert not cool.extend(1.0, 5.0, "loading")
    assert (cool.until, cool.reason) == (60.5, "unavailable")


def test_ready_at_is_now_or_the_end():
    """`ready_at` answers with an instant that can be compared and slept to."""
    cool = CoolDown()
    assert cool.ready_at(7.0) == 7.0

    cool.extend(7.0, 3.0, "loading")
    assert cool.ready_at(8.0) == 10.0
    assert cool.ready_at(10.0) == 10.0
    assert cool.ready_at(11.0) == 11.0


@pytest.mark.parametrize("seconds", [nan, inf, -1.0, 0.0])
def test_nonsense_extends_nothing(seconds):
    """An endpoint is not lost for ever because of one header."""
    cool = CoolDown()

    assert not cool.extend(0.0, seconds, "unavailable")
    assert cool.ready_at(0.0) == 0.0


def test_clear_ends_it():
    """An operator may end a silence."""
    cool = CoolDown()
    cool.extend(0.0, 60.0, "unavailable")
    cool.clear()

    assert cool.ready_at(1.0) == 1.0
