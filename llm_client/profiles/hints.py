"""The nearest right name for a wrong key, and where a right key in the wrong place belongs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from llm_client.profiles.containers import Many, Or, Short, Table
from llm_client.profiles.section import Section

# What other clients and people's memories call things: our key, and what to mind.
_ALSO_KNOWN: Final = {
    "timeout": ("deadline", "which is the whole call; its parts are under timeouts"),
    "request_timeout": ("deadline", "which is the whole call; its parts are under timeouts"),
    "max_retries": ("attempts", "which counts the first request as well"),
    "retries": ("attempts", "which counts the first request as well"),
    "num_retries": ("attempts", "which counts the first request as well"),
    "max_attempts": ("attempts", ""),
    "rpm": ("requests", "as in requests: 600/min"),
    "rps": ("requests", "as in requests: 10/s"),
    "tpm": ("tokens", "as in tokens: 90000/min"),
    "max_concurrency": ("limit", "beside kind: fixed"),
    "max_queue": ("size", ""),
    "max_size": ("size", ""),
    "enable": ("enabled", ""),
    "api_base": ("base_url", ""),
    "url": ("base_url", ""),
    "host": ("base_url", ""),
    "token": ("api_key", ""),
    "key": ("api_key", ""),
    "default_headers": ("headers", ""),
    "default_query": ("query", ""),
    "reset_timeout": ("open_for", ""),
    "failure_threshold": ("failures", ""),
    "fail_max": ("failures", ""),
    "fallbacks": ("fallback", ""),
}
# Names nearer than this are thought to be mistyped; measured on names with one letter wrong, missing or swapped.
_NEAR: Final = 0.7


def unknown(name: str, path: str, local: Sequence[str]) -> str:
    """Say that a key is not known.

    Args:
        name: the key as it was written.
        path: of the section it stands in.
        local: the keys of that section.
    """
    return f"unknown key; {_advice(name, path, local)}"


def _advice(name: str, path: str, local: Sequence[str]) -> str:
    elsewhere = _places().get(name, ())
    if elsewhere:
        shared = [each for each in elsewhere if each.startswith("pool.")]
        if path.startswith("profile") and shared:
            return f"it is shared by all profiles and belongs to {shared[0]}"
        return f"it belongs to {elsewhere[0]}"
    if name not in _ALSO_KNOWN:
        near = difflib.get_close_matches(name, [*local, *_ALSO_KNOWN], n=1, cutoff=_NEAR)
        near = near or difflib.get_close_matches(name, list(_places()), n=1, cutoff=_NEAR)
        if not near:
            return f"known here: {', '.join(local)}"
        name = near[0]
    ours, mind = _ALSO_KNOWN.get(name, (name, ""))
    if ours not in local:
        ours = next((each for each in _places()[ours]), ours)
    return f"did you mean `{ours}`{', ' if mind else ''}{mind}?"


@cache
def _places() -> dict[str, tuple[str, ...]]:
    """Return every key's name with the paths where it stands."""
    found: dict[str, tuple[str, ...]] = {}
    for path in paths():
        name = path.rpartition(".")[2]
        found[name] = (*found.get(name, ()), path)
    return found


@cache
def paths() -> tuple[str, ...]:
    """Return the path of every key of the schema, `profiles.<name>.retry.attempts` for instance."""
    from llm_client.profiles.schema import FILE  # noqa: PLC0415 - the schema reads with what reports here

    return tuple(_walk(FILE, ""))


def _walk(shape: Any, path: str) -> Iterator[str]:
    if isinstance(shape, Section):
        for key in shape.keys:
            below = f"{path}.{key.name}" if path else key.name
            yield below
            yield from _walk(key.shape, below)
    elif isinstance(shape, Or):
        yield from _walk(shape.shape, path)
    elif isinstance(shape, Short):
        yield from _walk(shape.long, path)
    elif isinstance(shape, Many):
        yield from _walk(shape.shape, f"{path}[]")
    elif isinstance(shape, Table):
        yield from _walk(shape.shape, f"{path}.<{shape.entry}>")
