"""Reading a request: who sends it, how urgent it is, and whether its body makes sense."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from .job import CLASSES, Refusal
from .settings import SettingsError, duration

_WORDS = {name: rank for rank, name in enumerate(CLASSES)} | {"medium": 2}


class Keys:
    """The API keys that may come in.

    Args:
        keys: the keys; none lets everybody in.
    """

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def check(self, headers: Mapping[str, str], client: str) -> str:
        """A name for whoever sends this, without the key in it.

        All keys are compared, each in constant time, so that the time tells nothing.

        Raises:
            Refusal: 401 for a missing or wrong key.
        """
        sent = headers.get("authorization", "")
        key = (
            sent[7:].strip() if sent[:7].lower() == "bearer " else headers.get("api-key", headers.get("x-api-key", ""))
        )
        digest = hashlib.sha256(key.encode("utf-8", "replace")).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        if self._digests and not any(matches):
            text = (
                "Incorrect API key provided."
                if key
                else "You did not provide an API key: send `Authorization: Bearer`."
            )
            raise Refusal("invalid_api_key", text, status=401, kind="invalid_request_error")
        return f"key-{digest.hex()[:8]}" if key else f"addr-{client}"


def priority(headers: Mapping[str, str], number: int | None, *, larger_first: bool) -> tuple[int, int]:
    """The class of a request, 0 critical to 3 low, and its order inside the class.

    Args:
        headers: may name it in words or numbers, `x-llm-client-priority` or `x-vllm-priority`.
        number: the `priority` of the body; smaller is more urgent.
        larger_first: numbers go the other way.

    Raises:
        Refusal: 400 for a word that is none.
    """
    word = headers.get("x-llm-client-priority") or headers.get("x-vllm-priority")
    if word is not None:
        text = word.strip().lower()
        if text in _WORDS:
            return _WORDS[text], 0
        try:
            number = int(text)
        except ValueError:
            names = ", ".join(CLASSES)
            raise _bad(f"priority header: expected one of {names} or a whole number, got {word[:50]!r}") from None
    if number is None:
        return 2, 0
    tie = -number if larger_first else number
    rank = min(max(number, 0), 3)
    return (3 - rank if larger_first else rank), max(min(tie, 1 << 31), -(1 << 31))


def time_left(headers: Mapping[str, str]) -> float:
    """Seconds the client still waits; infinity if it does not say.

    `x-llm-client-deadline` is in seconds (or `800ms`), `x-request-deadline-ms` in milliseconds.

    Raises:
        Refusal: 400 for what is no time.
    """
    try:
        if (text := headers.get("x-llm-client-deadline")) is not None:
            return duration(text)
        if (text := headers.get("x-request-deadline-ms")) is not None:
            return duration(text) / 1000
    except SettingsError as error:
        raise _bad(f"deadline header: {error}") from None
    return math.inf


def parse(model: type[BaseModel], raw: bytes) -> Any:
    """The body, checked.

    Raises:
        Refusal: 400 that names the first field at fault.
    """
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:200]
        text = f"{where}: {first['msg']}" if where else str(first["msg"])
        raise _bad(text[:500], where or None) from None


def load_report(wish: str, metrics: Mapping[str, float]) -> bytes | None:
    """The value of `endpoint-load-metrics` in the form asked for; None for a form we do not speak."""
    form = wish.strip().upper()
    if form == "TEXT":
        return ("TEXT " + ", ".join(f"named_metrics.{name}={value:g}" for name, value in metrics.items())).encode()
    if form == "JSON":
        inner = ", ".join(f'"{name}": {value:g}' for name, value in metrics.items())
        return f'JSON {{"named_metrics": {{{inner}}}}}'.encode()
    return None


def _bad(message: str, param: str | None = None) -> Refusal:
    return Refusal("invalid_request", message, status=400, kind="invalid_request_error", param=param)
