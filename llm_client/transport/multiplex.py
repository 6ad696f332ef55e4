"""Resetting an HTTP/2 stream that nobody reads any longer.

Other requests share the connection, so it cannot be cut; and the library, when it closes a response early, keeps that
to itself, so the server would compute on. RST_STREAM with CANCEL says it (RFC 9113, sections 6.4 and 7).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from llm_client.transport.attempt import Attempt, Stopped

_CANCEL: Final = 8
_BEGINS: Final = "http2.send_request_headers.started"


def tracer(attempt: Attempt, *, asynchronous: bool) -> Callable[[str, dict[str, Any]], Any]:
    """Make a `trace` extension that learns the number of the attempt's stream, and stops it if the caller has gone."""

    def note(event: str, info: dict[str, Any]) -> None:
        if event == _BEGINS:
            if attempt.gone():
                raise Stopped
            attempt.stream_id = info["stream_id"]

    async def note_later(event: str, info: dict[str, Any]) -> None:
        note(event, info)

    return note_later if asynchronous else note


def reset(client: Any, attempt: Attempt) -> None:
    """Tell the server that a stream is cancelled; blocking."""
    connection = _find(client, attempt)
    if connection is not None:
        with connection._write_lock:  # noqa: SLF001 - the library has no way to say this
            data = _frames(connection, attempt)
            if data:
                connection._network_stream.write(data, attempt)  # noqa: SLF001 - as above


async def reset_async(client: Any, attempt: Attempt) -> None:
    """Tell the server that a stream is cancelled; on the loop of its connection."""
    connection = _find(client, attempt)
    if connection is not None:
        async with connection._write_lock:  # noqa: SLF001 - as in reset
            data = _frames(connection, attempt)
            if data:
                await connection._network_stream.write(data, attempt)  # noqa: SLF001 - as in reset


def _find(client: Any, attempt: Attempt) -> Any:
    """Return the library's HTTP/2 connection that carries an attempt; None when there is none."""
    stream = attempt.stream
    if stream is None or not stream.multiplexed or attempt.stream_id is None:
        return None
    for transport in (client._transport, *client._mounts.values()):  # noqa: SLF001 - checked by build
        pool = getattr(transport, "_pool", None)
        for outer in () if pool is None else pool.connections:
            found = getattr(outer, "_connection", None)
            if getattr(found, "_network_stream", None) is stream:
                return found
    return None


def _frames(connection: Any, attempt: Attempt) -> bytes:
    try:
        connection._h2_state.reset_stream(attempt.stream_id, error_code=_CANCEL)  # noqa: SLF001 - as in reset
    except Exception:  # noqa: BLE001 - the stream has ended, or the connection; the h2 package has a class for each
        return b""
    data: bytes = connection._h2_state.data_to_send()  # noqa: SLF001 - as in reset
    return data
