"""Whose key goes with a request: the caller's own, a token asked for just now, or the endpoint's."""

from __future__ import annotations

import re
from typing import Any, Final

from llm_client.errors import ConfigError
from llm_client.model import Call

KEYS: Final = frozenset({"authorization", "api-key"})
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


def has_own_key(call: Call) -> bool:
    """Tell whether the call brings a key of its own, as for a tenant; the endpoint's is not sent then."""
    return any(name.lower() in KEYS for name, _ in call.request.headers)


def clean_token(given: Any, endpoint: str) -> str:
    """Return the token that a function of the user's gave.

    Raises:
        ConfigError: it is no bare token; the message does not quote it.
    """
    unwrap = getattr(given, "get_secret_value", None)
    token = unwrap() if callable(unwrap) else given
    if not isinstance(token, str):
        raise ConfigError(
            f"auth of endpoint {endpoint}: the function gave {type(token).__name__}, expected a token as text"
        )
    token = token.strip()
    if _TOKEN.fullmatch(token) is None:
        what = "nothing" if not token else "a text with blanks, control characters or characters outside ASCII"
        raise ConfigError(
            f"auth of endpoint {endpoint}: the function gave {what}, expected a bare token without 'Bearer'"
        )
    return token
