"""Deadline, priority and tenant for every call made inside a `with` block, in this task or thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf

from llm_client.errors import ConfigError
from llm_client.model import Priority


@dataclass(frozen=True, slots=True)
class Scope:
    """What the surrounding `with scope(...)` blocks say. `deadline` is absolute, monotonic."""

    deadline: float = inf
    priority: Priority | None = None
    tenant: str | None = None


_current: ContextVar[Scope] = ContextVar("llm_client_scope", default=Scope())  # noqa: B039 - frozen


def current_scope() -> Scope:
    """Return what holds here."""
    return _current.get()


@contextmanager
def scope(
    *, deadline: float | None = None, priority: Priority | int | str | None = None, tenant: str | None = None
) -> Iterator[None]:
    """Set defaults for the calls made inside.

    Args:
        deadline: seconds from now for everything inside; nested scopes and calls may only shorten it.
        priority: for calls that name none; the innermost scope wins.
        tenant: for calls that name none; the innermost scope wins.

    Raises:
        ConfigError: a value that no call would accept.
    """
    outer = _current.get()
    until = outer.deadline
    if deadline is not None:
        if not deadline > 0:
            raise ConfigError(f"scope(deadline=...): expected seconds > 0, got {deadline!r}")
        until = min(until, time.monotonic() + deadline)
    token = _current.set(
        Scope(
            deadline=until,
            priority=outer.priority if priority is None else Priority.parse(priority),
            tenant=outer.tenant if tenant is None else tenant,
        )
    )
    try:
        yield
    finally:
        _current.reset(token)
