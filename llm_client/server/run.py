"""A server as a running thing: sockets, signals, the graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from fastapi import FastAPI

from .app import create_app
from .protocol import bound
from .settings import Settings
from .state import State


class Server(uvicorn.Server):
    """uvicorn, except that SIGTERM first drains: the port stays open and says 503 until running work is done.

    Args:
        settings: what to serve and where.
    """

    def __init__(self, settings: Settings) -> None:
        self.app: FastAPI = create_app(settings)
        self.settings = settings
        self._drainer: asyncio.Task[None] | None = None
        super().__init__(
            uvicorn.Config(
                self.app,
                host=settings.host,
                port=settings.port,
                http=bound(settings.read_timeout),
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=8192,
                timeout_keep_alive=max(1, round(settings.keepalive)),
                timeout_graceful_shutdown=2,
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

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, stop at the second."""
        if self._drainer is None and sig in {signal.SIGTERM, signal.SIGINT} and self.started:
            self.parts.door.drain()
            self._drainer = asyncio.get_running_loop().create_task(self._drain())
        else:
            super().handle_exit(sig, frame)

    async def _drain(self) -> None:
        door = self.parts.door
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain):
                while not door.idle or self.parts.ledger.in_flight:
                    await asyncio.sleep(0.02)
        door.evict()
        await asyncio.sleep(0.05)
        self.should_exit = True


def raise_file_limit() -> None:
    """Allow as many open sockets as the system lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def serve(settings: Settings, ready: Callable[[Server], None]) -> None:
    """Run until a signal ends it.

    Args:
        settings: what to serve and where.
        ready: called once, when it listens.
    """
    raise_file_limit()
    server = Server(settings)

    async def main() -> None:
        task = asyncio.create_task(server.serve())
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        if server.started:
            ready(server)
        await task

    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(main())


@contextlib.contextmanager
def running(settings: Settings, *, timeout: float = 10.0) -> Iterator[Server]:
    """A server in a thread of this process, on a free port unless the settings name one.

    Args:
        settings: what to serve and where.
        timeout: seconds to wait for it to start.
    """
    raise_file_limit()
    server = Server(settings)
    started = threading.Event()
    failure: list[BaseException] = []

    async def main() -> None:
        task = asyncio.create_task(server._serve())  # noqa: SLF001 - serve() would take the signals of the main thread
        while not server.started and not task.done():
            await asyncio.sleep(0.002)
        started.set()
        await task

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
                runner.run(main())
        except BaseException as error:  # noqa: BLE001 - told to the thread that started us
            failure.append(error)
            started.set()

    thread = threading.Thread(target=work, name="llm_client.server", daemon=True)
    thread.start()
    started.wait(timeout)
    if failure or not server.started:
        raise RuntimeError(f"the server did not start within {timeout:g} s") from (failure[0] if failure else None)
    try:
        yield server
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(timeout)


def free_port() -> int:
    """A port that is free right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
