"""What a server's own rate headers still allow until it counts anew."""

from __future__ import annotations

from math import inf, isfinite

# Reset headers advise, they do not order: like every advisory wait they hold for two minutes at most.
LONGEST = 120.0


class Quota:
    """The rest of a server's window. Guarded by its owner.

    It holds calls back only while the server says that little is left. Then what is left is spread evenly up to the
    reset, and nothing goes beyond it; a fixed window refills at its end only, whatever our own rate says.

    A server whose bucket refills all the time names the time until it is *full*, which moves with every call. Once it
    has moved as our rate predicts, there is no window to wait for, and the level alone is followed.
    """

    __slots__ = ("_left", "_next", "_rolling", "_until")

    def __init__(self) -> None:
        """Hold nothing back."""
        self._until = -inf
        self._left = 0.0
        self._next = -inf
        self._rolling = False

    def wait(self, cost: float, now: float) -> float:
        """Return seconds until `cost` may go as far as the server's window is concerned."""
        if now >= self._until:
            return 0.0
        if cost > self._left:
            return self._until - now
        return max(0.0, self._next - now)

    def take(self, cost: float, now: float) -> None:
        """Count a call that goes."""
        if now < self._until:
            self._next = now + cost * (self._until - now) / self._left if self._left > 0.0 else self._until
            self._left = max(0.0, self._left - cost)

    def observe(self, left: float, reset: float | None, now: float, *, scarce: bool, refill: float) -> None:
        """Take in one answer's headers. They may shorten what is left and the wait, never lengthen either.

        Args:
            left: units left, less what is under way.
            reset: seconds; None when the server named none.
            now: monotonic seconds.
            scarce: so little is left that it must be spread.
            refill: seconds that our rate would need to fill the bucket from there.
        """
        if reset is None or not isfinite(reset) or reset <= 0.0 or self._rolling:
            return
        reset = min(reset, LONGEST)
        if now < self._until:
            if now + reset > self._until + max(1.0, 0.05 * reset) and abs(reset - refill) <= 0.1 * refill:
                self._rolling = True
                self._until = -inf
                return
            self._until = min(self._until, now + reset)
            self._left = min(self._left, left)
        elif scarce:
            self._until = now + reset
            self._left = left
            self._next = now
