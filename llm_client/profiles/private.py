"""The settings whose values are shown to nobody: keys, passwords, headers, query parameters."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from llm_client.profiles import addresses
from llm_client.profiles.expand import FILE, BadReferenceError, literal_part, read_file, refers
from llm_client.profiles.reading import FAILED, Failed, Reading
from llm_client.profiles.scalars import UnreadableError
from llm_client.profiles.secret import MASK, PrivateMap, Secret
from llm_client.profiles.tree import Branch, Leaf, Node, join

# What stands before a key in a header and is none itself.
_SCHEME: Final = re.compile(r"\s*(bearer|basic|token|apikey)?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Private:
    """A secret: written literally, as `${VAR}`, or as `file:/path`. An empty one is none.

    Attributes:
        clean: checks the text, or raises UnreadableError without quoting it.
        is_secret: tells whether a text, written literally, would be a secret.
        from_file: the text is the path of a file.
    """

    clean: Callable[[str], str]
    is_secret: Callable[[str], bool] = bool
    from_file: bool = False
    takes_null: bool = False

    @property
    def takes(self) -> str:
        """What may be written, in words."""
        return "the path of a file" if self.from_file else "a text, ${VARIABLE} or file:/path"

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        """Return a Secret, None for an empty text, or FAILED after reporting why not."""
        if not isinstance(node, Leaf):
            return reading.fail(node, f"expected {self.takes}")
        value: Any = node.value
        reference: str | None = None
        if isinstance(value, Secret):
            reference = value.reference
            value = value.reveal()
        elif callable(unwrap := getattr(value, "get_secret_value", None)):
            value = unwrap()
        if not isinstance(value, str):
            return reading.fail(node, f"expected {self.takes}")
        try:
            return self._read(value, reference, node, path, reading)
        except (UnreadableError, BadReferenceError) as error:
            return reading.fail(node, str(error))

    def _read(self, value: str, reference: str | None, node: Leaf, path: str, reading: Reading) -> Any:
        written = value
        if isinstance(node.value, str):
            expanded = reading.text(node, secret=True)
            if expanded is FAILED:
                return FAILED
            value = expanded
        value = value.strip()
        if self.from_file or value.startswith(FILE):
            place = reading.located(value.removeprefix(FILE))
            reference = f"{FILE}{place}"
            value = _contents(value.removeprefix(FILE), place)
        elif node.is_text and refers(written) and not literal_part(written):
            reference = written.strip()
        value = self.clean(value)
        if not value:
            return None
        if reference is None and self.is_secret(value):
            reading.literals.append(path)
        return Secret(value, reference=reference)

    def json(self) -> dict[str, Any]:
        """Describe it in JSON Schema."""
        return {"type": ["string", "number"]}

    def show(self, value: Any) -> str:
        """Mask it, and tell where it comes from."""
        if value is None:
            return "null"
        return MASK if value.reference is None else f"{MASK} (from {value.reference})"


def _contents(written: str, place: Path) -> str:
    try:
        return read_file(place)
    except BadReferenceError as error:
        # A key written where its file's path belongs must not be quoted.
        where = f" ({place})" if written.startswith(("/", "./", "../", "~")) else ""
        raise BadReferenceError(f"{error}{where}") from None


def api_key() -> Private:
    """An API key."""
    return Private(clean=addresses.key)


def key_file() -> Private:
    """An API key in a file of its own."""
    return Private(clean=addresses.key, from_file=True)


def password() -> Private:
    """A password; blanks inside it count."""
    return Private(clean=str)


def proxy() -> Private:
    """A proxy's URL."""
    return Private(clean=addresses.proxy, is_secret=addresses.has_password)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateTable:
    """Headers or query parameters: a map of names to texts. null takes an inherited name out."""

    headers: bool
    takes_null: bool = False
    takes: str = "a map of names to texts"

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        """Return a PrivateMap, or FAILED after reporting why not."""
        if not isinstance(node, Branch):
            return reading.fail(node, f"expected {self.takes}")
        values: dict[str, str] = {}
        references: dict[str, str] = {}
        literals: set[str] = set()
        ranks: dict[str, tuple[str, int]] = {}
        for name, child in node.items.items():
            at = join(path, name)
            value = self._value(name, child, reading)
            if value is FAILED:
                continue
            # Header names differ by more than case only by mistake, or because a higher layer spells it otherwise.
            folded = name.lower() if self.headers else name
            other, rank = ranks.get(folded, (name, -1))
            if other != name:
                if rank == child.origin.rank:
                    reading.fail(child, f"the same header as {other}; keep one")
                if rank > child.origin.rank:
                    continue
                for table in (values, references):
                    table.pop(other, None)
                literals.discard(other)
            ranks[folded] = (name, child.origin.rank)
            if value is None:
                continue
            values[name] = value
            self._trace(name, child, references, literals)
            reading.note(at, child.origin, MASK)
        if not values:
            reading.note(path, node.origin, "{}")
        reading.literals.extend(join(path, name) for name in sorted(literals))
        return PrivateMap(values, references=references, literals=frozenset(literals))

    def _value(self, name: str, child: Node, reading: Reading) -> Any:
        """Return the value, None for null, or FAILED."""
        try:
            if self.headers:
                addresses.header_name(name)
            if isinstance(child, Leaf) and child.value is None:
                return None
            if not isinstance(child, Leaf) or not isinstance(child.value, str | Secret):
                return reading.fail(child, "expected a text")
            value = child.value.reveal() if isinstance(child.value, Secret) else reading.text(child)
            if isinstance(value, Failed):
                return FAILED
            return addresses.header_value(value) if self.headers else addresses.query_value(value)
        except UnreadableError as error:
            return reading.fail(child, str(error))

    def _trace(self, name: str, child: Node, references: dict[str, str], literals: set[str]) -> None:
        """Remember the reference of a value, or that it is a secret without one."""
        if not isinstance(child, Leaf):
            return
        written = child.value
        if isinstance(written, Secret):
            if written.reference is None:
                literals.add(name)
            else:
                references[name] = written.reference
            return
        if child.is_text and refers(written):
            references[name] = written
        literal = literal_part(written) if child.is_text else written
        if addresses.is_sensitive(name) and _SCHEME.fullmatch(literal) is None:
            literals.add(name)

    def json(self) -> dict[str, Any]:
        """Describe it in JSON Schema."""
        return {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}}

    def show(self, value: Any) -> str:
        """Write the names."""
        return "{}" if not value else "{" + ", ".join(f"{name}: {MASK}" for name in value) + "}"
