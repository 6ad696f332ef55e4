"""Settings made of other settings: a word instead of a value, lists, maps, and shorthand for a map."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llm_client.model import UNSET
from llm_client.profiles.frozen import FrozenMap
from llm_client.profiles.reading import FAILED, Reading
from llm_client.profiles.shapes import Shape
from llm_client.profiles.tree import Branch, Items, Leaf, Node, join


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    """A value, or one of a few words that stand for one, such as `off`.

    Attributes:
        words: word to value, or to a function that makes it.
        null: what null stands for; UNSET: nothing, so that it takes an inherited value out.
    """

    shape: Shape
    words: Mapping[str, Any] = field(default_factory=dict)
    null: Any = UNSET

    @property
    def takes(self) -> str:
        """What may be written, in words."""
        return " | ".join([*self.words, self.shape.takes])

    @property
    def takes_null(self) -> bool:
        """Whether null is a value of its own."""
        return self.null is not UNSET

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        """Return the value, or FAILED after reporting why not."""
        if isinstance(node, Leaf):
            if node.value is None and self.takes_null:
                return self.null
            if isinstance(node.value, str):
                text = reading.text(node)
                if text is FAILED:
                    return FAILED
                if str(text).strip() in self.words:
                    return self.words[str(text).strip()]
            if isinstance(self.shape, Many | Table) or hasattr(self.shape, "keys"):
                return reading.fail(node, f"expected {self.takes}")
        return self.shape.read(node, path, reading)

    def json(self) -> dict[str, Any]:
        """Describe it in JSON Schema."""
        words = [{"enum": list(self.words)}] if self.words else []
        null = [{"type": "null"}] if self.takes_null else []
        return {"anyOf": [*words, *null, self.shape.json()]}

    def show(self, value: Any) -> str:
        """Write a value as YAML would have it."""
        for word, meaning in self.words.items():
            if meaning == value:
                return word
        return "null" if value is None else self.shape.show(value)


def off(shape: Shape, meaning: Any = None) -> Or:
    """A value that `off` or null switches off."""
    return Or(shape=shape, words={"off": meaning}, null=meaning)


def maybe(shape: Shape) -> Or:
    """A value that need not be there."""
    return Or(shape=shape, null=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    """A list.

    Attributes:
        make: what the values become: a tuple, or a frozenset.
        least: entries at least.
        unique: no value twice.
    """

    shape: Shape
    make: Callable[[list[Any]], Any] = tuple
    least: int = 0
    unique: bool = False
    takes_null: bool = False

    @property
    def takes(self) -> str:
        """What may be written, in words."""
        return f"a list of: {self.shape.takes}"

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        """Return the values, or FAILED after reporting why not."""
        if not isinstance(node, Items):
            return reading.fail(node, "expected a list, [a, b] or one entry a line after a hyphen")
        values: list[Any] = []
        for index, child in enumerate(node.items):
            value = self.shape.read(child, join(path, index), reading)
            if value is FAILED:
                continue
            if self.unique and value in values:
                reading.fail(child, f"{self.shape.show(value)} is in the list twice")
                continue
            values.append(value)
        if len(node.items) < self.least:
            return reading.fail(node, "the list is empty; name at least one, or leave the key out")
        return self.make(values)

    def json(self) -> dict[str, Any]:
        """Describe it in JSON Schema."""
        return {"type": "array", "items": self.shape.json(), "minItems": self.least}

    def show(self, value: Any) -> str:
        """Write a value as YAML would have it."""
        shown = [self.shape.show(entry) for entry in value]
        return f"[{', '.join(sorted(shown) if isinstance(value, frozenset) else shown)}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A map with free keys. null takes an inherited entry out."""

    shape: Shape
    entry: str = "name"
    takes_null: bool = False
    least: int = 0

    @property
    def takes(self) -> str:
        """What may be written, in words."""
        return f"a map: {self.entry} to {self.shape.takes}"

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        """Return a FrozenMap, or FAILED after reporting why not."""
        if not isinstance(node, Branch):
            return reading.fail(node, f"expected {self.takes}")
        values: dict[str, Any] = {}
        for name, child in node.items.items():
            if isinstance(child, Leaf) and child.value is None:
                continue
            at = join(path, name)
            value = self.shape.read(child, at, reading)
            if value is FAILED:
                continue
            values[name] = value
            if isinstance(child, Leaf):
                reading.note(at, child.origin, self.shape.show(value) if reading.explain else "")
        if len(values) < self.least:
            return reading.fail(node, "the map is empty; name at least one, or leave the key out")
        if not values:
            reading.note(path, node.origin, "{}")
        return FrozenMap(values)

    def json(self) -> dict[str, Any]:
        """Describe it in JSON Schema."""
        entry = self.shape.json()
        # An editor tells more about a mistake in one schema than about none of two that fit.
        nullable = entry.get("type") == "object"
        either = {**entry, "type": ["object", "null"]} if nullable else {"anyOf": [entry, {"type": "null"}]}
        return {"type": "object", "additionalProperties": either}

    def show(self, value: Any) -> str:
        """Write a value as YAML would have it."""
        return "{" + ", ".join(f"{name}: {self.shape.show(entry)}" for name, entry in value.items()) + "}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """A map, or for its commonest form something shorter.

    Attributes:
        short: how the short form is read.
        long: how the map is read.
        wrap: makes of the short form's value what the map would have given.
        unwrap: the short form's value, or None where only a map can say it.
    """

    short: Shape
    long: Shape
    wrap: Callable[[Any], Any]
    unwrap: Callable[[Any], Any]
    takes_null: bool = False

    @property
    def takes(self) -> str:
        """What may be written, in words."""
        return f"{self.short.takes}, or {self.long.takes}"

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        """Return the value, or FAILED after reporting why not."""
        if isinstance(node, Branch):
            return self.long.read(node, path, reading)
        value = self.short.read(node, path, reading)
        return value if value is FAILED else self.wrap(value)

    def json(self) -> dict[str, Any]:
        """Describe it in JSON Schema."""
        return {"anyOf": [self.short.json(), self.long.json()]}

    def show(self, value: Any) -> str:
        """Write a value as YAML would have it."""
        brief = self.unwrap(value)
        return self.long.show(value) if brief is None else self.short.show(brief)
