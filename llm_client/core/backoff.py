"""How long to wait before another try: our own strategies, and tenacity's asked by hand."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from math import isfinite
from typing import Any, ClassVar, cast

from llm_client.errors import ConfigError

# What stands in for an infinite or undefined wait of a user's strategy, which would otherwise sleep for ever.
LONGEST = 120.0
# Attributes under which tenacity's combinations keep their parts (`a + b`, `a | b`, `wait_chain(a, b)`).
_PARTS = ("wait_funcs", "strategies", "stops", "retries")

Strategy = Callable[[Any], Any]
"""A tenacity strategy: a callable over tenacity's `RetryCallState`. All of ours are such strategies too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Base of our waits: `base * 2**(n-1)` for the n-th try, at most `cap`, both in seconds.

    Each is a tenacity wait strategy: usable in `tenacity.retry(wait=...)` and combinable with `+`. Used that way it
    needs a generator of its own; in `RetryPolicy` the caller's is used.

    Attributes:
        rng: for use outside of `RetryPolicy` only.
    """

    base: float = 0.5
    cap: float = 20.0
    rng: random.Random | None = None
    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Refuse numbers that make no wait.

        Raises:
            ConfigError: names the field and what it takes.
        """
        for name in ("base", "cap"):
            value = getattr(self, name)
            if not isfinite(value) or value < 0.0:
                raise ConfigError(f"backoff.{name}: expected seconds >= 0, got {value!r}", path=f"retry.backoff.{name}")
        if self.cap < self.base:
            msg = f"backoff.cap: expected at least backoff.base ({self.base:g} s), got {self.cap:g} s"
            raise ConfigError(msg, path="retry.backoff.cap")

    def bound(self, attempt: int) -> float:
        """Return b_n, the longest wait before the try after the n-th; n counts from 1."""
        return min(self.cap, self.base * 2.0 ** min(max(attempt, 1) - 1, 64))

    def draw(self, attempt: int, rng: random.Random) -> float:
        """Return one wait after the n-th try."""
        raise NotImplementedError

    def __call__(self, retry_state: Any) -> float:
        """Answer tenacity.

        Raises:
            ConfigError: nobody gave a generator.
        """
        rng = getattr(retry_state, "rng", None) or self.rng
        if rng is None:
            msg = f"{type(self).__name__}: outside of RetryPolicy give it rng=random.Random()"
            raise ConfigError(msg, path="retry.backoff")
        return self.draw(retry_state.attempt_number, rng)

    def __add__(self, other: Strategy) -> Strategy:
        """Wait for both, as tenacity's strategies add."""
        return _Sum((self, other))

    def __radd__(self, other: Strategy | int) -> Strategy:
        """Serve `sum()` and plain callables on the left."""
        return self if isinstance(other, int) else _Sum((other, self))


class FullJitter(Backoff):
    """U(0, b_n): spreads callers that failed together over the whole interval (Brooker, AWS, 2015)."""

    __slots__ = ()
    kind = "full_jitter"

    def draw(self, attempt: int, rng: random.Random) -> float:
        """Return one wait after the n-th try."""
        return rng.uniform(0.0, self.bound(attempt))


class EqualJitter(Backoff):
    """b_n/2 + U(0, b_n/2): never less than half."""

    __slots__ = ()
    kind = "equal_jitter"

    def draw(self, attempt: int, rng: random.Random) -> float:
        """Return one wait after the n-th try."""
        half = self.bound(attempt) / 2.0
        return half + rng.uniform(0.0, half)


class Exponential(Backoff):
    """b_n exactly. Callers that failed together come back together."""

    __slots__ = ()
    kind = "exponential"

    def draw(self, attempt: int, rng: random.Random) -> float:  # noqa: ARG002 - one shape for all strategies
        """Return the wait after the n-th try."""
        return self.bound(attempt)


class Constant(Backoff):
    """`base` every time."""

    __slots__ = ()
    kind = "constant"

    def bound(self, attempt: int) -> float:  # noqa: ARG002 - one shape for all strategies
        """Return the wait, whichever try it was."""
        return self.base

    def draw(self, attempt: int, rng: random.Random) -> float:  # noqa: ARG002 - one shape for all strategies
        """Return the wait, whichever try it was."""
        return self.base


class Decorrelated(Backoff):
    """w_n = min(cap, U(base, 3 w_(n-1))), w_0 = base.

    The walk is drawn afresh each time, so that a strategy shared by many calls needs no memory; every single wait
    has the distribution of the remembered walk.
    """

    __slots__ = ()
    kind = "decorrelated"

    def bound(self, attempt: int) -> float:
        """Return the longest wait after the n-th try."""
        return min(self.cap, self.base * 3.0 ** min(max(attempt, 1), 40))

    def draw(self, attempt: int, rng: random.Random) -> float:
        """Return one wait after the n-th try."""
        wait = self.base
        # After so many steps the walk has forgotten where it began.
        for _ in range(min(max(attempt, 1), 40)):
            wait = min(self.cap, rng.uniform(self.base, 3.0 * wait))
        return wait


@dataclass(frozen=True, slots=True)
class _Sum:
    """The sum of strategies, ours or tenacity's."""

    wait_funcs: tuple[Strategy, ...]

    def __call__(self, retry_state: Any) -> float:
        return float(sum(wait(retry_state) for wait in self.wait_funcs))

    def __add__(self, other: Strategy) -> Strategy:
        return _Sum((*self.wait_funcs, other))

    def __radd__(self, other: Strategy | int) -> Strategy:
        return self if isinstance(other, int) else _Sum((other, *self.wait_funcs))


KINDS: dict[str, type[Backoff]] = {
    kind.kind: kind for kind in (FullJitter, EqualJitter, Exponential, Constant, Decorrelated)
}


def backoff(kind: str, base: float, cap: float) -> Backoff:
    """Make the strategy that a profile names.

    Raises:
        ConfigError: no such kind, or numbers that make no wait.
    """
    found = KINDS.get(kind)
    if found is None:
        msg = f"backoff.kind: expected one of {', '.join(KINDS)}, got {kind!r}"
        raise ConfigError(msg, path="retry.backoff.kind")
    return found(base=base, cap=cap)


def require_sync(strategy: object, name: str) -> None:
    """Refuse a strategy that would have to be awaited; looks into tenacity's combinations.

    Args:
        strategy: what the user passed; None passes.
        name: the argument's name, for the message.

    Raises:
        ConfigError: it is no callable, or an async one.
    """
    if strategy is None:
        return
    if not callable(strategy):
        raise ConfigError(f"retry.{name}: expected a tenacity strategy or a callable, got {strategy!r}")
    for part in _flatten(strategy):
        inner = getattr(part, "func", part)
        if iscoroutinefunction(inner) or iscoroutinefunction(getattr(inner, "__call__", None)):  # noqa: B004 - looked at, not asked
            msg = (
                f"retry.{name}: {part!r} is async; decisions are made without waiting, "
                "so pass a plain function that returns at once"
            )
            raise ConfigError(msg, path=f"retry.{name}")


def _flatten(strategy: object) -> Iterable[object]:
    pending = [strategy]
    while pending:
        part = pending.pop()
        yield part
        for name in _PARTS:
            inner = getattr(part, name, None)
            if isinstance(inner, (tuple, list)):
                pending.extend(inner)
        # `retry_if_exception` and `wait_exception` keep the user's function here.
        predicate = getattr(part, "predicate", None)
        if callable(predicate):
            pending.append(predicate)


def delay(
    strategy: Strategy,
    attempt: int,
    error: BaseException,
    elapsed: float,
    rng: random.Random,
    *,
    state: Any = None,
) -> float:
    """Ask any strategy for one wait, in seconds; finite and not negative whatever it answers.

    Infinite and undefined waits become `LONGEST`, negative ones 0.

    Args:
        strategy: one of ours or any sync wait strategy of tenacity.
        attempt: which try failed, from 1.
        error: what it failed with.
        elapsed: seconds since the call began.
        rng: drawn from by our strategies; tenacity's own have theirs.
        state: a state made by `call_state`, if there is one already.

    Raises:
        ConfigError: the strategy answers something that is no number.
    """
    if isinstance(strategy, Backoff):
        return strategy.draw(attempt, rng)
    if state is None:
        state = call_state(attempt, error, elapsed, rng)
    value = ask(strategy, state, "wait")
    try:
        seconds = float(value)
    except (TypeError, ValueError) as wrong:
        raise ConfigError(f"retry.wait: expected seconds from {strategy!r}, got {value!r}") from wrong
    return max(0.0, seconds) if isfinite(seconds) or seconds < 0.0 else LONGEST


def ask(strategy: Strategy, state: Any, name: str) -> Any:
    """Call a strategy on a state made by hand.

    Raises:
        ConfigError: it turns out to be async after all.
    """
    value = strategy(state)
    if isinstance(value, Awaitable):
        close = getattr(value, "close", None)
        if close is not None:
            close()
        raise ConfigError(f"retry.{name}: {strategy!r} returned an awaitable; pass a plain function", path="retry")
    return value


def call_state(attempt: int, error: BaseException, elapsed: float, rng: random.Random) -> Any:
    """Make the `RetryCallState` that tenacity's strategies read, on our clock and with our generator.

    A retry object of tenacity's is not shared or made: its state belongs to a thread, its clock and generator to
    the process.
    """
    import tenacity  # noqa: PLC0415 - only users' own strategies need it, after a failure

    state = tenacity.RetryCallState(retry_object=cast("Any", None), fn=None, args=(), kwargs={})
    state.attempt_number = max(attempt, 1)
    state.start_time = 0.0
    state.outcome_timestamp = elapsed
    future = tenacity.Future(state.attempt_number)
    future.set_exception(error)
    state.outcome = future
    vars(state)["rng"] = rng
    return state


def seeded(strategy: Backoff, rng: random.Random) -> Backoff:
    """Return the strategy with a generator of its own, for use in a plain `tenacity.retry`."""
    return replace(strategy, rng=rng)
