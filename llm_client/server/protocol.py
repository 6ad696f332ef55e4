"""uvicorn's HTTP protocol, with its transport within reach and an answer for clients that dawdle over their head."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_GRACE = 0.05  # seconds
TRANSPORT = "llm_client.transport"  # key in scope["state"]


class Protocol(H11Protocol):
    """One connection.

    `config.head_timeout` does not exist in uvicorn; `read_timeout` is set on the class by `bound`.
    """

    read_timeout: float = 10.0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Put the transport into every request's state: faults need it to reset the connection."""
        self.app_state = {**self.app_state, TRANSPORT: transport}
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A head must be complete in time; one that trickles in does not move the clock."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before or self.transport.is_closing():
            self._disarm()
        elif self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._arm()

    def send_400_response(self, msg: str) -> None:
        """Say 431 for a head beyond the bound, in JSON like every other error."""
        status = getattr(sys.exception(), "error_status_hint", 400)
        if status == 431:
            msg = "The request head is larger than this server reads. Send fewer or shorter headers."
        self._close_with(status, msg)

    def _close_with(self, status: int, message: str) -> None:
        reasons = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}
        error: dict[str, Any] = {"message": message, "type": "invalid_request_error", "param": None}
        error["code"] = {408: "request_timeout", 431: "head_too_large"}.get(status, "invalid_request")
        body = json.dumps({"error": error}).encode()
        self.transport.write(
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            % (status, reasons.get(status, b"Error"), len(body))
        )
        self.transport.write(body)
        self.transport.close()

    def _arm(self) -> None:
        self._head_timer = self.loop.call_later(self.read_timeout, self._too_slow)

    def _disarm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        # After a long turn of the loop the head may lie in the kernel, still unread: one more turn decides.
        self._head_timer = self.loop.call_later(_GRACE, self._far_too_slow)

    def _far_too_slow(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self._close_with(408, f"The request head did not arrive within {self.read_timeout:g} seconds.")


def bound(read_timeout: float) -> type[Protocol]:
    """The protocol with its clock set.

    Args:
        read_timeout: seconds a client may take to send a request head.
    """
    return type("BoundProtocol", (Protocol,), {"read_timeout": read_timeout})
