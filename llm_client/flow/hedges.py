"""What hedging has to know beyond one call: how long calls usually take to begin, and what hedges may cost."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from math import ceil
from typing import Final

from llm_client.model import Call

# So many beginnings are remembered per kind of call, and so few say nothing yet.
_RECENT: Final = 200
ENOUGH: Final = 50
# The slowest twentieth is worth a second request (Dean and Barroso, "The Tail at Scale", 2013).
SLOW: Final = 0.95
# No call is called slow before this many seconds.
LEAST: Final = 0.5
# Kinds of calls that are told apart; models are the callers' words.
_KINDS: Final = 64
# Hedges that may be saved up.
_SAVED: Final = 10.0

# Twenty shares of 0.05 must buy one hedge.
_TINY: Final = 1e-9

Key = tuple[str, str | None, bool]


class Hedges:
    """Beginnings and shares of a pool. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._begun: OrderedDict[Key, deque[float]] = OrderedDict()
        self._saved: dict[str, float] = {}

    def began(self, call: Call, seconds: float) -> None:
        """Note how long a call took from send to its first content; a plain one, to its answer."""
        key = _key(call)
        with self._lock:
            found = self._begun.get(key)
            if found is None:
                if len(self._begun) >= _KINDS:
                    self._begun.popitem(last=False)
                found = self._begun[key] = deque(maxlen=_RECENT)
            else:
                self._begun.move_to_end(key)
            found.append(seconds)

    def slow(self, call: Call) -> float | None:
        """Return the seconds after which such a call is slower than most; None while too few were seen."""
        with self._lock:
            found = self._begun.get(_key(call))
            seen = sorted(found) if found is not None else []
        if len(seen) < ENOUGH:
            return None
        return max(LEAST, seen[ceil(len(seen) * SLOW) - 1])

    def earn(self, profile: str, share: float) -> None:
        """Count a call of a profile, which pays for a share of a hedge."""
        with self._lock:
            self._saved[profile] = min(_SAVED, self._saved.get(profile, 0.0) + share)

    def affordable(self, profile: str) -> bool:
        """Tell whether the calls of a profile have paid for a hedge."""
        with self._lock:
            return self._saved.get(profile, 0.0) >= 1.0 - _TINY

    def spend(self, profile: str) -> None:
        """Pay for a hedge."""
        with self._lock:
            self._saved[profile] = self._saved.get(profile, 0.0) - 1.0


def _key(call: Call) -> Key:
    return (call.route, call.model, call.stream)
