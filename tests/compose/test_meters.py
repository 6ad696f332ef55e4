"""Token buckets by scope, as a profile writes them."""

from __future__ import annotations

import pytest
from llm_client.compose.meters import Meters
from llm_client.model import Cost
from llm_client.profiles.types import EndpointSpec, LimitsSpec, Rate, ScopeLimits


def meter(limits=None, endpoint=None, account="a"):
    spec = EndpointSpec(name="e", base_url="http://e/v1", account=account, limits=endpoint or ScopeLimits())
    return Meters(limits or LimitsSpec(), 0.0).of(spec)


def test_without_limits_there_is_nothing_to_ask():
    """A plain endpoint costs no look-up."""
    assert meter() is None


@pytest.mark.parametrize(("burst", "at_once", "every"), [(None, 3, 10 / 3), (1.0, 1, 10 / 3)])
def test_a_burst_is_a_whole_period_unless_told(burst, at_once, every):
    """Three per ten seconds: three at once and then one every 3.33 s; with a burst of one, evenly (FC-BK-13)."""
    buckets = meter(endpoint=ScopeLimits(requests=Rate(amount=3, period=10, burst=burst)))("m")
    for _ in range(at_once):
        assert buckets.wait(Cost(), 0.0) == 0.0
        buckets.take(Cost(), 0.0)

    assert buckets.wait(Cost(), 0.0) == pytest.approx(every)


def test_a_fleet_divides_rate_and_burst():
    """Four processes without a store: each takes a quarter (FC-RD-11)."""
    buckets = meter(endpoint=ScopeLimits(requests=Rate(amount=60, period=60, burst=8), fleet_size=4))("m")
    for _ in range(2):
        buckets.take(Cost(), 0.0)

    assert buckets.wait(Cost(), 0.0) == pytest.approx(4.0)


def test_scopes_are_joined_and_shared():
    """Total, account, model and endpoint all count; the account's bucket is the same for its endpoints."""
    one = ScopeLimits(requests=Rate(amount=1, period=1))
    meters = Meters(LimitsSpec(total=one, accounts={"a": one}, models={"m": one}), 0.0)
    first = meters.of(EndpointSpec(name="x", base_url="http://x/v1", account="a", limits=one))
    second = meters.of(EndpointSpec(name="y", base_url="http://y/v1", account="a"))
    taken = first("m")
    taken.take(Cost(), 0.0)

    assert [member.scope for member in taken.members] == ["total", "account a", "endpoint x", "model m"]
    assert second("other").wait(Cost(), 0.0) == pytest.approx(1.0)
