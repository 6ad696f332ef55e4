"""The composition root: one `Pool` owns everything that calls share."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self
from weakref import WeakSet

from llm_client.clock import Clock
from llm_client.compose.build import plans, queue_limits, station, target
from llm_client.compose.meters import Meters
from llm_client.core.budget import RetryBudget
from llm_client.core.cost import Estimator, Size
from llm_client.core.gate import Gate
from llm_client.core.station import Station
from llm_client.drivers.aio import AsyncDriver
from llm_client.drivers.sync import SyncDriver
from llm_client.drivers.system_clock import SystemClock
from llm_client.errors import ConfigError
from llm_client.events import Event, Listener
from llm_client.flow.plan import Plan, Target
from llm_client.flow.run import Reply, Run, Services
from llm_client.flow.stack import stack
from llm_client.model import Call, Cost, Usage
from llm_client.observe.log import log_event
from llm_client.profiles import load as profiles
from llm_client.profiles.types import EndpointSpec, File

if TYPE_CHECKING:
    from llm_client.transport.aio import AsyncTransport
    from llm_client.transport.sync import SyncTransport

_log = logging.getLogger("llm_client")
_pools: WeakSet[Pool] = WeakSet()
_base_urls: dict[str, int] = {}


class Pool:
    """Endpoints, their limits and circuits, one queue and the connections: everything that calls share.

    Clients made from one pool meet in one queue, whatever their profiles; threads and event loops share
    it freely. Two pools share nothing, even on one base URL. Whoever makes a pool closes it.

    Args:
        base_url: one server, with the built-in profile; or give `file`.
        api_key: for that server; None sends no authorisation.
        file: a validated profile file, see `Pool.load`.
        pool: pool settings that differ, as a mapping in the shape of the file's `pool:` section.
        profile: settings of the default profile that differ.
        clock: where time comes from.
        seed: for jitter and ties; None for a random one.

    Raises:
        ConfigError: the settings cannot work.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        file: File | None = None,
        pool: Mapping[str, Any] | None = None,
        profile: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        seed: int | None = None,
    ) -> None:
        if file is None:
            file = profiles.built_in(base_url, api_key)
        elif base_url is not None:
            raise ConfigError("Pool takes base_url or file, not both: name the server in pool.endpoints")
        if pool or profile:
            file = profiles.merge(file, pool=pool, profile=profile)
        self.file = file
        self.clock: Clock = clock or SystemClock()
        self._rng = Random(seed)
        self._plan = plans(file)
        self._listeners: tuple[Listener, ...] = ()
        self._failing_listeners: set[int] = set()
        spec = file.pool
        budget = RetryBudget(spec.retry_budget.ratio, spec.retry_budget.burst)
        self.gate = Gate(queue_limits(spec.queue), self._rng, self._emit, budget)
        self._meters = Meters(spec.limits, self.clock.monotonic())
        scopes = [spec.limits.total, *spec.limits.accounts.values(), *spec.limits.models.values()]
        scopes += [endpoint.limits for endpoint in spec.endpoints]
        self._estimator = Estimator(pessimistic=any(scope.pessimistic for scope in scopes))
        self._estimating = threading.Lock()
        self._targets: dict[str, Target] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._sync: SyncDriver | None = None
        self._sync_transport: SyncTransport | None = None
        self._aio: AsyncDriver | None = None
        self._aio_transport: AsyncTransport | None = None
        self.services = Services(
            gate=self.gate, clock=self.clock, rng=self._rng, targets=self._targets, emit=self._emit, learn=self._learn
        )
        for endpoint in spec.endpoints:
            self.add_endpoint(endpoint)
        _pools.add(self)
        _register_fork()

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None, **changes: Any) -> Pool:
        """Make a pool from a profile file.

        Args:
            path: the YAML file; None for the one that LLM_CLIENT_PROFILES names.
            changes: further arguments of `Pool`.

        Raises:
            ConfigError: with file, line, key path and what was expected.
        """
        found = path or os.environ.get("LLM_CLIENT_PROFILES")
        if not found:
            raise ConfigError("Pool.load() needs a path, or LLM_CLIENT_PROFILES set to one")
        return cls(file=profiles.load(Path(found)), **changes)

    # -- carrying calls out

    def plan(self, name: str = "default") -> Plan:
        """Return how a profile's calls are carried out.

        Raises:
            ConfigError: no such profile.
        """
        return self._plan(name)

    def run(self, call: Call, plan: Plan) -> Reply:
        """Carry a call out in this thread.

        Raises:
            LLMClientError: see the tree in `llm_client.errors`.
        """
        return self.sync_driver().run(stack(Run(call, plan, self.services)))

    async def arun(self, call: Call, plan: Plan) -> Reply:
        """Carry a call out on the running event loop.

        Raises:
            LLMClientError: see the tree in `llm_client.errors`.
        """
        driver = self.async_driver()
        owner = id(asyncio.get_running_loop())
        return await driver.run(stack(Run(call, plan, self.services, owner)))

    def sync_driver(self) -> SyncDriver:
        """Return the driver for threads, made on first use."""
        driver = self._sync
        if driver is None:
            with self._lock:
                self._check_open()
                if self._sync is None:
                    from llm_client.transport.sync import SyncTransport  # noqa: PLC0415 - the HTTP library loads late

                    self._sync_transport = SyncTransport(self.file.pool.http)
                    self._sync = SyncDriver(self.gate, self._sync_transport, self.clock)
                driver = self._sync
        return driver

    def async_driver(self) -> AsyncDriver:
        """Return the driver for event loops, made on first use."""
        driver = self._aio
        if driver is None:
            with self._lock:
                self._check_open()
                if self._aio is None:
                    from llm_client.transport.aio import AsyncTransport  # noqa: PLC0415 - the HTTP library loads late

                    self._aio_transport = AsyncTransport(self.file.pool.http)
                    self._aio = AsyncDriver(self.gate, self._aio_transport, self.clock)
                driver = self._aio
        return driver

    # -- what a call costs

    def estimate(self, call_model: str | None, size: Size, max_tokens: int | None, *, generates: bool = True) -> Cost:
        """Guess a call's cost in tokens, from its size and from what calls to this model cost before."""
        with self._estimating:
            return self._estimator.estimate(call_model, size, max_tokens=max_tokens, generates=generates)

    def _learn(self, call: Call, usage: Usage | None) -> None:
        if usage is not None:
            with self._estimating:
                self._estimator.learn(call.model, call.measured or Size(), usage)

    # -- endpoints

    @property
    def endpoints(self) -> tuple[Station, ...]:
        """The endpoints' states, for reading: limit, inflight, circuit, cool-down."""
        return tuple(self.gate.stations)

    def add_endpoint(self, spec: EndpointSpec) -> None:
        """Add an endpoint; calls that wait may use it at once."""
        self._targets[spec.name] = target(spec, self.file.pool.http)
        self.gate.add_station(station(spec, self.file.pool, self._meters, self._rng), self.clock.monotonic())
        _note_base_url(spec.base_url)

    def drain_endpoint(self, name: str) -> None:
        """Send nothing new to an endpoint; what is under way ends there.

        Raises:
            KeyError: no such endpoint.
        """
        self.gate.drain_station(name, self.clock.monotonic())

    def isolate(self, name: str) -> None:
        """Send nothing to an endpoint until `reset`."""
        self._change(name, lambda each: each.breaker.isolate())

    def reset(self, name: str) -> None:
        """Close an endpoint's circuit by hand, and forget its cool-down."""

        def act(each: Station) -> None:
            each.breaker.reset()
            each.cooldown.clear()

        self._change(name, act)

    def disable_breaker(self, name: str, *, metrics_only: bool = False) -> None:
        """Let an endpoint's circuit never open; `metrics_only` still counts."""
        self._change(name, lambda each: each.breaker.metrics_only() if metrics_only else each.breaker.disable())

    def _change(self, name: str, act: Callable[[Station], None]) -> None:
        self.gate.change(name, act, self.clock.monotonic())

    @property
    def has_keys(self) -> bool:
        """Whether an endpoint has an authorisation of its own."""
        return any(
            each.token is not None or any(name.lower() in {"authorization", "api-key"} for name, _ in each.headers)
            for each in self._targets.values()
        )

    # -- listening

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event from now on; returns a function that ends it.

        A listener runs in the thread or task that caused the event and must be quick. What it raises is
        logged once and dropped.
        """
        with self._lock:
            self._listeners = (*self._listeners, listener)
            self.services.listening = True

        def stop() -> None:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not listener)
                self.services.listening = bool(self._listeners)

        return stop

    def _emit(self, event: Event) -> None:
        log_event(event)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                if id(listener) not in self._failing_listeners:
                    self._failing_listeners.add(id(listener))
                    _log.exception("a listener failed; its further failures are not logged")

    # -- the end

    def close(self) -> None:
        """Fail what waits and close the connections of threads. Idempotent."""
        with self._lock:
            self._closed = True
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        """Show what an operator asks first."""
        stations = ", ".join(
            f"{each.name} {each.breaker.state} {each.limit.inflight}/{each.limit.limit:.3g}" for each in self.endpoints
        )
        return f"<Pool {self.gate.waiting} waiting | {stations}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Pool holds connections and secrets and cannot be pickled; load it again from its profile")

    def _reborn(self) -> None:
        """Start anew in a forked child: what is under way belongs to the parent."""
        rng, spec = self._rng, self.file.pool
        specs = {each.name: each for each in spec.endpoints}
        self._lock = threading.Lock()
        self.gate.reborn([station(specs[each.name], spec, self._meters, rng) for each in self.gate.stations if each.name in specs])
        if self._sync_transport is not None:
            self._sync = SyncDriver(self.gate, self._sync_transport, self.clock)
        if self._aio_transport is not None:
            self._aio = AsyncDriver(self.gate, self._aio_transport, self.clock)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the pool is closed")


def _note_base_url(base_url: str) -> None:
    """Say once that two pools on one server do not share their limits."""
    _base_urls[base_url] = _base_urls.get(base_url, 0) + 1
    if _base_urls[base_url] == 2:  # noqa: PLR2004 - the second is the first that can surprise
        _log.info("two pools use one server and share no limits; pass one Pool to both clients to share them")


_forks = threading.Lock()
_registered = False


def _register_fork() -> None:
    global _registered  # noqa: PLW0603 - once per process
    with _forks:
        if _registered or not hasattr(os, "register_at_fork"):
            return
        _registered = True
        os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)


def _before() -> None:
    for pool in list(_pools):
        pool.gate.before_fork()


def _after() -> None:
    for pool in list(_pools):
        pool.gate.after_fork()


def _in_child() -> None:
    for pool in list(_pools):
        pool._reborn()  # noqa: SLF001 - a module of its own class
