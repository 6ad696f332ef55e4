"""TLS on top of anything that sends and receives bytes: a socket, or another TLS (a proxy reached by https)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol

_RECORD: Final = 65_536


class Bytes(Protocol):
    """What lies beneath."""

    async def receive(self, size: int, timeout: float | None) -> bytes:  # noqa: ASYNC109 - a socket's, not a task's
        """Return some bytes; b"" at the end."""
        ...

    async def send(self, data: bytes, timeout: float | None) -> None:  # noqa: ASYNC109 - see receive
        """Send all."""
        ...


class Tls:
    """A TLS connection as a client; one reader and any number of writers.

    Attributes:
        object: the TLS state, which knows the negotiated protocol.
    """

    def __init__(self, below: Bytes, context: ssl.SSLContext, hostname: str | None) -> None:
        """Prepare; `handshake` begins to speak."""
        self._below = below
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._writing = asyncio.Lock()
        self.object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=hostname)

    async def handshake(self) -> None:
        """Agree on keys and check the certificate; the caller sets the time-out.

        Raises:
            ssl.SSLError: no agreement, or the certificate is not trusted.
        """
        await self._drive(None, self.object.do_handshake)

    async def receive(self, size: int, timeout: float | None) -> bytes:  # noqa: ASYNC109 - see Bytes
        """Return decrypted bytes; b"" at the end, announced or not, as HTTP tells itself whether it is whole."""
        try:
            data: bytes = await self._drive(timeout, self.object.read, size)
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""
        return data

    async def send(self, data: bytes, timeout: float | None) -> None:  # noqa: ASYNC109 - see Bytes
        """Encrypt and send all."""
        view = memoryview(data)
        while view:
            view = view[await self._drive(timeout, self.object.write, view) :]

    async def _drive(self, timeout: float | None, step: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ASYNC109
        """Repeat a step of the TLS state until it has what it needs."""
        while True:
            try:
                result = step(*arguments)
            except ssl.SSLWantReadError:
                await self._flush(timeout)
                data = await self._below.receive(_RECORD, timeout)
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            except ssl.SSLError:
                await self._flush(timeout)  # the alert that tells the peer why
                raise
            else:
                await self._flush(timeout)
                return result

    async def _flush(self, timeout: float | None) -> None:  # noqa: ASYNC109 - see Bytes
        """Send what the TLS state wants to say; records of two writers must not mix."""
        if self._outgoing.pending:
            async with self._writing:
                data = self._outgoing.read()
                if data:
                    await self._below.send(data, timeout)
