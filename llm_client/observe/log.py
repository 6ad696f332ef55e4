"""The logger `llm_client`: one line for what an operator would want to know, none for ordinary work."""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

from llm_client.events import BreakerChanged, CallGranted, CoolDownStarted, Event, FallbackUsed

logger: Final = logging.getLogger("llm_client")

# A shorter wait is what queues are for.
LONG_WAIT: Final = 1.0
_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def install() -> None:
    """Keep the library silent unless asked: by the application's handlers, or by LLM_CLIENT_LOG=info.

    Raises:
        ValueError: LLM_CLIENT_LOG is not one of debug, info, warning, error.
    """
    logger.addHandler(logging.NullHandler())
    wish = os.environ.get("LLM_CLIENT_LOG", "").strip().lower()
    if not wish or wish == "off":
        return
    if wish not in _LEVELS:
        raise ValueError(f"LLM_CLIENT_LOG: expected debug, info, warning, error or off, got {wish!r}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(_LEVELS[wish])
    # A handler of our own and the root's would say everything twice.
    logger.propagate = False


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
