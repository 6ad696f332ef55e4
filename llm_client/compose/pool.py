"""The composition root: one `Pool` owns everything that calls share."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self
from weakref import WeakSet

from llm_client.clock import Clock
from llm_client.drivers.system_clock import SystemClock
from llm_client.errors import ConfigError

if TYPE_CHECKING:
    from llm_client.compose.works import Works
    from llm_client.core.gate import Gate
    from llm_client.core.station import Station
    from llm_client.events import Event, Listener
    from llm_client.flow.plan import Plan
    from llm_client.flow.run import Reply, Services
    from llm_client.model import Call
    from llm_client.profiles.types import EndpointSpec, File

_log = logging.getLogger("llm_client")
_pools: WeakSet[Pool] = WeakSet()


class Pool:
    """Endpoints, their limits and circuits, one queue and the connections: everything that calls share.

    Clients made from one pool meet in one queue, whatever their profiles; threads and event loops share
    it freely. Two pools share nothing, even on one base URL. Whoever makes a pool closes it.

    Args:
        base_url: one server, with the built-in profile; or give `file`.
        api_key: for that server, or a function that is asked for a token before each request, and once more after
            a 401; None for OPENAI_API_KEY, "" for none.
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
        api_key: str | Callable[[], Any] | None = None,
        file: File | None = None,
        pool: Mapping[str, Any] | None = None,
        profile: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        seed: int | None = None,
    ) -> None:
        from llm_client.compose.works import Works  # noqa: PLC0415 - a light import
        from llm_client.profiles import load as profiles  # noqa: PLC0415 - as above

        if file is None:
            file = profiles.built_in(base_url, api_key)
        elif base_url is not None:
            raise ConfigError("Pool takes base_url or file, not both: name the server in pool.endpoints")
        if pool or profile:
            file = profiles.merge(file, pool=pool, profile=profile)
        self.file = file
        self.clock: Clock = clock or SystemClock()
        self._listening = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()
        self._failing_listeners: set[int] = set()
        self._works: Works = Works(file, self.clock, seed, self._emit)
        _say_if_not_shared(file)
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
        from llm_client.profiles import load as profiles  # noqa: PLC0415 - a light import

        found = path or os.environ.get("LLM_CLIENT_PROFILES")
        if not found:
            raise ConfigError("Pool.load() needs a path, or LLM_CLIENT_PROFILES set to one")
        return cls(file=profiles.load(found), **changes)

    # -- carrying calls out

    @property
    def gate(self) -> Gate:
        """Who decides which call goes next, and where to."""
        return self._works.gate

    @property
    def services(self) -> Services:
        """What the pool lends to each call."""
        return self._works.services

    @property
    def works(self) -> Works:
        """The machinery; for those who build on the package."""
        return self._works

    def plan(self, name: str = "default") -> Plan:
        """Return how a profile's calls are carried out.

        Raises:
            ConfigError: no such profile.
        """
        return self._works.plan(name)

    def run(self, call: Call, plan: Plan) -> Reply:
        """Carry a call out in this thread.

        Raises:
            LLMClientError: see the tree in `llm_client.errors`.
        """
        return self._works.run(call, plan)

    async def arun(self, call: Call, plan: Plan) -> Reply:
        """Carry a call out on the running event loop.

        Raises:
            LLMClientError: see the tree in `llm_client.errors`.
        """
        return await self._works.arun(call, plan)

    # -- endpoints

    @property
    def endpoints(self) -> tuple[Station, ...]:
        """The endpoints' states, for reading: limit, inflight, circuit, cool-down."""
        return tuple(self.gate.stations)

    @property
    def has_keys(self) -> bool:
        """Whether an endpoint has an authorisation of its own."""
        return any(
            each.token is not None or any(name.lower() in {"authorization", "api-key"} for name, _ in each.headers)
            for each in list(self._works.targets.values())
        )

    def add_endpoint(self, endpoint: EndpointSpec | Mapping[str, Any]) -> None:
        """Add an endpoint, or replace the one of its name; calls that wait may use it at once.

        Args:
            endpoint: as an entry of `pool.endpoints`: `{"name": "gpu-c", "base_url": "http://gpu-c:8000/v1"}`.

        Raises:
            ConfigError: it cannot work.
        """
        if isinstance(endpoint, Mapping):
            from llm_client.profiles import load as profiles  # noqa: PLC0415 - a light import

            (endpoint,) = profiles.merge(profiles.parse(""), pool={"endpoints": [endpoint]}).pool.endpoints
        self._works.add_endpoint(endpoint)

    def drain_endpoint(self, name: str) -> None:
        """Send nothing new to an endpoint; what is under way ends there, and with the last of it the endpoint is gone.

        Calls that wait for it go to another one that serves them, or wait for one to come.

        Raises:
            KeyError: no such endpoint.
        """
        self._works.drain(name)

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

    # -- listening

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event from now on; returns a function that ends it.

        A listener runs in the thread or task that caused the event and must be quick. What it raises is
        logged once and dropped.
        """
        with self._listening:
            self._listeners = (*self._listeners, listener)
            self.services.listening = True

        def stop() -> None:
            with self._listening:
                self._listeners = tuple(each for each in self._listeners if each is not listener)
                self.services.listening = bool(self._listeners)

        return stop

    def _emit(self, event: Event) -> None:
        from llm_client.observe.lines import log_event  # noqa: PLC0415 - events are rarer than imports of the package

        log_event(event)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - whatever a user's function raises
                if id(listener) not in self._failing_listeners:
                    self._failing_listeners.add(id(listener))
                    _log.exception("a listener failed; its further failures are not logged")

    # -- the end

    def close(self) -> None:
        """Fail what waits and close the connections of threads. Idempotent."""
        self._works.close()

    async def aclose(self) -> None:
        """Fail what waits and close all connections. Idempotent."""
        await self._works.aclose()

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


def _say_if_not_shared(file: File) -> None:
    """Say once that two pools on one server do not share their limits."""
    mine = {endpoint.base_url for endpoint in file.pool.endpoints}
    if any(mine & {endpoint.base_url for endpoint in other.file.pool.endpoints} for other in _pools):
        _log.info("two pools use one server and share no limits; pass one Pool to both clients to share them")


_registering = threading.Lock()
_registered = False


def _register_fork() -> None:
    global _registered  # noqa: PLW0603 - once per process
    with _registering:
        if not _registered and hasattr(os, "register_at_fork"):
            _registered = True
            os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def _before_fork() -> None:
    for pool in list(_pools):
        pool.gate.before_fork()


def _after_fork() -> None:
    for pool in list(_pools):
        pool.gate.after_fork()


def _in_child() -> None:
    for pool in list(_pools):
        pool.works.reborn()
