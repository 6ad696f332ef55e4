"""YAML text to the tree of what was written; the only importer of PyYAML.

Of YAML we take the grammar and nothing else: scalars stay the text that was typed, because YAML 1.1 would turn `NO`,
`0600` and `2024-02-01` into something else. A key written twice is a mistake; a key that overrides a `<<` merge is not.
"""

from __future__ import annotations

import re
from typing import Any, Final

from llm_client.profiles.problems import Problems
from llm_client.profiles.tree import FILE, Branch, Items, Leaf, Node, Origin, join

# PyYAML's stubs leave a node's value untyped, and its import is not paid for before it is needed.
YamlNode = Any

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_CORE: Final = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value", "map", "seq")
)
_MERGE: Final = "tag:yaml.org,2002:merge"
_QUOTED: Final = re.compile(r"'([^']*)'")
# Aliases can blow a few lines up to billions of nodes; deep nesting can exhaust the stack. No profile needs either.
_MOST_NODES: Final = 20_000
_DEEPEST: Final = 40
_LONGEST: Final = 1_000_000


def compose(text: str, source: str, *, problems: Problems, path: str = "", file: str | None = None) -> Node | None:
    """Read YAML text.

    Args:
        text: one YAML document.
        source: what to call it in messages.
        problems: takes the mistakes.
        path: where the document stands, for a document that is one value of a larger tree.
        file: the file's path, if it is one.

    Returns:
        The tree; None for an empty document or one that is no YAML.
    """
    here = Origin(source, path, file)
    if len(text) > _LONGEST:
        problems.add(here, "larger than a megabyte: this is no profile")
        return None
    import yaml  # noqa: PLC0415 - a client that is given a base URL never needs it

    loader_class: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loader = loader_class(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = None if mark is None else mark.line + 1
        told = (getattr(error, "context", None), getattr(error, "problem", None), getattr(error, "reason", None))
        what = _QUOTED.sub(_short_quote, ", ".join(part for part in told if part) or "unreadable")
        problems.add(_origin(source, file, line, path), f"not valid YAML: {what}")
        return None
    except RecursionError:
        problems.add(here, "nested too deeply: this is no profile")
        return None
    if root is None:
        return None
    return _Converter(source, file, problems).convert(root, path)


def _short_quote(match: re.Match[str]) -> str:
    """Keep a quoted character or two; more may be a part of a key that the parser stumbled over."""
    return match.group() if len(match.group(1)) < 3 else "..."


def _origin(source: str, file: str | None, line: int | None, path: str) -> Origin:
    return Origin(source if line is None else f"{source}, line {line}", path, file, line, FILE)


class _Converter:
    """PyYAML's node graph to our tree."""

    def __init__(self, source: str, file: str | None, problems: Problems) -> None:
        self._source = source
        self._file = file
        self._problems = problems
        self._left = _MOST_NODES
        self._depth = 0
        self._hopeless = False

    def convert(self, node: YamlNode, path: str, key: YamlNode | None = None) -> Node:
        """Convert a node; a part that cannot be used becomes null and is reported.

        Args:
            node: the node.
            path: its key path.
            key: the node of its key, in whose line people look for it.
        """
        origin = self._origin(key or node, path)
        self._left -= 1
        if self._left < 0 or self._depth > _DEEPEST:
            # Aliases that contain themselves end here as well. One report is enough.
            if not self._hopeless:
                self._problems.add(origin, "too many levels or aliases: this is no profile")
            self._hopeless = True
            self._left = 0
            return Leaf(None, origin)
        if node.tag not in _CORE:
            self._problems.add(origin, "YAML tags (!word) have no meaning here; write the value itself")
            return Leaf(None, origin)
        self._depth += 1
        try:
            if node.id == "mapping":
                return self._branch(node, origin)
            if node.id == "sequence":
                return Items(tuple(self.convert(item, join(path, at)) for at, item in enumerate(node.value)), origin)
        finally:
            self._depth -= 1
        # A plain scalar: the parser in C says "" where the one in Python says None.
        if not node.style and node.value in _NULL:
            return Leaf(None, origin)
        return Leaf(node.value, origin, is_text=True)

    def _branch(self, node: YamlNode, origin: Origin) -> Branch:
        lines: dict[str, int] = {}
        written: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                for name, child in self._merged(value, origin.path):
                    merged.setdefault(name, child)
                continue
            line = key.start_mark.line + 1
            if key.id != "scalar" or (not key.style and key.value in _NULL):
                self._problems.add(self._origin(key, origin.path), "a key must be a word")
                continue
            name = key.value
            place = self._origin(key, join(origin.path, name))
            if name in lines:
                self._problems.add(place, f"written twice: in line {lines[name]} and in line {line}; keep one")
                continue
            lines[name] = line
            written[name] = self.convert(value, place.path, key)
        return Branch({**{name: child for name, child in merged.items() if name not in written}, **written}, origin)

    def _merged(self, value: YamlNode, path: str) -> list[tuple[str, Node]]:
        """Read what `<<` brings: one map, or a list of maps of which the first wins."""
        found: list[tuple[str, Node]] = []
        for source in value.value if value.id == "sequence" else [value]:
            if source.id == "mapping":
                branch = self.convert(source, path)
                found.extend(branch.items.items() if isinstance(branch, Branch) else ())
            else:
                self._problems.add(self._origin(source, path), "<< takes a map, or a list of maps")
        return found

    def _origin(self, node: YamlNode, path: str) -> Origin:
        return _origin(self._source, self._file, node.start_mark.line + 1, path)
