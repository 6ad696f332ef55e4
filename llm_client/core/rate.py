"""A rate of events that forgets: so many per second, lately."""

from __future__ import annotations

from math import exp, inf


class Rate:
    """Events per second with an exponential memory of `memory` seconds. Guarded by its owner."""

    __slots__ = ("_at", "_level", "memory")

    def __init__(self, memory: float) -> None:
        self.memory = memory
        self._level = 0.0
        self._at = -inf

    def add(self, now: float) -> None:
        """Count one event."""
        self._level = self.per_second(now) + 1.0 / self.memory
        self._at = now

    def per_second(self, now: float) -> float:
        """Return the rate as of now."""
        if not self._level:
            return 0.0
        return self._level * exp(-max(0.0, now - self._at) / self.memory)
