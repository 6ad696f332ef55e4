"""A rate of events that forgets: so many per second, lately."""

from __future__ import annotations

from math import exp, inf

# Seconds that a first event stands for: the rate of one event is not infinite.
FIRST = 1.0


class Rate:
    """Events per second with an exponential memory of `memory` seconds. Guarded by its owner.

    While younger than its memory it is corrected for what it cannot have seen yet, as the moments of Adam are
    (Kingma and Ba, ICLR 2015): else a steady load would look like a rising one for the first minute.
    """

    __slots__ = ("_at", "_began", "_level", "memory")

    def __init__(self, memory: float) -> None:
        self.memory = memory
        self._level = 0.0
        self._at = self._began = -inf

    def add(self, now: float) -> None:
        """Count one event."""
        if self._began == -inf:
            self._began = now
        self._level = self._faded(now) + 1.0 / self.memory
        self._at = now

    def per_second(self, now: float) -> float:
        """Return the rate as of now."""
        if not self._level:
            return 0.0
        return self._faded(now) / (1.0 - exp(-max(0.0, now - self._began + FIRST) / self.memory))

    def _faded(self, now: float) -> float:
        return self._level * exp(-max(0.0, now - self._at) / self.memory) if self._level else 0.0
