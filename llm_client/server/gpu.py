"""The engine that behaves like a GPU: drives the batching model by the event loop's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .batching import Batch, Preset, Sequence, Step
from .engine import Load
from .job import Job

_LATE = 0.25  # seconds the clock of the model may lag behind before it gives up catching up
_BURST = 16  # steps done at once while catching up, so that the loop is never held for long
_SMOOTH = 0.1  # weight of the newest service time in the mean


class Gpu:
    """One simulated GPU.

    Args:
        preset: which one.
        speed: how many times faster than real its time passes.
    """

    def __init__(self, preset: Preset, speed: float = 1.0) -> None:
        self.slots = preset.slots
        self.pace: Callable[[], float] = lambda: 1.0
        self.on_free: Callable[[], None] = lambda: None
        self._batch = Batch(preset)
        self._speed = speed
        self._jobs: dict[Sequence, Job] = {}
        self._sequences: dict[Job, Sequence] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._mean = 0.0

    def free(self, job: Job) -> bool:
        """Whether the cache and the batch have room for it."""
        return self._batch.fits(job.prompt_tokens)

    def expected(self) -> float:
        """Mean seconds of service lately, before that of a short answer alone."""
        preset = self._batch.preset
        return self._mean or (preset.base * 64 / self._speed)

    def load(self) -> Load:
        """Batch and cache."""
        batch = self._batch
        return Load(
            running=len(self._jobs),
            slots=self.slots,
            kv_usage=batch.usage,
            preemptions=batch.preemptions,
            prefix_hit_tokens=batch.hit_tokens,
        )

    def start(self, job: Job) -> None:
        """Put it into the batch."""
        loop = asyncio.get_running_loop()
        sequence = Sequence(
            prompt=job.prompt_tokens, output=job.output_tokens, width=job.width, rank=job.rank, blocks=job.blocks
        )
        self._batch.admit(sequence)
        self._jobs[sequence] = job
        self._sequences[job] = sequence
        job.cached_tokens = sequence.cached
        job.begin(loop.time())
        if self._timer is None:
            # Not at once: what arrives in the same breath shares the first step.
            self._timer = loop.call_at(loop.time(), self._next, loop.time())

    def cancel(self, job: Job) -> None:
        """Take it out of the batch at once."""
        sequence = self._sequences.pop(job, None)
        if sequence is not None:
            del self._jobs[sequence]
            self._batch.remove(sequence)
            self.on_free()

    def _next(self, begins: float) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_BURST):
            step = self._batch.plan()
            if step is None:
                self._timer = None
                return
            ends = begins + step.seconds * self.pace() / self._speed
            if ends > loop.time():
                self._timer = loop.call_at(ends, self._end, step, ends)
                return
            self._commit(step, ends)
            begins = ends if loop.time() - ends < _LATE else loop.time()
        self._timer = loop.call_at(loop.time(), self._next, begins)

    def _end(self, step: Step, ends: float) -> None:
        self._commit(step, ends)
        now = asyncio.get_running_loop().time()
        self._next(ends if now - ends < _LATE else now)

    def _commit(self, step: Step, now: float) -> None:
        self._batch.commit(step)
        jobs = self._jobs
        for sequence in step.decoding:
            job = jobs.get(sequence)
            if job is not None and sequence.produced < sequence.output:
                job.advance(sequence.produced, now)
        for sequence in step.finished:
            job = jobs.pop(sequence, None)
            if job is not None:
                del self._sequences[job]
                job.finish(max(now, job.started))
                self._mean += (_SMOOTH if self._mean else 1.0) * (job.service_time - self._mean)
        if step.finished:
            self.on_free()
