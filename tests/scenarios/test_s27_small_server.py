"""Two slots of 20 ms under a rising and falling open loop (S27)."""

from __future__ import annotations

import pytest
from llm_client.testing.simulation import Kind, Scenario, quantile
from tests.scenarios.kit import play, seeds

RATES = (50.0, 90.0, 200.0, 100.0)


@pytest.mark.parametrize("seed", seeds([1], [1, 2, 3, 4, 5]))
def test_s27_the_classic_ramp_is_served_at_the_capacity(seed, request):
    """50, 90, 200 and 100 calls per second: nine tenths of what is possible, within ten times the mean."""
    phase = 100.0 if request.node.get_closest_marker("heavy") else 15.0
    left_out = 10.0 if request.node.get_closest_marker("heavy") else 5.0
    kinds = tuple(
        Kind(share=rate / RATES[0], begin=n * phase, end=(n + 1) * phase, deadline=0.2, prompt=10, output=10)
        for n, rate in enumerate(RATES)
    )
    server = {"slots": 2, "queue": 10, "seconds": 0.02, "sigma": 0.5, "retry_after": None}
    scenario = Scenario(settings=server, rate=RATES[0], seconds=4 * phase, kinds=kinds)
    report = play("S27", scenario, seed=seed)
    for kind, rate in zip(kinds, RATES, strict=True):
        begin = kind.begin + left_out
        times = sorted(
            each.ended - each.arrived
            for each in report.outcomes
            if each.arrived >= begin and each.kind is kind and not each.error
        )
        print(rate, report.goodput(begin, kind.end), quantile(times, 0.99))

        assert report.goodput(begin, kind.end) >= 0.9 * min(rate, 100.0)
        assert quantile(times, 0.99) <= 10 * 0.02
