"""Blocking connections whose time-outs are asked for anew at each read and write.

They wrap the core library's own streams, which connect, and speak TLS inside TLS where a proxy needs it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterable
from typing import Any, Final

from llm_client.transport.attempt import JOINED, Attempt, seconds
from llm_client.transport.sockets import Sockets, shut
from llm_client.transport.trust import Trust


def keepalive_options() -> tuple[tuple[int, int, int], ...]:
    """Socket options: no delay, and a probe a minute so that firewalls keep a silent, thinking connection."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        number = getattr(socket, name, None)
        if number is not None:
            options.append((socket.IPPROTO_TCP, number, value))
    return tuple(options)


OPTIONS: Final = keepalive_options()


class SyncBackend:
    """Opens connections for a pool of the core library, within the time the attempt has left."""

    def __init__(self, core: Any, sockets: Sockets, trust: Trust) -> None:
        """Keep what every connection needs."""
        self._core = core
        self._inner = core.SyncBackend()
        self._sockets = sockets
        self._trust = trust

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: Any = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> SyncStream:
        """Try the host's addresses one after the other, each with a fair share of the time left."""
        if isinstance(timeout, Attempt):
            timeout.connecting()
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise self._core.ConnectError(error) from error
        addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
        options = [*OPTIONS, *(socket_options or ())]
        for left in range(len(addresses), 0, -1):
            share = seconds(timeout)
            if share is not None:
                if share <= 0.0:
                    raise self._core.ConnectTimeout
                share /= left
            address = addresses[-left]
            try:
                stream = self._inner.connect_tcp(address, port, share, local_address, options)
            except (self._core.ConnectError, self._core.ConnectTimeout):
                if left == 1:
                    raise
            else:
                return SyncStream(stream, self._core, self._sockets, self._trust)
        raise self._core.ConnectError(socket.gaierror(socket.EAI_NONAME, "no address"))

    def connect_unix_socket(self, path: str, timeout: Any = None, socket_options: Any = None) -> SyncStream:
        """Connect to a local socket."""
        if isinstance(timeout, Attempt):
            timeout.connecting()
        stream = self._inner.connect_unix_socket(path, seconds(timeout), socket_options)
        return SyncStream(stream, self._core, self._sockets, self._trust)

    def sleep(self, duration: float) -> None:
        """Wait between the core's own connection retries, which are switched off."""
        self._inner.sleep(duration)


class SyncStream:
    """One connection.

    Attributes:
        uses: how many requests it has carried.
        multiplexed: whether it carries several at once (HTTP/2).
    """

    def __init__(self, inner: Any, core: Any, sockets: Sockets, trust: Trust, *, nested: bool = False) -> None:
        """Take over a stream of the core library, and remember its socket."""
        self._inner = inner
        self._core = core
        self._sockets = sockets
        self._trust = trust
        self._socket: socket.socket = inner.get_extra_info("socket")
        # TLS inside TLS has no socket of its own; there the core's stream does the work.
        self._nested = nested
        self._head = b""
        self.uses = 0
        ssl_object = inner.get_extra_info("ssl_object")
        self.multiplexed = ssl_object is not None and ssl_object.selected_alpn_protocol() == "h2"
        sockets.add(self._socket)

    def read(self, max_bytes: int, timeout: Any = None) -> bytes:
        """Read once, for as long as the attempt has time left now."""
        if not isinstance(timeout, Attempt):
            plain: bytes = self._inner.read(max_bytes, timeout)
            return plain
        if self._head:
            self._write(b"", timeout)
        left = timeout.remaining()
        if left is not None and left <= 0.0:
            raise self._core.ReadTimeout
        data: bytes
        if self._nested:
            data = self._inner.read(max_bytes, left)
        else:
            try:
                self._socket.settimeout(left)
                data = self._socket.recv(max_bytes)
            except TimeoutError as error:
                raise self._core.ReadTimeout(error) from error
            except OSError as error:
                raise self._core.ReadError(error) from error
        if data:
            timeout.received(self)
        return data

    def write(self, buffer: bytes, timeout: Any = None) -> None:
        """Write all, noting when it is a request's head."""
        if not isinstance(timeout, Attempt):
            self._inner.write(buffer, timeout)
        elif buffer and timeout.writing(self, buffer) and not self.multiplexed:
            self._head = buffer  # the core goes on to the body, or to reading, in the same breath
        else:
            self._write(buffer, timeout)

    def _write(self, data: bytes, attempt: Attempt) -> None:
        head, self._head = self._head, b""
        if len(data) <= JOINED:
            head, data = head + data, b""
        for part in (memoryview(head), memoryview(data)):
            rest = part
            while rest:
                rest = rest[self._send(rest, attempt) :]

    def _send(self, data: memoryview, attempt: Attempt) -> int:
        left = attempt.remaining()
        if left is not None and left <= 0.0:
            raise self._core.WriteTimeout
        if self._nested:
            self._inner.write(bytes(data), left)
            return len(data)
        try:
            self._socket.settimeout(left)
            return self._socket.send(data)
        except TimeoutError as error:
            raise self._core.WriteTimeout(error) from error
        except OSError as error:
            raise self._core.WriteError(error) from error

    def close(self) -> None:
        """Close the descriptor."""
        self._sockets.discard(self._socket)
        self._inner.close()

    def kill(self) -> None:
        """Let the peer see the end, and wake whoever reads here."""
        shut(self._socket)

    def drop(self) -> None:
        """Close the descriptor of a connection that nobody uses any more. Callable from finalizers."""
        self._sockets.discard(self._socket)
        with contextlib.suppress(OSError):
            self._socket.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: Any = None
    ) -> SyncStream:
        """Go on in TLS; the socket moves into the new stream."""
        nested = isinstance(self._socket, ssl.SSLSocket)  # a proxy reached by https
        if nested:
            self._load(ssl_context)
            inner = self._inner.start_tls(ssl_context, server_hostname, seconds(timeout))
        else:
            inner = type(self._inner)(self._wrap(ssl_context, server_hostname, timeout))
        self._sockets.discard(self._socket)
        return SyncStream(inner, self._core, self._sockets, self._trust, nested=nested)

    def _load(self, context: ssl.SSLContext) -> None:
        if context is self._trust.context:
            self._trust.load()

    def _wrap(self, context: ssl.SSLContext, hostname: str | None, timeout: Any) -> socket.socket:
        """Shake hands, on a socket that closing the transport can reach, and that no interrupt leaves behind."""
        plain = sock = self._socket
        try:
            self._load(context)
            left = seconds(timeout)
            plain.settimeout(None if left is None else max(left, 0.001))  # 0 would mean "do not block"
            sock = context.wrap_socket(plain, server_hostname=hostname, do_handshake_on_connect=False)
            self._sockets.add(sock)
            sock.do_handshake()
        except BaseException as error:
            for one in (plain, sock):
                self._sockets.discard(one)
                one.close()
            if isinstance(error, TimeoutError):
                raise self._core.ConnectTimeout(error) from error
            if isinstance(error, OSError | ValueError):
                raise self._core.ConnectError(error) from error
            raise
        return sock

    def get_extra_info(self, info: str) -> Any:
        """Answer what the core asks about its own streams."""
        return self._inner.get_extra_info(info)
