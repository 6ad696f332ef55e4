"""What changes without calls: the addresses behind a name, the URLs that a function knows, the health of servers.

Nothing here runs unless a profile asks for it. Then one daemon thread serves threads and event loops alike; it starts
with the pool's first call and ends with the pool.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from weakref import ref

from llm_client.core.station import Station
from llm_client.errors import ConfigError
from llm_client.flow.faults import Fault
from llm_client.flow.prepare import address
from llm_client.model import Request
from llm_client.profiles.addresses import DNS, base_url, host_name
from llm_client.profiles.scalars import UnreadableError
from llm_client.profiles.types import EndpointSpec, HealthSpec

if TYPE_CHECKING:
    from llm_client.compose.works import Works

# Seconds between two looks at a name or a function.
LOOK_EVERY: Final = 10.0
# Seconds that a health route may take.
PATIENCE: Final = 1.0
# A verdict on health holds for so many intervals, so that nothing is held back for ever by a thread that died.
HOLDS: Final = 3.0
# Where servers whose dialect names no route are asked.
HEALTH: Final = "/health"

_log = logging.getLogger("llm_client")


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host, each as `host:port`, sorted. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = {str(entry[4][0]) for entry in found}
    return sorted(f"[{each}]:{port}" if ":" in each else f"{each}:{port}" for each in addresses)


@dataclass(slots=True)
class _Group:
    """Endpoints that were found under one name."""

    spec: EndpointSpec
    members: dict[str, str] = field(default_factory=dict)  # name -> base URL
    due: float = -inf
    failing: bool = False


class Housekeeper:
    """Looks after a pool's endpoints.

    Args:
        works: whose endpoints; not kept alive by us.
    """

    def __init__(self, works: Works) -> None:
        self._works = ref(works)
        self._clock = works.clock
        self._groups: dict[str, _Group] = {}
        self._due: dict[str, float] = {}
        self._lock = threading.Lock()  # one looks at a time
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, spec: EndpointSpec) -> None:
        """Find the endpoints of a group now, and again and again.

        Raises:
            ConfigError: a function that is asked for URLs gives none the first time.
        """
        group = _Group(spec)
        self._groups[spec.name] = group
        try:
            self._look(group)
        except Exception as error:
            if spec.discover is not None:
                raise ConfigError(f"base_url of endpoint {spec.name}: {_words(error)}") from error
            self._say(group, error)
        if not group.members:
            # Calls find out for themselves that the name has no address, and wait for one as for any server.
            self._apply(group, [spec.base_url.removeprefix(DNS)])

    def forget(self, name: str) -> list[str] | None:
        """Stop looking after a group; return the names of its endpoints. None: there is no such group."""
        group = self._groups.pop(name, None)
        return None if group is None else list(group.members)

    def begin(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=_work, args=(ref(self), self._stop), name="llm_client.housekeeping", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """End the thread; what it does just now it finishes."""
        self._stop.set()

    def reborn(self) -> None:
        """Start anew in the child of a fork, where the thread is not."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = None

    def tick(self, now: float) -> float:
        """Do what is due; return when the next is."""
        works = self._works()
        if works is None:
            return inf
        with self._lock:
            for group in list(self._groups.values()):
                if group.due <= now:
                    self._look_again(group)
            for name, spec in works.probed():
                if self._due.get(name, -inf) <= now:
                    self._due[name] = now + spec.every
                    self._probe(works, name, spec)
            works.tidy()
            for name in self._due.keys() - works.targets.keys():
                del self._due[name]
        dues = [*(group.due for group in self._groups.values()), *self._due.values()]
        return min(dues, default=now + LOOK_EVERY)

    def wait(self) -> float:
        """Do what is due; return the seconds until the next."""
        due = self.tick(self._clock.monotonic())
        return max(0.0, due - self._clock.monotonic())

    # -- who is there

    def _look_again(self, group: _Group) -> None:
        try:
            self._look(group)
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            self._say(group, error)
        else:
            group.failing = False

    def _look(self, group: _Group) -> None:
        """Ask where a group's endpoints are; while nobody is there, those of before stay."""
        spec = group.spec
        group.due = self._clock.monotonic() + LOOK_EVERY
        if spec.discover is not None:
            as_is = spec.path_mode == "as_is"
            urls = [base_url(str(each), as_is=as_is) for each in _list(spec.discover())]
            if not urls:
                raise LookupError("the function gave no URL")
        else:
            parts = urlsplit(spec.base_url.removeprefix(DNS))
            found = resolve(parts.hostname or "", parts.port or 80)
            urls = [f"http://{each}{parts.path}" for each in found]
        if urls:
            self._apply(group, urls)

    def _apply(self, group: _Group, urls: list[str]) -> None:
        """Add who is new first, then drain who is gone: a call in the queue always has somewhere to go."""
        works, spec = self._works(), group.spec
        if works is None or self._groups.get(spec.name) is not group:
            return
        found = {f"{spec.name}@{host_name(url)}": url for url in urls}
        for name, url in found.items():
            if group.members.get(name) != url:
                account = name if spec.account == spec.name else spec.account
                member = replace(spec, name=name, base_url=url, account=account, discover=None)
                works.add_endpoint(member, group=spec.name)
        for name in group.members.keys() - found.keys():
            works.drain(name)
        group.members = found

    def _say(self, group: _Group, error: Exception) -> None:
        if not group.failing:
            group.failing = True
            _log.warning("endpoint %s: %s; the endpoints found before stay", group.spec.name, _words(error))

    # -- how they are

    def _probe(self, works: Works, name: str, spec: HealthSpec) -> None:
        target = works.targets.get(name)
        if target is None:
            return
        path = spec.path or target.dialect.health or HEALTH
        request = Request(
            method="GET",
            path=path,
            url=address(target.base_url, path if path.startswith("/") else f"/{path}"),
            query=target.query,
            headers=target.headers,
        )
        now = self._clock.monotonic()
        until = now + min(spec.every, PATIENCE)
        try:
            exchange = works.threads_transport().send(
                request, until=until, connect=min(spec.every, PATIENCE), clock=self._clock
            )
            well = exchange.status < 500
            exchange.finish()
        except Fault:
            well = False

        def note(station: Station) -> None:
            station.sick_until = -inf if well else now + HOLDS * spec.every

        with suppress(KeyError):  # it was drained meanwhile
            works.gate.change(name, note, self._clock.monotonic())


def _work(house: ref[Housekeeper], stop: threading.Event) -> None:
    while True:
        here = house()
        if here is None:
            return
        try:
            wait = here.wait()
        except RuntimeError:  # the pool was closed meanwhile
            return
        del here
        if stop.wait(min(wait, LOOK_EVERY)):
            return


def _list(found: Any) -> list[Any]:
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise TypeError(f"the function gave {type(found).__name__}, expected a list of base URLs")
    return list(found)


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"its name could not be resolved ({error.strerror or error})"
    return str(error) if isinstance(error, LookupError | TypeError | UnreadableError) else repr(error)
