"""The last step of an answer, and where it goes wrong on purpose."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .faults import Fault
from .routes import DONE, event

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
Pause = Callable[[float], Awaitable[None]]

_REASON = re.compile(rb'"finish_reason":"\w+"')
_PIECE = 16  # bytes of a slow answer that is no stream
_SETTLE = 0.05  # seconds for what was written to leave before a reset overtakes it


class InjectedError(Exception):
    """The fault has struck; nothing more is to be sent.

    Attributes:
        reason: which one.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"fault injected: {reason}")
        self.reason = reason


class Writer:
    """Sends an answer as it should be."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self._pending: list[bytes] = []

    async def whole(self, status: int, body: bytes, headers: Headers) -> None:
        """A complete answer."""
        headers.append((b"content-length", b"%d" % len(body)))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def head(self, headers: Headers) -> None:
        """The head of a stream."""
        await self.send({"type": "http.response.start", "status": 200, "headers": headers})

    def put(self, events: list[bytes], *, content: bool = False) -> None:  # noqa: ARG002 - the other writer asks
        """Add events; `content` tells tokens from what stands around them."""
        self._pending.extend(events)

    async def flush(self, *, last: bool = False) -> None:
        """Send what was added; the last time also the end of the body."""
        body = b"".join(self._pending)
        self._pending.clear()
        await self.send({"type": "http.response.body", "body": body, "more_body": not last})


class FaultyWriter(Writer):
    """Sends an answer as it should not be.

    Args:
        send: the ASGI channel.
        fault: what goes wrong.
        transport: the connection, where there is one.
        pause: sleeps, or raises as soon as the client leaves.
    """

    def __init__(self, send: Send, fault: Fault, transport: asyncio.Transport | None, pause: Pause) -> None:
        super().__init__(send)
        self._fault = fault
        self._transport = transport
        self._pause = pause
        self._kinds: list[bool] = []
        self._seen = 0
        self._stalled = False
        self._written = False

    async def whole(self, status: int, body: bytes, headers: Headers) -> None:
        """A complete answer, or as much of it as the fault allows; events are bytes here."""
        fault = self._fault
        if fault.garble is not None:
            body = body[:-2] + b"%" + body[-1:]
        if fault.truncate is not None:
            # Well-formed to HTTP, cut to JSON.
            body = body[: fault.truncate]
        ends = [n for n in (fault.reset, fault.cut, fault.stall) if n is not None]
        if not ends and not fault.drip:
            await super().whole(status, body, headers)
            if fault.truncate is not None:
                raise InjectedError("truncate")
            return
        headers.append((b"content-length", b"%d" % len(body)))
        if fault.reset == 0 or fault.cut == 0:
            await self._break()
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        end = min([*ends, len(body)])
        step = _PIECE if fault.drip else max(1, end)
        for start in range(0, end, step):
            await self.send(
                {"type": "http.response.body", "body": body[start : min(start + step, end)], "more_body": True}
            )
            await self._pause(fault.drip)
        if fault.stall is not None:
            await self._pause(fault.stall_for)
        if fault.reset is not None or fault.cut is not None:
            await self._break()
        await self.send({"type": "http.response.body", "body": body[end:]})

    async def head(self, headers: Headers) -> None:
        """The head of a stream, unless the fault comes before it."""
        if self._fault.reset == 0 or self._fault.cut == 0:
            await self._break()
        await super().head(headers)

    def put(self, events: list[bytes], *, content: bool = False) -> None:
        """Add events; `content` tells tokens from what stands around them."""
        self._pending.extend(events)
        self._kinds.extend([content] * len(events))

    async def flush(self, *, last: bool = False) -> None:
        """Send what was added until a fault strikes."""
        events = list(zip(self._pending, self._kinds, strict=True))
        self._pending.clear()
        self._kinds.clear()
        for number, (data, content) in enumerate(events):
            closing = last and not content and not any(kind for _, kind in events[number:])
            if content or closing:
                await self._strike(closing=closing)
            await self._event(data, content=content)
        if last:
            if self._fault.linger:
                await self._pause(self._fault.linger)
            await self.send({"type": "http.response.body", "body": b""})

    async def _event(self, data: bytes, *, content: bool) -> None:
        fault = self._fault
        if content:
            self._seen += 1
            if self._seen == fault.garble:
                data = b"data: {" + data[len(b"data: {") : -4].replace(b'"', b"'", 1) + b"\n\n"
        elif fault.finish_reason is not None:
            data = _REASON.sub(b'"finish_reason":"%s"' % fault.finish_reason.encode(), data)
        data = lay_out(data, fault.layout, first=not self._written)
        self._written = True
        if data:
            await self.send({"type": "http.response.body", "body": data, "more_body": True})
        if content and fault.drip:
            await self._pause(fault.drip)

    async def _strike(self, *, closing: bool) -> None:
        fault = self._fault

        def due(after: int | None) -> bool:
            # What was to come after more tokens than there are comes before the end.
            return after is not None and (closing or self._seen >= after)

        if due(fault.stall) and not self._stalled:
            self._stalled = True
            await self._silence(fault.stall_for, fault.ping)
        if due(fault.stream_error):
            kind = "server_error" if fault.code is None else str(fault.code)
            error = {"message": fault.message, "type": kind, "param": None, "code": fault.code}
            body = event({"error": error}) + (DONE if fault.done else b"")
            await self.send({"type": "http.response.body", "body": body, "more_body": False})
            raise InjectedError("stream_error")
        if due(fault.truncate):
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})
            raise InjectedError("truncate")
        if due(fault.reset) or due(fault.cut):
            await self._break()

    async def _silence(self, seconds: float, ping: float | None) -> None:
        if not ping:
            await self._pause(seconds)
            return
        while seconds > 0:
            await self._pause(min(ping, seconds))
            seconds -= ping
            await self.send({"type": "http.response.body", "body": b": keep-alive\n\n", "more_body": True})

    async def _break(self) -> None:
        rude = self._fault.reset is not None
        if self._transport is not None:
            await asyncio.sleep(_SETTLE)
            break_connection(self._transport, reset=rude)
        raise InjectedError("reset" if rude else "cut")


def break_connection(transport: asyncio.Transport, *, reset: bool) -> None:
    """End a connection in the middle.

    Args:
        transport: the connection.
        reset: by a TCP reset instead of an orderly close.
    """
    if not reset:
        transport.close()
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        # Closing with a linger time of zero makes the kernel send RST instead of FIN.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def lay_out(data: bytes, layout: str, *, first: bool) -> bytes:
    """The same event written another way; all are allowed by the standard except a missing end."""
    if layout == "crlf":
        return data.replace(b"\n", b"\r\n")
    if layout == "nospace":
        return data.replace(b"data: ", b"data:", 1)
    if layout == "split":
        # Two data lines are one event with a line feed between them, which JSON allows between its tokens.
        return data.replace(b',"', b',\ndata: "', 1) if data.startswith(b"data: {") else data
    if layout == "bom":
        return b"\xef\xbb\xbf" + data if first else data
    if layout == "comments":
        return b": comment\n\n" + data
    if layout == "fields":
        return b"id: 1\nretry: 1000\n\ndata:\n\n" + data
    if data == DONE and layout == "unended":
        return data.rstrip(b"\n")
    return b"" if data == DONE and layout == "nodone" else data
