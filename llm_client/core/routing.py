"""Which of the free endpoints takes the next call."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import log

from llm_client.core.station import Station

# Up to this many endpoints a full scan is cheap and best; beyond it two random choices are nearly
# as good (Mitzenmacher, "The Power of Two Choices", 2001).
SCAN = 16
# A preference holds up to this multiple of the mean load (Mirrokni et al., "Consistent Hashing with Bounded Loads",
# 2018).
BOUND = 1.25
# An endpoint whose failure penalty is above this is nobody's favourite.
SOUND = 1.9


@dataclass(slots=True)
class Router:
    """Least outstanding per weight, repelled by recent failures; the less busy among equals, then random."""

    rng: random.Random

    def pick(self, free: Sequence[Station], now: float) -> Station:
        """Choose among endpoints that are all free to take a call."""
        if len(free) == 1:
            return free[0]
        candidates = free if len(free) <= SCAN else self.rng.sample(free, 2)
        best, ties = candidates[0], 1
        best_score, best_load = best.score(now), best.reported(now)
        for station in candidates[1:]:
            score, load = station.score(now), station.reported(now)
            if score < best_score or (score == best_score and load < best_load):
                best, best_score, best_load, ties = station, score, load, 1
            elif score == best_score and load == best_load:
                ties += 1
                if self.rng.random() * ties < 1.0:
                    best = station
        return best

    def prefer(self, prefix: bytes, free: Sequence[Station], eligible: Sequence[Station], now: float) -> Station:
        """Choose the endpoint that a prompt's beginning belongs to, while it is free and not above its share.

        Every process and every call ranks the endpoints alike (weighted rendezvous hashing), so that a server finds
        the beginning in its cache; when an endpoint comes or goes, only its own prompts move.
        """
        total = sum(station.outstanding for station in eligible) + 1
        weights = sum(station.weight for station in eligible)
        best, best_rank = None, 0.0
        for station in free:
            share = total * station.weight / weights
            if station.outstanding + 1 > max(1.0, BOUND * share) or station.penalty(now) > SOUND:
                continue
            rank = _rank(prefix, station)
            if best is None or rank > best_rank:
                best, best_rank = station, rank
        return self.pick(free, now) if best is None else best

    def order(self, stations: Sequence[Station], now: float) -> list[Station]:
        """Sort endpoints by preference, for the one that may grow first."""
        if len(stations) == 1:
            return list(stations)
        return sorted(stations, key=lambda station: (station.score(now), self.rng.random()))


def _rank(prefix: bytes, station: Station) -> float:
    digest = blake2b(station.name.encode(), key=prefix, digest_size=8).digest()
    share = (int.from_bytes(digest, "big") + 1) / (2**64 + 1)
    return -station.weight / log(share)
