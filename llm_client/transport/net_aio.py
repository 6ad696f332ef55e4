"""Connections for asyncio whose time-outs are asked for anew at each read and write.

Plain sockets, watched by the running loop. A transport of the loop would be closed by the loop only, and complains when
the loop is gone; a socket can be closed by anyone: after the loop, in a forked child, from a finalizer. Data is
taken from the kernel in the same step that returns it, so a cancelled read never loses bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final

from llm_client.transport.attempt import JOINED, Attempt, seconds
from llm_client.transport.connect_aio import connect
from llm_client.transport.sockets import Sockets, shut
from llm_client.transport.tls_aio import Tls
from llm_client.transport.trust import Trust

# A peer that is faster than its reader must not keep the loop for itself.
_READS_IN_A_ROW: Final = 16


class Plain:
    """A connected, non-blocking socket on one loop; one reader and one writer at a time."""

    __slots__ = ("_fd", "_loop", "_row", "_sockets", "_waiters", "sock")

    def __init__(self, sock: socket.socket, sockets: Sockets) -> None:
        """Take over a socket."""
        self.sock = sock
        self._fd = sock.fileno()
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._waiters: set[asyncio.Future[None]] = set()
        self._row = 0
        sockets.add(sock)

    async def receive(self, size: int, timeout: float | None) -> bytes:  # noqa: ASYNC109 - a socket's, not a task's
        """Return what has arrived, waiting for the first byte; b"" at the end.

        Raises:
            TimeoutError: nothing came in time.
        """
        self._row += 1
        if self._row > _READS_IN_A_ROW:
            self._row = 0
            await self._turn()
        while True:
            try:
                return self.sock.recv(size)
            except (BlockingIOError, InterruptedError):
                self._row = 0
                if await self._watch(self._loop.add_reader, self._loop.remove_reader, timeout):
                    continue
                async with asyncio.timeout(timeout):
                    return await self._loop.sock_recv(self.sock, size)

    async def send(self, data: bytes, timeout: float | None) -> None:  # noqa: ASYNC109 - see receive
        """Hand all data to the kernel.

        Raises:
            TimeoutError: the peer did not take it in time.
        """
        view = memoryview(data)
        end = None if timeout is None else self._loop.time() + timeout
        while view:
            try:
                view = view[self.sock.send(view) :]
            except (BlockingIOError, InterruptedError):
                left = None if end is None else end - self._loop.time()
                if await self._watch(self._loop.add_writer, self._loop.remove_writer, left):
                    continue
                async with asyncio.timeout(left):
                    await self._loop.sock_sendall(self.sock, view)
                return

    def close(self) -> None:
        """Close the socket; who waits on it gets an error. On the loop's own thread only."""
        self._sockets.discard(self.sock)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(ConnectionAbortedError("closed while in use"))
        if not self._loop.is_closed() and self.sock.fileno() >= 0:
            with contextlib.suppress(NotImplementedError):
                self._loop.remove_reader(self._fd)
                self._loop.remove_writer(self._fd)
        self.sock.close()

    async def _turn(self) -> None:
        """Give up the floor for one turn, by a future: a bare pause is what `Through` skips."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._loop.call_soon(_done, waiter)
        await waiter

    async def _watch(
        self,
        add: Callable[..., None],
        remove: Callable[[int], object],
        timeout: float | None,  # noqa: ASYNC109 - see receive
    ) -> bool:
        """Wait until the socket is ready; False where the loop cannot watch sockets, as the proactor of Windows."""
        if timeout is not None and timeout <= 0.0:
            raise TimeoutError
        waiter: asyncio.Future[None] = self._loop.create_future()
        try:
            add(self._fd, _wake, waiter, remove, self._fd)
        except NotImplementedError:
            return False
        self._waiters.add(waiter)
        timer = None if timeout is None else self._loop.call_later(timeout, _late, waiter)
        try:
            await waiter
        except BaseException:
            if self.sock.fileno() >= 0:
                remove(self._fd)
            raise
        finally:
            self._waiters.discard(waiter)
            if timer is not None:
                timer.cancel()
        return True


def _wake(waiter: asyncio.Future[None], remove: Callable[[int], object], fd: int) -> None:
    remove(fd)
    _done(waiter)


def _done(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _late(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


class AsyncBackend:
    """Opens connections for a pool of the core library, within the time the attempt has left."""

    def __init__(self, core: Any, sockets: Sockets, trust: Trust) -> None:
        """Keep what every connection needs."""
        self._core = core
        self._sockets = sockets
        self._trust = trust

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: Any = None,  # noqa: ASYNC109 - the core's signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> AsyncStream:
        """Resolve a host and connect to the address that answers first."""
        if isinstance(timeout, Attempt):
            timeout.connecting()
        try:
            async with asyncio.timeout(seconds(timeout)):
                sock = await connect(host, port, local_address, tuple(socket_options or ()))
        except TimeoutError as error:
            raise self._core.ConnectTimeout(error) from error
        except (OSError, UnicodeError) as error:
            raise self._core.ConnectError(error) from error
        return AsyncStream(Plain(sock, self._sockets), self._core, self._trust)

    async def sleep(self, duration: float) -> None:
        """Wait between the core's own connection retries, which are switched off."""
        await asyncio.sleep(duration)


class AsyncStream:
    """One connection, plain or inside TLS.

    Attributes:
        uses: how many requests it has carried.
        multiplexed: whether it carries several at once (HTTP/2).
    """

    __slots__ = ("_core", "_head", "_layer", "_plain", "_tls", "_trust", "multiplexed", "uses")

    def __init__(self, plain: Plain, core: Any, trust: Trust, tls: Tls | None = None) -> None:
        """Speak through TLS where it is given, else through the socket."""
        self._plain = plain
        self._tls = tls
        self._layer: Plain | Tls = tls or plain
        self._core = core
        self._trust = trust
        self._head = b""
        self.uses = 0
        self.multiplexed = tls is not None and tls.object.selected_alpn_protocol() == "h2"

    async def read(self, max_bytes: int, timeout: Any = None) -> bytes:  # noqa: ASYNC109 - the core's signature
        """Read once, for as long as the attempt has time left now."""
        left = seconds(timeout)
        if left is not None and left <= 0.0:
            raise self._core.ReadTimeout
        if self._head:
            await self._write(b"", timeout)
        try:
            data = await self._layer.receive(max_bytes, left)
        except TimeoutError as error:
            raise self._core.ReadTimeout(error) from error
        except OSError as error:
            raise self._core.ReadError(error) from error
        if data and isinstance(timeout, Attempt):
            timeout.received(self)
        return data

    async def write(self, buffer: bytes, timeout: Any = None) -> None:  # noqa: ASYNC109 - see read
        """Write all, noting when it is a request's head."""
        if buffer and isinstance(timeout, Attempt) and timeout.writing(self, buffer) and not self.multiplexed:
            self._head = buffer  # the core goes on to the body, or to reading, in the same breath
        else:
            await self._write(buffer, timeout)

    async def _write(self, data: bytes, timeout: Any) -> None:  # noqa: ASYNC109 - see read
        head, self._head = self._head, b""
        if len(data) <= JOINED:
            head, data = head + data, b""
        try:
            for part in (head, data):
                if part:
                    await self._layer.send(part, seconds(timeout))
        except TimeoutError as error:
            raise self._core.WriteTimeout(error) from error
        except OSError as error:
            raise self._core.WriteError(error) from error

    async def aclose(self) -> None:
        """Close at once. TLS says no farewell: HTTP's own framing tells whether an answer is whole."""
        self._plain.close()

    def kill(self) -> None:
        """Let the peer see the end, and wake whoever reads here."""
        shut(self._plain.sock)

    def drop(self) -> None:
        """Leave the descriptor to the loop, which may still be watching it."""

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: Any = None,  # noqa: ASYNC109 - see read
    ) -> AsyncStream:
        """Go on in TLS, on top of what is there."""
        try:
            async with asyncio.timeout(seconds(timeout)):
                if ssl_context is self._trust.context and not self._trust.loaded:
                    await asyncio.to_thread(self._trust.load)
                tls = Tls(self._layer, ssl_context, server_hostname)
                await tls.handshake()
        except TimeoutError as error:
            self._plain.close()
            raise self._core.ConnectTimeout(error) from error
        except (OSError, ValueError) as error:  # ssl.CertificateError, and names that cannot be one
            self._plain.close()
            raise self._core.ConnectError(error) from error
        except BaseException:
            self._plain.close()
            raise
        return AsyncStream(self._plain, self._core, self._trust, tls)

    def get_extra_info(self, info: str) -> Any:
        """Answer what the core asks about its own streams."""
        sock = self._plain.sock
        if info == "is_readable":
            return _readable(sock)
        if info == "ssl_object":
            return None if self._tls is None else self._tls.object
        if info == "socket":
            return sock
        if info == "client_addr":
            return sock.getsockname()
        if info == "server_addr":
            return sock.getpeername()
        return None


def _readable(sock: socket.socket) -> bool:
    """Whether an idle connection has something to say, which can only be its end."""
    fd = sock.fileno()
    if fd < 0:
        return True
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([fd], [], [], 0)[0])
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
