"""What a single value of the profile may look like: read strictly, described for editors, written back for people.

YAML texts need their units; Python numbers are seconds, bytes, and amounts per second.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

from llm_client.errors import ConfigError
from llm_client.model import Priority
from llm_client.profiles import scalars
from llm_client.profiles.reading import FAILED, Reading, got
from llm_client.profiles.scalars import UnreadableError
from llm_client.profiles.tree import Branch, Leaf, Node
from llm_client.profiles.types import Rate

REFERENCE: Final = {"$ref": "#/$defs/reference"}
T = TypeVar("T")


class Shape(Protocol):
    """How one setting is read, described and shown."""

    @property
    def takes(self) -> str:
        """What may be written, in words."""

    @property
    def takes_null(self) -> bool:
        """Whether null is a value of its own; otherwise it means "not written"."""

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        """Return the value, or FAILED after reporting why not."""

    def json(self) -> dict[str, Any]:
        """Describe it in JSON Schema."""

    def show(self, value: Any) -> str:
        """Write a value as YAML would have it."""


def _no_value(value: object) -> Any:
    raise UnreadableError(f"{type(value).__name__} does not fit here")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One word or number.

    Attributes:
        of_text: reads a text, or raises UnreadableError.
        of_value: reads a Python value that is no text, or raises UnreadableError.
        private: mistakes are told without quoting what was written.
    """

    takes: str
    of_text: Callable[[str], Any]
    of_value: Callable[[object], Any] = _no_value
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "string"})
    shown: Callable[[Any], str] = str
    private: bool = False
    takes_null: bool = False

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        """Return the value, or FAILED after reporting why not."""
        del path
        if not isinstance(node, Leaf):
            return reading.fail(node, f"expected {self.takes}, got a {'map' if isinstance(node, Branch) else 'list'}")
        value = node.value
        if isinstance(value, str):
            value = reading.text(node)
            if value is FAILED:
                return FAILED
        try:
            return self.of_text(value) if isinstance(value, str) else self.of_value(value)
        except UnreadableError as error:
            return reading.fail(node, str(error) if self.private else f"{error}; {got(node)}")

    def json(self) -> dict[str, Any]:
        """Describe it in JSON Schema."""
        return self.schema

    def show(self, value: Any) -> str:
        """Write a value as YAML would have it."""
        return "null" if value is None else self.shown(value)


def _or_reference(*schemas: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [*schemas, REFERENCE]}


def _finite(value: object, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UnreadableError(f"expected {expected}")
    return value


def _integer(value: object, expected: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UnreadableError(f"expected {expected}")
    return value


def span(*, zero: bool = False) -> Scalar:
    """A duration; float seconds, above 0 unless `zero` is allowed."""
    takes = "a duration" if zero else "a duration above 0"

    def bounded(value: float) -> float:
        if value < 0 or (value == 0 and not zero):
            raise UnreadableError(f"expected {takes}")
        return value

    def of_value(value: object) -> float:
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        return bounded(float(_finite(seconds, "a number of seconds, or a text such as '30s'")))

    pattern = r"^\s*([0-9]+(\.[0-9]+)?\s*(ms|s|min|m|h|d)\s*)+$"
    return Scalar(
        takes=takes,
        of_text=lambda text: bounded(scalars.read_span(text)),
        of_value=of_value,
        schema=_or_reference({"type": "string", "pattern": pattern}),
        shown=scalars.show_span,
    )


def size() -> Scalar:
    """A size; int bytes, at least 1."""

    def bounded(value: int) -> int:
        if value < 1:
            raise UnreadableError("expected a size of at least 1B")
        return value

    return Scalar(
        takes="a size",
        of_text=lambda text: bounded(scalars.read_size(text)),
        of_value=lambda value: bounded(_integer(value, "a whole number of bytes, or a text such as '256MB'")),
        schema=_or_reference({"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*([kKMGT]?B|[KMGT]iB)\s*$"}),
        shown=scalars.show_size,
    )


def whole(least: int = 1, most: int = 10**9) -> Scalar:
    """A whole number."""
    takes = f"a whole number of at least {least}"

    def bounded(value: int) -> int:
        if value < least:
            raise UnreadableError(f"expected {takes}")
        if value > most:
            raise UnreadableError(f"expected a whole number of at most {most}")
        return value

    return Scalar(
        takes=takes,
        of_text=lambda text: bounded(scalars.read_whole(text)),
        of_value=lambda value: bounded(_integer(value, takes)),
        schema=_or_reference({"type": "integer", "minimum": least, "maximum": most}),
    )


def number(least: float = 0.0, most: float = 1e9, *, above: bool = False) -> Scalar:
    """A finite number between two bounds; `above` leaves the lower one out."""
    low = f"above {scalars.show_number(least)}" if above else f"of at least {scalars.show_number(least)}"
    takes = f"a number {low}" if most >= 1e9 else f"a number {low} and at most {scalars.show_number(most)}"

    def bounded(value: float) -> float:
        if value < least or value > most or (above and value == least):
            raise UnreadableError(f"expected {takes}")
        return value

    return Scalar(
        takes=takes,
        of_text=lambda text: bounded(scalars.read_number(text)),
        of_value=lambda value: bounded(float(_finite(value, takes))),
        schema=_or_reference({"type": "number", "exclusiveMinimum" if above else "minimum": least, "maximum": most}),
        shown=scalars.show_number,
    )


def flag() -> Scalar:
    """On or off; a bool."""

    def of_value(value: object) -> bool:
        if not isinstance(value, bool):
            raise UnreadableError("expected true or false")
        return value

    return Scalar(
        takes="true or false",
        of_text=scalars.read_flag,
        of_value=of_value,
        schema=_or_reference({"type": "boolean"}, {"enum": ["on", "off", "yes", "no"]}),
        shown=lambda value: "true" if value else "false",
    )


def word(choices: tuple[str, ...], *, reserved: tuple[str, str] | None = None, private: bool = False) -> Scalar:
    """One of a few words.

    Args:
        choices: the words.
        reserved: a word that is understood and refused, with the reason.
        private: do not quote what was written instead.
    """

    def of_text(text: str) -> str:
        text = text.strip()
        if reserved is not None and text == reserved[0]:
            raise UnreadableError(reserved[1])
        if text not in choices:
            raise UnreadableError(f"expected one of {', '.join(choices)}")
        # A plain str, also where a StrEnum member was given.
        return str(text)

    return Scalar(
        takes=" | ".join(choices),
        of_text=of_text,
        schema=_or_reference({"enum": [*choices, *(() if reserved is None else reserved[:1])]}),
        private=private,
    )


def text() -> Scalar:
    """A text that is not empty, kept as it was typed: `0555567`, `NO` and `2024-02-01` stay what they are."""

    def of_text(value: str) -> str:
        if not value.strip():
            raise UnreadableError("expected a text that is not empty")
        return value

    # YAML 1.2 editors see numbers, dates and booleans where the loader keeps the text.
    return Scalar(takes="a text", of_text=of_text, schema={"type": ["string", "number", "boolean"]})


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePath(Scalar):
    """The path of a file; a relative one starts at the profile's folder."""

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        """Return the absolute path, or FAILED after reporting why not."""
        value = Scalar.read(self, node, path, reading)
        return value if value is FAILED else str(reading.located(value))


def file_path() -> Scalar:
    """The path of a file."""

    def of_text(value: str) -> str:
        if not value.strip():
            raise UnreadableError("expected the path of a file")
        return value.strip()

    def of_value(value: object) -> str:
        if not isinstance(value, os.PathLike):
            raise UnreadableError("expected the path of a file")
        return os.fsdecode(value)

    return FilePath(takes="the path of a file", of_text=of_text, of_value=of_value)


def level() -> Scalar:
    """A priority."""
    takes = "critical | high | normal | low, or 0 to 3"

    def of_value(value: object) -> Priority:
        try:
            return Priority.parse(value)  # type: ignore[arg-type]  # it judges whatever comes
        except ConfigError:
            raise UnreadableError(f"expected {takes} (0 goes first)") from None

    def of_text(value: str) -> Priority:
        return of_value(int(value) if value.strip() in {"0", "1", "2", "3"} else value)

    words = {"enum": ["critical", "high", "normal", "medium", "low"]}
    return Scalar(
        takes=takes,
        of_text=of_text,
        of_value=of_value,
        schema=_or_reference(words, {"type": "integer", "minimum": 0, "maximum": 3}),
        shown=lambda value: Priority(value).name.lower(),
    )


def per_time() -> Scalar:
    """A rate; Python numbers are amounts per second."""

    def bounded(amount: float, period: float) -> Rate:
        if amount <= 0 or period <= 0:
            raise UnreadableError("expected a rate above 0; leave the key out to have no limit")
        return Rate(amount=amount, period=period)

    pattern = r"^\s*[0-9]+(\.[0-9]+)?\s*/\s*[0-9]*(\.[0-9]+)?\s*(s|sec|second|m|min|minute|h|hour|d|day)\s*$"
    return Scalar(
        takes="a rate",
        of_text=lambda text: bounded(*scalars.read_rate(text)),
        of_value=lambda value: bounded(float(_finite(value, "a number per second, or a text such as '600/min'")), 1.0),
        schema=_or_reference({"type": "string", "pattern": pattern}),
        shown=lambda value: scalars.show_rate(value.amount, value.period),
    )


def target() -> Scalar:
    """A Python function, as `module:function`; reading it imports the module. Gives (name, function)."""

    def of_text(value: str) -> tuple[str, Callable[..., Any]]:
        name = value.strip()
        module, _, attribute = name.partition(":")
        if not module or not attribute:
            raise UnreadableError("expected module:function, such as myapp.fallbacks:busy")
        try:
            found: Any = importlib.import_module(module)
        except ImportError as error:
            raise UnreadableError(f"cannot import the module {module} ({error})") from None
        for part in attribute.split("."):
            found = getattr(found, part, None)
        return of_value(found, name)

    def of_value(value: object, name: str = "") -> tuple[str, Callable[..., Any]]:
        if value is None and name:
            raise UnreadableError("the module has no such function (yet): define it before the profile is loaded")
        if not callable(value):
            raise UnreadableError("expected a function")
        kind = type(value)  # a bound built-in has neither name
        module, label = getattr(value, "__module__", kind.__module__), getattr(value, "__qualname__", kind.__name__)
        return name or f"{module}:{label}", value

    return Scalar(
        takes="module:function",
        of_text=of_text,
        of_value=of_value,
        schema=_or_reference({"type": "string", "pattern": r"^[\w.]+:[\w.]+$"}),
        shown=lambda value: str(value[0]),
    )
