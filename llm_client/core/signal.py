"""The latency signal: windows of calls that came back, and how long they waited inside the server."""

from __future__ import annotations

from math import inf, sqrt
from typing import NamedTuple

from llm_client.core.concurrency import Slot
from llm_client.core.tuning import Tuning
from llm_client.core.wait import AnswerWait, StreamWait


class Reading(NamedTuple):
    """What one window says.

    Attributes:
        wait: seconds of queueing in the server.
        service: seconds of work without it; inf while no whole answer was seen.
        target: the wait that is still fine.
        sure: False when answers are too alike to tell waiting from work.
        least: the limit that a decrease may reach.
        level: calls in flight when these were sent, on average.
        fresh: share of the window that was sent after the last growth.
        rate: answers per second, whatever they were sent under; of use while answers are the samples.
        alike: the answers are too alike to tell the wait by their length.
    """

    wait: float
    service: float
    target: float
    sure: bool
    least: float
    level: float
    fresh: float
    rate: float
    alike: bool


class Signal:
    """Windows of samples; one window decides, the histories only explain.

    Attributes:
        latency: EWMA of whole answers, seconds; None before the first.
        reaction: EWMA of the delay after which the server is known to have taken a call; None before the first.
        late: first contents come so late in a stream's life (hidden thought, a buffering gateway) that streams are
            judged as plain answers.
    """

    __slots__ = (
        "_answered",
        "_answers",
        "_decode",
        "_finished",
        "_finished_at",
        "_learn_at",
        "_learned",
        "_least_share",
        "_least_wait",
        "_opened",
        "_streams",
        "_total_wait",
        "_tuning",
        "_turn",
        "_whole",
        "_window",
        "late",
        "latency",
        "reaction",
    )

    def __init__(self, tuning: Tuning) -> None:
        """Know nothing."""
        self._tuning = tuning
        self._streams = StreamWait(tuning)
        self._answers = AnswerWait(tuning)
        self._window: list[Slot] = []
        self._total_wait, self._least_wait = 0.0, inf  # of the window
        self._turn = 0  # which sample of a full window is the oldest
        self._whole = True  # not while all left after the limit had changed: whoever is back by now was quick
        self._opened = 0.0
        self._answered = 0  # since then, whatever was in flight
        self._learned, self._learn_at = 0, 0.0
        self._finished, self._finished_at, self._least_share = 0, 0.0, 1.0
        self._decode: float | None = None  # EWMA of what follows a stream's first content, seconds
        self.late = False
        self.latency: float | None = None
        self.reaction: float | None = None

    def restart(self, now: float) -> None:
        """Begin anew: what was sent before the limit changed says nothing about it."""
        self._begin(now)
        self._whole = False

    def _begin(self, now: float) -> None:
        self._window.clear()
        self._total_wait, self._least_wait = 0.0, inf
        self._turn = 0
        self._opened = now
        self._answered = 0
        self._whole = True

    def first(self, slot: Slot, now: float) -> None:
        """Learn from a first content."""
        delay = now - slot.sent_at
        old = self.reaction
        self.reaction = delay if old is None else old + self._tuning.smooth * (delay - old)
        if now >= self._learn_at or self._learned < self._tuning.history:
            self._learn(now)
            self._streams.note(slot, now, delay, self.latency or 0.0)

    def answer(self, slot: Slot, now: float, output: float) -> None:
        """Learn from a whole answer; `output` is its tokens, 0.0 when unknown."""
        latency = now - slot.sent_at
        old = self.latency
        self._answered += 1
        self.latency = typical = latency if old is None else old + self._tuning.smooth * (latency - old)
        if slot.seen:
            self._finish(slot, latency)
            if not self.late:
                return
        self.reaction = typical
        if output > 0.0 and (now >= self._learn_at or self._learned < self._tuning.history):
            self._learn(now)
            self._answers.note(slot, now, latency, output, typical)

    def brisk(self, slot: Slot, now: float, limit: float) -> bool:
        """Tell whether one call came back fast enough to let a ramp go on."""
        delay = now - slot.sent_at
        if not slot.stream or self.late:
            return self._answers.brisk(delay)
        service = inf if self.latency is None else self.latency
        return self._streams.excess(slot, delay, limit) <= self._target(service, limit, self._tuning.target)

    def gap(self, limit: float) -> float:
        """Return the seconds between two growing sends."""
        t = self._tuning
        if self.reaction is None:
            return t.growth_gap
        return min(t.growth_gap, max(t.growth_gap_min, self.reaction / limit))

    def take(self, slot: Slot, now: float, output: float, limit: float, grown_at: float) -> Reading | None:
        """Put a call of the current epoch into the window; read the window when it is full or old enough.

        Args:
            slot: the call; a stream is taken at its first content unless they come late.
            now: monotonic seconds.
            output: tokens of a whole answer, 0.0 when unknown.
            limit: the limit, which the target depends on.
            grown_at: when the limit grew last.
        """
        delay = now - slot.sent_at
        slot.delay = delay
        slot.output = output
        slot.streamed = stream = slot.stream and not self.late
        slot.lost = False
        work = self._streams if stream else self._answers
        slot.wait = delay - work.per_output * output - work.per_prompt * slot.prompt
        self._add(slot)
        return self._close(now, delay if stream else self.latency or delay, limit, grown_at)

    def lost(self, slot: Slot, now: float, limit: float, grown_at: float) -> Reading | None:
        """Do the same with a call that was given up unanswered, if its age tells a long wait."""
        slot.delay = age = now - slot.sent_at
        slot.output = 0.0
        slot.streamed = stream = slot.stream and not self.late
        slot.lost = True
        slot.wait = age - self._streams.per_prompt * slot.prompt if stream else self._answers.lost(slot, age)
        if slot.wait < self._tuning.alarm:
            return None
        self._add(slot)
        return self._close(now, age, limit, grown_at)

    def _add(self, slot: Slot) -> None:
        window = self._window
        if len(window) < self._tuning.window_max:
            window.append(slot)
            self._total_wait += slot.wait
            self._least_wait = min(self._least_wait, slot.wait)
        else:
            window[self._turn % len(window)] = slot
            self._turn += 1

    def _close(self, now: float, round_trip: float, limit: float, grown_at: float) -> Reading | None:
        t = self._tuning
        window = self._window
        n, age = len(window), now - self._opened
        if age < round_trip or n < t.few or (n < t.full and age < t.least):
            alarm = n >= 2 and self._least_wait > 0.5 * t.alarm and self._total_wait > t.alarm * n
            if not (alarm and self._alarming(limit)):
                return None
        rate = self._answered / age if age > 0.0 else 0.0
        lost = len([s for s in window if s.lost])
        # A call given up counts when most were: alone it may have been a long one.
        kept = window if 2 * lost >= n else [s for s in window if not s.lost]
        streams = [s for s in kept if s.streamed]
        if len(streams) >= min(t.few, len(kept)):
            verdict = self._streams.judge(streams, limit, self._decode)
            bearable = t.target
        else:
            answers = [s for s in kept if not s.streamed]
            verdict = self._answers.judge(answers, limit, rate, whole=self._whole)
            bearable = t.target_answers
        wait, service, sure, alike = verdict
        reading = Reading(
            wait=wait,
            service=service,
            target=self._alike_target(service, limit) if alike else self._target(service, limit, bearable),
            sure=sure,
            least=t.floor if sure and lost < n else 1.0,
            level=sum([s.level for s in window]) / n,
            fresh=len([s for s in window if s.sent_at >= grown_at]) / n,
            rate=rate,
            alike=alike,
        )
        self._begin(now)
        return reading

    def _target(self, service: float, limit: float, bearable: float) -> float:
        """Small shares bear more delay than large ones, so shares converge."""
        t = self._tuning
        shared = max(t.target_min, bearable / sqrt(max(0.1, limit)))
        return max(t.target_floor, min(service, t.target_max, shared))

    def _alike_target(self, service: float, limit: float) -> float:
        """The same in multiples of the service, where waits are compared with the best that was ever seen."""
        t = self._tuning
        share: float = (t.alike_even / max(t.floor, limit)) ** t.alike_share
        return max(t.target_floor, service * min(t.alike_most, max(t.alike_least, share)))

    def _alarming(self, limit: float) -> bool:
        """Tell whether waits as long as these may be believed before the window is full."""
        answers = self._answers
        if self._window[0].streamed or answers.known or all(s.lost for s in self._window):
            return True
        return answers.per_output > 0.0 and limit <= self._tuning.blind_limit

    def _finish(self, slot: Slot, latency: float) -> None:
        """Note how late in a stream's life its first content came."""
        t = self._tuning
        self._finished += 1
        after, old = latency - slot.first_after, self._decode
        self._decode = after if old is None else old + t.smooth * (after - old)
        # Queues come and go, and with them the share of the first content; the least share of the last minute stays.
        now = slot.sent_at + latency
        leaked = self._least_share + t.late_leak * max(0.0, now - self._finished_at)
        self._finished_at = now
        self._least_share = min(slot.first_after / latency if latency else 1.0, leaked)
        self.late = self._finished >= t.few and self._least_share >= t.late_share

    def _learn(self, now: float) -> None:
        """Feed the histories no faster than they forget: at hundreds of answers a second each one is old news."""
        self._learned += 1
        self._learn_at = now + self._tuning.learn_gap
