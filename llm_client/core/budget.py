"""How many retries the recent successes pay for."""

from __future__ import annotations

from math import inf, isfinite

from llm_client.errors import ConfigError

# A thousand deposits of 0.1 must buy exactly a hundred retries, so tokens are whole millionths.
_UNIT = 1_000_000
# With no traffic that could pay, one retry in this many seconds is still free: an idle client that
# meets one failure must not be told that it retries too much.
FLOOR_INTERVAL = 10.0


class RetryBudget:
    """A token bucket filled by successes and emptied by retries. Guarded by its owner.

    At a low failure rate it never binds; at a high one retries add at most `ratio` to the load
    (Brooker, "Fixing retries with token buckets and circuit breakers", 2022). Over any run,
    `retries <= ratio * deposits + burst + seconds / 10`. Refusals are not retries and never come here.
    """

    __slots__ = ("_burst", "_free_at", "_ratio", "_tokens")

    def __init__(self, ratio: float = 0.1, burst: float = 10.0) -> None:
        """Start full.

        Args:
            ratio: retries earned by one accepted first attempt; 0 leaves the burst and the floor.
            burst: retries that may be saved up; 0 leaves the floor alone.

        Raises:
            ConfigError: a number is negative or not finite.
        """
        for name, value in (("ratio", ratio), ("burst", burst)):
            if not isfinite(value) or value < 0.0:
                msg = f"retry_budget.{name}: expected a number >= 0, got {value!r}"
                raise ConfigError(msg, path=f"pool.retry_budget.{name}")
        self._ratio = round(ratio * _UNIT)
        self._burst = round(burst * _UNIT)
        self._tokens = self._burst
        self._free_at = -inf

    @property
    def tokens(self) -> float:
        """Retries that are paid for."""
        return self._tokens / _UNIT

    def deposit(self) -> None:
        """Pay in for one first attempt that was accepted."""
        self._tokens = min(self._burst, self._tokens + self._ratio)

    def withdraw(self, now: float) -> bool:
        """Take one retry; False means that it is not paid for and must not be sent."""
        if self._tokens >= _UNIT:
            self._tokens -= _UNIT
        elif now < self._free_at:
            return False
        self._free_at = now + FLOOR_INTERVAL
        return True
