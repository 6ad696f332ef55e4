"""Where a call is made: user arguments, profile and surrounding scope become one frozen `Call`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import inf
from typing import Any

from llm_client.compose.pool import Pool
from llm_client.compose.scope import current_scope
from llm_client.errors import ConfigError
from llm_client.flow.plan import Plan
from llm_client.model import UNSET, Call, Priority, Request, Size
from llm_client.wire import PEEKED


def make_call(
    pool: Pool,
    plan: Plan,
    request: Request,
    *,
    route: str,
    model: str | None = None,
    stream: bool = False,
    data: Mapping[str, Any] | None = None,
    size: Size | None = None,
    max_tokens: int | None = None,
    priority: Any = UNSET,
    deadline: Any = UNSET,
    fallback: Any = UNSET,
    tenant: str | None = None,
    replayable: bool = True,
) -> Call:
    """Make a call as of now.

    What is given here wins over the surrounding `scope`, which wins over the profile; of several deadlines
    the earliest counts.

    Args:
        pool: supplies clock and estimates.
        plan: the profile's view.
        request: path relative to the endpoint's base URL, and the bytes to send.
        route: a word of `llm_client.wire.ROUTES`, or `other`.
        model: what the call asks for; None takes the profile's.
        stream: whether an event stream is expected.
        data: the body as a mapping, where it is known.
        size: what of the body costs tokens.
        max_tokens: the output bound the caller gave.
        priority: overrides scope and profile.
        deadline: seconds from now; None for no bound of its own.
        fallback: a chain for this call; None forbids any.
        tenant: whose share this is.
        replayable: the body can be sent again.

    Raises:
        ConfigError: a bad priority or deadline.
    """
    now = pool.clock.monotonic()
    scope = current_scope()
    if deadline is UNSET:
        seconds = plan.deadline
    elif deadline is None:
        seconds = inf
    elif isinstance(deadline, int | float) and not isinstance(deadline, bool) and deadline > 0:
        seconds = float(deadline)
    else:
        raise ConfigError(f"deadline: expected seconds > 0, or None for no bound, got {deadline!r}")
    until = min(now + seconds, scope.deadline)
    if priority is not UNSET:
        urgency = Priority.parse(priority)
    else:
        urgency = plan.priority if scope.priority is None else scope.priority
    return Call(
        id=os.urandom(16).hex(),
        request=request,
        route=route,
        model=model or plan.model,
        stream=stream,
        priority=urgency,
        arrived=now,
        deadline=None if until == inf else until,
        deadline_covers=plan.deadline_covers,
        cost=pool.works.estimate(model or plan.model, size or Size(), max_tokens, generates=route in PEEKED),
        measured=size,
        max_tokens=max_tokens,
        tenant=tenant if tenant is not None else scope.tenant,
        replayable=replayable,
        fallback=fallback,
        data=data,
    )
