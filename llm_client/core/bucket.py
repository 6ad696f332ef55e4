"""Token buckets: how much a rate still allows, and when it will allow more.

The generic cell rate algorithm (ITU-T I.371) keeps one number, the instant at which the bucket would be full again. A
cost c moves it by c / rate; it may lie at most burst / rate ahead of now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

from llm_client.core.ledger import Ledger
from llm_client.core.quota import Quota
from llm_client.errors import ConfigError
from llm_client.model import Cost

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


class Withdrawal:
    """What a call took on an estimate; corrected once, by `settle` or `refund`."""

    __slots__ = ("cost", "number")

    def __init__(self, cost: float, number: int) -> None:
        """Hold `cost`, entered in the bucket's ledger under `number`; 0 once it is settled."""
        self.cost = cost
        self.number = number

    @property
    def open(self) -> bool:
        """It is not settled yet."""
        return self.number > 0


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
            need = (need if need > 0.0 else 0.0) + cost * self._step - self._span  # noqa: FURB136 - a third of max()
        if self._quota is not None:
            need = max(need, self._quota.wait(cost, now))
        return need if need > _TOLERANCE else 0.0

    def take(self, cost: float, now: float) -> Withdrawal:
        """Take what `wait` allowed.

        Raises:
            RuntimeError: `wait` did not allow it; nothing was taken.
        """
        if self.wait(cost, now) > 0.0:
            msg = f"bucket: {cost:g} units are not there yet; take only after wait() returned 0.0"
            raise RuntimeError(msg)
        return self.charge(cost, now)

    def charge(self, cost: float, now: float) -> Withdrawal:
        """Take without asking: for who has just asked every bucket of a set."""
        if self._quota is not None:
            self._quota.take(cost, now)
        self._open += 1
        self.reserved += cost
        return Withdrawal(cost, self._withdraw(cost * self._step, now))

    def settle(self, withdrawal: Withdrawal, actual: float | None, now: float) -> None:
        """Replace the estimate by what the call did cost; a second time changes nothing.

        A surplus comes back as far as it would not have spilled over meanwhile: see `core.ledger`. A deficit becomes
        debt, at most two bursts in all, so that one wild `usage` does not stop everything.

        Args:
            withdrawal: what `take` returned.
            actual: units; None keeps the estimate: for a call that was cancelled after it was sent, or whose cost
                nobody told.
            now: monotonic seconds.
        """
        number, cost = withdrawal.number, withdrawal.cost
        if not number:
            return
        withdrawal.number = 0
        if actual is None or not isfinite(actual):
            actual = cost
        elif actual < 0.0:
            actual = 0.0
        self.consumed += actual
        if actual > cost:
            start = max(now, self._full_at)
            self._full_at = min(start + (actual - cost) * self._step, max(start, now + 2.0 * self._span))
        elif actual < cost:
            self._full_at -= self._ledger.surplus(number, (cost - actual) * self._step)
        self._open -= 1
        if self._open:
            self.reserved -= cost
        else:
            # Sums of floats drift; with nothing open the truth is known.
            self.reserved = 0.0
            self._ledger.forget()

    def refund(self, withdrawal: Withdrawal, now: float) -> None:
        """Give everything back: the server did no work."""
        self.settle(withdrawal, 0.0, now)

    def abandon(self) -> None:
        """Keep the estimates of calls that nobody here will ever settle, as in the child of a fork."""
        self._open = 0
        self.reserved = 0.0
        self._ledger.forget()

    def observe(self, remaining: float, reset: float | None, now: float, *, limit: float | None = None) -> None:
        """Take in what the server says is left. It lowers the level, never raises it.

        Below a tenth of the limit, what is left is spread evenly until the reset. Settle the call that was answered
        first: it is in the server's books already, while those still under way may not be.

        Args:
            remaining: units left in the server's books; negative or undefined is ignored.
            reset: seconds until it counts anew, or is full again; None when not told.
            now: monotonic seconds.
            limit: the server's limit, where it names one.
        """
        if not isfinite(remaining) or remaining < 0.0:
            return
        whole = (limit or self.burst / self._share) * self._share
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


@dataclass(frozen=True, slots=True)
class Member:
    """A bucket with its place: whose limit it is, and what it counts.

    Attributes:
        scope: for messages, such as `account prod` or `endpoint gpu-a`.
        dimension: `requests` or `tokens`.
    """

    scope: str
    dimension: Literal["requests", "tokens"]
    bucket: Bucket

    def units(self, cost: Cost) -> float:
        """Return what one call costs here."""
        return 1.0 if self.dimension == "requests" else cost.total


class Reservation:
    """What one call took from every bucket of a set; ended once, by one of three."""

    __slots__ = ("_taken",)

    def __init__(self, taken: Sequence[tuple[Bucket, bool, Withdrawal]]) -> None:
        """Keep what was taken from which bucket, and whether that one counts tokens."""
        self._taken = taken

    def settle(self, tokens: float, now: float) -> None:
        """Book a call that the server answered: one request, and these tokens in place of the estimate."""
        for bucket, counts_tokens, taken in self._taken:
            bucket.settle(taken, tokens if counts_tokens else None, now)

    def keep(self, now: float) -> None:
        """Book the estimate: the call was sent, and nobody told its cost."""
        for bucket, _, taken in self._taken:
            bucket.settle(taken, None, now)

    def refund(self, now: float) -> None:
        """Give everything back: the call was never sent, or the server declined it."""
        for bucket, _, taken in self._taken:
            bucket.settle(taken, 0.0, now)


class BucketSet:
    """All buckets that one call must pass, decided together: it takes from every one or from none.

    A bucket may be a member of many sets (the account's stands in those of all its endpoints). Guarded by the owner of
    all of them.
    """

    __slots__ = ("_buckets", "members")

    def __init__(self, members: Iterable[Member] = ()) -> None:
        """Join buckets; an empty set lets everything through."""
        self.members = tuple(members)
        self._buckets = tuple((member.bucket, member.dimension == "tokens") for member in self.members)

    def wait(self, cost: Cost, now: float) -> float:
        """Return seconds until every bucket allows this cost; 0.0 is now. Changes nothing."""
        longest, tokens = 0.0, cost.total
        for bucket, counts_tokens in self._buckets:
            longest = max(longest, bucket.wait(tokens if counts_tokens else 1.0, now))
        return longest

    def binding(self, cost: Cost, now: float) -> Member | None:
        """Return the member that makes this cost wait longest, for the error that names it; None when none does."""
        waits = [(member.bucket.wait(member.units(cost), now), member) for member in self.members]
        longest = max(waits, key=lambda entry: entry[0], default=None)
        return longest[1] if longest is not None and longest[0] > 0.0 else None

    def take(self, cost: Cost, now: float) -> Reservation:
        """Take from every bucket what `wait` allowed.

        Raises:
            RuntimeError: `wait` did not allow it; nothing was taken from any.
        """
        tokens = cost.total
        short = self.binding(cost, now) if self.wait(cost, now) > 0.0 else None
        if short is not None:
            raise RuntimeError(f"bucket: {short.scope} lacks {short.dimension}; take only after wait() returned 0.0")
        return Reservation(
            [
                (bucket, counts_tokens, bucket.charge(tokens if counts_tokens else 1.0, now))
                for bucket, counts_tokens in self._buckets
            ]
        )
