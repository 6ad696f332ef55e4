"""Which of the free endpoints takes the next call."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from llm_client.core.station import Station

# Up to this many endpoints a full scan is cheap and best; beyond it two random choices are nearly
# as good (Mitzenmacher, "The Power of Two Choices", 2001).
SCAN = 16


@dataclass(slots=True)
class Router:
    """Least outstanding per weight, repelled by recent failures; random among equals."""

    rng: random.Random

    def pick(self, free: Sequence[Station], now: float) -> Station:
        """Choose among endpoints that are all free to take a call."""
        if len(free) == 1:
            return free[0]
        candidates = free if len(free) <= SCAN else self.rng.sample(free, 2)
        best, best_score, ties = candidates[0], candidates[0].score(now), 1
        for station in candidates[1:]:
            score = station.score(now)
            if score < best_score:
                best, best_score, ties = station, score, 1
            elif score == best_score:
                ties += 1
                if self.rng.random() * ties < 1.0:
                    best = station
        return best

    def order(self, stations: Sequence[Station], now: float) -> list[Station]:
        """Sort endpoints by preference, for the one that may grow first."""
        if len(stations) == 1:
            return list(stations)
        return sorted(stations, key=lambda station: (station.score(now), self.rng.random()))
