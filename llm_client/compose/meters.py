"""The token buckets of a pool, by scope: everything, an account, a model, an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from llm_client.core.bucket import Bucket, BucketSet, Member, Rate
from llm_client.profiles.types import EndpointSpec, LimitsSpec, ScopeLimits
from llm_client.profiles.types import Rate as Written

Dimension = Literal["requests", "tokens"]

# Models are the callers' words; so many sets of shared buckets are remembered, then they are put together again.
_REMEMBERED = 256


class Meters:
    """Makes each bucket once and joins those that a call must pass.

    Args:
        limits: rates that are wider than one endpoint.
        now: monotonic seconds; buckets start full.
    """

    def __init__(self, limits: LimitsSpec, now: float) -> None:
        self._now = now
        self._buckets: list[Bucket] = []
        self._total = self._members("total", limits.total)
        self._accounts = {name: self._members(f"account {name}", scope) for name, scope in limits.accounts.items()}
        self._models = {name: self._members(f"model {name}", scope) for name, scope in limits.models.items()}

    def of(self, endpoint: EndpointSpec) -> Callable[[str | None], BucketSet | None] | None:
        """Return a function from a call's model to the buckets it must pass at this endpoint; None without any."""
        own = self._members(f"endpoint {endpoint.name}", endpoint.limits)
        shared = (*self._total, *self._accounts.get(endpoint.account, ()), *own)
        if not shared and not self._models:
            return None
        plain = BucketSet(shared) if shared else None
        sets: dict[str, BucketSet] = {}

        def meter(model: str | None) -> BucketSet | None:
            extra = self._models.get(model or "")
            if not extra or model is None:
                return plain
            found = sets.get(model)
            if found is None:
                if len(sets) >= _REMEMBERED:
                    sets.clear()
                found = sets[model] = BucketSet((*shared, *extra))
            return found

        return meter

    def abandon(self) -> None:
        """Forget, in a forked child, what calls of the parent have reserved."""
        for bucket in self._buckets:
            bucket.abandon()

    def _members(self, scope: str, limits: ScopeLimits) -> tuple[Member, ...]:
        rates: tuple[tuple[Dimension, Written | None], ...] = (("requests", limits.requests), ("tokens", limits.tokens))
        members = tuple(
            Member(
                scope=scope,
                dimension=dimension,
                bucket=Rate(
                    amount=written.amount,
                    period=written.period,
                    burst=written.burst,
                    leaky=limits.pacing == "leaky",
                    fleet_size=limits.fleet_size,
                ).bucket(self._now),
            )
            for dimension, written in rates
            if written is not None
        )
        self._buckets += [member.bucket for member in members]
        return members
