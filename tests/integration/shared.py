"""What the integration tests share."""

from __future__ import annotations

import time

from llm_client import Pool


def message(number=0):
    """A prompt of its own for each number."""
    return [{"role": "user", "content": f"question {number}"}]


def pool_of(replicas, profile=None, **pool):
    """A pool of these servers, with further words for it and its profile."""
    endpoints = [{"name": f"r{n}", "base_url": each.base_url} for n, each in enumerate(replicas)]
    return Pool(pool={"endpoints": endpoints, **pool}, profile={"deadline": 30.0, **(profile or {})})


def idle(pool, patience=2.0):
    """Wait until a pool holds nothing: permits, tickets, probe leases; tell whether it does."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        pool.gate.pump(time.monotonic())
        stations = pool.endpoints
        if not (
            pool.gate.waiting
            or sum(each.limit.inflight + each.outstanding + each.breaker.probing for each in stations)
            or +pool.gate._owners
        ):
            return True
        time.sleep(0.01)
    return False


def until(condition, patience=2.0):
    """Wait until something is so; tell whether it came to be."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return bool(condition())
