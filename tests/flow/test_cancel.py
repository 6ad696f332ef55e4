"""Cancellation at every point of a call: whatever was held is given back, and nothing more is sent."""

from __future__ import annotations

import random

import pytest
from llm_client import InternalServerError
from tests.virtual import DONE, IDLE, Bench, FaultKind, answer, delta, error_body, fault, sse, status


class Cancelled(BaseException):
    """Stands for CancelledError and KeyboardInterrupt: not an Exception."""


def story(bench, stream):
    """A refusal, a stale connection, a failure, then a stream or a plain answer, behind a busy slot."""
    bench.server.script(
        answer(0.3),
        status(429, error_body("slow down"), after=0.05, retry_after="1"),
        fault(FaultKind.STALE, after=0.05),
        status(500, error_body("boom"), after=0.05),
        sse((0.1, delta(role=True)), (0.4, delta("a")), (0.8, delta("b", finish="stop") + DONE))
        if stream
        else answer(0.8),
    )
    bench.start("blocker")
    return bench.at(0.1, "victim", stream=stream, priority="high")


@pytest.mark.parametrize("stream", [False, True])
def test_cancelling_at_any_instant_gives_everything_back(stream):
    """Queue, refusal wait, back-off, connect, head, peek, body: the victim leaves at once and leaves nothing."""
    whole = Bench(pool={"concurrency": {"kind": "fixed", "limit": 1}}, seed=3)
    whole_victim = story(whole, stream)
    whole.run()

    assert whole_victim.ok

    last = whole_victim.ended
    for step in range(60):
        at = 0.1 + (last - 0.1) * step / 60 + 1e-6
        bench = Bench(pool={"concurrency": {"kind": "fixed", "limit": 1}}, seed=3)
        victim = story(bench, stream)
        sent = []

        def cut(bench=bench, victim=victim, sent=sent):
            victim.process.cancel(Cancelled())
            sent.append(len(bench.server.requests))

        bench.world.at(at, cut)
        bench.run(at + 0.5)
        if not victim.ok:
            assert isinstance(victim.error, Cancelled)
            assert at == pytest.approx(victim.ended)

        bench.run()
        others = sent[0] + (0 if len(bench.results) == 2 and bench.results[0].over else 1)

        assert len(bench.server.requests) <= others
        assert bench.idle() == IDLE

        after = bench.start("after")
        bench.server.scripts.clear()
        bench.run()

        assert after.ok


def test_a_cancelled_probe_leaves_the_circuit_half_open_and_its_place_free():
    """Neither success nor failure: the next call may probe."""
    bench = Bench(pool={"breaker": {"failures": 1, "probes": 1, "successes": 1}}, profile={"retry": {"attempts": 1}})
    bench.server.script(status(500, error_body("boom")), answer(5.0))
    bench.start()
    bench.run()
    bench.world.run(bench.world.now + 1.0)
    probe = bench.start()
    bench.world.run(bench.world.now + 0.1)

    assert bench.station.breaker.state == "half_open"

    probe.process.cancel(Cancelled())

    assert bench.station.breaker.state == "half_open"
    assert bench.station.breaker.probing == 0

    after = bench.start()
    bench.run()

    assert after.ok
    assert bench.station.breaker.state == "closed"


def test_a_storm_of_cancellations_leaves_nothing():
    """Ten thousand calls, half of them cancelled anywhere, with refusals and failures mixed in (S10)."""
    rng = random.Random(7)
    bench = Bench(pool={"concurrency": {"kind": "fixed", "limit": 20}, "queue": {"size": 20_000}}, seed=5)
    kinds = [answer(0.2)] * 8 + [
        status(429, error_body("slow down"), retry_after="0.2"),
        status(500, error_body("boom")),
    ]
    bench.server.default = lambda server, exchange: rng.choice(kinds)(server, exchange)  # noqa: PLW0108 - drawn per call
    cancelled = []
    for n in range(10_000):
        begin = rng.uniform(0, 60)
        result = bench.at(begin, f"c{n}", stream=rng.random() < 0.3)
        if rng.random() < 0.5:
            cancelled.append(result)
            bench.world.at(begin + rng.expovariate(2.0), lambda r=result: r.process and r.process.cancel(Cancelled()))
    bench.run()
    hit = [each for each in cancelled if each.error is not None]

    assert bench.idle() == IDLE
    assert sum(isinstance(each.error, Cancelled) for each in hit) > 2000
    assert {Cancelled, InternalServerError} == {type(each.error) for each in hit}  # the latter failed before
    assert bench.station.breaker.state == "closed"
