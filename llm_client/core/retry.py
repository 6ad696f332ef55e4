"""Whether a failed attempt is followed by another one, and when."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf, isfinite
from typing import Any, Final

from llm_client.core.backoff import Backoff, FullJitter, Strategy, ask, call_state, delay, require_sync
from llm_client.errors import ConfigError
from llm_client.model import Kind, Outcome

# No retry comes sooner, whatever a strategy or a "Retry-After: 0" says: a server that refuses in a millisecond
# was once asked 25,216 times in two seconds.
SHORTEST: Final = 0.05


class Why(StrEnum):
    """Why no further attempt is made; the error that is raised is always the server's."""

    OK = "ok"
    CANCELLED = "cancelled"
    PERMANENT = "permanent"
    NOT_RETRYABLE = "not_retryable"
    DELIVERED = "delivered"
    OUTCOME_UNKNOWN = "outcome_unknown"
    ATTEMPTS = "attempts"
    REFUSALS = "refusals"
    HINT_ABOVE_CAP = "hint_above_cap"
    DEADLINE = "deadline"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again `after` seconds. `refusal`: it cost neither an attempt nor budget."""

    after: float
    refusal: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """Raise the error of the last answer. `reason` is a word of `Why`."""

    reason: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """What one profile allows.

    Attributes:
        attempts: requests that may fail after being sent, the first one included.
        refusals: how often the server may decline, or a connection fail, at no cost; `attempts=1` makes it 0.
        wait: one of `llm_client.core.backoff` or any sync tenacity wait strategy.
        stop: a tenacity stop strategy, asked in addition.
        retry: a tenacity retry strategy in place of the outcome's own `retryable`. What is permanent, delivered
            or cancelled stays so.
        cap: the longest order to wait that is obeyed, in seconds. A longer one ends the call: it is not slept,
            and not undercut either.
        unknown_outcome: False forbids to repeat a request that the server may have carried out.
    """

    attempts: int = 5
    refusals: int = 50
    wait: Strategy = field(default_factory=FullJitter)
    stop: Strategy | None = None
    retry: Strategy | None = None
    cap: float = 120.0
    unknown_outcome: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ConfigError: names the field and what it takes.
        """
        if self.attempts < 1:
            msg = f"retry.attempts: expected an int >= 1 (the first request counts), got {self.attempts!r}"
            raise ConfigError(msg, path="retry.attempts")
        if self.refusals < 0:
            raise ConfigError(f"retry.refusals: expected an int >= 0, got {self.refusals!r}", path="retry.refusals")
        if not isfinite(self.cap) or self.cap < 0.0:
            msg = f"retry.retry_after.cap: expected seconds >= 0, got {self.cap!r}"
            raise ConfigError(msg, path="retry.retry_after.cap")
        for name in ("wait", "stop", "retry"):
            require_sync(getattr(self, name), name)
        if self.attempts == 1:
            object.__setattr__(self, "refusals", 0)

    def decide(
        self,
        outcome: Outcome,
        error: BaseException,
        *,
        attempt: int,
        refusals: int,
        elapsed: float,
        now: float,
        deadline: float | None,
        rng: random.Random,
    ) -> Retry | Stop:
        """Decide about the attempt that just failed. The retry budget is the caller's to ask, last of all.

        Args:
            outcome: what the attempt taught.
            error: what would be raised; only its type matters here.
            attempt: attempts that failed after being sent, this one included if it is one.
            refusals: free tries so far (refusals and failed connects), this one included if it is one.
            elapsed: seconds since the call began.
            now: monotonic seconds.
            deadline: monotonic; None when unbounded.
            rng: for the jitter.
        """
        free = outcome.refusal or not outcome.sent
        state: Any = None
        if not (self.stop is None and self.retry is None and isinstance(self.wait, Backoff)):
            state = call_state(attempt, error, elapsed, rng)
        final = self._final(outcome, error, state) or self._spent(outcome, attempt, refusals, free=free)
        if final is not None:
            return Stop(final)
        room = inf if deadline is None else deadline - now
        # Free tries count in the exponent, or "Retry-After: 0" would keep it at its first value for ever.
        after = self._after(outcome, attempt + refusals if free else attempt, room, rng, state)
        if after >= room:
            return Stop(Why.DEADLINE)
        if self.stop is not None:
            state.upcoming_sleep = after
            if ask(self.stop, state, "stop"):
                return Stop(Why.STOP)
        return Retry(after, free)

    def _final(self, outcome: Outcome, error: BaseException, state: Any) -> Why | None:
        """Return why this outcome is never tried again, if so."""
        if outcome.ok:
            return Why.OK
        if not isinstance(error, Exception):
            return Why.CANCELLED
        if outcome.permanent:
            return Why.PERMANENT
        if outcome.kind is Kind.STREAM_INTERRUPTED and not outcome.retryable:
            return Why.DELIVERED
        retryable = outcome.retryable if self.retry is None else bool(ask(self.retry, state, "retry"))
        return None if retryable else Why.NOT_RETRYABLE

    def _spent(self, outcome: Outcome, attempt: int, refusals: int, *, free: bool) -> Why | None:
        """Return which allowance is used up, if one is."""
        if not free and not self.unknown_outcome and _may_have_run(outcome):
            return Why.OUTCOME_UNKNOWN
        if free and refusals > self.refusals:
            return Why.REFUSALS
        if not free and attempt >= self.attempts:
            return Why.ATTEMPTS
        hint = outcome.hint
        return Why.HINT_ABOVE_CAP if hint is not None and hint.directive and hint.seconds > self.cap else None

    def _after(self, outcome: Outcome, tries: int, room: float, rng: random.Random, state: Any) -> float:
        """Return seconds to wait: the server's floor plus jitter, or the strategy's draw.

        The jitter shrinks to the room before the deadline; a floor never does.
        """
        wait = self.wait
        # A refusal says that there is too much work, not that something slipped: its first step is the second.
        step = tries + 1 if outcome.refusal else tries
        hint = outcome.hint
        if isinstance(wait, FullJitter) or (hint is not None and isinstance(wait, Backoff)):
            spread = wait.bound(step)
        elif isinstance(wait, Backoff):
            return max(SHORTEST, wait.draw(step, rng))
        else:
            spread = self._asked(wait, tries, rng, state)
            if hint is None:
                return max(SHORTEST, spread)
        floor = 0.0
        if hint is not None:
            # Exact obedience brings everybody back in one instant; half of the hint spreads them.
            floor = min(hint.seconds, self.cap)
            spread = max(floor / 2.0, spread)
        return max(SHORTEST, floor + rng.uniform(0.0, max(0.0, min(spread, room - floor))))

    @staticmethod
    def _asked(wait: Strategy, tries: int, rng: random.Random, state: Any) -> float:
        """Ask a user's strategy; it sees the free tries too, a stop strategy does not."""
        attempt = state.attempt_number
        state.attempt_number = max(tries, 1)
        try:
            return delay(wait, tries, state.outcome.exception(), state.outcome_timestamp, rng, state=state)
        finally:
            state.attempt_number = attempt


def _may_have_run(outcome: Outcome) -> bool:
    """Tell whether the server may have done the work although no whole answer came."""
    status = outcome.status
    return status is None or 200 <= status < 300 or outcome.kind is Kind.TIMEOUT
