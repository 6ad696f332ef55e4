"""The adaptive limit finds a server's capacity and keeps the rest at home."""

from __future__ import annotations

import pytest
from tests.core.scenarios import BURSTS

LINES = {  # makespan / ideal, sends per answer
    "A": (1.05, 1.02),
    "B": (1.05, 1.04),
    "C": (1.12, 1.01),
    "D": (1.05, 1.02),
    "E": (1.10, 1.00),
}


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("name", LINES)
def test_a_burst_ends_near_the_ideal_with_hardly_a_refusal(name, stream):
    """Five bursts, nothing told about capacity, within the pass lines on unseen seeds."""
    span, sends = LINES[name]

    for seed in (2001, 2002):
        result = BURSTS[name].run(seed, stream=stream)

        assert result.answered == 1.0
        assert result.span <= span
        assert result.sends <= sends
