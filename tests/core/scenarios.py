"""Loads for limits: bursts, open loops, outages and fleets, and what came of them."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace

from llm_client.core.adaptive import AdaptiveLimit
from tests.core.des import INF, Batch, Bucket, Call, Process, Slots, World

NEVER = 10**9


def adaptive(rng):
    return AdaptiveLimit(rng)


def lognormal(rng, mean, sigma):
    return rng.lognormvariate(math.log(mean) - sigma * sigma / 2.0, sigma)


def jain(shares):
    return sum(shares) ** 2 / (len(shares) * sum(x * x for x in shares)) if any(shares) else 0.0


@dataclass(frozen=True, kw_only=True)
class Burst:
    """N calls at once, no deadline, nothing told about capacity."""

    slots: int = 8
    queue: int = 8
    calls: int = 400
    retry_after: float | None = 1.0
    service: float = 0.2
    sigma: float = 0.0
    told: bool = True
    unexplained: float = 0.0  # spread of token counts that do not matter for the service time
    intercept: float = 0.0  # seconds of work that tokens do not explain
    cpu: tuple[float, float] = (0.0005, 0.0005)
    way: tuple[float, float] = (0.001, 0.0025)
    lag: float = 0.0
    processes: int = 1
    outage: tuple[float, float, int] | None = None  # start, length, places left
    bucket: tuple[float, int, bool] | None = None  # rate, burst, tells Retry-After
    first: tuple[float, float, float] | None = None  # seconds of first content: mean, sigma, share of the work

    def run(self, seed, *, stream, limit=adaptive, horizon=3000.0):
        """Return what came of it: span (makespan / ideal), sends per answer, and more."""
        world = World(seed, self.way)
        if self.bucket is None:
            server = Slots(world, self.slots, self.queue, self.retry_after, self.lag)
        else:
            server = Bucket(world, self.bucket[0], self.bucket[1], tells=self.bucket[2])
        fleet = [
            Process(
                world,
                server,
                limit(random.Random(f"{seed}.{i}")),
                random.Random(f"b{seed}.{i}"),
                stream=stream,
                cpu=self.cpu,
            )
            for i in range(self.processes)
        ]
        if self.first:
            mean, sigma, share = self.first
            server.first = lambda call: min(call.work, lognormal(world.rng, mean, sigma) + share * call.work)
        works = []
        for i in range(self.calls):
            work = lognormal(world.rng, self.service, self.sigma) if self.sigma else self.service
            size = lognormal(world.rng, 1.0, self.unexplained) if self.unexplained else work / self.service
            output = max(1, round(200 * size)) if self.told else 200
            if self.intercept:
                work += self.intercept * lognormal(world.rng, 1.0, 0.4)
            works.append(work)
            fleet[i % self.processes].queue.append(Call(0.0, INF, output, 100, work))
        ideal = server.capacity(works)
        for process in fleet:
            world.at(world.rng.uniform(0.0, 0.01) if self.processes > 1 else 0.0, process.pump)
        if self.outage:
            self._plan(world, server)
        track = []

        def watch():
            track.append((world.now, sum(len(p.flying) for p in fleet)))
            world.at(world.now + 0.05, watch)

        watch()
        world.run(horizon, lambda: sum(p.done for p in fleet) >= self.calls)
        done = sum(p.done for p in fleet)
        ends = [p.answered_at[-1] if p.answered_at else horizon for p in fleet]
        return Result(
            answered=done / self.calls,
            span=max(ends) / ideal,
            sends=sum(p.sends for p in fleet) / max(1, done),
            refused=server.refusals,
            reach=next((t for t, n in track if n >= 0.9 * self.slots), INF),
            peak=max(n for _, n in track),
            jain=jain(ends),
        )

    def _plan(self, world, server):
        start, length, left = self.outage
        slots, bound = server.slots, server.bound

        def on():
            server.slots, server.bound = left, 0

        def off():
            server.bound = bound
            server.resize(slots)

        world.at(start, on)
        world.at(start + length, off)


@dataclass(frozen=True, kw_only=True)
class Open:
    """Poisson arrivals with deadlines on a continuous batching server."""

    load: float = 1.5
    processes: int = 4
    queue: int = 64
    slots: int = 32
    seconds: float = 600.0
    warm: float = 60.0
    retry_after: float | None = 1.0
    deadline: float = 30.0
    bound: int = 200
    phases: tuple[tuple[float, int], ...] = ()
    prompts: tuple[tuple[float, float], ...] = ((0.0, 500.0),)  # mean prompt tokens from a time on

    def run(self, seed, *, stream, limit=adaptive):
        world = World(seed)
        server = Batch(world, self.slots, self.queue, self.retry_after)
        rate = server.rate(200.0, self.prompts[0][1])
        fleet = [
            Process(
                world,
                server,
                limit(random.Random(f"{seed}.{i}")),
                random.Random(f"b{seed}.{i}"),
                stream=stream,
                shed=True,
                bound=self.bound,
            )
            for i in range(self.processes)
        ]
        rng = random.Random(seed * 7 + 1)

        def arrive(process):
            now = world.now
            mean = [m for t, m in self.prompts if t <= now][-1]
            output = max(1, round(lognormal(rng, 200.0, 0.8)))
            process.submit(Call(now, now + self.deadline, output, lognormal(rng, mean, 0.8), 0.0))
            world.at(now + rng.expovariate(self.load * rate / self.processes), arrive, process)

        for process in fleet:
            world.at(rng.expovariate(self.load * rate / self.processes), arrive, process)
        track = []

        def watch():
            track.append(
                (
                    world.now,
                    sum(p.limit.limit for p in fleet),
                    sum(p.good for p in fleet),
                    sum(len(p.flying) for p in fleet),
                )
            )
            world.at(world.now + 1.0, watch)

        watch()
        for t, slots in self.phases:
            world.at(t, server.resize, slots)
        base = {}

        def mark():
            base.update(
                good=[p.good for p in fleet],
                sends=sum(p.sends for p in fleet),
                logical=sum(p.logical for p in fleet),
                tokens=(server.good, server.waste),
                firsts=[len(p.firsts) for p in fleet],
            )

        world.at(self.warm, mark)
        world.run(self.seconds)
        good = [p.good - g for p, g in zip(fleet, base["good"], strict=True)]
        firsts = sorted(t for p, n in zip(fleet, base["firsts"], strict=True) for t in p.firsts[n:])
        tokens, waste = server.good - base["tokens"][0], server.waste - base["tokens"][1]
        flying = sorted(n for t, _, _, n in track if t > self.warm)
        return Result(
            goodput=sum(good) / (self.seconds - self.warm) / rate,
            sends=(sum(p.sends for p in fleet) - base["sends"])
            / max(1, sum(p.logical for p in fleet) - base["logical"]),
            waste=waste / max(1.0, waste + tokens),
            p50=firsts[len(firsts) // 2],
            p95=firsts[int(len(firsts) * 0.95)],
            jain=jain(good),
            low=flying[len(flying) // 10],
            high=flying[len(flying) * 9 // 10],
            track=track,
            rate=rate,
        )


@dataclass(kw_only=True)
class Result:
    """Figures of one run; those of the other kind stay at their defaults."""

    answered: float = 1.0
    span: float = 0.0
    sends: float = 0.0
    refused: int = 0
    reach: float = 0.0
    peak: int = 0
    jain: float = 1.0
    goodput: float = 0.0
    waste: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    low: int = 0
    high: int = 0
    rate: float = 0.0
    track: list = field(default_factory=list)


def halved(seed, *, stream, limit=adaptive):
    """32 places become 16 at 300 s and 32 again at 600 s: seconds to adapt down and up, goodput per phase."""
    result = Open(load=1.5, seconds=900.0, phases=((300.0, 16), (600.0, 32))).run(seed, stream=stream, limit=limit)
    at = {round(t): (good, n) for t, _, good, n in result.track}
    phases = [(at[b][0] - at[a][0]) / (b - a) / result.rate for a, b in ((60, 300), (360, 600), (660, 899))]
    down = next((t - 300 for t in range(300, 600) if at[t][1] <= 22), INF)
    up = next((t - 600 for t in range(600, 899) if at[t][1] >= 28), INF)
    return phases, down, up


BURSTS = {
    "A": Burst(),
    "B": Burst(slots=2, queue=2, calls=150),
    "C": Burst(slots=64, queue=64, calls=3000),
    "D": Burst(retry_after=None),
    "E": Burst(slots=64, queue=NEVER, calls=3000),
    "var8": Burst(sigma=1.0, service=1.0),
    "var8-untold": Burst(sigma=1.0, service=1.0, told=False),
    "var64-unbounded": Burst(slots=64, queue=NEVER, calls=3000, sigma=1.0, service=1.0),
    "var64-untold": Burst(slots=64, queue=NEVER, calls=3000, sigma=1.0, service=1.0, told=False),
    "2ms": Burst(queue=64, calls=5000, service=0.002, cpu=(0.0001, 0.0001)),
    "2ms-long": Burst(queue=64, calls=20000, service=0.002, cpu=(0.0001, 0.0001)),
    "30s": Burst(slots=64, queue=64, calls=640, service=30.0),
    "30s-var": Burst(slots=64, queue=64, calls=640, service=30.0, sigma=1.0),
    "30s-unbounded": Burst(slots=64, queue=NEVER, calls=640, service=30.0),
    "30s-S4-unbounded": Burst(slots=4, queue=NEVER, calls=60, service=30.0),
    "S1Q0": Burst(slots=1, queue=0, calls=100),
    "S2Q0": Burst(slots=2, queue=0, calls=150),
    "S256Q0": Burst(slots=256, queue=0, calls=10000, cpu=(0.0002, 0.0002)),
    # Work that is no queue: a first content that takes its time, hidden thought, a gateway that buffers, answers whose
    # time their tokens do not explain.
    "base": Burst(slots=256, queue=NEVER, calls=3000, service=5.0, sigma=0.5, first=(0.8, 0.0, 0.0)),
    "base-noisy": Burst(slots=256, queue=NEVER, calls=3000, service=5.0, sigma=0.5, first=(0.8, 0.5, 0.0)),
    "base-slow": Burst(slots=256, queue=NEVER, calls=3000, service=10.0, sigma=0.5, first=(3.0, 0.3, 0.0)),
    "base-q64": Burst(slots=64, queue=64, calls=1000, service=5.0, sigma=0.5, first=(0.8, 0.3, 0.0)),
    "hidden": Burst(slots=256, queue=NEVER, calls=3000, service=10.0, sigma=0.7, first=(0.5, 0.5, 0.8)),
    "hidden-q64": Burst(slots=64, queue=64, calls=1000, service=10.0, sigma=0.7, first=(0.5, 0.5, 0.8)),
    "buffered": Burst(slots=256, queue=NEVER, calls=3000, service=5.0, sigma=0.7, first=(0.5, 0.5, 1.0)),
    "intercept": Burst(slots=64, queue=64, calls=3000, service=5.0, sigma=0.5, intercept=1.0),
    "constant-0.2s": Burst(unexplained=0.8),
    "constant-2s": Burst(unexplained=0.8, service=2.0),
    "constant-5s": Burst(slots=64, queue=NEVER, calls=1500, unexplained=0.8, service=5.0),
    "RA30": Burst(calls=2000, retry_after=30.0, outage=(10.0, 0.3, 4)),
    "RA30-start": Burst(slots=64, queue=64, calls=6000, retry_after=30.0, outage=(0.0, 0.3, 4)),
    "A x4": Burst(calls=1600, processes=4),
    "S32Q64 x16": Burst(slots=32, queue=64, calls=6400, processes=16),
    "S32Q64 x64": Burst(slots=32, queue=64, calls=6400, processes=64),
    "S32Q0 x16": Burst(slots=32, queue=0, calls=6400, processes=16),
    "hosted-0.1s": Burst(slots=10, queue=0, calls=1000, service=0.1, sigma=0.5, bucket=(10.0, 20, True)),
    "hosted-1s": Burst(slots=10, queue=0, calls=1000, service=1.0, sigma=0.5, bucket=(10.0, 20, True)),
    "hosted-8s": Burst(slots=10, queue=0, calls=1000, service=8.0, sigma=0.5, bucket=(10.0, 20, True)),
    "hosted-1s-silent": Burst(slots=10, queue=0, calls=1000, service=1.0, sigma=0.5, bucket=(10.0, 20, False)),
}
for _name in "ABCDE":  # harsher rigs
    BURSTS[f"{_name} late-slot"] = replace(BURSTS[_name], lag=0.008)  # a slot is freed 8 ms after the answer
    BURSTS[f"{_name} wan"] = replace(BURSTS[_name], way=(0.03, 0.05))  # round trips of 60 to 100 ms
    BURSTS[f"{_name} cpu"] = replace(BURSTS[_name], cpu=(0.001, 0.001))  # 2 ms of client CPU per call
OPEN = {
    "S1": Open(load=0.8),
    "S2": Open(load=1.5),
    "S3": Open(load=3.0),
    "F1": Open(load=2.0, processes=1),
    "F4": Open(load=2.0),
    "F16": Open(load=2.0, processes=16),
    "F64": Open(load=2.0, processes=64),
    "U4": Open(load=2.0, queue=NEVER),
    "U64": Open(load=2.0, processes=64, queue=NEVER),
    "L1": Open(processes=1, prompts=((0.0, 8000.0),)),
    "L1-low": Open(load=0.8, processes=1, prompts=((0.0, 8000.0),)),
    "L4": Open(prompts=((0.0, 8000.0),)),
    "S5": Open(load=1.2, seconds=900.0, prompts=((0.0, 500.0), (450.0, 2500.0))),
}
