"""Which sockets a transport has open, so that they can be closed without asking the library that uses them.

Three occasions need that: an event loop that was closed with connections left in its pool, a process that was forked,
and a response that was dropped unread. Nothing here takes a lock, so that finalizers may call it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from typing import Any, Protocol


class Sockets:
    """A set of open sockets. Adding, removing and copying a set are atomic, so threads may share it."""

    __slots__ = ("__weakref__", "_open")

    def __init__(self) -> None:
        """Begin with none."""
        self._open: set[socket.socket] = set()

    def __len__(self) -> int:
        """Count the open ones."""
        return len(self._open)

    def add(self, sock: socket.socket) -> None:
        """Remember a socket until it is discarded."""
        self._open.add(sock)

    def discard(self, sock: socket.socket) -> None:
        """Forget a socket that was closed, or whose descriptor was handed on."""
        self._open.discard(sock)

    def shut_all(self) -> None:
        """Let every peer see the end, and wake every thread that reads."""
        for sock in tuple(self._open):
            shut(sock)

    def close_all(self) -> None:
        """Close every descriptor; TLS says no farewell, and a forked parent notices nothing."""
        while self._open:
            with contextlib.suppress(KeyError, OSError):
                self._open.pop().close()


def shut(sock: socket.socket | None) -> None:
    """Send FIN now and end every read; the descriptor stays until it is closed.

    The plain method is called on TLS sockets as well: theirs would drop the TLS state, which only its user may do.
    """
    if sock is not None:
        with contextlib.suppress(OSError, ValueError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


class Forkable(Protocol):
    """Something that must forget its connections in a forked child."""

    def after_fork(self) -> None:
        """Forget locks, pools and sockets that belong to the parent."""
        ...


_forkable: weakref.WeakSet[Any] = weakref.WeakSet()


def forget_in_child(transport: Forkable) -> None:
    """Register a transport for as long as it lives."""
    _forkable.add(transport)


# What a forked child forgot. Collecting it would run destructors of tasks and streams that belong to the parent.
_forgotten: list[Any] = []


def keep(*things: Any) -> None:
    """Keep things from ever being collected."""
    _forgotten.extend(things)


def _after_fork_in_child() -> None:
    for transport in tuple(_forkable):
        transport.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_after_fork_in_child)
