"""The logger `llm_client`, silent unless asked."""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

logger: Final = logging.getLogger("llm_client")

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
