"""Text that can always be encoded: surrogate pairs are joined, a lone half becomes U+FFFD.

JSON may escape half a pair (RFC 8259 section 8.2 calls the result unpredictable); Python keeps it in a `str`,
where it breaks the first log line, file or request it meets.
"""

from __future__ import annotations

from typing import Any


def clean(text: str) -> str:
    """Return text without lone surrogates; the same object when it has none."""
    return _mended(text) if _broken(text) else text


def clean_tree(value: Any) -> Any:
    """Clean every text of decoded JSON; the same object when there is nothing to clean."""
    return _rebuilt(value) if _has_broken(value) else value


def _broken(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _mended(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# Runs on every chunk of every stream, hence the plain loops: they copy nothing and call little.
def _has_broken(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return not value.isascii() and _broken(value)
    if kind is dict:
        for key, item in value.items():
            if not key.isascii() and _broken(key):
                return True
            kind = type(item)
            if kind is str:
                if not item.isascii() and _broken(item):
                    return True
            elif (kind is dict or kind is list) and item and _has_broken(item):
                return True
    elif kind is list:
        return any(map(_has_broken, value))
    return False


def _rebuilt(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return clean(value)
    if kind is dict:
        return {clean(key): _rebuilt(item) for key, item in value.items()}
    if kind is list:
        return [_rebuilt(item) for item in value]
    return value
