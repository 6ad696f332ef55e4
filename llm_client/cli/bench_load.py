"""A load over time, in a process of its own: `python -m llm_client.cli.bench_load SPEC` prints JSON.

SPEC is a JSON object: `url`, `client` (a name of `bench_client.CLIENTS`), `stream`, `instances` of that client, and
`arrivals`: for each call seconds, class, deadline and instance. Latencies count from the intended arrival, so a
producer that falls behind cannot hide it, and every call is cut at its deadline, as a careful caller does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from typing import Any

from llm_client.cli.bench_client import CLIENTS, Ask, cpu_seconds

WARM_UP = 30.0


async def load(spec: dict[str, Any]) -> dict[str, Any]:
    """Play the arrivals; return for each call its latency and error, None for none, and what all of it cost."""
    made = [await CLIENTS[spec["client"]](spec) for _ in range(spec["instances"])]
    for ask, _ in made:
        await _warm(ask)
    await asyncio.to_thread(_begin, spec)
    calls: list[tuple[float, str | None]] = [(0.0, "never sent")] * len(spec["arrivals"])
    cpu, start = cpu_seconds(), time.monotonic()

    async def one(number: int, due: float, priority: str, deadline: float, ask: Ask) -> None:
        error = None
        try:
            left = due + deadline - time.monotonic()
            async with asyncio.timeout(left):
                await ask(number, "high" if priority == "interactive" else "low", left)
        except Exception as problem:  # noqa: BLE001 - a benchmark counts what callers would see
            error = type(problem).__name__
        calls[number] = (time.monotonic() - due, error)

    async with asyncio.TaskGroup() as tasks:
        for number, (at, priority, deadline, instance) in enumerate(spec["arrivals"]):
            await asyncio.sleep(max(0.0, start + at - time.monotonic()))
            tasks.create_task(one(number, start + at, priority, deadline, made[instance][0]))
    wall, used = time.monotonic() - start, cpu_seconds() - cpu
    for _, close in made:
        await close()
    return {"calls": calls, "wall": wall, "cpu": used}


async def _warm(ask: Ask) -> None:
    """Imports and first-call costs are not what is measured."""
    try:
        async with asyncio.timeout(WARM_UP):
            await ask(-1)
    except Exception:  # noqa: BLE001, S110 - it is only to be warm
        pass


def _begin(spec: dict[str, Any]) -> None:
    """Start the server's faults with the load, for they count from when they are told."""
    if not spec["faults"]:
        return
    body, kind = json.dumps(spec["faults"]).encode(), {"content-type": "application/json"}
    request = urllib.request.Request(spec["url"] + "/admin/faults", body, kind)  # noqa: S310 - our own loopback server
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - the same
        answer.read()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(load(json.load(sys.stdin)))))
