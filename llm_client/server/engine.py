"""What does the work: the interface of an engine, and the plain worker pool (N workers, t seconds each)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .job import EngineError, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What an engine reports about itself.

    Attributes:
        running: jobs in service.
        slots: how many it could serve at most.
        kv_usage: share of the key-value cache in use, 0 to 1.
        preemptions: how often a job lost its place in the cache, since the start.
        prefix_hit_tokens: prompt tokens that needed no prefill, since the start.
    """

    running: int
    slots: int
    kv_usage: float = 0.0
    preemptions: int = 0
    prefix_hit_tokens: int = 0


class Engine(Protocol):
    """What admission needs from whatever does the work."""

    slots: int
    slowdown: float
    on_free: Callable[[], None]

    def free(self) -> bool:
        """Whether one more job may start now."""
        ...

    def start(self, job: Job) -> None:
        """Begin; the engine calls `job.advance` and, after its slot is free, `job.finish`."""
        ...

    def cancel(self, job: Job) -> None:
        """Stop at once and free the slot; does nothing for a job it does not run."""
        ...

    def expected(self) -> float:
        """Mean seconds of service, as far as known."""
        ...

    def load(self) -> Load:
        """What it reports about itself."""
        ...


class WorkerPool:
    """N workers, each busy for `seconds` with one job at a time.

    Args:
        workers: how many.
        seconds: how long a job takes; tokens of a stream are spread evenly over it.
    """

    def __init__(self, workers: int, seconds: float) -> None:
        self.slots = workers
        self.slowdown = 1.0
        self.on_free: Callable[[], None] = lambda: None
        self._seconds = seconds
        self._running: dict[Job, asyncio.TimerHandle] = {}

    def free(self) -> bool:
        """Whether a worker is idle."""
        return len(self._running) < self.slots

    def expected(self) -> float:
        """Seconds a job takes now."""
        return self._seconds * self.slowdown

    def load(self) -> Load:
        """Busy workers; there is no cache to speak of, so usage is the share of busy workers."""
        return Load(running=len(self._running), slots=self.slots, kv_usage=len(self._running) / self.slots)

    def start(self, job: Job) -> None:
        """Occupy a worker until the job is done."""
        if not self.free():
            raise EngineError("no worker is idle; ask `free` first")
        loop = asyncio.get_running_loop()
        now = loop.time()
        job.begin(now)
        seconds = self._seconds * self.slowdown
        if job.stream and job.output_tokens > 1:
            self._running[job] = loop.call_at(now, self._tick, job, now, seconds / job.output_tokens, 1)
        else:
            self._running[job] = loop.call_at(now + seconds, self._end, job)

    def cancel(self, job: Job) -> None:
        """Let the worker go at once."""
        timer = self._running.pop(job, None)
        if timer is not None:
            timer.cancel()
            self.on_free()

    def _tick(self, job: Job, began: float, step: float, number: int) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        # A late timer delivers what is due by now, as a busy server does.
        due = job.output_tokens if step <= 0 else min(job.output_tokens, int((now - began) / step + 1e-6))
        if due >= job.output_tokens:
            self._end(job)
            return
        job.advance(due, now)
        number = max(number, due + 1)
        self._running[job] = loop.call_at(began + number * step, self._tick, job, began, step, number)

    def _end(self, job: Job) -> None:
        self._running.pop(job, None)
        job.finish(asyncio.get_running_loop().time())
        self.on_free()
