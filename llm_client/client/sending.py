"""What goes with a request beside its body: headers and query parameters, checked where they are given.

A bad header found later would look like a broken connection, and be tried again. Messages never quote a value: it may
be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from llm_client.errors import ConfigError

Pairs = tuple[tuple[str, str], ...]

# RFC 9110 sections 5.6.2 and 5.5; of the values only what every server takes.
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_KEY: Final = re.compile(r"[\x21-\x7e]+")


def with_headers(where: str, pairs: Pairs, given: Mapping[str, Any] | None) -> Pairs:
    """Return headers with others put over them; names are compared without regard to case, None takes one out.

    Args:
        where: the argument's name, for messages.
        pairs: what is there.
        given: what is put over it.

    Raises:
        ConfigError: not a mapping, or a name or value that HTTP cannot carry.
    """
    if given is None:
        return pairs
    made = {name.lower(): (name, value) for name, value in pairs}
    for name, value in _items(where, given):
        if not isinstance(name, str) or _NAME.fullmatch(name.strip()) is None:
            raise ConfigError(f"{where}: {name!r} is not a header name: letters, digits and hyphens, no blanks")
        name = name.strip()  # noqa: PLW2901 - pasted with a blank
        if value is None or _absent(value):
            made.pop(name.lower(), None)
            continue
        text = str(value).strip() if isinstance(value, str | int | float) else None
        if text is None:
            raise ConfigError(f"{where}: {name!r} is {type(value).__name__}, expected text, or None to leave it out")
        if _VALUE.fullmatch(text) is None:
            what = "a line break or control character" if text.isascii() else "a character outside ASCII"
            raise ConfigError(f"{where}: the value of {name!r} has {what}; only visible ASCII may be sent")
        made[name.lower()] = (name, text)
    return tuple(made.values())


def with_query(where: str, pairs: Pairs, given: Mapping[str, Any] | None) -> Pairs:
    """Return query parameters with others put over them; None takes one out, a list stands for several.

    Raises:
        ConfigError: not a mapping, or a value that is no text, number, bool or list of these.
    """
    if given is None:
        return pairs
    items = list(_items(where, given))
    names = {name for name, _ in items}
    made = [pair for pair in pairs if pair[0] not in names]
    for name, value in items:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{where}: {name!r} is not the name of a parameter")
        several = value if isinstance(value, list | tuple) else [value]
        made += [(name, _scalar(where, name, each)) for each in several if each is not None and not _absent(each)]
    return tuple(made)


def bearer(where: str, key: Any) -> str:
    """Return the authorisation of an API key.

    Raises:
        ConfigError: it cannot be one; the message does not quote it.
    """
    unwrap = getattr(key, "get_secret_value", None) or getattr(key, "reveal", None)
    text = unwrap() if callable(unwrap) else key
    if not isinstance(text, str) or _KEY.fullmatch(text.strip()) is None:
        raise ConfigError(f"{where}: expected a key of visible ASCII characters without blanks inside")
    return f"Bearer {text.strip()}"


def _items(where: str, given: Any) -> Iterable[tuple[Any, Any]]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: expected a mapping of names to values, got {type(given).__name__}")
    return given.items()


def _scalar(where: str, name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(
        f"{where}: {name!r} is {type(value).__name__}, expected text, a number, a bool or a list of these"
    )


def _absent(value: Any) -> bool:
    """Tell openai-python's ways of saying "not given"."""
    kind = type(value)
    return kind.__name__ in {"Omit", "NotGiven"} and kind.__module__.endswith("._types")
