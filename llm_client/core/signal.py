"""How long calls wait inside the server, read from first contents and answers.

Three readings, best first:

* Streams: the median of first-content delay less prefill; seconds per prompt token are learned from the same streams.
* Answers of varied length: the intercept of `latency = wait + b * output_tokens`. Short answers tell the wait, long
  ones the speed. Seconds per token grow with the batch, so a low quantile of latency / tokens would call a full,
  unqueued batch congested; the intercept does not care.
* Answers all alike: no intercept. The median against the best median seen, deliberately weak.
"""

from __future__ import annotations

from collections import deque
from math import inf, sqrt
from typing import NamedTuple

from llm_client.core.concurrency import Slot
from llm_client.core.prefill import Prefill
from llm_client.core.regression import Slope, mean_and_spread
from llm_client.core.tuning import Tuning


class Reading(NamedTuple):
    """What one window says.

    Attributes:
        wait: seconds of queueing in the server.
        service: seconds of work without it.
        target: the wait that is still fine.
        sure: False when answers are too alike to tell waiting from work.
        level: calls in flight when these were sent, on average.
        fresh: share of the window that was sent after the last growth.
    """

    wait: float
    service: float
    target: float
    sure: bool
    level: float
    fresh: float


class _Sample(NamedTuple):
    wait: float  # first-content delay less prefill; of a plain answer its latency
    delay: float  # what was measured: first content, or the whole answer
    output: float
    level: int
    sent_at: float
    stream: bool


class Signal:
    """Windows of samples and what they say; one window decides, the histories only explain.

    Attributes:
        latency: EWMA of whole answers, seconds; None before the first.
        reaction: EWMA of the delay after which the server is known to have taken a call.
    """

    __slots__ = (
        "_after_first",
        "_answers",
        "_best",
        "_opened",
        "_prefill",
        "_slope",
        "_tuning",
        "_window",
        "latency",
        "reaction",
    )

    def __init__(self, tuning: Tuning) -> None:
        """Know nothing."""
        self._tuning = tuning
        self._window: list[_Sample] = []
        self._opened = 0.0
        self._answers: deque[tuple[float, float]] = deque(maxlen=tuning.history)  # output tokens, latency
        self._slope = Slope(pairs=tuning.pairs, neighbours=tuning.neighbours, apart=tuning.spread)
        self._prefill = Prefill(tuning)
        self._best = inf
        # EWMA of the share of a stream's time that follows its first content. Behind a proxy that buffers it is
        # nothing: such a first content tells as little of the queue as a whole answer does.
        self._after_first: float | None = None
        self.latency: float | None = None
        self.reaction: float | None = None

    def forget_window(self, now: float) -> None:
        """Begin a window: what was sent before the limit changed says nothing about it."""
        self._window.clear()
        self._opened = now

    def streamed(self, slot: Slot, now: float, delay: float) -> None:
        """Note a first content."""
        self.reaction = self._smooth(self.reaction, delay)
        self._prefill.note(now, slot.prompt, delay)

    def answered(self, slot: Slot, latency: float, output: float) -> None:
        """Note a whole answer; `output` is its tokens, 0.0 when unknown."""
        self.latency = self._smooth(self.latency, latency)
        if slot.stream and latency > 0.0:
            self._after_first = self._smooth(self._after_first, (latency - slot.first_after) / latency)
        if not slot.stream:
            self.reaction = self.latency
            self._answers.append((output, latency))
            if output > 0.0:
                self._slope.note(output, latency)

    def sample(self, slot: Slot, delay: float, output: float) -> None:
        """Put a call of the current epoch into the window."""
        if slot.stream:
            floor = self._prefill
            wait = delay - floor.slope * slot.prompt - min(self._tuning.base_max, floor.base)
        else:
            wait = delay
        self._window.append(_Sample(wait, delay, output, slot.level, slot.sent_at, slot.stream))

    def read(self, now: float, round_trip: float, limit: float, grown_at: float) -> Reading | None:
        """Close the window when it is full or old enough.

        Args:
            now: monotonic seconds.
            round_trip: seconds a window must at least span.
            limit: the limit, which the target depends on.
            grown_at: when the limit grew last.
        """
        t = self._tuning
        window = self._window
        n, age = len(window), now - self._opened
        if not (
            (n >= t.full and age >= round_trip)
            or (n >= (t.few if limit >= 2.0 else t.few_small) and age >= max(t.least, round_trip))
            or (n >= 2 and self._alarming(limit))
        ):
            return None
        wait, service, target, sure = self._queueing(limit)
        level = sum(s.level for s in window) / n
        fresh = sum(s.sent_at >= grown_at for s in window) / n
        self.forget_window(now)
        return Reading(wait, service, target, sure, level, fresh)

    @property
    def _buffered(self) -> bool:
        return self._after_first is not None and self._after_first < self._tuning.buffered

    def _smooth(self, old: float | None, new: float) -> float:
        return new if old is None else old + self._tuning.smooth * (new - old)

    def _target(self, service: float, limit: float) -> float:
        t = self._tuning
        shared = max(t.target_min, t.target / sqrt(max(0.1, limit)))
        return max(t.target_floor, min(service, t.target_max, shared))

    def _queueing(self, limit: float) -> tuple[float, float, float, bool]:
        t = self._tuning
        streams = [] if self._buffered else [s for s in self._window if s.stream]
        if streams and len(streams) >= min(t.few, len(self._window)):
            return self._of_streams(streams, limit)
        plain = [s for s in self._window if not s.stream] or self._window
        delays = sorted(s.delay for s in plain)
        median = delays[len(delays) // 2]
        self._best = min(self._best * t.alike_leak, median)
        mean, spread = mean_and_spread(delays)
        outputs, output_spread = mean_and_spread([o for o, _ in self._answers])
        varied = outputs > 0.0 and output_spread > t.spread * outputs
        if varied and len(self._slope) >= t.pairs_min and self._explains(self._slope.renew() * outputs):
            slope = self._slope.value
            weighed = total = 0.0
            rests = []
            for s in plain:
                w = 1.0 / (t.short + s.output / outputs)
                rests.append(s.delay - slope * s.output)
                total += w
                weighed += w * rests[-1]
            _, spread = mean_and_spread(rests)
            wait = max(0.0, weighed / total - spread / sqrt(len(rests)))
            service = max(0.01, mean - wait)
            return wait, service, self._target(service, limit), True
        if varied and len(self._answers) >= 2 and limit <= t.start:
            slope = self._slope_bound()
            wait = sum(s.delay - slope * s.output for s in plain) / len(plain)
            if wait > t.alarm:
                return wait, max(0.01, mean - wait), t.target_max, True
        noise = 1.25 * spread / sqrt(len(delays))  # the standard error of a median, for near-normal samples
        wait = max(0.0, median - t.alike_noise * noise - self._best)
        return wait, self._best, max(t.target_floor, t.alike_factor * self._best), False

    def _of_streams(self, streams: list[_Sample], limit: float) -> tuple[float, float, float, bool]:
        waits = sorted(s.wait for s in streams)
        wait = max(0.0, waits[(len(waits) - 1) // 2])
        # Before the first whole answer the work is unknown, and bounds nothing.
        service = inf if self.latency is None else max(0.01, self.latency - wait)
        return wait, service, self._target(service, limit), True

    def _explains(self, work: float) -> bool:
        """Tell whether output tokens account for a fair part of the best answer times.

        A server that takes the same time for every answer has no slope, and all of its time would pass for
        queueing: the limit would fall to one call on an idle server.
        """
        return work >= self._tuning.explained * self._best

    def _slope_bound(self) -> float:
        """Seconds per token cannot be above this."""
        return min(latency / output for output, latency in self._answers if output > 0.0)

    def _alarming(self, limit: float) -> bool:
        t = self._tuning
        window = self._window
        if window[0].delay < t.alarm * 0.5 or window[-1].delay < t.alarm * 0.5:
            return False
        if self._buffered:
            return False
        if any(s.stream for s in window):
            waits = [s.wait for s in window if s.stream]
            return len(waits) >= 2 and sum(waits) > t.alarm * len(waits) and min(waits) > 0.5 * t.alarm
        if len(self._slope) >= t.pairs_min:
            slope = self._slope.value
            waits = [s.delay - slope * s.output for s in window]
            return sum(waits) > t.alarm * len(waits) and min(waits) > 0.5 * t.alarm
        if len(self._answers) < 2 or limit > t.start or not any(output > 0.0 for output, _ in self._answers):
            return False
        slope = self._slope_bound()
        return sum(s.delay - slope * s.output for s in window) > t.alarm * len(window)
