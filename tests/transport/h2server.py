"""A scripted HTTP/2 server over TLS, on threads: enough to see streams begin, end and be reset."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings


class H2Server:
    """Calls `answer(connection, stream_id, number)` for every request, and notes what the client does.

    Attributes:
        begun: stream ids of the requests, in order.
        resets: (stream id, error code) of the client's RST_STREAM frames.
        connections: how many there were.
    """

    def __init__(self, tls: ssl.SSLContext, answer: Callable[[Any, int, int], None], *, streams: int = 100) -> None:
        self.begun: list[int] = []
        self.resets: list[tuple[int, int]] = []
        self.connections = 0
        self._answer = answer
        self._streams = streams
        self._tls = tls
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}/v1/x"
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

    def wait(self, condition: Callable[[], bool], timeout: float = 3.0) -> None:
        """Return when a condition holds."""
        end = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < end, (self.begun, self.resets)
            time.sleep(0.002)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, plain: socket.socket) -> None:
        with (
            contextlib.suppress(OSError, h2.exceptions.ProtocolError),
            self._tls.wrap_socket(plain, server_side=True) as sock,
        ):
            self._sockets.append(sock)
            connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
            limit = {h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: self._streams}
            connection.local_settings = h2.settings.Settings(client=False, initial_values=limit)
            connection.initiate_connection()
            sock.sendall(connection.data_to_send())
            while data := sock.recv(65536):
                for event in connection.receive_data(data):
                    if isinstance(event, h2.events.StreamEnded):
                        self.begun.append(event.stream_id)
                        self._answer(connection, event.stream_id, len(self.begun))
                    elif isinstance(event, h2.events.StreamReset):
                        self.resets.append((event.stream_id, event.error_code))
                    elif isinstance(event, h2.events.DataReceived):
                        connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                sock.sendall(connection.data_to_send())


def whole(connection: Any, stream: int, body: bytes = b"{}") -> None:
    """Answer at once."""
    connection.send_headers(stream, [(":status", "200"), ("content-length", str(len(body)))])
    connection.send_data(stream, body, end_stream=True)


def opened(connection: Any, stream: int) -> None:
    """Begin a stream, and say no more."""
    connection.send_headers(stream, [(":status", "200"), ("content-type", "text/event-stream")])
    connection.send_data(stream, b"data: a\n\n")
