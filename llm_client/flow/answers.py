"""Answers kept for the same request later: bounded in number, size and age."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from llm_client.model import Call

# What a body says about the caller or the transport, and not about the answer.
VOLATILE: Final = frozenset(
    {
        *("user", "metadata", "safety_identifier", "prompt_cache_key", "store", "service_tier"),
        *("priority", "request_id", "cache_salt"),
    }
)
# A longer answer is not kept; and not more than so many bytes in all.
LONGEST: Final = 1_000_000
MOST: Final = 64_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What is kept of an answer: its bytes, as they came."""

    body: bytes
    content_type: str
    at: float


class Answers:
    """The answers of one link of a fallback chain. Thread-safe.

    Args:
        entries: answers kept at most; the one unused for longest goes first.
        ttl: seconds for which an answer is good.
    """

    def __init__(self, entries: int, ttl: float) -> None:
        self._entries = entries
        self._ttl = ttl
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._kept: OrderedDict[bytes, Answer] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes, now: float) -> Answer | None:
        """Return the answer of a key, unless it is too old."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            if now - found.at > self._ttl:
                self._drop(key)
                return None
            self._kept.move_to_end(key)
            return found

    def put(self, key: bytes, body: bytes, content_type: str, now: float) -> None:
        """Keep an answer, in place of an older one."""
        if len(body) > LONGEST:
            return
        with self._lock:
            if key in self._kept:
                self._drop(key)
            self._kept[key] = Answer(body, content_type, now)
            self._bytes += len(body)
            while len(self._kept) > self._entries or self._bytes > MOST:
                self._drop(next(iter(self._kept)))

    def _drop(self, key: bytes) -> None:
        self._bytes -= len(self._kept.pop(key).body)


def key_of(call: Call) -> bytes | None:
    """Return what makes two requests the same: tenant, route and body; None for a call whose body we cannot read."""
    data = call.data
    if data is None or call.route == "other" or call.request.method != "POST":
        return None
    body = {name: value for name, value in data.items() if name not in VOLATILE}
    said = [call.tenant, call.route, call.model, call.stream, call.request.query, body]
    try:
        return sha256(json.dumps(said, sort_keys=True, ensure_ascii=False).encode("utf-8", "replace")).digest()
    except (TypeError, ValueError):
        return None


Keep = Callable[[bytes, str], None]
