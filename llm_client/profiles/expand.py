"""`${VAR}`, `${VAR:-default}` and `file:/path`: how a profile refers to what it must not contain."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# `$${` stands for a literal `${`. Everything that begins with `${` must match, or is reported as malformed.
_REFERENCE: Final = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})?")
FILE: Final = "file:"
_LARGEST: Final = 64 * 1024


class BadReferenceError(ValueError):
    """A reference that leads nowhere; the text says which and what to do, and holds no value."""


def refers(text: str) -> bool:
    """Tell whether a text holds a reference to the environment."""
    return "${" in text


def expand(text: str, env: Mapping[str, str], *, empty_is_unset: bool = False) -> str:
    """Put the environment's values in place of `${VAR}` and `${VAR:-default}`; values are not expanded again.

    As in a shell, `:-` also replaces a variable that is set and empty.

    Args:
        text: the text as it was written.
        env: the environment.
        empty_is_unset: refuse `${VAR}` when VAR is empty, as secrets do.

    Raises:
        BadReferenceError: a variable without default is not set, or the reference is malformed.
    """
    if "${" not in text:
        return text

    def value_of(match: re.Match[str]) -> str:
        if match.group() == "$${":
            return "${"
        name, default = match.group(1), match.group(2)
        if name is None:
            raise BadReferenceError(
                "malformed reference: write ${VARIABLE} or ${VARIABLE:-default}, and $${ for a plain ${"
            )
        value = env.get(name)
        if value:
            return value
        if default is not None:
            return default
        if value is None:
            raise BadReferenceError(
                f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
            )
        if empty_is_unset:
            raise BadReferenceError(
                f"the environment variable {name} is empty; set it, or write ${{{name}:-}} if no value is meant"
            )
        return value

    return _REFERENCE.sub(value_of, text)


def literal_part(text: str) -> str:
    """Return what a text holds besides its references: the rest, and their defaults."""
    return _REFERENCE.sub(lambda match: match.group(2) or "", text)


def read_file(path: Path) -> str:
    """Read a secret from a file, such as a mounted Kubernetes or Docker secret; outer white space is dropped.

    Raises:
        BadReferenceError: the file cannot be read, is no text, is empty or is larger than 64 KiB.
    """
    try:
        with path.open("rb") as source:
            raw = source.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise BadReferenceError(f"cannot read the secret's file: {why}") from None
    if len(raw) > _LARGEST:
        raise BadReferenceError("the secret's file is larger than 64 KiB: this is not a key")
    try:
        text = raw.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise BadReferenceError("the secret's file is not UTF-8 text") from None
    if not text:
        raise BadReferenceError("the secret's file is empty")
    return text


def resolve(reference: str, env: Mapping[str, str] | None = None) -> str:
    """Follow a reference of either form to its text, without outer white space for secrets' sake.

    Raises:
        BadReferenceError: it leads nowhere.
    """
    text = expand(reference, os.environ if env is None else env).strip()
    return read_file(Path(text.removeprefix(FILE))) if text.startswith(FILE) else text
