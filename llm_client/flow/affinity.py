"""The beginning of a prompt, as a digest: calls that begin alike are best served where that was computed before."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

from llm_client.model import Call

# In the order in which chat templates put them before the model.
_FIELDS: Final = ("instructions", "tools", "messages", "prompt", "input")


def prefix_of(call: Call, size: int) -> bytes:
    """Return a digest of a prompt's first bytes and its model; empty when the call has no prompt that we can read."""
    data = call.data
    if data is None:
        return b""
    left, parts = size, [call.model or ""]
    for name in _FIELDS:
        for piece in _pieces(data.get(name), size):
            parts.append(piece[:left])
            left -= len(piece)
            if left <= 0:
                break
        if left <= 0:
            break
    if left == size:
        return b""
    return blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=16).digest()


def _pieces(value: Any, size: int) -> Iterator[str]:
    """Iterate over the texts of a prompt, whatever they stand in."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _pieces(inner, size)
    elif isinstance(value, list | tuple):
        if value and isinstance(value[0], int):
            yield ",".join(map(str, value[:size]))
            return
        for inner in value:
            yield from _pieces(inner, size)
