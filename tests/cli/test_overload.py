"""The overload benchmark: its perfect scheduler, its measures, and one short run of it."""

from __future__ import annotations

import pytest
from llm_client.cli.bench_overload import BATCH, INTERACTIVE, LOADS, Load, Run, adapted, crossed, ideal, judge, one
from llm_client.cli.main import main

SMALL = Load(slots=1, seconds=1.0, load=1.0, duration=10.0)


def test_the_perfect_scheduler_serves_the_urgent_first_and_drops_the_hopeless():
    """One slot of a second: a late interactive call overtakes, and batch work that cannot be in time is not begun."""
    early = [(0.0, BATCH)] * 20
    late = [(0.5, INTERACTIVE)] * 6
    done = ideal([*early, *late], SMALL)

    assert done == {INTERACTIVE: 4, BATCH: 11}  # 1 s is taken at 0.5; 15 s hold fifteen seconds of work


def test_the_perfect_scheduler_waits_for_what_comes():
    """An idle slot begins with the arrival, not before."""
    assert ideal([(0.0, BATCH), (100.0, INTERACTIVE)], SMALL) == {INTERACTIVE: 1, BATCH: 1}


def test_measures_are_counted_from_calls_and_books():
    """Two in time, one too late, one failure after half of its time; five seconds of slot time."""
    run = Run(
        "x",
        [(0.0, INTERACTIVE, 0), (1.0, BATCH, 0), (2.0, INTERACTIVE, 0), (3.0, BATCH, 0)],
        [(1.0, None), (2.0, None), (5.5, None), (7.5, "TimeoutError")],
        wall=10.0,
        cpu=1.0,
        stats={"refused": 1, "log": [{"service": 2.0, "status": 200}, {"service": 3.0, "status": 200}]},
    )
    found = judge(SMALL, [run])

    assert found["on time / ideal"] == pytest.approx(2 / 4)
    assert found["interactive / ideal"] == pytest.approx(1 / 2)
    assert found["refusals / on time"] == pytest.approx(0.5)
    assert found["slots wasted"] == pytest.approx(1 - 2 / 5)
    assert found["told after"] == pytest.approx(0.5)
    assert found["failures"] == pytest.approx(0.25)


def test_a_line_that_is_crossed_is_named():
    """With the value and the line."""
    assert crossed(LOADS["fair"], {"Jain": 0.95}) == []
    assert crossed(LOADS["fair"], {"Jain": 0.85}) == ["Jain 0.850 is not >= 0.9"]


def test_the_same_seed_gives_the_same_arrivals():
    """And the last of several instances joins late."""
    load = adapted(LOADS["fair"], duration=20.0)

    assert load.arrivals(1) == load.arrivals(1) != load.arrivals(2)
    assert min(at for at, _, instance in load.arrivals(1) if instance == 3) > 5.0


@pytest.mark.parametrize(("outage", "stream"), [(0.0, False), (1.0, False), (0.0, True)])
def test_a_short_run_is_booked_in_full(outage, stream):
    """Every arrival has an end, and the server's books agree."""
    load = Load(load=0.8, duration=3.0, slots=4, seconds=0.1, queue=8, outage=outage, stream=stream)
    run = one(load, "llm_client", 1)
    answered = sum(error is None for _, error in run.calls)

    assert len(run.calls) == len(run.arrivals) > 0
    assert answered >= (0.5 if outage else 0.9) * len(run.calls)
    assert run.stats["answered"] >= answered
    assert ("probes / s" in judge(load, [run])) == bool(outage)
    assert any(record["status"] == 503 for record in run.stats["log"]) == bool(outage)


def test_streams_are_held_to_a_line_of_their_own():
    """They tell the wait in the server better, so shares of a fleet have to be more equal."""
    plain, streamed = LOADS["fair"], adapted(LOADS["fair"], stream=True)

    assert (plain.stream, plain.lines["Jain"]) == (False, (">=", 0.90))
    assert (streamed.stream, streamed.lines["Jain"]) == (True, (">=", 0.95))


def test_an_unknown_load_is_refused(capsys):
    """With the names that there are."""
    assert main(["bench", "overload", "never"]) == 2
    assert "open 0.5" in capsys.readouterr().err
