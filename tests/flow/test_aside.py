"""A call steps aside from an endpoint that is going, and waits for one that is well."""

from __future__ import annotations

import pytest
from llm_client import InternalServerError
from llm_client.flow.retry import ASIDE
from tests.virtual import IDLE, Bench, FaultKind, answer, error_body, fault, status

DRAINING = status(503, error_body("The server is shutting down. Send the request elsewhere."))
POOL = {"concurrency": {"kind": "fixed", "limit": 1}, "retry_budget": {"ratio": 0, "burst": 1}}


@pytest.mark.parametrize("going", [DRAINING, fault(FaultKind.RESET)], ids=["503", "reset"])
def test_it_waits_for_the_other_and_does_not_come_back(going):
    """One request to the one that is going, then the next free place at the other."""
    bench = Bench(hosts=("a", "b"), pool=POOL)
    bench.server.defaults = {"a": answer(4.0), "b": going}
    results = [bench.start() for _ in range(2)]
    bench.run()

    assert all(each.ok for each in results)
    assert len(bench.server.times("b")) == 1
    assert bench.server.times("a") == [0.0, pytest.approx(4.0)]
    assert bench.idle() == IDLE


def test_it_comes_back_when_the_others_take_too_long():
    """The one that was going may be back by then."""
    bench = Bench(hosts=("a", "b"), pool=POOL)
    bench.server.defaults = {"a": answer(60.0)}
    bench.server.script(DRAINING, answer(0.1), host="b")
    results = [bench.start() for _ in range(2)]
    bench.run()

    assert all(each.ok for each in results)
    assert bench.server.times("b")[1] >= ASIDE
    assert min(each.elapsed for each in results) < ASIDE + 1.0


def test_it_needs_no_budget():
    """Twenty calls meet an endpoint that is going, with one retry saved up."""
    pool = {**POOL, "concurrency": {"kind": "fixed", "limit": 20}, "breaker": "off"}
    bench = Bench(hosts=("a", "b"), pool=pool)
    bench.server.defaults = {"b": DRAINING}
    results = [bench.start() for _ in range(20)]
    bench.run()

    assert all(each.ok for each in results)
    assert len(bench.server.times("b")) > 2


def test_alone_it_pays_as_ever():
    """Nobody to go to: attempts and budget bound what is repeated."""
    bench = Bench(pool=POOL)
    bench.server.default = DRAINING
    results = [bench.start() for _ in range(5)]
    bench.run()

    assert {InternalServerError} == {type(each.error) for each in results}
    assert len(bench.server.requests) <= 5 + 1 + 2


def test_when_all_are_going_each_is_tried_once_for_free():
    """Then the budget says no."""
    bench = Bench(hosts=("a", "b", "c"), pool={**POOL, "retry_budget": {"ratio": 0, "burst": 1}, "breaker": "off"})
    bench.server.default = DRAINING
    spent = bench.start()
    bench.run()
    result = bench.start()
    bench.run()

    assert isinstance(spent.error, InternalServerError)
    assert isinstance(result.error, InternalServerError)
    assert len(result.error.attempts) <= 4


def test_an_error_of_the_server_is_no_departure():
    """A 500 pays from the budget, wherever else there is room."""
    bench = Bench(hosts=("a", "b"), pool={**POOL, "concurrency": {"kind": "fixed", "limit": 20}, "breaker": "off"})
    bench.server.defaults = {"b": status(500, error_body("boom"))}
    results = [bench.start() for _ in range(20)]
    bench.run()

    assert sum(each.ok for each in results) < 20
