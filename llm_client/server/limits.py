"""Who may come in: token buckets, ceilings by class, shedding by latency. Pure; `now` is an argument."""

from __future__ import annotations

import math
import re
from collections import OrderedDict, deque
from dataclasses import dataclass

from .job import CLASSES, Refusal

_KEYS = 10_000  # keys remembered at most; the one unused for longest goes first
_PERIODS = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}


@dataclass(frozen=True, slots=True)
class Rate:
    """So much in so many seconds; as much may come at once."""

    amount: float
    per: float

    @property
    def each_second(self) -> float:
        """The long-run rate."""
        return self.amount / self.per

    def __str__(self) -> str:
        return f"{self.amount:g}/{self.per:g}s"


def rate(text: str) -> Rate:
    """Read `10/s`, `600/min` or `90000/h`.

    Raises:
        ValueError: for anything else.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*/\s*([a-z]+)\s*", text.lower())
    if match is None or match[2] not in _PERIODS or float(match[1]) <= 0:
        raise ValueError(f"expected a rate such as 10/s or 600/min, got {text!r}")
    return Rate(float(match[1]), _PERIODS[match[2]])


def go_duration(seconds: float) -> str:
    """A duration the way OpenAI's reset headers write it: `20ms`, `1.5s`, `6m0s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    whole = math.ceil(seconds * 1000) / 1000
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours}h{minutes}m{rest:.3g}s"
    return f"{minutes}m{rest:.6g}s" if minutes else f"{rest:.6g}s"


class TokenBucket:
    """Fills at a steady rate up to one period's worth.

    Args:
        rate: how fast and how full.
        now: the time of its birth; it is born full.
    """

    __slots__ = ("_at", "_level", "rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self._level = rate.amount
        self._at = now

    def level(self, now: float) -> float:
        """What is in it."""
        if now > self._at:
            self._level = min(self.rate.amount, self._level + (now - self._at) * self.rate.each_second)
            self._at = now
        return self._level

    def wait(self, cost: float, now: float) -> float:
        """Seconds until `cost` fits; infinity when it never does."""
        if cost > self.rate.amount:
            return math.inf
        # Sums of tenths must not miss a whole by the last bit.
        missing = cost - self.level(now)
        return 0.0 if missing <= 1e-9 * self.rate.amount else missing / self.rate.each_second

    def take(self, cost: float, now: float) -> None:
        """Take it out; ask `wait` first."""
        self._level = self.level(now) - cost

    def give_back(self, cost: float, now: float) -> None:
        """Return what was not used."""
        self._level = min(self.rate.amount, self.level(now) + cost)

    def reset(self, now: float) -> float:
        """Seconds until it is full again."""
        return (self.rate.amount - self.level(now)) / self.rate.each_second


@dataclass(slots=True)
class Buckets:
    """The two buckets of one scope."""

    requests: TokenBucket | None
    tokens: TokenBucket | None

    def of(self, dimension: str) -> TokenBucket | None:
        """One of the two."""
        return self.requests if dimension == "requests" else self.tokens


class RateLimits:
    """Token buckets for each key and for the service as a whole.

    Args:
        key_requests: requests of one key.
        key_tokens: tokens of one key, prompt and answer.
        service_requests: requests of all keys together.
        service_tokens: tokens of all keys together.
        now: the time.
    """

    def __init__(
        self,
        *,
        key_requests: Rate | None,
        key_tokens: Rate | None,
        service_requests: Rate | None,
        service_tokens: Rate | None,
        now: float = 0.0,
    ) -> None:
        self._key_rates = (key_requests, key_tokens)
        self._service = _buckets((service_requests, service_tokens), now)
        self._keys: OrderedDict[str, Buckets] = OrderedDict()
        self.active = any((key_requests, key_tokens, service_requests, service_tokens))

    def admit(self, key: str, tokens: int, now: float) -> None:
        """Charge all buckets, or none and say when to come back.

        Raises:
            Refusal: with the wait of the slowest bucket, or without one when the request never fits.
        """
        scopes = self._scopes(key, now)
        costs = {"requests": 1, "tokens": tokens}
        worst, scope, dimension = 0.0, "", ""
        for name, buckets in scopes:
            for each, cost in costs.items():
                bucket = buckets.of(each)
                wait = 0.0 if bucket is None else bucket.wait(cost, now)
                if wait > worst:
                    worst, scope, dimension = wait, name, each
        if worst > 0:
            limit = getattr(dict(scopes)[scope].of(dimension), "rate", None)
            raise _limited(scope, dimension, str(limit), costs[dimension], worst)
        for _, buckets in scopes:
            for each, cost in costs.items():
                bucket = buckets.of(each)
                if bucket is not None:
                    bucket.take(cost, now)

    def settle(self, key: str, unused: int, now: float) -> None:
        """Give back tokens that were charged and not produced."""
        for _, buckets in self._scopes(key, now):
            if buckets.tokens is not None and unused > 0:
                buckets.tokens.give_back(unused, now)

    def headers(self, key: str, now: float) -> list[tuple[bytes, bytes]]:
        """The `x-ratelimit-*` headers; the key's buckets before the service's."""
        out: list[tuple[bytes, bytes]] = []
        scopes = self._scopes(key, now)
        for dimension in ("requests", "tokens"):
            bucket = next((b for _, s in scopes if (b := s.of(dimension)) is not None), None)
            if bucket is not None:
                for word, value in (
                    ("limit", f"{bucket.rate.amount:.0f}"),
                    ("remaining", f"{max(0, math.floor(bucket.level(now) + 1e-9))}"),
                    ("reset", go_duration(bucket.reset(now))),
                ):
                    out.append((f"x-ratelimit-{word}-{dimension}".encode(), value.encode()))
        return out

    def levels(self, now: float) -> list[dict[str, object]]:
        """What is in the buckets of the service and of the most recent keys, for the page."""
        rows: list[tuple[str, Buckets]] = [("service", self._service), *list(self._keys.items())[-20:]]
        return [
            {"scope": name, "dimension": d, "level": round(bucket.level(now), 1), "size": bucket.rate.amount}
            for name, buckets in rows
            for d in ("requests", "tokens")
            if (bucket := buckets.of(d)) is not None
        ]

    def _scopes(self, key: str, now: float) -> list[tuple[str, Buckets]]:
        mine = self._keys.get(key)
        if mine is None:
            mine = self._keys[key] = _buckets(self._key_rates, now)
            if len(self._keys) > _KEYS:
                self._keys.popitem(last=False)
        else:
            self._keys.move_to_end(key)
        return [("key", mine), ("service", self._service)]


def _buckets(rates: tuple[Rate | None, Rate | None], now: float) -> Buckets:
    return Buckets(*(None if each is None else TokenBucket(each, now) for each in rates))


def _limited(scope: str, dimension: str, limit: str, cost: int, wait: float) -> Refusal:
    if math.isinf(wait):
        text = f"Request too large for the {dimension} limit of this {scope}. Limit {limit}, Requested {cost}."
        return Refusal("rate_limit_exceeded", text, status=429, kind=dimension)
    text = f"Rate limit reached for {dimension} of this {scope}: {limit}. Please try again in {go_duration(wait)}."
    return Refusal("rate_limit_exceeded", text, status=429, kind=dimension, wait=wait)


def ceiling(rank: int, thresholds: tuple[float, ...] | None) -> float:
    """The load above which a class is turned away; infinity for critical work and without thresholds."""
    if thresholds is None or rank == 0:
        return math.inf
    return thresholds[rank - 1]


class LatencyShedder:
    """Turns low classes away while answers take longer than the target.

    Above 1.0 times the target `low` is shed, above 1.25 `normal`, above 1.5 `high`; `critical` never.
    Old samples are forgotten, so a server that shed everything finds out that it is fast again.

    Args:
        target: seconds an answer should take, waiting included.
        window: how many answers the mean is taken over.
    """

    _STEPS = (math.inf, 1.5, 1.25, 1.0)

    def __init__(self, target: float, window: int = 100) -> None:
        self.target = target
        self._horizon = max(5.0, 2 * target)
        self._samples: deque[tuple[float, float]] = deque(maxlen=window)
        self._sum = 0.0

    def observe(self, latency: float, now: float) -> None:
        """Note one answer."""
        if len(self._samples) == self._samples.maxlen:
            self._sum -= self._samples[0][1]
        self._samples.append((now, latency))
        self._sum += latency

    def ratio(self, now: float) -> float:
        """Mean latency over target; 0 when nothing recent is known."""
        while self._samples and self._samples[0][0] < now - self._horizon:
            self._sum -= self._samples.popleft()[1]
        return self._sum / len(self._samples) / self.target if self._samples else 0.0

    def admit(self, rank: int, now: float) -> None:
        """Let it pass or turn it away.

        Raises:
            Refusal: when its class is being shed.
        """
        ratio = self.ratio(now)
        if ratio > self._STEPS[rank]:
            raise shed(rank, f"answers take {ratio:.1f} times the target of {self.target:g} s", self.target)


def shed(rank: int, why: str, wait: float) -> Refusal:
    """The refusal of a class that is being turned away."""
    name = CLASSES[rank]
    return Refusal("load_shed", f"Server overloaded: {name} requests are being shed because {why}.", wait=wait)
