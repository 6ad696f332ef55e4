"""What does the work: the interface of an engine, and the plain worker pool (N workers, t seconds each)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .job import Job


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
    """What admission needs from whatever does the work.

    Attributes:
        slots: jobs it serves at a time, at most.
        pace: asked how many times slower than normal time passes now.
        on_free: called when a job has left and another may start.
    """

    slots: int
    pace: Callable[[], float]
    on_free: Callable[[], None]

    def free(self, job: Job) -> bool:
        """Whether this job may start now."""
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
        burn: keep a processor busy for each job, in a thread, as a real computation would.
    """

    def __init__(self, workers: int, seconds: float, *, burn: bool = False) -> None:
        self.slots = workers
        self.pace: Callable[[], float] = lambda: 1.0
        self.on_free: Callable[[], None] = lambda: None
        self._seconds = seconds
        self._burn = burn
        self._running: dict[Job, asyncio.TimerHandle] = {}
        self._flames: dict[Job, threading.Event] = {}

    def free(self, job: Job) -> bool:  # noqa: ARG002 - to a worker all jobs are alike
        """Whether a worker is idle."""
        return len(self._running) < self.slots

    def expected(self) -> float:
        """Seconds a job takes now."""
        return self._seconds * self.pace()

    def load(self) -> Load:
        """Busy workers; there is no cache to speak of, so its usage is the share of busy workers."""
        return Load(running=len(self._running), slots=self.slots, kv_usage=len(self._running) / self.slots)

    def start(self, job: Job) -> None:
        """Occupy a worker until the job is done."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        job.begin(now)
        seconds = self._seconds * self.pace()
        if self._burn:
            stop = self._flames[job] = threading.Event()
            threading.Thread(target=_burn, args=(stop, seconds), daemon=True).start()
        if job.stream and job.output_tokens > 1 and seconds > 0:
            self._running[job] = loop.call_at(now, self._tick, job, now, seconds / job.output_tokens)
        else:
            self._running[job] = loop.call_at(now + seconds, self._end, job)

    def cancel(self, job: Job) -> None:
        """Let the worker go at once."""
        timer = self._running.pop(job, None)
        if timer is not None:
            timer.cancel()
            self._extinguish(job)
            self.on_free()

    def _tick(self, job: Job, began: float, step: float) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        # A late timer delivers all that is due by now, as a busy server does.
        due = min(job.output_tokens, int((now - began) / step + 1e-6))
        if due >= job.output_tokens:
            self._end(job)
            return
        job.advance(due, now)
        self._running[job] = loop.call_at(began + (due + 1) * step, self._tick, job, began, step)

    def _end(self, job: Job) -> None:
        del self._running[job]
        self._extinguish(job)
        job.finish(asyncio.get_running_loop().time())
        self.on_free()

    def _extinguish(self, job: Job) -> None:
        stop = self._flames.pop(job, None)
        if stop is not None:
            stop.set()


def _burn(stop: threading.Event, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not stop.is_set() and time.monotonic() < end:
        sum(range(1000))
