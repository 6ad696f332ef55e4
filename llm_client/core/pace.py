"""The rate of a server that refuses by the second instead of by the slot, learned from refusals.

A token bucket refuses replacements too. At a refusal it is empty, so the answers between two refusals over the time
between them are its refill rate; the first burst drops out by itself.
"""

from __future__ import annotations

from llm_client.core.tuning import Tuning


class Pace:
    """Calls per second, or none while no bucket is known; `answered` below counts all answers since the start.

    Attributes:
        rate: calls per second; None while no bucket is known.
        next_at: the next call may go then.
    """

    __slots__ = ("_changed", "_marked", "_marked_at", "_tuning", "next_at", "rate")

    def __init__(self, tuning: Tuning) -> None:
        """Start without a rate."""
        self._tuning = tuning
        self._marked = 0
        self._marked_at: float | None = None
        self._changed = 0.0
        self.rate: float | None = None
        self.next_at = 0.0

    def sent(self, now: float) -> None:
        """Move the next slot on; at most one slot is saved up while nothing is sent."""
        if self.rate is not None:
            gap = 1.0 / self.rate
            self.next_at = max(self.next_at, now - gap) + gap

    def raised(self, now: float, limit: float, latency: float) -> None:
        """Raise the rate by an answer, slowly, then fast; forget it when the limit binds instead."""
        if self.rate is None:
            return
        t = self._tuning
        gain = min(t.pace_gain_max, t.pace_gain * 2.0 ** ((now - self._changed) / t.pace_double))
        self.rate *= 1.0 + gain / max(1.0, self.rate)
        if limit < 0.5 * self.rate * latency:
            self.rate = None

    def learn(self, now: float, answered: int) -> None:
        """Take the rate seen since the last refusal; the caller knows that replacements are refused."""
        t = self._tuning
        if self._marked_at is None:
            return
        answers, span = answered - self._marked, now - self._marked_at
        if span >= t.pace_span and answers >= t.pace_answers:
            self.rate = t.pace * answers / span
            self.next_at = now

    def mark(self, now: float, answered: int) -> None:
        """Start a new span: the bucket is empty now."""
        self._changed = now
        if self._marked_at is None or now - self._marked_at >= self._tuning.pace_span:
            self._marked_at, self._marked = now, answered

    def forget(self) -> None:
        """Drop rate and span, as after an outage."""
        self.rate, self._marked_at = None, None
