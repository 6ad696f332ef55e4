"""What was before an endpoint took nothing: refusals of that time tell nothing of its size."""

from __future__ import annotations

from math import inf
from random import Random

from llm_client.core.tuning import Tuning


class Outage:
    """Counts refusals with nothing served between, and remembers the limit before them. Guarded by its owner.

    Attributes:
        misses: such refusals in a row.
        before: the limit when a call was last answered that had left after the last refusal.
    """

    __slots__ = ("_refused_at", "_tuning", "before", "misses")

    def __init__(self, tuning: Tuning, limit: float) -> None:
        """Know of no refusal."""
        self._tuning = tuning
        self._refused_at = -inf
        self.misses = 0
        self.before = limit

    def refused(self, now: float) -> None:
        """Note a refusal of a call that the limit of now had let go."""
        self._refused_at = now

    def answered(self, sent_at: float) -> float | None:
        """Note an answer; return the limit to go back to when it ends an outage, else None."""
        over = sent_at >= self._refused_at and self.misses >= self._tuning.outage
        self.misses = 0
        return self.before / 2.0 if over else None

    def remember(self, sent_at: float, limit: float) -> None:
        """Take in the limit after an answer, if its call left after the last refusal."""
        if sent_at >= self._refused_at:
            self.before = limit

    def silence(self, rng: Random, wait: float) -> float:
        """Return the seconds to wait before the next try: the server's and some more, or longer after each miss."""
        t = self._tuning
        if wait:
            return wait + rng.uniform(0.0, max(t.silence_jitter_min, t.silence_jitter * wait))
        return rng.uniform(0.5, 1.0) * min(t.blind_cap, t.blind_base * t.blind_growth ** min(self.misses, 32))
