"""Whether a call fits into what an endpoint can read and write at once, as far as anybody can tell before."""

from __future__ import annotations

from collections.abc import Mapping

from llm_client.flow.plan import Plan, Target
from llm_client.model import Call


def need(call: Call) -> float:
    """Estimate the tokens that a call needs: its prompt, and the answer it bounds."""
    return call.cost.prompt + (call.max_tokens or 0)


def roomy(call: Call, plan: Plan, targets: Mapping[str, Target]) -> tuple[str, ...] | None:
    """Return the endpoints that a call may go to: those large enough for it where some are too small.

    When all that serve it are too small by our estimate, the servers decide: they count, we guess.
    """
    there = list(targets.values())  # a copy: endpoints come and go
    if all(target.max_context is None for target in there):
        return plan.allowed
    if not any(_too_small(target, call) for target in there):
        return plan.allowed
    large = tuple(target.name for target in there if _serves(target, call, plan) and not _too_small(target, call))
    return large or plan.allowed


def too_small(call: Call, plan: Plan, targets: Mapping[str, Target]) -> str:
    """Say why no endpoint can serve a call for want of room; empty when one may."""
    rooms = [target.max_context for target in list(targets.values()) if _serves(target, call, plan)]
    if not rooms or any(room is None or need(call) <= room for room in rooms):
        return ""
    largest = max(room for room in rooms if room is not None)
    return f"needs about {need(call):.0f} tokens, and max_context is {largest}"


def _too_small(target: Target, call: Call) -> bool:
    return target.max_context is not None and need(call) > target.max_context


def _serves(target: Target, call: Call, plan: Plan) -> bool:
    allowed = plan.allowed is None or target.name in plan.allowed or target.group in plan.allowed
    return allowed and (target.models is None or call.model is None or call.model in target.models)
