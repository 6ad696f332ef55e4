"""What only an event loop can do, found where the set-up is made and not at the first call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llm_client.errors import ConfigError
from llm_client.flow.plan import CallableStep, OtherStep

if TYPE_CHECKING:
    from llm_client.compose.pool import Pool
    from llm_client.flow.plan import Plan


def refuse_async(pool: Pool, plan: Plan, who: str) -> None:
    """Check that threads can do what a plan asks for: run the user's functions, never two requests at once.

    Args:
        pool: whose endpoints may ask for tokens.
        plan: which of the endpoints are used, and what it falls back to.
        who: the sync user of both, for the message.

    Raises:
        ConfigError: one of the functions is async, or the plan hedges.
    """
    for each in (plan, *(step.plan for step in plan.fallback if isinstance(step, OtherStep))):
        if each.hedge is not None:
            raise ConfigError(
                f"profile {each.name}: hedge sends two requests at once, which {who} cannot do; "
                "use AsyncClient, or a profile with hedge: off",
                path=f"profiles.{each.name}.hedge",
            )
    for target in pool.services.targets.values():
        if (plan.allowed is None or target.name in plan.allowed) and _is_async(target.token):
            raise ConfigError(
                f"endpoint {target.name}: its key comes from an async function, which {who} cannot run; "
                "use AsyncClient, or give a sync function"
            )
    for step in plan.fallback:
        if isinstance(step, CallableStep) and _is_async(step.function):
            raise ConfigError(
                f"profile {plan.name}: its fallback is an async function, which {who} cannot run; "
                "use AsyncClient, or give a sync function"
            )


def _is_async(function: Callable[..., Any] | None) -> bool:
    if function is None:
        return False
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - its __call__ may be async
