"""Error bodies in, one `Problem` out, whatever the shape.

JSON objects of six families, arrays with one element, JSON inside a message, HTML pages, bare text. The content-type
is not asked: it is often missing and sometimes wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json

from llm_client.wire.page import readable
from llm_client.wire.unicode import clean_tree
from llm_client.wire.words import ECHO, PROXY_CODES, collapse

# A message or page longer than this says nothing more; patterns are matched on this much of it.
MAX_TEXT: Final = 16_384
_NOTHING: Final = frozenset({"", "none", "null"})
_MAX_DEPTH: Final = 200
_LEVELS: Final = 3  # a message that is JSON is opened twice
# What a model wrote must never be searched for error words.
_ANSWER_KEYS: Final = frozenset({"choices", "output", "data", "results"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What an error body says.

    Attributes:
        message: the server's words, as they stood, or those of its page; empty when it had none.
        code: the innermost error code as text; None when absent or literally "None".
        type: its type, likewise.
        number: an HTTP status the body names, 400 to 599; None otherwise.
        words: every code, type, status and reason, lower-case, for exact matching.
        text: message and raw body, lower-case and collapsed, for pattern matching.
        moderated: the body lists reasons of a moderation.
        layers: the error objects, outermost first; where waits are looked for.
        body: the decoded body, or its text.
    """

    message: str = ""
    code: str | None = None
    type: str | None = None
    param: str | None = None
    number: int | None = None
    words: frozenset[str] = frozenset()
    text: str = ""
    moderated: bool = False
    request_id: str | None = None
    layers: tuple[Mapping[str, Any], ...] = ()
    body: object = field(default=None, repr=False)


def decode_json(data: str | bytes) -> Any:
    """Parse JSON; broken UTF-8 is replaced, half a surrogate pair is kept for the caller to join or clean.

    Raises:
        ValueError: it is not JSON, or nested deeper than 200 levels.
    """
    try:
        return from_json(data)
    except (ValueError, TypeError):  # TypeError: a str that holds half a pair already
        if isinstance(data, bytes):
            data = data.decode("utf-8", "replace")
        try:
            # The standard parser keeps half of a surrogate pair, which the fast one refuses.
            found = json.loads(data)
        except RecursionError:
            found = None
        if found is None or not _shallow(found):
            raise ValueError("not JSON, or nested too deep") from None
        return found


class Broken(str):
    """Text that should have been JSON."""

    __slots__ = ()


def decode_event(text: str) -> object:
    """Parse the JSON of one event; None when it is empty, a `Broken` when it is no JSON."""
    if not text:
        return None
    try:
        return decode_json(text)
    except ValueError:
        return Broken(text)


def read_problem(body: bytes) -> Problem | None:
    """Read an error body; None when it is empty."""
    text = body.decode("utf-8", "replace").lstrip("\ufeff").strip().lstrip("\ufeff")
    if not text:
        return None
    if text[0] in "{[":
        try:
            return problem_of(decode_json(text), text)
        except ValueError:
            pass  # cut or broken: its words still count
    return _plain(text)


def problem_of(data: object, raw: str | None = None) -> Problem:
    """Read a decoded body or an in-stream frame.

    Args:
        data: the decoded JSON, or the plain text of an error event.
        raw: the body's text; left out for frames, where only the error's own parts are searched.
    """
    data = clean_tree(data)
    if isinstance(data, str):
        return _plain(data)
    layers: list[Mapping[str, Any]] = []
    message = ""
    current: object = data
    for _ in range(_LEVELS):
        said = _open(current, layers)
        message = _string(said) or message
        nested = _nested(said) if isinstance(said, str) else None
        if nested is None:
            break
        current = nested
    if raw is None:
        raw = _dump({name: part for name, part in _unwrap(data).items() if name not in _ANSWER_KEYS})
    elif _ANSWER_KEYS & _unwrap(data).keys():
        raw = _dump([layer for layer in layers if not _ANSWER_KEYS & layer.keys()])
    return Problem(
        message=readable(message[:MAX_TEXT]),
        code=_last(layers, ("code", "error_code", "status")),
        type=_last(layers, ("type", "error_type")),
        param=_last(layers, ("param",)),
        number=next((one for layer in layers for one in _numbers(layer)), None),
        words=frozenset(word for layer in layers for word in _words(layer)),
        text=collapse(f"{ECHO.sub('', message[:MAX_TEXT])} {ECHO.sub('', raw[:MAX_TEXT])}"),
        moderated=any(_moderated(layer) for layer in layers),
        request_id=_last(layers, ("request_id",)),
        layers=tuple(layers),
        body=data,
    )


def is_problem(data: Mapping[str, Any]) -> bool:
    """Tell whether an object inside a 2xx answer is an error in one of the known shapes.

    `error` counts at the top level only, and not when it is null, `{}` or empty: several servers put `"error": null`
    on every chunk, and Azure nests harmless `error` keys in its filter results.
    """
    if data.get("error"):
        return True
    if data.get("choices"):
        return False
    if data.get("object") == "error" or data.get("type") == "error":
        return True
    if data.get("errors") or data.get("fault") or data.get("error_code"):
        return True
    speaks = any(isinstance(data.get(name), str) for name in ("message", "detail", "title"))
    return speaks and any(True for _ in _numbers(data))


def _plain(text: str) -> Problem:
    text = text[:MAX_TEXT]
    return Problem(message=readable(text), text=collapse(text), body=text)


def _shallow(data: object) -> bool:
    """Tell whether data can be walked recursively; the fast parser refuses more levels by itself."""
    level = [data]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return True
    return False


def _unwrap(data: object) -> Mapping[str, Any]:
    if isinstance(data, list) and len(data) == 1:
        data = data[0]
    return data if isinstance(data, dict) else {}


def _open(data: object, layers: list[Mapping[str, Any]]) -> object:
    """Add the error objects of one level, outer first; return what they say, "" when nothing."""
    outer = _unwrap(data)
    if not outer:
        return "" if data in ({}, []) else data
    layers.append(outer)
    inner = _inner(outer)
    if isinstance(inner, str):
        return inner
    if inner is not outer:
        layers.append(inner)
    for name in ("message", "detail", "text", "title"):
        if inner.get(name):
            return inner[name]
    return outer.get("message") or ""


def _inner(outer: Mapping[str, Any]) -> Mapping[str, Any] | str:
    error = outer.get("error")
    if isinstance(error, str) and error:
        return error
    if isinstance(error, dict) and error:
        return error
    errors = outer.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        first: Mapping[str, Any] = errors[0]
        # A number is only unique within its API: mark where it came from.
        return {**first, "reason": f"errors[{first.get('code')}]"}
    fault = outer.get("fault")
    if isinstance(fault, dict) and fault:
        # WSO2 puts the name of the policy into `message` and the sentence into `description`.
        return fault
    return outer


def _nested(message: str) -> object:
    text = message.strip()
    if text[:1] not in {"{", "["} or len(text) > 4 * MAX_TEXT:
        return None
    try:
        data = decode_json(text)
    except ValueError:
        return None
    return data if _unwrap(data) else None


def _string(value: object) -> str:
    return value if isinstance(value, str) else _dump(value)


def _dump(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (ValueError, RecursionError):
        return ""


def _clean(value: object) -> str | None:
    """Return a code or type as text; LiteLLM writes the literal string "None" for null."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    try:
        text = str(value).strip()
    except ValueError:  # more digits than Python converts
        return None
    return None if text.lower() in _NOTHING else text[:256]


def _last(layers: list[Mapping[str, Any]], names: tuple[str, ...]) -> str | None:
    for layer in reversed(layers):
        for name in names:
            text = _clean(layer.get(name))
            if text is not None:
                return text
    return None


def _numbers(layer: Mapping[str, Any]) -> Iterator[int]:
    if layer.get("http_status_code") == 422:
        yield 500  # TGI hard-codes 422 into every in-stream error
    for name in ("code", "status", "statusCode", "http_status_code", "error_code"):
        text = _clean(layer.get(name))
        if text is not None and text.isascii() and text.isdigit() and len(text) <= 5:
            number = PROXY_CODES.get(int(text), int(text)) if name == "error_code" else int(text)
            if 400 <= number <= 599:
                yield number


def _words(layer: Mapping[str, Any]) -> Iterator[str]:
    for name in ("code", "type", "error_type", "error_code", "status", "reason"):
        text = _clean(layer.get(name))
        if text is not None:
            yield text.lower()
    for name in ("details", "innererror", "metadata"):
        part = layer.get(name)
        for entry in part[:16] if isinstance(part, list) else [part]:
            if isinstance(entry, dict):
                yield from (
                    text.lower() for key in ("error_code", "code", "reason") if (text := _clean(entry.get(key)))
                )


def _moderated(layer: Mapping[str, Any]) -> bool:
    metadata = layer.get("metadata")
    return isinstance(metadata, dict) and bool(metadata.get("reasons"))
