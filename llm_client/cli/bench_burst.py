"""The bursts: all calls at once to a server whose capacity nobody was told, against a client that was told.

Every run has a fresh server and a fresh client process; the clients take turns within a round, so that a
machine whose speed drifts slows all of them. What counts is the ratio to the oracle of the same round.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Any

from llm_client.cli.reference import ReferenceServer

# A burst that takes so many times the ideal is over for this benchmark.
PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Shape:
    """One server and its burst.

    Attributes:
        slots: requests served at once, each `seconds` long.
        queue: places to wait; None is unbounded.
        retry_after: what a refusal says, seconds; None is nothing.
        told: the limit that the oracle is told.
        line: the makespan that the built-in profile may take, in oracles.
    """

    name: str
    slots: int
    queue: int | None
    retry_after: int | None
    calls: int
    seconds: float
    told: int
    line: float

    @property
    def ideal(self) -> float:
        """Seconds of whole waves on slots that never idle."""
        return ceil(self.calls / self.slots) * self.seconds


# C and E have slots of half a second: two hundred milliseconds would measure the HTTP engine, not the gate.
SHAPES = {
    shape.name: shape
    for shape in (
        Shape("A", 8, 8, 1, 400, 0.2, 12, 1.08),
        Shape("B", 2, 2, 1, 150, 0.2, 3, 1.08),
        Shape("C", 64, 64, 1, 3000, 0.5, 96, 1.15),
        Shape("D", 8, 8, None, 400, 0.2, 12, 1.08),
        Shape("E", 64, None, 1, 3000, 0.5, 96, 1.15),
    )
}


@dataclass(frozen=True, slots=True)
class Run:
    """What one client made of one burst."""

    client: str
    answered: int
    makespan: float
    sends: int
    early: int
    cpu: float
    errors: dict[str, int]


def rounds(shape: Shape, clients: Sequence[str], count: int, *, stream: bool) -> Iterator[list[Run]]:
    """Run every client once per round, in turn, starting with another one each time."""
    for number in range(count):
        turn = number % len(clients)
        yield [one(shape, client, stream=stream) for client in (*clients[turn:], *clients[:turn])]


def one(shape: Shape, client: str, *, stream: bool) -> Run:
    """Run one client against a fresh server."""
    words = [
        *("--queue", "unbounded" if shape.queue is None else str(shape.queue)),
        *("--workers", str(shape.slots), "--seconds", str(shape.seconds), "--tokens", "4"),
        *("--retry-after", "none" if shape.retry_after is None else str(shape.retry_after)),
        *("--request-log", str(10 * shape.calls), "--max-concurrency", str(4 * shape.calls)),
    ]
    with ReferenceServer(*words) as server:
        spec = {"url": server.url, "client": client, "calls": shape.calls, "stream": stream, "limit": shape.told}
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                [sys.executable, "-m", "llm_client.cli.bench_client", json.dumps(spec)],
                capture_output=True,
                text=True,
                check=True,
                timeout=PATIENCE * shape.ideal + 30,
            )
        except subprocess.TimeoutExpired:
            return Run(client, 0, PATIENCE * shape.ideal, server.stats()["arrived"], 0, 0.0, {"too slow": shape.calls})
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"{client}: {error.stderr.strip()[-300:]}") from error
        told = json.loads(done.stdout)
        stats = server.stats(log=10 * shape.calls)
        early = early_retries(stats["log"], shape.retry_after or 0)
        return Run(client, told["answered"], told["makespan"], stats["arrived"], early, told["cpu"], told["errors"])


def early_retries(log: Sequence[dict[str, Any]], retry_after: float) -> int:
    """Count refused bodies that came again before their Retry-After, by the server's own clock."""
    refused: dict[str, float] = {}
    early = 0
    for record in log:
        before = refused.pop(record["body"], None)
        early += before is not None and record["arrived"] < before + retry_after - 0.001
        if record["outcome"] == "refused":
            refused[record["body"]] = record["arrived"]
    return early


def spread(values: Sequence[float]) -> str:
    """Median and range."""
    return f"{median(values):.3f} ({min(values):.3f}-{max(values):.3f})"
