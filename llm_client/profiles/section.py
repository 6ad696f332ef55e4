"""A map with known keys: the sections of a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from typing import Any, Final

from llm_client.model import UNSET
from llm_client.profiles.containers import Or
from llm_client.profiles.reading import FAILED, Failed, Reading
from llm_client.profiles.shapes import Shape
from llm_client.profiles.tree import BUILT_IN, Branch, Leaf, Node, Origin, join

_NOWHERE: Final = Origin("built-in", rank=BUILT_IN)
# Keys that begin so are notes of the writer, anchors for instance.
NOTE: Final = "x-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a section.

    Attributes:
        doc: one sentence for the reference and for editors.
        attr: the attribute it fills, where the name differs.
        default: what holds without it, where the section's record does not say.
        required: must be written.
        only: (key, words): it has an effect only while that key holds one of these words.
        flat: its value is a dict of attributes of the section it stands in.
    """

    name: str
    shape: Shape
    doc: str
    attr: str = ""
    default: Any = UNSET
    required: bool = False
    only: tuple[str, tuple[str, ...]] | None = None
    flat: bool = False

    @property
    def attribute(self) -> str:
        """The attribute it fills."""
        return self.attr or self.name


@dataclass(frozen=True, slots=True)
class Place:
    """Where a section is being read: for the checks that need more than one of its keys."""

    node: Branch
    path: str
    reading: Reading

    def has(self, key: str) -> bool:
        """Tell whether a key was written, and not as null."""
        child = self.node.items.get(key)
        return child is not None and not (isinstance(child, Leaf) and child.value is None)

    def fail(self, key: str, text: str) -> Failed:
        """Report a mistake at one of the section's keys."""
        return self.reading.fail(self.node.items.get(key, self.node), text)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A map with known keys.

    Attributes:
        of: the record it becomes, whose defaults hold for keys that are not written.
        make: makes something else of the values, with the place for its own checks.
        label: names a record where it is one of a list.
    """

    keys: tuple[Key, ...]
    of: type[Any] | None = None
    make: Callable[[dict[str, Any], Place], Any] | None = None
    takes: str = "a map"
    label: Callable[[Any], str] | None = None
    takes_null: bool = field(default=False, init=False)

    @cached_property
    def by_name(self) -> Mapping[str, Key]:
        """The keys by name."""
        return {key.name: key for key in self.keys}

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """What holds for keys that are not written, by attribute."""
        found: dict[str, Any] = {}
        for each in fields(self.of) if self.of is not None else ():
            if each.default is not MISSING:
                found[each.name] = each.default
            elif each.default_factory is not MISSING:
                found[each.name] = each.default_factory()
        return found

    def default(self, key: Key) -> Any:
        """Return what holds without a key; UNSET when nothing does."""
        return key.default if key.default is not UNSET else self.defaults.get(key.attribute, UNSET)

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        """Return the record, or FAILED after reporting why not."""
        if not isinstance(node, Branch):
            return reading.fail(node, f"expected {self.takes}, as key: value")
        place = Place(node, path, reading)
        reading.sections[path] = node.origin
        for name, child in node.items.items():
            if name not in self.by_name and not name.startswith(NOTE):
                reading.fail(child, reading.unknown(name, path, tuple(self.by_name)))
        values: dict[str, Any] = {}
        sound = True
        for key in self.keys:
            value = self._read(key, values, place)
            if value is FAILED:
                sound = False
                values[key.attribute] = FAILED
            elif value is not UNSET:
                values.update(value if key.flat else {key.attribute: value})
        if not sound:
            return FAILED
        if self.make is not None:
            return self.make(values, place)
        return values if self.of is None else self.of(**values)

    def _read(self, key: Key, values: Mapping[str, Any], place: Place) -> Any:
        """Return a key's value, UNSET to leave it to the record, or FAILED."""
        reading, at = place.reading, join(place.path, key.name)
        child = place.node.items.get(key.name) if place.has(key.name) or key.shape.takes_null else None
        if key.only is not None and not self._applies(key, child, values, place):
            return UNSET
        if child is None:
            if key.required:
                return place.reading.fail(place.node, f"`{key.name}` is missing: {key.doc}")
            default = self.default(key)
            section = key.shape.shape if isinstance(key.shape, Or) else key.shape
            if isinstance(section, Section) and default not in getattr(key.shape, "words", {}).values():
                return section.read(Branch({}, _NOWHERE), at, reading)
            if default is not UNSET:
                reading.note(at, _NOWHERE, key.shape.show(default) if reading.explain else "")
            return key.default
        value = key.shape.read(child, at, reading)
        if value is not FAILED and not isinstance(child, Branch):
            reading.note(at, child.origin, key.shape.show(value) if reading.explain else "")
        return value

    def _applies(self, key: Key, child: Node | None, values: Mapping[str, Any], place: Place) -> bool:
        """Tell whether a key has an effect; report it where it was written in vain."""
        name, words = key.only or ("", ())
        ruler = self.by_name[name]
        ruling = values.get(ruler.attribute, self.default(ruler))
        if ruling in words:
            return True
        if ruling is FAILED:
            return False
        # Inherited from a layer below the one that chose otherwise, it is only out of use.
        if child is not None and child.origin.rank >= place.reading.rank(join(place.path, name)):
            shown = ruler.shape.show(ruling)
            place.reading.fail(
                child, f"has no effect while {name} is {shown}; it belongs to {name}: {' or '.join(words)}"
            )
        return False

    def json(self) -> dict[str, Any]:
        """Describe it in JSON Schema."""
        properties: dict[str, Any] = {}
        for key in self.keys:
            described: dict[str, Any] = {"description": key.doc, **key.shape.json()}
            default = self.default(key)
            if default is not UNSET and not isinstance(key.shape, Section):
                described["description"] += f" Default: {key.shape.show(default)}."
            properties[key.name] = described
        schema: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            "patternProperties": {f"^{NOTE}": {}},
            "additionalProperties": False,
        }
        required = [key.name for key in self.keys if key.required and key.only is None]
        conditions = [_condition(*key.only, key.name) for key in self.keys if key.required and key.only is not None]
        if required:
            schema["required"] = required
        if conditions:
            schema["allOf"] = conditions
        return schema

    def show(self, value: Any) -> str:
        """Write a record as YAML would have it, or by its name."""
        if self.label is not None:
            return self.label(value)
        shown = [f"{key.name}: {key.shape.show(getattr(value, key.attribute))}" for key in self.keys]
        return "{" + ", ".join(shown) + "}"


def _condition(ruler: str, words: tuple[str, ...], required: str) -> dict[str, Any]:
    return {
        "if": {"properties": {ruler: {"enum": list(words)}}, "required": [ruler]},
        "then": {"required": [required]},
    }
