"""Token buckets: how much a rate still allows, and when it will allow more.

The generic cell rate algorithm (ITU-T I.371) keeps one number, the instant at which the bucket would be full again. A
cost c moves it by c / rate; it may lie at most burst / rate ahead of now.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

from llm_client.core.ledger import Ledger
from llm_client.core.quota import Quota
from llm_client.errors import ConfigError

# A wait shorter than this is none: who comes back exactly when told must not be told again, whatever the clock's
# last digits say.
_TOLERANCE = 1e-6
# With less than this share left, a server's window is spread evenly up to its reset.
_SCARCE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So much per period, as users write it.

    Attributes:
        amount: what one period allows: requests or tokens.
        period: seconds.
        burst: what may be taken at once after idleness. Unset, it is `amount`: "3 per 10 s" lets three go at once and
            then one every 3.33 s. With 1 it lets one go every 3.33 s.
        leaky: pace evenly, the same as `burst=1`; a call for c tokens then keeps the next one off for c / rate.
        fleet_size: processes that share this rate without a common store; each gets its part of rate and burst.
    """

    amount: float
    period: float
    burst: float | None = None
    leaky: bool = False
    fleet_size: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no rate.

        Raises:
            ConfigError: names the field and what it takes.
        """
        for name in ("amount", "period", "burst"):
            value = getattr(self, name)
            if value is not None and (not isfinite(value) or value <= 0.0):
                raise ConfigError(f"limits.{name}: expected a number above 0, got {value!r}", path=f"limits.{name}")
        if self.fleet_size < 1:
            msg = f"limits.fleet_size: expected an int >= 1, got {self.fleet_size!r}"
            raise ConfigError(msg, path="limits.fleet_size")
        if self.leaky and self.burst is not None:
            msg = f"limits.burst: leaky pacing means burst 1, so {self.burst!r} has no effect; leave one of them out"
            raise ConfigError(msg, path="limits.burst")

    @property
    def per_second(self) -> float:
        """This process's share of the rate."""
        return self.amount / self.period / self.fleet_size

    @property
    def effective_burst(self) -> float:
        """This process's share of the burst, at least 1."""
        whole = 1.0 if self.leaky else self.amount if self.burst is None else self.burst
        return max(1.0, whole / self.fleet_size)

    def bucket(self, now: float) -> Bucket:
        """Make a full bucket."""
        return Bucket(self.per_second, self.effective_burst, now, share=1.0 / self.fleet_size)


class Reservation:
    """What a call took on an estimate; corrected once, by `settle` or `refund`."""

    __slots__ = ("cost", "number", "open")

    def __init__(self, cost: float, number: int) -> None:
        """Hold `cost`, entered in the bucket's ledger under `number`."""
        self.cost = cost
        self.number = number
        self.open = True


class Bucket:
    """One dimension of one rate. Guarded by its owner; it decides and counts, and queues nobody.

    Attributes:
        rate: units per second; inf where only the server's headers limit.
        burst: units that a full bucket gives at once.
        reserved: units held by reservations that are still open.
        consumed: units of all settled reservations, for the books.
    """

    __slots__ = (
        "_full_at",
        "_ledger",
        "_open",
        "_quota",
        "_share",
        "_span",
        "_step",
        "burst",
        "consumed",
        "rate",
        "reserved",
    )

    def __init__(self, rate: float, burst: float, now: float, *, share: float = 1.0) -> None:
        """Start full.

        Args:
            rate: units per second, above 0; inf for no limit of our own.
            burst: units, above 0.
            now: monotonic seconds.
            share: this process's part of what the server grants the account.

        Raises:
            ConfigError: a number is not above 0.
        """
        if not rate > 0.0 or not burst > 0.0:
            raise ConfigError(f"limits: expected a rate and a burst above 0, got {rate!r} and {burst!r}", path="limits")
        self.rate = rate
        self.burst = burst
        self._step = 1.0 / rate
        self._span = 0.0 if rate == inf else burst * self._step
        self._full_at = now
        self._share = share
        self._ledger = Ledger()
        self._quota: Quota | None = None
        self._open = 0
        self.reserved = 0.0
        self.consumed = 0.0

    def level(self, now: float) -> float:
        """Return units that are there; negative while in debt."""
        if self.rate == inf:
            return self.burst
        return self.burst - max(0.0, self._full_at - now) * self.rate

    def wait(self, cost: float, now: float) -> float:
        """Return seconds until `cost` may be taken; 0.0 is now. Changes nothing.

        A cost above the burst goes from a full bucket, into debt: it could never fit, and those after it pay.
        """
        need = self._full_at - now
        if cost <= self.burst:
            need = (need if need > 0.0 else 0.0) + cost * self._step - self._span
        if self._quota is not None:
            need = max(need, self._quota.wait(cost, now))
        return need if need > _TOLERANCE else 0.0

    def take(self, cost: float, now: float) -> Reservation:
        """Take what `wait` allowed.

        Raises:
            RuntimeError: `wait` did not allow it; nothing was taken.
        """
        if self.wait(cost, now) > 0.0:
            msg = f"bucket: {cost:g} units are not there yet; take only after wait() returned 0.0"
            raise RuntimeError(msg)
        if self._quota is not None:
            self._quota.take(cost, now)
        self._open += 1
        self.reserved += cost
        return Reservation(cost, self._withdraw(cost * self._step, now))

    def settle(self, reservation: Reservation, actual: float | None, now: float) -> None:
        """Replace the estimate by what the call did cost; a second time changes nothing.

        A surplus comes back as far as it would not have spilled over meanwhile: see `core.ledger`. A deficit becomes
        debt, at most two bursts in all, so that one wild `usage` does not stop everything.

        Args:
            reservation: what `take` returned.
            actual: units; None keeps the estimate: for a call that was cancelled after it was sent, or whose cost
                nobody told.
            now: monotonic seconds.
        """
        if not reservation.open:
            return
        reservation.open = False
        cost = reservation.cost
        self._open -= 1
        # Sums of floats drift; with nothing open the truth is known.
        self.reserved = self.reserved - cost if self._open else 0.0
        if actual is None or not isfinite(actual):
            actual = cost
        actual = max(0.0, actual)
        self.consumed += actual
        if actual > cost:
            start = max(now, self._full_at)
            self._full_at = min(start + (actual - cost) * self._step, max(start, now + 2.0 * self._span))
        elif actual < cost:
            self._full_at -= self._ledger.surplus(reservation.number, (cost - actual) * self._step)
        if not self._open:
            self._ledger.forget()

    def refund(self, reservation: Reservation, now: float) -> None:
        """Give everything back: the server did no work."""
        self.settle(reservation, 0.0, now)

    def observe(self, remaining: float, reset: float | None, now: float, *, limit: float | None = None) -> None:
        """Take in what the server says is left. It lowers the level, never raises it.

        Below a tenth of the limit, what is left is spread evenly until the reset.

        Args:
            remaining: units left in the server's books; negative or undefined is ignored.
            reset: seconds until it counts anew, or is full again; None when not told.
            now: monotonic seconds.
            limit: the server's limit, where it names one.
        """
        if not isfinite(remaining) or remaining < 0.0:
            return
        whole = (limit or self.burst / self._share) * self._share
        # What is under way may not be in the server's books yet.
        left = max(0.0, remaining * self._share - self.reserved)
        if self.rate < inf and self.level(now) > left:
            self._withdraw(now + (self.burst - left) * self._step - max(now, self._full_at), now)
        scarce = remaining * self._share < _SCARCE * whole if whole < inf else remaining == 0.0
        if self._quota is None and scarce:
            self._quota = Quota()
        if self._quota is not None:
            refill = max(0.0, whole - remaining * self._share) * self._step
            self._quota.observe(left, reset, now, scarce=scarce, refill=refill)

    def _withdraw(self, seconds: float, now: float) -> int:
        lead = self._full_at - now
        if lead <= 0.0:
            self._full_at = now
            lead = 0.0
        self._full_at += seconds
        return self._ledger.note(lead)
