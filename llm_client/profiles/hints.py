"""The nearest right name for a wrong key, and where a right key in the wrong place belongs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from llm_client.profiles.containers import Many, Or, Short, Table
from llm_client.profiles.section import Section

# What other clients and people's memories call things.
_ALSO_KNOWN: Final = {
    "timeout": "deadline (the whole call), or timeouts",
    "request_timeout": "deadline (the whole call), or timeouts.attempt",
    "max_retries": "retry.attempts, which counts the first request as well",
    "retries": "retry.attempts, which counts the first request as well",
    "num_retries": "retry.attempts, which counts the first request as well",
    "max_attempts": "retry.attempts",
    "rpm": "requests, as in limits: {requests: 600/min}",
    "rps": "requests, as in limits: {requests: 10/s}",
    "tpm": "tokens, as in limits: {tokens: 90000/min}",
    "max_concurrency": "pool.concurrency: {kind: fixed, limit: ...}",
    "max_queue": "pool.queue.size",
    "max_size": "size",
    "enable": "enabled",
    "api_base": "base_url",
    "url": "base_url",
    "host": "base_url",
    "token": "api_key",
    "key": "api_key",
    "default_headers": "headers",
    "default_query": "query",
    "jitter": "backoff: {kind: full_jitter}",
    "reset_timeout": "open_for",
    "failure_threshold": "failures",
    "fail_max": "failures",
    "fallbacks": "fallback",
}


def unknown(name: str, path: str, local: Sequence[str]) -> str:
    """Say that a key is not known.

    Args:
        name: the key as it was written.
        path: of the section it stands in.
        local: the keys of that section.
    """
    return f"unknown key; {_advice(name, path, local)}"


def _advice(name: str, path: str, local: Sequence[str]) -> str:
    in_profile = path.startswith("profile")
    elsewhere = _places().get(name, ())
    if in_profile and (name in _keys_of("pool") or any(each.startswith("pool.") for each in elsewhere)):
        place = next(each for each in elsewhere if each.startswith("pool."))
        return f"it is shared by all profiles and belongs to {place}"
    if elsewhere and not (name in _ALSO_KNOWN and name not in {each.rpartition(".")[2] for each in elsewhere}):
        return f"it belongs to {elsewhere[0]}"
    if name in _ALSO_KNOWN:
        return f"write {_ALSO_KNOWN[name]}"
    # A mistyped word is nearer to what was meant than a short key is to any other.
    near = difflib.get_close_matches(name, [*local, *_ALSO_KNOWN], n=1, cutoff=0.7)
    if near:
        return f"did you mean `{near[0]}`?" if near[0] in local else f"write {_ALSO_KNOWN[near[0]]}"
    far = difflib.get_close_matches(name, list(_places()), n=1, cutoff=0.75)
    if far:
        return f"did you mean {_places()[far[0]][0]}?"
    return f"known here: {', '.join(local)}"


@cache
def _places() -> dict[str, tuple[str, ...]]:
    """Return every key's name with the paths where it stands."""
    found: dict[str, tuple[str, ...]] = {}
    for path in paths():
        name = path.rpartition(".")[2]
        found[name] = (*found.get(name, ()), path)
    return found


@cache
def _keys_of(section: str) -> frozenset[str]:
    return frozenset(path.split(".")[1] for path in paths() if path.startswith(f"{section}."))


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
