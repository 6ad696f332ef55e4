"""Making a TCP connection on asyncio: every address of a host, racing as RFC 8305 ("Happy Eyeballs") describes."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

from llm_client.transport.net_sync import OPTIONS

# RFC 8305, section 5: how long an address has before the next one is tried as well.
_STAGGER: Final = 0.25


async def connect(host: str, port: int, local_address: str | None, options: tuple[Any, ...]) -> socket.socket:
    """Return a connected, non-blocking socket.

    Raises:
        OSError: no address of the host took the connection; the first error, which is the preferred address's.
    """
    infos = await _resolve(host, port)
    if len(infos) == 1:
        return await _dial(infos[0], local_address, options)
    errors: list[OSError] = []
    racing: set[asyncio.Task[socket.socket]] = set()
    waiting = list(infos)
    try:
        while waiting or racing:
            if waiting:
                racing.add(asyncio.create_task(_dial(waiting.pop(0), local_address, options)))
            done, racing = await asyncio.wait(
                racing, timeout=_STAGGER if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                error = task.exception()
                if error is None:
                    racing |= done - {task}
                    return task.result()
                if not isinstance(error, OSError):
                    raise error
                errors.append(error)
    finally:
        for task in racing:
            if not task.cancel() and not task.cancelled() and task.exception() is None:
                task.result().close()
    raise errors[0]


async def _resolve(host: str, port: int) -> list[Any]:
    """Look a name up, in a thread; addresses need no look-up."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    unique = list({info[4]: info for info in infos}.values())
    if not unique:
        raise socket.gaierror(socket.EAI_NONAME, "no address")
    return _alternate(unique)


def _alternate(infos: list[Any]) -> list[Any]:
    """Let address families take turns, beginning with the preferred one (RFC 8305, section 4)."""
    first = [info for info in infos if info[0] == infos[0][0]]
    rest = [info for info in infos if info[0] != infos[0][0]]
    mixed: list[Any] = []
    while first or rest:
        mixed.extend(part.pop(0) for part in (first, rest) if part)
    return mixed


async def _dial(info: Any, local_address: str | None, options: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _name, address = info
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        for option in (*OPTIONS, *options):
            sock.setsockopt(*option)
        if local_address is not None:
            sock.bind((local_address, 0))
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
