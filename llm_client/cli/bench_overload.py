"""Overload: open-loop load against the same arrivals on a perfect scheduler.

A fifth of the calls is interactive with a deadline of five service times, the rest is batch work with fifteen. The
perfect scheduler has no overhead and no queue limit, serves interactive first and the earliest deadline first within
a class, and drops what cannot be in time. Every run has a fresh server and a fresh client process; the clients of a
repetition see the same arrivals and take turns.
"""

from __future__ import annotations

import heapq
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from llm_client.cli.reference import ReferenceServer

INTERACTIVE, BATCH = "interactive", "batch"
PATIENCE: Mapping[str, float] = {INTERACTIVE: 5.0, BATCH: 15.0}  # deadlines in service times
URGENT = 0.2
LATE = 0.005  # seconds by which an answer may miss its deadline: two clocks are compared

Arrival = tuple[float, str]  # seconds, class


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One kind of load.

    Attributes:
        load: offered work, in capacities.
        duration: seconds of arrivals.
        slots: requests served at once, each `seconds` long.
        queue: places to wait in the server.
        burst: calls at once instead of arrivals over time; deadlines are far away.
        instances: clients that share the load; the last of several joins after a quarter of the time.
        outage: seconds for which every answer is 503, from three tenths of the time on; 0 is none.
        overload: that 503 says that it is overload.
        stream: the answers are streamed.
        lines: what must hold, by measure.
    """

    load: float = 1.0
    duration: float = 60.0
    slots: int = 8
    seconds: float = 0.8
    queue: int = 16
    burst: int = 0
    instances: int = 1
    outage: float = 0.0
    overload: bool = False
    stream: bool = False
    lines: Mapping[str, tuple[str, float]] = field(default_factory=dict)

    @property
    def capacity(self) -> float:
        """Answers per second."""
        return self.slots / self.seconds

    def deadline(self, kind: str) -> float:
        """Seconds that a call of this class has."""
        return 3.0 * self.burst / self.capacity if self.burst else PATIENCE[kind] * self.seconds

    def arrivals(self, seed: int) -> list[tuple[float, str, int]]:
        """Instants, classes and instances, the same for the same seed."""
        if self.burst:
            return [(0.0, BATCH, 0)] * self.burst
        out: list[tuple[float, str, int]] = []
        for instance in range(self.instances):
            rng = Random(1000 * seed + instance)
            at = 0.25 * self.duration if 0 < instance == self.instances - 1 else 0.0
            while (at := at + rng.expovariate(self.load * self.capacity / self.instances)) < self.duration:
                out.append((at, INTERACTIVE if rng.random() < URGENT else BATCH, instance))
        return sorted(out)


def ideal(arrivals: Sequence[Arrival], load: Load) -> dict[str, int]:
    """Count by class what a perfect scheduler answers in time."""
    done = {INTERACTIVE: 0, BATCH: 0}
    free = [0.0] * load.slots
    line: list[tuple[bool, float, str]] = []
    coming = iter(arrivals)
    following = next(coming, None)
    while line or following is not None:
        now = heapq.heappop(free)
        if not line and following is not None:
            now = max(now, following[0])
        while following is not None and following[0] <= now:
            at, kind = following
            heapq.heappush(line, (kind == BATCH, at + load.deadline(kind), kind))
            following = next(coming, None)
        while line:
            _, end, kind = heapq.heappop(line)
            if now + load.seconds <= end:
                done[kind] += 1
                now += load.seconds
                break
        heapq.heappush(free, now)
    return done


@dataclass(frozen=True, slots=True)
class Run:
    """One client's calls of one load, and the server's books of them."""

    client: str
    arrivals: list[tuple[float, str, int]]
    calls: list[tuple[float, str | None]]
    wall: float
    cpu: float
    stats: dict[str, Any]


def one(load: Load, client: str, seed: int) -> Run:
    """Run one client against a fresh server."""
    arrivals = load.arrivals(seed)
    faults: list[dict[str, Any]] = []
    if load.outage:
        words: dict[str, Any] = {"status": 503, "body": "upstream connect error", "content_type": "text/plain"}
        if load.overload:
            error = {"message": "The server is overloaded.", "type": "overloaded_error", "code": "overloaded"}
            words |= {"body": json.dumps({"error": error}), "content_type": "application/json"}
        faults.append({**words, "at": f"{0.3 * load.duration}s", "for": f"{load.outage}s"})
        faults.append({"reset": 0, "rate": 0.01})
    options = [
        *("--queue", str(load.queue), "--workers", str(load.slots), "--seconds", str(load.seconds), "--tokens", "4"),
        *("--request-log", str(100 * len(arrivals)), "--max-concurrency", str(4 * len(arrivals) + 100), "--admin"),
    ]
    with ReferenceServer(*options) as server:
        spec = {
            "url": server.url,
            "client": client,
            "stream": load.stream,
            "limit": load.slots,
            "faults": faults,
            "instances": load.instances,
            "arrivals": [(at, kind, load.deadline(kind), instance) for at, kind, instance in arrivals],
        }
        done = subprocess.run(
            [sys.executable, "-m", "llm_client.cli.bench_load"],
            input=json.dumps(spec),
            capture_output=True,
            text=True,
            check=False,
            timeout=load.duration + 2 * load.deadline(BATCH) + 60.0,
        )
        if done.returncode:
            raise RuntimeError(f"{client}: {done.stderr.strip()[-300:]}")
        told = json.loads(done.stdout)
        stats = server.stats(log=100 * len(arrivals))
    calls = [(seconds, error) for seconds, error in told["calls"]]
    return Run(client, arrivals, calls, told["wall"], told["cpu"], stats)


def repetitions(load: Load, clients: Sequence[str], count: int) -> Iterator[list[Run]]:
    """Run every client once per repetition, starting with another one each time."""
    for number in range(count):
        turn = number % len(clients)
        yield [one(load, client, 100 + number) for client in (*clients[turn:], *clients[:turn])]


def judge(load: Load, runs: Sequence[Run]) -> dict[str, float]:
    """Pool one client's repetitions into the measures."""
    calls = [
        (run, at, kind, instance, latency, error)
        for run in runs
        for (at, kind, instance), (latency, error) in zip(run.arrivals, run.calls, strict=True)
    ]
    good = [call for call in calls if call[5] is None and call[4] <= load.deadline(call[2]) + LATE]
    best = [ideal([(at, kind) for at, kind, _ in run.arrivals], load) for run in runs]
    busy = sum(record["service"] for run in runs for record in run.stats["log"])
    failed = sorted(latency / load.deadline(kind) for _, _, kind, _, latency, error in calls if error is not None)
    urgent = sum(each[INTERACTIVE] for each in best)
    out = {
        "on time / ideal": len(good) / max(1, sum(sum(each.values()) for each in best)),
        "interactive / ideal": sum(call[2] == INTERACTIVE for call in good) / max(1, urgent),
        "refusals / on time": sum(run.stats["refused"] for run in runs) / max(1, len(good)),
        "slots wasted": 1.0 - len(good) * load.seconds / busy if busy else 0.0,
        "told after": failed[len(failed) // 2] if failed else 0.0,
        "failures": len(failed) / len(calls),
        "cpu": sum(run.cpu for run in runs) / sum(run.wall for run in runs),
    }
    if load.burst:
        out["makespan / ideal"] = sum(run.wall for run in runs) / len(runs) / (load.burst / load.capacity)
    if load.instances > 1:
        out["Jain"] = sum(_jain(load, run, calls, good) for run in runs) / len(runs)
    if load.outage:
        end = 0.3 * load.duration + load.outage
        out["on time after"] = _share(good, [call for call in calls if call[1] >= end])
        probes = sum(record["status"] == 503 for run in runs for record in run.stats["log"])
        out["probes / s"] = probes / load.outage / len(runs)
    return out


def _jain(load: Load, run: Run, calls: Sequence[Any], good: Sequence[Any]) -> float:
    """Jain's index of what each instance got in one repetition; pooled, the losers of one would win in another."""
    late = [call for call in calls if call[0] is run and call[1] >= 0.35 * load.duration]
    shares = [_share(good, [call for call in late if call[3] == each]) for each in range(load.instances)]
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares) or 1.0)


def _share(good: Sequence[Any], asked: Sequence[Any]) -> float:
    """Which share of these calls was in time."""
    answered = {id(call) for call in good}
    return sum(id(call) in answered for call in asked) / max(1, len(asked))


_OPEN = {
    "on time / ideal": (">=", 0.97),
    "interactive / ideal": (">=", 0.98),
    "refusals / on time": ("<=", 0.05),
    "slots wasted": ("<=", 0.03),
}
_OUTAGE = {"failures": ("<=", 0.03), "probes / s": ("<=", 3.0), "on time after": (">=", 0.98)}
LOADS: dict[str, Load] = {
    **{f"open {load:g}": Load(load=load, lines=_OPEN) for load in (0.5, 1.0, 2.0, 5.0)},
    "open 10": Load(load=10.0, lines={**_OPEN, "told after": ("<=", 0.5)}),
    "deep": Load(load=2.0, queue=100_000, lines={"interactive / ideal": (">=", 0.95)}),
    "bulk": Load(
        burst=2000, slots=32, seconds=0.4, queue=64, lines={"makespan / ideal": ("<=", 1.06), "failures": ("<=", 0.0)}
    ),
    "fair": Load(load=2.0, instances=4, lines={"Jain": (">=", 0.90)}),
    "outage overload": Load(load=0.8, outage=4.0, overload=True, lines=_OUTAGE),
    "outage": Load(load=0.8, outage=4.0, lines=_OUTAGE),
}


def adapted(load: Load, *, duration: float | None = None, stream: bool = False) -> Load:
    """The same load for another time, or streamed, with the lines that hold then."""
    lines = {**load.lines, "Jain": (">=", 0.95)} if stream and "Jain" in load.lines else load.lines
    return replace(load, duration=load.duration if duration is None else duration, stream=stream, lines=lines)


def crossed(load: Load, measures: Mapping[str, float]) -> list[str]:
    """Name the measures that are on the wrong side of their lines."""
    return [
        f"{name} {measures[name]:.3f} is not {sign} {line:g}"
        for name, (sign, line) in load.lines.items()
        if not (measures[name] >= line if sign == ">=" else measures[name] <= line)
    ]
