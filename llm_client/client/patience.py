"""openai-python's two words for patience, `timeout` and `max_retries`, as a plan says them."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from llm_client.errors import ConfigError
from llm_client.model import UNSET

if TYPE_CHECKING:
    from llm_client.flow.plan import Plan

_PARTS = ("connect", "read", "write", "pool")


def tuned(plan: Plan, timeout: Any, max_retries: Any) -> Plan:
    """Return a plan with the two words applied; UNSET leaves it as it is.

    Raises:
        ConfigError: a value that cannot work.
    """
    if timeout is not UNSET:
        plan = replace(plan, deadline=seconds("timeout", timeout))
        connect = getattr(timeout, "connect", None)
        if connect is not None:
            plan = replace(plan, bounds=replace(plan.bounds, connect=min(plan.bounds.connect, float(connect))))
    if max_retries is not UNSET:
        if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
            raise ConfigError(f"max_retries: expected an int >= 0 (further attempts), got {max_retries!r}")
        refusals = plan.retry.refusals if max_retries else 0
        plan = replace(plan, retry=replace(plan.retry, attempts=max_retries + 1, refusals=refusals))
    return plan


def seconds(name: str, timeout: Any) -> float:
    """Read a time-out as seconds for the whole call; inf for none.

    An `httpx.Timeout` gives its longest part; one that does not bound reading bounds nothing.

    Raises:
        ConfigError: neither a number above 0 nor None nor an `httpx.Timeout`.
    """
    if timeout is None:
        return inf
    if not isinstance(timeout, int | float) and all(hasattr(timeout, part) for part in _PARTS):
        parts = [getattr(timeout, part) for part in _PARTS]
        if timeout.read is None:
            return inf
        timeout = max(part for part in parts if part is not None)
    if isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout > 0:
        return float(timeout)
    raise ConfigError(f"{name}: expected seconds > 0 for the whole call, or None for no bound, got {timeout!r}")
