"""A scripted server of raw bytes, on threads: it sends what a test says, byte for byte, and remembers what it saw.

    with RawServer([answer(body=b"{}")], [RESET]) as server:     # first request, then every later one
        ... server.url("/v1/x") ... server.requests[0].body ...

A script is a list of steps, or a function from the request to one. The n-th request gets the n-th script, later ones
the last. Steps: bytes are sent; a float sleeps (seconds), noticing meanwhile when the client goes; an Event is waited
for; FIN closes in good order; RESET closes with RST; HANG waits until the client goes. After the last step the next
request is read from the same connection.

Standard library only: other test rooms, and foreign environments, may use it.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Self


class Step(Enum):
    """What a script may do besides sending and sleeping."""

    FIN = "fin"
    RESET = "reset"
    HANG = "hang"


FIN, RESET, HANG = Step.FIN, Step.RESET, Step.HANG
Steps = Iterable["bytes | float | Step | threading.Event"]


@dataclass
class Seen:
    """A request as it arrived.

    Attributes:
        connection: number of the connection it came on, from 0.
        at: when its head was complete, monotonic seconds.
        disconnected: when the client was seen to have gone, monotonic seconds; None while it stays.
        gone: set at that moment.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int
    at: float
    raw_headers: list[tuple[str, str]] = field(default_factory=list)
    disconnected: float | None = None
    gone: threading.Event = field(default_factory=threading.Event)

    def leave(self) -> None:
        """Note that the client has gone."""
        if self.disconnected is None:
            self.disconnected = time.monotonic()
            self.gone.set()


Script = Steps | Callable[[Seen], Steps]


class RawServer:
    """Serves scripts on a free loopback port.

    Args:
        scripts: see the module.
        on_connect: steps at the beginning of every connection, before TLS and before a request is read.
        tls: a server context; None for plain TCP.
    """

    def __init__(self, *scripts: Script, on_connect: Steps = (), tls: ssl.SSLContext | None = None) -> None:
        self.scripts = list(scripts)
        self.on_connect = list(on_connect)
        self.requests: list[Seen] = []
        self.connections = 0
        self.open = 0
        self._tls = tls
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, daemon=True)

    def url(self, path: str = "/v1/chat/completions") -> str:
        """The address of a path here."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}{path}"

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def stop_listening(self) -> None:
        """Refuse new connections; the open ones go on."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        """Cut every connection and end every thread."""
        self._closing = True
        self.stop_listening()
        with self._lock:
            sockets = list(self._sockets)
        for sock in sockets:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        self._acceptor.join(5)
        for thread in self._threads:
            thread.join(5)

    def wait_requests(self, count: int, timeout: float = 5.0) -> None:
        """Return when that many requests have arrived."""
        self.wait(lambda: len(self.requests) >= count, timeout)

    def wait(self, condition: Callable[[], bool], timeout: float = 5.0) -> None:
        """Return when a condition holds; fail when it does not in time."""
        end = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < end, "the server did not see what the test waits for"
            time.sleep(0.002)

    def _accept(self) -> None:
        while not self._closing:
            try:
                sock, _address = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._sockets.add(sock)
                number = self.connections
                self.connections += 1
                self.open += 1
            thread = threading.Thread(target=self._serve, args=(sock, number), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        current: Seen | None = None
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for step in self.on_connect:
                self._step(sock, step, None)
            if self._tls is not None:
                plain, sock = sock, self._tls.wrap_socket(sock, server_side=True)
                with self._lock:
                    self._sockets.discard(plain)
                    self._sockets.add(sock)
            buffer = b""
            while True:
                seen, buffer = self._read_request(sock, number, buffer)
                if seen is None:
                    break
                current = seen
                with self._lock:
                    self.requests.append(seen)
                    script = self.scripts[min(len(self.requests), len(self.scripts)) - 1] if self.scripts else ()
                for step in script(seen) if callable(script) else script:
                    self._step(sock, step, seen)
        except (_Over, OSError):
            pass
        finally:
            if current is not None:
                current.leave()
            with self._lock:
                self._sockets.discard(sock)
                self.open -= 1
            sock.close()

    def _step(self, sock: socket.socket, step: object, seen: Seen | None) -> None:
        if isinstance(step, bytes):
            sock.sendall(step)
        elif isinstance(step, threading.Event):
            step.wait(10)
        elif step is FIN:
            raise _Over
        elif step is RESET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise _Over
        elif step is HANG:
            self._watch(sock, 10.0, seen)
        elif isinstance(step, (int, float)):
            self._watch(sock, float(step), seen)
        else:
            msg = f"no such step: {step!r}"
            raise TypeError(msg)

    def _watch(self, sock: socket.socket, seconds: float, seen: Seen | None) -> None:
        """Wait, and end the script when the client goes."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([sock], [], [], left)[0]:
                return
            try:
                data = sock.recv(65536)  # what else a client sends meanwhile is dropped: no client here pipelines
            except OSError:
                data = b""
            if not data:
                if seen is not None:
                    seen.leave()
                raise _Over

    def _read_request(self, sock: socket.socket, number: int, buffer: bytes) -> tuple[Seen | None, bytes]:
        while b"\r\n\r\n" not in buffer:
            data = sock.recv(65536)
            if not data:
                return None, b""
            buffer += data
        head, buffer = buffer.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _version = first.split(" ", 2)
        pairs = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        headers = {name.lower(): value for name, value in pairs}
        length = int(headers.get("content-length", "0"))
        while len(buffer) < length:
            data = sock.recv(65536)
            if not data:
                return None, b""
            buffer += data
        seen = Seen(method, target, headers, buffer[:length], number, time.monotonic(), pairs)
        return seen, buffer[length:]


class _Over(Exception):  # noqa: N818 - ends a connection
    pass


def head(status: int = 200, /, **headers: str) -> bytes:
    """The head of an answer; underscores in names stand for hyphens."""
    lines = [f"HTTP/1.1 {status} X", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def answer(status: int = 200, /, body: bytes = b"{}", **headers: str) -> bytes:
    """A whole answer with a length."""
    return head(status, content_length=str(len(body)), **headers) + body


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"
STREAM = head(content_type="text/event-stream", transfer_encoding="chunked")


def event(data: object) -> bytes:
    """One server-sent event inside one chunk."""
    text = data if isinstance(data, str) else json.dumps(data)
    return chunk(f"data: {text}\n\n".encode())
