"""A server as a running thing: sockets, signals, the graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from fastapi import FastAPI

from .app import create_app
from .protocol import bound
from .settings import Settings
from .state import State

_LINGER = 2  # seconds for connections to close after the drain


class Server(uvicorn.Server):
    """uvicorn, except that SIGTERM first drains: the port stays open and says 503 until running work is done.

    Args:
        settings: what to serve and where.
        ready: called once, when it listens.
    """

    def __init__(self, settings: Settings, ready: Callable[[Server], None] = lambda _server: None) -> None:
        self.app: FastAPI = create_app(settings)
        self.settings = settings
        self._ready = ready
        self._draining = False
        self._drainer: asyncio.Task[None] | None = None
        super().__init__(
            uvicorn.Config(
                self.app,
                host=settings.host,
                port=settings.port,
                http=bound(settings.read_timeout),
                ws="none",
                lifespan="off",  # `startup` does its work; a forced end would log a cancelled one as an error
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # whoever speaks through a proxy is not on this machine
                backlog=8192,
                timeout_keep_alive=max(1, round(settings.keepalive)),
                timeout_graceful_shutdown=_LINGER,
                h11_max_incomplete_event_size=settings.max_headers,
            )
        )

    @property
    def parts(self) -> State:
        """The parts of the application."""
        state: State = self.app.state.server
        return state

    @property
    def url(self) -> str:
        """Where it listens, once it does."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        self.loop = asyncio.get_running_loop()
        self.parts.begin()
        await super().startup(sockets)
        if self.started:
            self._ready(self)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, stop at the second."""
        if not self._draining and sig in {signal.SIGTERM, signal.SIGINT} and self.started:
            self._draining = True
            # The handler runs between two instructions of the loop, which may be asleep.
            self.loop.call_soon_threadsafe(self._begin_drain)
        else:
            super().handle_exit(sig, frame)

    def _begin_drain(self) -> None:
        self.parts.door.drain()
        self._drainer = self.loop.create_task(self._drain())

    async def _drain(self) -> None:
        ledger = self.parts.ledger
        if ledger.in_flight:
            quiet = asyncio.Event()
            ledger.on_quiet = quiet.set
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.drain):
                    await quiet.wait()
            self.parts.door.evict()
        self.should_exit = True


def raise_file_limit() -> None:
    """Allow as many open sockets as the system lets us have."""
    if sys.platform == "win32":
        return  # has no such limit
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it is installed: it carries more connections."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def serve(settings: Settings, ready: Callable[[Server], None]) -> None:
    """Run until a signal ends it.

    Args:
        settings: what to serve and where.
        ready: called once, when it listens.
    """
    raise_file_limit()
    server = Server(settings, ready)
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(server.serve())


@contextlib.contextmanager
def running(settings: Settings, *, timeout: float = 10.0) -> Iterator[Server]:
    """A server in a thread of this process.

    Args:
        settings: what to serve and where; port 0 takes a free one.
        timeout: seconds to wait for it to start, and to end.

    Raises:
        RuntimeError: when it does not start.
    """
    raise_file_limit()
    started = threading.Event()
    server = Server(settings, lambda _server: started.set())
    failure: list[BaseException] = []

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=_new_loop) as runner:
                runner.run(server._serve())  # noqa: SLF001 - `serve` would take over the signals of the main thread
        except BaseException as error:  # noqa: BLE001 - told to the thread that started us
            failure.append(error)
            started.set()

    thread = threading.Thread(target=work, name="llm_client.server", daemon=True)
    thread.start()
    started.wait(timeout)
    if failure or not server.started:
        server.should_exit = True
        raise RuntimeError(f"the server did not start within {timeout:g} s") from (failure[0] if failure else None)
    try:
        yield server
    finally:
        if not server.loop.is_closed():
            server.loop.call_soon_threadsafe(server.parts.door.evict)
        server.should_exit = server.force_exit = True
        thread.join(timeout)
