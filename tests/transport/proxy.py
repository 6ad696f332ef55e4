"""A small HTTP proxy on threads: CONNECT tunnels, plain forwarding, optional TLS in front and a password."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from typing import Self


class Proxy:
    """Listens on a free loopback port and remembers the first line and the headers of what it was asked.

    Args:
        tls: a server context, to be reached by https.
        refuse: a status to answer every CONNECT with.
        silent: never answer.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None, refuse: int = 0, silent: bool = False) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._tls, self._refuse, self._silent = tls, refuse, silent
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *exc: object) -> None:
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.callback(client.close)
            if self._tls is not None:
                client = stack.enter_context(self._tls.wrap_socket(client, server_side=True))
                self._sockets.append(client)
            data = b""
            while b"\r\n\r\n" not in data:
                part = client.recv(65536)
                if not part:
                    return
                data += part
            head, rest = data.split(b"\r\n\r\n", 1)
            first, *lines = head.decode().split("\r\n")
            self.asked.append(
                (first, {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)})
            )
            if self._silent:
                client.recv(1)
                return
            method, target, _ = first.split(" ")
            if method == "CONNECT":
                if self._refuse:
                    client.sendall(b"HTTP/1.1 %d No\r\ncontent-length: 0\r\n\r\n" % self._refuse)
                    return
                host, port = target.rsplit(":", 1)
                server = stack.enter_context(socket.create_connection((host, int(port)), 5))
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                host, port = target.split("/")[2].rsplit(":", 1)
                server = stack.enter_context(socket.create_connection((host, int(port)), 5))
                server.sendall(data)
                rest = b""
            self._sockets.append(server)
            if rest:
                server.sendall(rest)
            self._pump(client, server)

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        while True:
            pending = isinstance(client, ssl.SSLSocket) and client.pending()
            ready = [client] if pending else select.select([client, server], [], [], 10)[0]
            if not ready:
                return
            for sock in ready:
                part = sock.recv(65536)
                if not part:
                    return
                other[sock].sendall(part)
