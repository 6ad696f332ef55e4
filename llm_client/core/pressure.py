"""How full we are, told to producers before they make a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """The load as a producer should see it.

    Attributes:
        level: `low`; `medium`: slow down if you can; `high`: new calls of a profile with `backpressure` are refused.
        ratio: of waiting calls to the queue's size, or of latency to its target.
        waiting: calls in the local queue.
        retry_after: seconds after which it may be better; None when unknown.
    """

    level: Level
    ratio: float
    waiting: int
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureRule:
    """When pressure is medium and when it is high.

    Attributes:
        kind: `queue_depth` or `latency`.
        watch: above this ratio it is medium.
        refuse: above this ratio it is high.
        target: seconds that are ratio 1.0 of the latency form.
    """

    kind: str = "queue_depth"
    watch: float = 0.5
    refuse: float = 0.8
    target: float = 2.0

    def level(self, ratio: float) -> Level:
        """Read a ratio."""
        if ratio > self.refuse:
            return "high"
        return "medium" if ratio > self.watch else "low"


DEPTH = PressureRule()
