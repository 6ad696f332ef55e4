"""The rate of a server that refuses by the second instead of by the slot, learned from refusals.

A token bucket refuses replacements too. At a refusal it is empty, so the answers between two refusals over the time
between them are its refill rate; the first burst drops out by itself.
"""

from __future__ import annotations

from llm_client.core.tuning import Tuning


class Pace:
    """Calls per second, or none while no bucket is known."""

    __slots__ = ("_answers", "_changed", "_marked", "_tuning", "next_at", "rate")

    def __init__(self, tuning: Tuning) -> None:
        """Start without a rate."""
        self._tuning = tuning
        self._answers = 0
        self._marked: float | None = None
        self._changed = 0.0
        self.rate: float | None = None
        self.next_at = 0.0

    def sent(self, now: float) -> None:
        """Move the next slot on; at most one slot is saved up while nothing is sent."""
        if self.rate is not None:
            gap = 1.0 / self.rate
            self.next_at = max(self.next_at, now - gap) + gap

    def answered(self, now: float, limit: float, latency: float) -> None:
        """Count an answer; raise the rate slowly, then fast, and forget it when the limit binds instead."""
        self._answers += 1
        if self.rate is None:
            return
        t = self._tuning
        gain = min(t.pace_gain_max, t.pace_gain * 2.0 ** ((now - self._changed) / t.pace_double))
        self.rate *= 1.0 + gain / max(1.0, self.rate)
        if limit < 0.5 * self.rate * latency:
            self.rate = None

    def learn(self, now: float) -> None:
        """Take the rate seen since the last refusal; the caller knows that replacements are refused."""
        t = self._tuning
        if self._marked is not None and now - self._marked >= t.pace_span and self._answers >= t.pace_answers:
            self.rate = t.pace * self._answers / (now - self._marked)
            self.next_at = now

    def mark(self, now: float) -> None:
        """Start a new span: the bucket is empty now."""
        self._changed = now
        if self._marked is None or now - self._marked >= self._tuning.pace_span:
            self._marked, self._answers = now, 0
