"""Request bodies: arguments in, plain JSON out.

`None` is sent as null, an argument that is not given is not sent, models and dataclasses are dumped: the same
rules as openai-python, so that a call means the same here and there.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import difflib
import enum
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from llm_client.model import UNSET
from llm_client.wire.unicode import clean_tree

__all__ = ["Route", "absent", "dump", "plain"]

SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_FOREIGN_UNSET: Final = frozenset({"Omit", "NotGiven"})


def absent(value: object) -> bool:
    """Tell whether a value means "not given": ours, or the sentinels of openai-python and its kin."""
    kind = type(value)
    if kind in SCALARS:
        return False
    if value is UNSET:
        return True
    return kind.__name__ in _FOREIGN_UNSET and kind.__module__.endswith("._types")


def plain(value: Any) -> Any:
    """Reduce a value to what JSON knows; containers that are plain already are not copied.

    Raises:
        TypeError: something that has no JSON form.
    """
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is dict:
        if SCALARS.issuperset(map(type, value.values())):
            return value
        return {key: plain(item) for key, item in value.items() if not absent(item)}
    if kind is list:
        return value if SCALARS.issuperset(map(type, value)) else [plain(item) for item in value if not absent(item)]
    return _plain_object(value)


def _plain_object(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float):
        return value
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return _plain_container(value)


def _plain_container(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes have no JSON form: encode them as base64 text")
    if isinstance(value, type):
        raise TypeError(f"the class {value.__name__} is not a value: pass an instance")
    if isinstance(value, Mapping):
        return plain(dict(value))
    if isinstance(value, Iterable):
        return plain(list(value))
    raise TypeError(f"{type(value).__name__} has no JSON form: pass dicts, lists, text, numbers or pydantic models")


def dump(body: Mapping[str, Any]) -> bytes:
    """Encode a plain body as UTF-8 JSON. Half a surrogate pair becomes U+FFFD.

    Raises:
        ValueError: NaN or an infinity, which JSON does not have; the message names the field.
    """
    try:
        encoded = to_json(body)
    except PydanticSerializationError:
        encoded = to_json(clean_tree(dict(body)))
    # Both words may stand in a text, so that only a full look decides.
    if b"NaN" in encoded or b"Infinity" in encoded:
        _refuse_nan(body)
    return encoded


def _refuse_nan(body: Mapping[str, Any]) -> None:
    for name, value in body.items():
        try:
            json.dumps(value, allow_nan=False)
        except ValueError as error:
            raise ValueError(f"{name}: JSON has no NaN and no infinity; send a finite number") from error


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The fields one route's body knows.

    Attributes:
        call: how the user calls it, for messages.
        fields: every field with a typed name.
        required: fields without which no server can answer; each entry is a choice of names.
    """

    call: str
    fields: frozenset[str]
    required: tuple[tuple[str, ...], ...] = ()

    def build(self, params: Mapping[str, Any], extra_body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Make the body of one call.

        `extra_body` adds fields at the top level and never changes one that was given by name. It may set
        `stream`: read that from the result.

        Returns:
            plain JSON data; treat it as read-only, parts of it may be the caller's own.

        Raises:
            TypeError: an unknown field, a missing one, a value without a JSON form, or a field given twice
                with different values.
        """
        body: dict[str, Any] = {}
        for name, value in params.items():
            if name not in self.fields:
                raise TypeError(self._unknown(name))
            if not absent(value):
                body[name] = self._plain(name, value)
        if extra_body:
            self._merge(body, extra_body)
        for names in self.required:
            if body.keys().isdisjoint(names):
                raise TypeError(f"{self.call} needs the argument {' or '.join(map(repr, names))}")
        return body

    def _plain(self, name: str, value: Any) -> Any:
        try:
            made = plain(value)
        except TypeError as error:
            raise TypeError(f"{self.call}: {name}: {error}") from error
        # A conversation is often appended to while its call still waits.
        return made.copy() if made is value and type(made) is list else made

    def _merge(self, body: dict[str, Any], extra: Mapping[str, Any]) -> None:
        if not isinstance(extra, Mapping):
            raise TypeError(f"{self.call}: extra_body: expected a mapping of fields, got {type(extra).__name__}")
        for name, value in extra.items():
            if absent(value):
                continue
            made = self._plain(f"extra_body[{name!r}]", value)
            if name in body and body[name] != made:
                raise TypeError(
                    f"{self.call}: {name} was given by name and in extra_body, with different values: give it once"
                )
            body[name] = made

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.fields, n=1)
        guess = f"; did you mean {near[0]!r}?" if near else "."
        return (
            f"{self.call} has no argument {name!r}{guess} "
            f"A field that only your server knows goes in extra_body={{{name!r}: ...}}"
        )
