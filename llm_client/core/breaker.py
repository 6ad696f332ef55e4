"""Whether an endpoint is worth asking: closed, open or half-open.

pybreaker holds the state and is the bus of its changes; everything that decides is here. Its own
`call` and `calling` are not used: they hold a lock through the call or admit every probe at once,
take cancellation for failure, and let outcomes of an earlier state move the present one. pybreaker is
imported when the first breaker is built, because it imports redis and tornado where they are installed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final

from llm_client.core.circuit import BreakerConfig, Pass, Refused, State, Transition, Verdict, judge
from llm_client.core.streak import Streak
from llm_client.core.window import Window
from llm_client.errors import CircuitOpenError

if TYPE_CHECKING:
    import pybreaker

__all__ = [
    "Breaker",
    "BreakerConfig",
    "Pass",
    "Refused",
    "State",
    "Transition",
    "Verdict",
    "circuit_open_error",
    "judge",
]

# A probe may be slow without being lost: a lease that was lost in vain doubles, at most to this.
_LONGEST_LEASE: Final = 3600.0
# Refusals lengthen the open time up to its sixth step (7.6 times the first). The server works, perhaps for others:
# a client that came back once a minute would never find the slot that they leave.
_REFUSED_TRIPS: Final = 6
_REFUSED: Final = "refused with nothing in flight"
# Each opening lasts so many times the last one. An outage is outlasted by a share of its own length: by half of it on
# average with 2, by a quarter with 1.5, for two probes more in the first four seconds.
_GROWTH: Final = 1.5


class Breaker:
    """The circuit of one endpoint. Guarded by its owner; no method blocks or calls user code."""

    def __init__(self, name: str, config: BreakerConfig, rng: random.Random) -> None:
        """Start closed, or disabled if the configuration says so."""
        self.name = name
        self.config = config
        self._rng = rng
        self._circuit = _build_circuit(name, self._on_change)
        self._held: State = "closed"  # what the circuit says, kept beside it: it is asked several times per call
        self._mode: State | None = None if config.enabled else "disabled"
        self._window = Window(config.window)
        # Outcomes count only in the generation that their pass was given in; every change starts a new one.
        self._generation = 0
        self._consecutive = 0
        self._streak = Streak()
        self._refused = 0
        self._alive_at = -inf
        self._trips = 0
        self._closed_at = -inf
        self._until = -inf
        self._leases: list[Pass] = []
        self._lease = config.lease
        self._lost = 0
        self._succeeded = 0
        self._probing_since = self._probed_at = -inf
        self._moving: Transition | None = None
        self.transitions: list[Transition] = []

    @property
    def state(self) -> State:
        """Where the circuit stands; `open` lasts until somebody asks after its end."""
        return self._mode or self._held

    @property
    def until(self) -> float | None:
        """When an open circuit may be probed; None in every other state."""
        return self._until if self.state == "open" else None

    @property
    def failures(self) -> int:
        """Consecutive failures so far."""
        return self._consecutive

    @property
    def untold(self) -> float:
        """When the last probe went, while probes are under way and none has succeeded yet; else -inf."""
        return self._probed_at if self._leases and not self._succeeded else -inf

    @property
    def probing(self) -> int:
        """Probes under way, as of the last call."""
        return len(self._leases)

    def counted(self, now: float) -> tuple[int, int, int]:
        """Return outcomes, failures and slow ones in the window."""
        self._window.advance(now)
        return self._window.total, self._window.failed, self._window.slow

    def ready_at(self, now: float) -> float:
        """Return when a call or a probe may go: `<= now` means now, inf never."""
        state = self._mode or self._held
        if state == "half_open":
            self._sweep(now)
            state = self.state
        if state == "open":
            return max(now, self._until)
        if state == "half_open" and len(self._leases) >= self.config.probes:
            return self._leases[0].ends
        return inf if state == "isolated" else now

    def acquire(self, now: float) -> Pass | Refused:
        """Ask for a pass right before sending, so that nobody who waits holds a probe's place."""
        ready = self.ready_at(now)
        if ready > now:
            return Refused(ready)
        state = self.state
        if state == "open":
            self._generation += 1
            self._leases.clear()
            self._succeeded = self._lost = 0
            self._probing_since = now
            self._move("half_open", "open time over")
        elif state != "half_open":
            return Pass(self._generation, probe=False, ends=inf, mark=self._streak.sent())
        self._probed_at = now
        lease = Pass(self._generation, probe=True, ends=now + self._lease)
        self._leases.append(lease)
        return lease

    def settle(
        self,
        pass_: Pass,
        now: float,
        verdict: Verdict,
        *,
        slow: bool = False,
        retry_after: float | None = None,
        lonely: bool = False,
        guarded: bool = False,
    ) -> None:
        """Tell what became of a call. A second telling, or one from an earlier generation, changes nothing.

        Book the success of a stream at its first content, not at its end: refusals and faults come back in
        milliseconds, so a window of finished calls would see only them. `broke` takes it back.

        Args:
            pass_: what `acquire` returned.
            now: monotonic seconds.
            verdict: see `judge`; cancellation and local decisions are neutral.
            slow: the first content came later than `config.slow_first_token`, or the call ran out of time that
                late without any.
            retry_after: seconds the server asked for; sets the open time if this opens the circuit.
            lonely: a refusal while nothing else of ours was in flight there. A busy server refuses when we fill
                it; one that refuses an empty-handed client `failures` times in a row must be left alone.
            guarded: the pool has its share of endpoints open already: rates do not open another one.
        """
        stale = pass_.settled or pass_.generation != self._generation
        pass_.settled = True
        if stale or self._mode == "disabled":
            return
        pass_.accepted = verdict == "success"
        self._streak.settled(pass_.mark, verdict)
        if pass_ in self._leases:
            self._leases.remove(pass_)
        if verdict == "success":
            self._refused = self._consecutive = 0
        elif verdict == "failure":
            self._consecutive += 1
        elif lonely:
            self._refused += 1
        if pass_.probe:
            reason = self._read_probe(now, verdict)
        else:
            reason = self._read_call(now, verdict, slow=slow, guarded=guarded)
        if not reason and lonely and self._refused >= (self.config.failures or inf):
            reason = _REFUSED
        if reason and self._mode is None:
            self._trip(now, reason, retry_after)

    def broke(self, pass_: Pass, now: float, *, retry_after: float | None = None) -> None:
        """Tell that a stream which was booked as accepted was cut; counts as one failure, once."""
        if not pass_.settled:
            self.settle(pass_, now, "failure", retry_after=retry_after)
        elif pass_.accepted:
            pass_.accepted = False
            again = Pass(pass_.generation, probe=pass_.probe, ends=pass_.ends)
            self.settle(again, now, "failure", retry_after=retry_after)

    def alive(self, now: float) -> None:
        """Note bytes of an accepted stream. Bytes of an error are no sign of health: do not come with those."""
        self._alive_at = now

    def isolate(self) -> None:
        """Send nothing until `reset`."""
        self._manual("isolated")

    def disable(self) -> None:
        """Let everything through and count nothing until `reset`."""
        self._manual("disabled")

    def metrics_only(self) -> None:
        """Let everything through and only count until `reset`."""
        self._manual("metrics_only")

    def reset(self) -> None:
        """Close the circuit and forget its past; ends every manual state."""
        self._forget()
        self._trips = 0
        self._closed_at = -inf
        self._lease = self.config.lease
        self._move("closed", "reset")

    def abandon(self) -> None:
        """Free the places of calls that nobody here will ever settle, as in the child of a fork."""
        self._generation += 1
        self._leases.clear()
        self._streak.end()

    def drain(self) -> list[Transition]:
        """Hand over the changes of state since the last time, oldest first."""
        drained, self.transitions = self.transitions, []
        return drained

    def _read_probe(self, now: float, verdict: Verdict) -> str:
        """Close the circuit, or return why it opens."""
        if verdict == "failure":
            return "probe failed"
        if verdict == "success":
            self._succeeded += 1
            self._lost = 0
            if self._succeeded >= self.config.successes:
                self._forget()
                self._lease = self.config.lease
                self._closed_at = now
                self._move("closed", "probes succeeded")
        return ""

    def _read_call(self, now: float, verdict: Verdict, *, slow: bool, guarded: bool) -> str:
        """Count an outcome of a closed circuit and return why it opens, if it does."""
        config, window = self.config, self._window
        failed = verdict == "failure"
        if verdict == "neutral" and not slow:
            return ""
        window.add(now, failed=failed, slow=slow)
        if failed:
            # A stream that still delivers proves life, but not that anything new is taken: for that see the streak.
            # A count that the classic form promises needs no proof.
            limit = config.failures or inf
            lifeless = config.classic or now - self._alive_at >= config.liveness
            if lifeless and self._consecutive >= limit:
                return "consecutive failures"
            if not self._streak.going and self._streak.failed >= limit:
                return "nothing but failures since the first"
        if window.total < config.minimum or guarded:
            return ""
        if failed and window.failed >= (config.failure_rate or inf) * window.total:
            return "failure rate"
        if slow and window.slow >= (config.slow_rate or inf) * window.total:
            return "slow first tokens"
        return ""

    def _trip(self, now: float, reason: str, retry_after: float | None = None) -> None:
        config = self.config
        if self.state == "closed" and now - self._closed_at >= config.settled_after:
            self._trips = 0
        if reason != _REFUSED or self._trips < _REFUSED_TRIPS:
            self._trips += 1
        wait = min(config.open_cap, config.open_base * _GROWTH ** min(self._trips - 1, 64))
        if config.open_base < config.open_cap:
            wait = wait / 2.0 + self._rng.uniform(0.0, wait / 2.0)
        if retry_after is not None and retry_after > 0.0:
            # Additive jitter, or all clients of one server come back in the same instant.
            asked = min(retry_after, config.retry_after_cap)
            wait = max(wait, asked + self._rng.uniform(0.0, max(0.1 * asked, 0.25)))
        self._until = now + wait
        self._generation += 1
        self._leases.clear()
        self._move("open", reason, until=self._until)

    def _sweep(self, now: float) -> None:
        """Take back the places of probes that nobody settled in time."""
        leases = self._leases
        while leases and leases[0].ends <= now:
            leases.pop(0)
            self._lost += 1
        if not self._lost or self._succeeded:
            return
        if self._lost >= 2 * self.config.probes or now - self._probing_since >= 2.0 * self._lease:
            # Silence is an answer too. But a probe that takes minutes is not lost, and would come too late
            # for its generation every time: so the next round has twice the patience.
            self._lease = min(_LONGEST_LEASE, 2.0 * self._lease)
            self._trip(now, "probes lost")

    def _forget(self) -> None:
        self._generation += 1
        self._consecutive = self._refused = self._succeeded = self._lost = 0
        self._streak.end()
        self._leases.clear()
        self._window.clear()

    def _manual(self, mode: State) -> None:
        self._forget()
        self._move(mode, "by hand")

    def _move(self, new: State, reason: str, *, until: float | None = None) -> None:
        old = self.state
        self._mode = new if new in _MANUAL else None
        if new == old:
            return
        self._moving = Transition(old, new, until, reason)
        holder, held = _MANUAL.get(new, new), self._held
        self._held = holder
        if holder == held:
            self._on_change()
        elif holder == "open":
            self._circuit.open()
        elif holder == "closed":
            self._circuit.close()
        else:
            self._circuit.half_open()

    def _on_change(self) -> None:
        """Hear of a change of state; only append, because the owner's lock is held."""
        if self._moving is not None:
            self.transitions.append(self._moving)
            self._moving = None


# pybreaker knows three states; the manual ones are kept beside it, over the state they behave like.
_MANUAL: Final[dict[State, State]] = {"isolated": "open", "disabled": "closed", "metrics_only": "closed"}


def _build_circuit(name: str, heard: Callable[[], None]) -> pybreaker.CircuitBreaker:
    import pybreaker  # noqa: PLC0415 - it imports redis and tornado where they are installed

    class Bus(pybreaker.CircuitBreakerListener):
        def state_change(self, *_: object) -> None:
            heard()

    # It counts and times nothing: its limits are out of reach.
    return pybreaker.CircuitBreaker(
        fail_max=sys.maxsize,
        reset_timeout=sys.maxsize,
        listeners=[Bus()],
        state_storage=pybreaker.CircuitMemoryStorage(pybreaker.STATE_CLOSED),
        name=name,
    )


def circuit_open_error(message: str, **common: Any) -> CircuitOpenError:
    """Make the error of an open circuit; a `pybreaker.CircuitBreakerError` too where pybreaker is loaded.

    Args:
        message: what happened and what to do next.
        common: `endpoint`, `attempts`, `retry_after` of `LLMClientError`.
    """
    return _error_class()(message, **common)


def _error_class() -> type[CircuitOpenError]:
    loaded = sys.modules.get("pybreaker")
    if loaded is None:
        return CircuitOpenError
    if not _BOTH:
        names = {"__module__": CircuitOpenError.__module__, "__qualname__": "CircuitOpenError", "__reduce__": _reduce}
        _BOTH.append(type("CircuitOpenError", (CircuitOpenError, loaded.CircuitBreakerError), names))
    return _BOTH[0]


_BOTH: Final[list[type[CircuitOpenError]]] = []


def _reduce(error: CircuitOpenError) -> tuple[Any, ...]:
    # The class is made at run time, so a pickle names a function that makes it again.
    return (_restore, (error.message, CircuitOpenError.__reduce__(error)[1][2]))


def _restore(message: str, state: dict[str, Any]) -> CircuitOpenError:
    error = circuit_open_error(message)
    error.__dict__.update(state)
    return error
