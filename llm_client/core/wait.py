"""Three ways to read the wait inside a server from calls that came back: streams, answers, answers all alike."""

from __future__ import annotations

from itertools import pairwise
from math import inf, sqrt
from typing import NamedTuple

from llm_client.core.concurrency import Slot
from llm_client.core.floor import Floor
from llm_client.core.knee import Knee
from llm_client.core.slope import Slope
from llm_client.core.tuning import Tuning


class Verdict(NamedTuple):
    """What the samples of a window say.

    Attributes:
        wait: seconds of queueing.
        service: seconds of work; inf while no whole answer was seen.
        sure: False when nothing tells waiting from work.
        alike: the answers are too alike to tell it by their length.
    """

    wait: float
    service: float
    sure: bool
    alike: bool = False


class StreamWait:
    """The best sign: the median of first-content delay less prefill.

    Attributes:
        per_prompt: seconds per prompt token.
        per_output: seconds per output token that a first content waits for: none.
    """

    __slots__ = ("_floor", "_prompts", "_tuning", "per_output", "per_prompt")

    def __init__(self, tuning: Tuning) -> None:
        """Know nothing of the server's prefill."""
        self._tuning = tuning
        self._prompts = Slope(tuning)
        self._floor = Floor(tuning)
        self.per_prompt = self.per_output = 0.0

    def note(self, slot: Slot, now: float, delay: float, latency: float) -> None:
        """Learn from a first content; `latency` is that of whole answers, 0.0 while unknown."""
        if slot.prompt > 0.0:
            self._prompts.note(slot.sent_at, slot.prompt, delay)
        self._floor.note(now, slot.sent_at, delay - self.per_prompt * slot.prompt, latency)

    def excess(self, slot: Slot, delay: float, limit: float) -> float:
        """Return what of one delay is queueing."""
        return delay - self.per_prompt * slot.prompt - self._floor.allowance(limit)

    def judge(self, samples: list[Slot], limit: float, decode: float | None) -> Verdict:
        """Read a window; `decode` is seconds from first content to end, None before the first whole answer."""
        self.per_prompt = prefill(self._prompts, self._tuning)
        middle = (len(samples) - 1) // 2
        wait = max(0.0, sorted([s.wait for s in samples])[middle] - self._floor.allowance(limit))
        if decode is None:  # the work is unknown, and bounds nothing
            return Verdict(wait, inf, sure=True)
        before = max(0.0, sum([s.delay for s in samples]) / len(samples) - wait)
        return Verdict(wait, max(0.01, before + decode), sure=True)


class AnswerWait:
    """Whole answers: the mean of latency less seconds per token; where all are alike, the median against the best.

    Attributes:
        per_prompt: seconds per prompt token.
        per_output: seconds per output token; an upper bound while few answers were seen, 0.0 while tokens tell nothing.
        known: whether enough answers of different length were seen, and length explains a fair part of the time: a
            server that takes the same time for every answer has no slope, and all of it would pass for queueing.
    """

    __slots__ = (
        "_best",
        "_bound",
        "_floor",
        "_knee",
        "_outputs",
        "_prompts",
        "_tuning",
        "known",
        "per_output",
        "per_prompt",
    )

    def __init__(self, tuning: Tuning) -> None:
        """Know nothing of the server's speed."""
        self._tuning = tuning
        self._outputs = Slope(tuning)
        self._prompts = Slope(tuning)
        self._floor = Floor(tuning)
        self._knee = Knee(tuning)
        self._best = inf  # median latency of the best window
        self._bound = inf  # least latency / tokens: seconds per token cannot be above
        self.per_prompt = self.per_output = 0.0
        self.known = False

    def note(self, slot: Slot, now: float, latency: float, output: float, typical: float) -> None:
        """Learn from a whole answer of known length; `typical` is the EWMA of latencies."""
        t = self._tuning
        outputs = self._outputs
        outputs.note(slot.sent_at, output, latency)
        self._bound = min(self._bound, latency / output)
        slope = outputs.renew()
        if len(outputs) < t.pairs_min:
            self.per_output = self._bound
            return
        self.known = slope * outputs.mean >= t.explained * min(self._best, typical)
        self.per_output = slope if self.known else 0.0
        if self.known:
            rest = latency - self.per_output * output
            if slot.prompt > 0.0:
                self._prompts.note(slot.sent_at, slot.prompt, rest)
            self._floor.note(now, slot.sent_at, rest - self.per_prompt * slot.prompt, typical)

    def lost(self, slot: Slot, age: float) -> float:
        """Return the least wait of a call given up unanswered, if it was not much longer than others."""
        if not self.known:
            return age
        return age - self.per_output * (self._outputs.mean + self._outputs.spread) - self.per_prompt * slot.prompt

    def brisk(self, latency: float) -> bool:
        """Tell whether an answer among alike ones came back about as fast as the best."""
        return self.known or latency <= self._tuning.alike_brisk * self._best

    def judge(self, samples: list[Slot], limit: float, rate: float, *, whole: bool) -> Verdict:
        """Read a window; `rate` is answers per second in it; it is not `whole` while only the quick can be back."""
        t = self._tuning
        delays = sorted([s.delay for s in samples])
        mean, median = sum(delays) / len(delays), delays[len(delays) // 2]
        told = [s for s in samples if s.output > 0.0 or s.lost]
        # 1.25 standard errors of the mean are one of the median, for near-normal samples.
        noise = 1.25 * sqrt(sum([(d - mean) ** 2 for d in delays])) / len(delays)
        if not samples[0].lost:
            # A queue that grows or drains tells nothing against the best; what differs from call to call does.
            jumps = sum([(after.delay - before.delay) ** 2 for before, after in pairwise(samples)])
            doubt = t.alike_doubt * 1.25 * sqrt(jumps / 2.0) / len(samples)
            self._best = self._best * t.alike_leak + doubt
            if whole or self._best == inf:
                self._best = min(self._best, median)
        if told and self.known:
            wait = self._told(told, limit)
            return Verdict(wait, max(0.01, mean - wait), sure=not suspected(self._prompts, t))
        if all(s.lost for s in samples):
            return Verdict(min(s.wait for s in samples), inf, sure=True)
        if told and self.per_output and limit <= t.blind_limit:
            wait = sum(s.wait for s in told) / len(told)
            if wait > t.alarm:
                return Verdict(wait, max(0.01, mean - wait), sure=True)
        wait = max(0.0, median - t.alike_noise * noise - self._best)
        sure = self._knee.passed(sum(s.level for s in samples) / len(samples), rate, median)
        return Verdict(wait, self._best, sure=sure, alike=True)

    def _told(self, samples: list[Slot], limit: float) -> float:
        self.per_prompt = prefill(self._prompts, self._tuning)
        short, scale = self._tuning.short, self._outputs.mean
        weighed = total = squares = plain = 0.0
        for s in samples:  # short answers tell the wait, long ones the speed
            weight = 1.0 / (short + s.output / scale)
            total += weight
            weighed += weight * s.wait
            plain += s.wait
            squares += s.wait * s.wait
        n = len(samples)
        error = sqrt(max(0.0, squares / n - (plain / n) ** 2) / n)
        return max(0.0, weighed / total - error - self._floor.allowance(limit))


def prefill(prompts: Slope, tuning: Tuning) -> float:
    """Return seconds per prompt token, where prompts are long enough to matter and to be told from noise."""
    slope = prompts.renew()
    known = len(prompts) >= tuning.prompt_pairs and prompts.least * prompts.mean >= tuning.prompt_matters
    return slope if known else 0.0


def suspected(prompts: Slope, tuning: Tuning) -> bool:
    """Tell whether prompts seem to matter, and too few were compared to be sure: a wait may be work."""
    return len(prompts) < tuning.prompt_pairs and prompts.value * prompts.mean >= tuning.prompt_matters
