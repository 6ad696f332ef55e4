"""What the server was seen to hold of ours, approached slowly and probed rarely.

The count in flight at a refusal is what the server has room for. The limit yields a tenth of it and comes back on a
cubic curve (CUBIC, RFC 9438): the room below the ceiling is for newcomers.
"""

from __future__ import annotations

from math import inf

from llm_client.core.tuning import Tuning


class Ceiling:
    """The known capacity and the right to try one call above it.

    Attributes:
        level: calls in flight; inf while nothing is known.
        probing: one call above the level is out and not answered.
        firm: Retry-After of the last refusals runs until then.
    """

    __slots__ = ("_answered", "_gap", "_probe_at", "_since", "_tuning", "firm", "level", "probing")

    def __init__(self, tuning: Tuning) -> None:
        """Know nothing."""
        self._tuning = tuning
        self._gap = tuning.probe_gap
        self._since = 0.0
        self._probe_at = 0.0
        self._answered = 0  # answers counted at the last refusal
        self.level = inf
        self.probing = False
        self.firm = 0.0

    def yielded(self, held: float) -> float:
        """Return the limit after a refusal: a share of what is held, and at least one call less."""
        return max(1.0, min(self._tuning.keep * held, held - 1.0))

    def cap(self, now: float) -> float:
        """Return how far the limit may come back by now."""
        if self.level == inf:
            return inf
        left = max(0.0, 1.0 - (now - self._since) / self._gap)
        return self.level * (1.0 - (1.0 - self._tuning.keep) * left**3)

    def poll(self, now: float) -> float:
        """Return when the cap has moved enough to ask again."""
        return now + self._tuning.probe_poll * self._gap

    def restart(self, now: float) -> None:
        """Let the curve begin again: the limit was cut."""
        self._since = now

    def probe(self, now: float, limit: float, answered: int) -> bool:
        """Take the right to send one call above the level, if it is time; `answered` counts answers since the start."""
        t = self._tuning
        if self.level == inf or self.probing or now < self._probe_at:
            return False
        if answered - self._answered < min(t.probe_answers, t.probe_rounds * limit):
            return False
        self.probing = True
        self.level += 1.0
        return True

    def admitted(self) -> None:
        """Forget the level: the probe was let in."""
        self.probing, self.level, self._gap = False, inf, self._tuning.probe_gap

    def withdrawn(self, now: float) -> None:
        """Take the probe back: it was never answered."""
        self.probing, self._probe_at = False, now + self._gap
        self.level -= 1.0

    def lowered(self, held: float, answered: int) -> None:
        """Correct the level by a further refusal of the same overshoot."""
        self.level = min(self.level, max(1.0, held))
        self.probing, self._answered = False, answered

    def learned(self, held: float, *, replaced: bool) -> None:
        """Set the level; a refused replacement can only lower it."""
        self.level = min(self.level, held) if replaced else held

    def refused(self, now: float, hold: float, wait: float, answered: int) -> None:
        """Close an overshoot: space the next probe.

        Args:
            now: monotonic seconds.
            hold: no growth before.
            wait: Retry-After; 0.0 without one.
            answered: answers since the start.
        """
        t = self._tuning
        # A probe refused inside an earlier Retry-After was impolite: none again before its end.
        impolite = self.probing and now < self.firm
        if self.probing:
            self._gap = min(t.probe_gap_max, 2.0 * self._gap)
        self.firm = max(self.firm, now + wait)
        self._probe_at = self.firm if impolite else max(hold, now + self._gap)
        self.probing, self._answered = False, answered

    def forget(self) -> None:
        """Know nothing again, as after an outage."""
        self.level, self.probing, self._gap = inf, False, self._tuning.probe_gap
        self.firm = self._probe_at = 0.0
