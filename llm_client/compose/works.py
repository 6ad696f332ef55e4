"""The machinery of one pool, put together from a validated profile file.

It stands apart from `Pool` so that importing the package stays light: everything below is loaded when the first
pool is made.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING

from llm_client.clock import Clock
from llm_client.compose.build import plans, queue_limits, station, target
from llm_client.compose.meters import Meters
from llm_client.core.budget import RetryBudget
from llm_client.core.cost import Estimator
from llm_client.core.gate import Gate
from llm_client.drivers.aio import AsyncDriver
from llm_client.drivers.sync import SyncDriver
from llm_client.errors import ConfigError
from llm_client.events import Event
from llm_client.flow.plan import Plan, Target
from llm_client.flow.run import Reply, Run, Services
from llm_client.flow.stack import stack
from llm_client.model import Call, Cost, Size, Usage
from llm_client.profiles.types import EndpointSpec, File, HealthSpec

if TYPE_CHECKING:
    from llm_client.compose.housekeeping import Housekeeper
    from llm_client.transport.aio import AsyncTransport
    from llm_client.transport.sync import SyncTransport


class Works:
    """Gate, endpoints, estimates, drivers and connections of a pool. Thread-safe.

    Args:
        file: what to build.
        clock: where time comes from.
        seed: for jitter and ties; None for a random one.
        emit: receives events; must not raise.
    """

    def __init__(self, file: File, clock: Clock, seed: int | None, emit: Callable[[Event], None]) -> None:
        spec = file.pool
        self.file = file
        self.clock = clock
        self.plan: Callable[[str], Plan] = plans(file)
        self._rng = Random(seed)
        budget = RetryBudget(spec.retry_budget.ratio, spec.retry_budget.burst)
        self.gate = Gate(queue_limits(spec.queue), self._rng, emit, budget)
        self._meters = Meters(spec.limits, clock.monotonic())
        scopes = [spec.limits.total, *spec.limits.accounts.values(), *spec.limits.models.values()]
        scopes += [endpoint.limits for endpoint in spec.endpoints]
        self._estimator = Estimator(pessimistic=any(scope.pessimistic for scope in scopes))
        self._estimating = threading.Lock()
        self.targets: dict[str, Target] = {}
        self._specs: dict[str, EndpointSpec] = {}
        affinity = spec.routing.affinity == "prefix"
        self.services = Services(
            gate=self.gate,
            clock=clock,
            rng=self._rng,
            targets=self.targets,
            emit=emit,
            learn=self._learn,
            prefix_bytes=spec.routing.prefix_bytes if affinity else 0,
        )
        self._groups: dict[str, str] = {}
        self.house: Housekeeper | None = None
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._closed = False
        self._sync: SyncDriver | None = None
        self._sync_transport: SyncTransport | None = None
        self._aio: AsyncDriver | None = None
        self._aio_transport: AsyncTransport | None = None
        for endpoint in spec.endpoints:
            self.add_endpoint(endpoint)

    def run(self, call: Call, plan: Plan) -> Reply:
        """Carry a call out in this thread."""
        if plan.hedge is not None:
            raise ConfigError(f"profile {plan.name}: hedge needs an event loop; use AsyncClient, or a profile without")
        return self.sync_driver().run(stack(Run(call, plan, self.services)))

    def arun(self, call: Call, plan: Plan) -> Awaitable[Reply]:
        """Carry a call out on the running event loop."""
        owner = id(asyncio.get_running_loop())
        return self.async_driver().run(stack(Run(call, plan, self.services, owner)))

    def sync_driver(self) -> SyncDriver:
        """Return the driver for threads, made on first use."""
        driver = self._sync
        if driver is not None:
            return driver
        with self._lock:
            self._check_open()
            if self._sync is None:
                from llm_client.transport.sync import SyncTransport  # noqa: PLC0415 - threads may never be used

                self._sync_transport = SyncTransport(self.file.pool.http)
                self._sync = SyncDriver(self.gate, self._sync_transport, self.clock)
                self._keep_house()
            return self._sync

    def async_driver(self) -> AsyncDriver:
        """Return the driver for event loops, made on first use."""
        driver = self._aio
        if driver is not None:
            return driver
        with self._lock:
            self._check_open()
            if self._aio is None:
                from llm_client.transport.aio import AsyncTransport  # noqa: PLC0415 - loops may never be used

                self._aio_transport = AsyncTransport(self.file.pool.http)
                self._aio = AsyncDriver(self.gate, self._aio_transport, self.clock)
                self._keep_house()
            return self._aio

    def estimate(self, model: str | None, size: Size, max_tokens: int | None, *, generates: bool) -> Cost:
        """Guess a call's cost in tokens, from its size and from what calls to this model cost before."""
        with self._estimating:
            return self._estimator.estimate(model, size, max_tokens=max_tokens, generates=generates)

    def add_endpoint(self, spec: EndpointSpec, group: str = "") -> None:
        """Add an endpoint, or replace the one of its name; calls that wait may use it at once.

        Args:
            spec: what to add; one that stands for several servers is looked after from now on.
            group: the name under which it was found.
        """
        if spec.dynamic or spec.health is not None:
            self._housekeeper()
        if spec.dynamic:
            self._housekeeper().watch(spec)
            return
        self._specs[spec.name] = spec
        self._groups[spec.name] = group
        self.targets[spec.name] = target(spec, self.file.pool.http, group)
        made = station(spec, self.file.pool, self._meters, self._rng, group)
        self.gate.add_station(made, self.clock.monotonic())

    def drain(self, name: str) -> None:
        """Send nothing new to an endpoint, or to any of a group; each is removed with its last answer.

        Raises:
            KeyError: no such endpoint.
        """
        members = self.house.forget(name) if self.house is not None else None
        for each in [name] if members is None else members:
            self.gate.drain_station(each, self.clock.monotonic())
        self.tidy()

    def tidy(self) -> None:
        """Forget the addresses of endpoints that are gone."""
        there = {each.name for each in self.gate.stations}
        for name in self.targets.keys() - there:
            for table in (self.targets, self._specs, self._groups):
                table.pop(name, None)

    def probed(self) -> list[tuple[str, HealthSpec]]:
        """Return the endpoints whose health is asked after."""
        return [(name, spec.health) for name, spec in list(self._specs.items()) if spec.health is not None]

    def threads_transport(self) -> SyncTransport:
        """Return the connections of threads.

        Raises:
            RuntimeError: the pool is closed.
        """
        self.sync_driver()
        transport = self._sync_transport
        if transport is None:
            raise RuntimeError("the pool is closed")
        return transport

    def close(self) -> None:
        """Fail what waits and close the connections of threads. Idempotent."""
        with self._lock:
            self._closed = True
            if self.house is not None:
                self.house.stop()
            transport, self._sync_transport, self._sync = self._sync_transport, None, None
        self.gate.close(self.clock.monotonic())
        if transport is not None:
            transport.close()

    async def aclose(self) -> None:
        """Fail what waits and close all connections. Idempotent."""
        self.close()
        with self._lock:
            transport, self._aio_transport, self._aio = self._aio_transport, None, None
        if transport is not None:
            await transport.aclose()

    def reborn(self) -> None:
        """Start anew in a forked child: what is under way belongs to the parent."""
        self._lock = threading.Lock()
        self._estimating = threading.Lock()
        self._meters.abandon()
        names = [each.name for each in self.gate.stations]
        spec = self.file.pool
        self.gate.reborn(
            [station(self._specs[name], spec, self._meters, self._rng, self._groups[name]) for name in names]
        )
        if self.house is not None:
            self.house.reborn()
            if self._sync is not None or self._aio is not None:
                self.house.begin()
        if self._sync_transport is not None:
            self._sync = SyncDriver(self.gate, self._sync_transport, self.clock)
        if self._aio_transport is not None:
            self._aio = AsyncDriver(self.gate, self._aio_transport, self.clock)

    def _learn(self, call: Call, usage: Usage | None) -> None:
        if usage is not None:
            with self._estimating:
                self._estimator.learn(call.model, call.measured or Size(), usage)

    def _housekeeper(self) -> Housekeeper:
        if self.house is None:
            from llm_client.compose.housekeeping import Housekeeper  # noqa: PLC0415 - most pools need none

            self.house = Housekeeper(self)
            if self._sync is not None or self._aio is not None:
                self.house.begin()
        return self.house

    def _keep_house(self) -> None:
        if self.house is not None:
            self.house.begin()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the pool is closed")
