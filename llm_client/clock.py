"""Where time comes from: a protocol, so that nothing below the drivers reads a clock by itself."""

from typing import Protocol


class Clock(Protocol):
    """Two clocks with two purposes.

    Durations and deadlines use `monotonic`; only arithmetic against dates that a server wrote
    (an HTTP-date in `Retry-After`) uses `wall`. A step of the wall clock never moves a deadline.
    """

    def monotonic(self) -> float:
        """Seconds since an arbitrary origin; never goes back."""
        ...

    def wall(self) -> float:
        """Seconds since the Unix epoch, UTC."""
        ...
