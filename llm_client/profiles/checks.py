"""What no single key can know: names that must exist, settings that cannot work together or have no effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from llm_client.profiles.reading import Reading
from llm_client.profiles.scalars import show_span
from llm_client.profiles.tree import BUILT_IN
from llm_client.profiles.types import (
    EndpointSpec,
    LimitsSpec,
    ModelFallback,
    PoolSpec,
    Profile,
    ProfileFallback,
    StaticFallback,
)


def check(pool: PoolSpec, profiles: Mapping[str, Profile], reading: Reading) -> None:
    """Report everything that cannot work, or does nothing."""
    _endpoints(pool.endpoints, reading)
    _limits(pool.limits, pool.endpoints, reading)
    _pool(pool, reading)
    for name, profile in profiles.items():
        _Profile(f"profiles.{name}", profile, pool, reading).check()
    _circles(profiles, reading)


def _fail(reading: Reading, path: str, text: str) -> None:
    reading.fail(reading.origin(path), text)


def _written(reading: Reading, path: str) -> bool:
    return reading.rank(path) > BUILT_IN


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _endpoints(endpoints: Sequence[EndpointSpec], reading: Reading) -> None:
    count = Counter(each.name for each in endpoints)
    seen: set[str] = set()
    for index, each in enumerate(endpoints):
        if count[each.name] > 1 and each.name in seen:
            path = f"pool.endpoints[{index}].name"
            where = path if _written(reading, path) else f"pool.endpoints[{index}].base_url"
            _fail(reading, where, f"two endpoints are called {each.name}; give each a name of its own")
        seen.add(each.name)


def _served(endpoints: Iterable[EndpointSpec]) -> frozenset[str] | None:
    """Return the models that can be asked for; None when an endpoint takes any."""
    names: set[str] = set()
    for each in endpoints:
        if each.models is None:
            return None
        names.update(each.models)
    return frozenset(names)


def _limits(limits: LimitsSpec, endpoints: Sequence[EndpointSpec], reading: Reading) -> None:
    if not endpoints:
        return
    accounts = {each.account for each in endpoints}
    for name in limits.accounts:
        if name not in accounts:
            text = f"has no effect: no endpoint has this account; there are: {_listed(accounts)}"
            _fail(reading, f"pool.limits.accounts.{name}", text)
    served = _served(endpoints)
    for name in limits.models:
        if served is not None and name not in served:
            text = f"has no effect: no endpoint serves this model; there are: {_listed(served)}"
            _fail(reading, f"pool.limits.models.{name}", text)


def _pool(pool: PoolSpec, reading: Reading) -> None:
    breaker = pool.breaker
    if (
        _written(reading, "pool.breaker.window")
        and breaker.enabled
        and breaker.failure_rate is None
        and breaker.slow_first_token is None
    ):
        _fail(reading, "pool.breaker.window", "has no effect while failure_rate and slow_first_token are off")
    if not pool.http.verify and pool.http.ca_file is not None:
        _fail(reading, "pool.http.ca_file", "has no effect while verify is false: no certificate is checked")
    if pool.queue.size == 0:
        for key in ("overflow", "ageing", "order", "ceilings", "max_bytes"):
            if _written(reading, f"pool.queue.{key}"):
                _fail(reading, f"pool.queue.{key}", "has no effect while size is 0: nothing waits")


# What the deadline bounds anyway: key path, attribute, and whether it goes on after a stream's first token.
_BOUNDED: Final = (
    ("timeouts.connect", ("timeouts", "connect"), False),
    ("timeouts.attempt", ("timeouts", "attempt"), False),
    ("timeouts.first_token", ("timeouts", "first_token"), False),
    ("timeouts.progress", ("timeouts", "progress"), True),
    ("timeouts.liveness", ("timeouts", "liveness"), True),
    ("queue.max_wait", ("queue_max_wait",), False),
)


class _Profile:
    """The checks of one profile."""

    def __init__(self, path: str, profile: Profile, pool: PoolSpec, reading: Reading) -> None:
        self._path = path
        self._profile = profile
        self._reading = reading
        self._known = {each.name: each for each in pool.endpoints}
        names = self._known if profile.endpoints is None else profile.endpoints
        self._eligible = [self._known[name] for name in names if name in self._known]

    def check(self) -> None:
        """Report everything that cannot work, or does nothing."""
        self._names()
        self._deadline()
        self._retry()
        self._hedge()
        self._fallback()

    def _fail(self, key: str, text: str) -> None:
        _fail(self._reading, f"{self._path}.{key}", text)

    def _rank(self, key: str) -> int:
        return self._reading.rank(f"{self._path}.{key}")

    def _in_vain(self, key: str, ruler: str) -> bool:
        """Tell whether a key was written by whoever chose the ruler, or after; inherited keys may be out of use."""
        return BUILT_IN < self._rank(key) >= self._rank(ruler)

    def _names(self) -> None:
        if self._known:
            for name in self._profile.endpoints or ():
                if name not in self._known:
                    self._fail("endpoints", f"no endpoint {name!r}; there are: {', '.join(self._known)}")
        served = _served(self._eligible)
        model = self._profile.model
        if model is not None and self._eligible and served is not None and model not in served:
            self._fail(
                "model", f"no endpoint of this profile serves {model!r}; they serve: {', '.join(sorted(served))}"
            )

    def _deadline(self) -> None:
        profile = self._profile
        if profile.deadline is None:
            if profile.deadline_covers != "end" and self._in_vain("deadline_covers", "deadline"):
                self._fail("deadline_covers", "has no effect while deadline is off")
            return
        for key, attributes, later in _BOUNDED:
            value: Any = profile
            for attribute in attributes:
                value = getattr(value, attribute)
            beyond = later and profile.deadline_covers == "first_token"
            if value is not None and value > profile.deadline and not beyond and self._in_vain(key, "deadline"):
                self._fail(key, f"has no effect: the deadline of {show_span(profile.deadline)} comes first")

    def _retry(self) -> None:
        retry = self._profile.retry
        backoff = retry.backoff
        if backoff.kind != "constant" and backoff.base > backoff.cap:
            key = "cap" if self._rank("retry.backoff.cap") >= self._rank("retry.backoff.base") else "base"
            self._fail(f"retry.backoff.{key}", "the first wait (base) is longer than the longest (cap)")
        if retry.attempts > 1:
            return
        for key in ("backoff.kind", "backoff.base", "backoff.cap", "retry_after.cap", "unknown_outcome"):
            if self._in_vain(f"retry.{key}", "retry.attempts"):
                self._fail(f"retry.{key}", "has no effect with attempts: 1, which tries nothing again")

    def _hedge(self) -> None:
        if self._profile.hedge is None:
            return
        if self._profile.retry.attempts < 2:
            self._fail("hedge", "cannot work with retry.attempts: 1: a hedge is a second attempt")
        if self._known and len(self._eligible) < 2 and not any(each.dynamic for each in self._eligible):
            self._fail("hedge", "cannot work with one endpoint: a hedge goes to another one")

    def _fallback(self) -> None:
        chain = self._profile.fallback
        if not chain and self._in_vain("fallback_on", "fallback"):
            self._fail("fallback_on", "has no effect without a fallback")
        served = _served(self._known.values()) if self._known else None
        for index, link in enumerate(chain):
            key = f"fallback[{index}]"
            if link in chain[:index] and not isinstance(link, StaticFallback):
                self._fail(f"{key}.kind", "the same fallback stands in the chain before; it would be tried twice")
            if isinstance(link, ModelFallback):
                if link.model == self._profile.model:
                    self._fail(f"{key}.model", "is the profile's own model: it would be asked again")
                elif served is not None and link.model not in served:
                    self._fail(f"{key}.model", f"no endpoint serves {link.model!r}; there are: {_listed(served)}")


def _circles(profiles: Mapping[str, Profile], reading: Reading) -> None:
    """Report fallbacks to profiles that do not exist, or that lead back to where they began."""
    for name, profile in profiles.items():
        for index, link in enumerate(profile.fallback):
            if not isinstance(link, ProfileFallback):
                continue
            path = f"profiles.{name}.fallback[{index}].profile"
            if link.profile not in profiles:
                _fail(reading, path, f"no profile {link.profile!r} in this file; there are: {', '.join(profiles)}")
                continue
            circle = _circle(link.profile, name, profiles, (name,))
            # Told once, at the first name of the circle.
            if circle and name == min(circle):
                _fail(reading, path, f"leads back to itself: {' -> '.join(circle)} -> {name}")


def _circle(at: str, goal: str, profiles: Mapping[str, Profile], way: tuple[str, ...]) -> tuple[str, ...]:
    """Return the way from a profile back to the goal, if its fallbacks lead there."""
    if at == goal:
        return way
    if at in way or at not in profiles:
        return ()
    for link in profiles[at].fallback:
        if isinstance(link, ProfileFallback):
            found = _circle(link.profile, goal, profiles, (*way, at))
            if found:
                return found
    return ()
