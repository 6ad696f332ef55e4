"""What was written, before anyone asks what it means: a tree of texts and values that knows where each came from.

YAML files, environment variables and Python mappings become the same tree, so that they are merged, checked and
explained by the same code. Ranks order the layers: what has the higher rank wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

# The layers. A file's `extends` chain takes FILE, FILE + 1, ... from its root up.
BUILT_IN: Final = 0
FILE: Final = 1
ENVIRONMENT: Final = 1000
CONSTRUCTOR: Final = 2000


@dataclass(frozen=True, slots=True)
class Origin:
    """Where something was written.

    Attributes:
        label: for people: a file and line, `environment NAME`, `constructor`, `built-in`.
        path: the key path as it was written there.
        rank: of the layer.
    """

    label: str
    path: str = ""
    file: str | None = None
    line: int | None = None
    rank: int = FILE

    def below(self, step: str | int) -> Origin:
        """Return the same place with one more step of the key path."""
        return replace(self, path=join(self.path, step))


def join(path: str, step: str | int) -> str:
    """Write a key path: `a.b` for a key, `a[0]` for a place in a list."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    return f"{path}.{step}" if path else step


@dataclass(frozen=True, slots=True)
class Leaf:
    """A scalar: text as written (`is_text`), or a Python value. `None` is YAML's null."""

    value: Any
    origin: Origin
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Node, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Branch:
    """A map."""

    items: Mapping[str, Node]
    origin: Origin


Node = Leaf | Items | Branch


def with_rank(node: Node, rank: int) -> Node:
    """Return the same tree as part of another layer."""
    if isinstance(node, Branch):
        return branch_with_rank(node, rank)
    origin = replace(node.origin, rank=rank)
    if isinstance(node, Items):
        return Items(tuple(with_rank(child, rank) for child in node.items), origin)
    return replace(node, origin=origin)


def branch_with_rank(branch: Branch, rank: int) -> Branch:
    """Return the same map as part of another layer."""
    items = {key: with_rank(child, rank) for key, child in branch.items.items()}
    return Branch(items, replace(branch.origin, rank=rank))


def overlay(base: Branch, top: Branch) -> Branch:
    """Lay one map over another: maps merge, everything else replaces.

    A map that names another `kind` than the one beneath replaces it whole, because the settings of one kind mean
    something else, or nothing, under another.
    """
    items = dict(base.items)
    for key, node in top.items.items():
        under = items.get(key)
        if isinstance(node, Branch) and isinstance(under, Branch) and not _other_kind(under, node):
            items[key] = overlay(under, node)
        else:
            items[key] = node
    return Branch(items, top.origin)


def _other_kind(base: Branch, top: Branch) -> bool:
    old, new = base.items.get("kind"), top.items.get("kind")
    return isinstance(old, Leaf) and isinstance(new, Leaf) and old.value != new.value


def from_python(value: Any, origin: Origin) -> Node:
    """Make a tree of Python mappings, lists and values; a value that already is a tree is kept."""
    if isinstance(value, Leaf | Items | Branch):
        return value
    if isinstance(value, Mapping):
        return Branch({str(key): from_python(child, origin.below(str(key))) for key, child in value.items()}, origin)
    if isinstance(value, list | tuple | set | frozenset):
        return Items(tuple(from_python(child, origin.below(index)) for index, child in enumerate(value)), origin)
    return Leaf(value, origin)
