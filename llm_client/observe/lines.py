"""What an operator would want to read: one line for each event that matters, none for ordinary work."""

from __future__ import annotations

import logging
from typing import Final

from llm_client.events import BreakerChanged, CallGranted, CoolDownStarted, Event, FallbackUsed
from llm_client.observe.log import logger

# A shorter wait is what queues are for.
LONG_WAIT: Final = 1.0


def log_event(event: Event) -> None:
    """Write an event that matters: a circuit's change, a cool-down, a long wait with its cause, a fallback."""
    match event:
        case BreakerChanged(endpoint=endpoint, old=old, new=new, until=until, reason=reason, at=at):
            level = logging.WARNING if new == "open" else logging.INFO
            end = "" if until is None else f" for {until - at:.3g} s"
            logger.log(level, "circuit of %s: %s -> %s%s (%s)", endpoint, old, new, end, reason)
        case CoolDownStarted(endpoint=endpoint, until=until, reason=reason, at=at):
            logger.info("%s is left alone for %.3g s (%s)", endpoint, until - at, reason)
        case CallGranted(endpoint=endpoint, waited=waited, cause=cause) if waited > LONG_WAIT:
            logger.info("a call waited %.3g s for %s (%s)", waited, endpoint, cause)
        case FallbackUsed(kind=kind, reason=reason):
            logger.info("answered by fallback %s (%s)", kind, reason)
        case _:
            pass
