"""Overload in virtual time against a perfect scheduler on the same arrivals: the loads of `llm-client bench overload`.

Eight slots of 0.8 s, room for sixteen more, Retry-After from the drain time, nothing told to the client.
"""

from __future__ import annotations

from math import ceil

import pytest
from llm_client.cli.bench_overload import INTERACTIVE, LOADS, Run, adapted, crossed, judge
from llm_client.drivers.virtual import World
from tests.virtual import Bench, SlotServer, error_body, status

OVERLOADED = error_body("The server is overloaded.", "overloaded", "overloaded_error")


class Draining(SlotServer):
    """Says when its queue will have drained; answers 503 for a while if told so."""

    def __init__(self, world, load):
        super().__init__(world, load.slots, load.queue, load.seconds)
        self.load, self.started, self.broken = load, 0, 0

    def _arrive(self, exchange):
        load = self.load
        begin = 0.3 * load.duration
        if begin <= self.world.now < begin + load.outage:
            self.broken += 1
            status(503, OVERLOADED if load.overload else b"upstream connect error", after=0.001)(self, exchange)
            return
        if self.busy == self.slots and len(self.line) == self.room:
            self.refused += 1
            seconds = (len(self.line) + 1) / self.slots * self.seconds
            times = {"retry_after": str(ceil(seconds)), "retry_after_ms": str(int(1000 * seconds))}
            status(429, error_body("too many", "rate_limit_exceeded"), after=0.001, **times)(self, exchange)
            return
        super()._arrive(exchange)

    def _start(self, exchange):
        self.started += 1
        super()._start(exchange)


def play(load, seed):
    """Run one client, or several that share the load, on one server."""
    world = World()
    server = Draining(world, load)
    benches = [Bench(world=world, server=lambda _: server, seed=10 * seed + n) for n in range(load.instances)]
    arrivals = load.arrivals(seed)
    results = [
        benches[instance].at(
            at, stream=load.stream, priority="high" if kind == INTERACTIVE else "low", deadline=load.deadline(kind)
        )
        for at, kind, instance in arrivals
    ]
    world.run(10_000.0, done=lambda: all(each.over for each in results))
    calls = [(each.elapsed, None if each.ok else type(each.error).__name__) for each in results]
    work = [{"service": load.seconds, "status": 200}] * server.started
    stats = {"refused": server.refused, "log": [*work, *[{"service": 0.0, "status": 503}] * server.broken]}
    return Run("llm_client", arrivals, calls, max(each.ended for each in results), 0.0, stats)


def check(name, seeds, *, stream):
    load = adapted(LOADS[name], stream=stream)
    measures = judge(load, [play(load, seed) for seed in seeds])
    print(name, {key: round(value, 3) for key, value in measures.items()})

    assert crossed(load, measures) == []


def rows():
    """Every load, plain and streamed."""
    out = []
    for name in LOADS:
        for stream in (False, True):
            marks = [pytest.mark.heavy] if name == "open 10" else []
            out.append(pytest.param(name, stream, id=f"{name}-{'stream' if stream else 'plain'}", marks=marks))
    return out


@pytest.mark.parametrize(("name", "stream"), rows())
def test_calls_are_in_time_as_with_a_perfect_scheduler(name, stream):
    """Urgent ones above all, with hardly a refusal, hardly a slot wasted, and early word for who cannot be served."""
    # In an outage the luck of two or three open times decides much of one repetition (failures 0.006 to 0.09); among four
    # instances it is who came first (Jain 0.73 to 0.99): over 16 repetitions streams had 0.949, over 48 0.953.
    seeds = range(100, 124 if "outage" in name or name == "fair" else 102)
    check(name, seeds, stream=stream)
