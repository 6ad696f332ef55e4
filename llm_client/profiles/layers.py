"""Who overrides whom: a profile's `extends` chain, then the environment, then the constructor.

    built-in  <  profile file  <  environment  <  constructor  <  call

A call's own arguments come last and are not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from llm_client.errors import ConfigError
from llm_client.profiles.compose import compose
from llm_client.profiles.problems import Problems
from llm_client.profiles.tree import (
    CONSTRUCTOR,
    ENVIRONMENT,
    FILE,
    Branch,
    Leaf,
    Node,
    Origin,
    branch_with_rank,
    from_python,
    overlay,
    with_rank,
)
from llm_client.profiles.types import DEFAULT

# LLM_CLIENT_POOL__QUEUE__SIZE=500, LLM_CLIENT_PROFILE__RETRY__ATTEMPTS=2
_PREFIX: Final = "LLM_CLIENT_"
_STEP: Final = "__"
_NULL: Final = frozenset({"", "null", "~"})
PRECEDENCE: Final = ("built-in", "profile file", "environment", "constructor", "call")


@dataclass(frozen=True, slots=True)
class Layers:
    """Everything that was said about a file's settings, lowest first.

    Attributes:
        document: the file's tree, or one made from a base URL; None where there is none.
        changes: what constructors said, as (pool, profile) trees in the order in which they were said.
    """

    document: Node | None
    changes: tuple[tuple[Branch | None, Branch | None], ...] = ()


def changes(
    pool: Mapping[str, Any] | None, profile: Mapping[str, Any] | None, step: int
) -> tuple[Branch | None, Branch | None]:
    """Make trees of what a constructor was given; later steps win over earlier ones.

    Raises:
        ConfigError: one of them is no mapping.
    """
    return _change(pool, "pool", step), _change(profile, "profile", step)


def _change(mapping: Mapping[str, Any] | None, path: str, step: int) -> Branch | None:
    if mapping is None:
        return None
    made = from_python(mapping, Origin("constructor", path, rank=CONSTRUCTOR + step))
    if not isinstance(made, Branch):
        raise ConfigError(f"{path}: expected a mapping of settings, got {type(mapping).__name__}", path=path)
    return made


def merged(layers: Layers, env: Mapping[str, str], problems: Problems) -> Branch:
    """Lay all layers over one another.

    Returns:
        The tree of a file in which every profile is whole and nothing extends anything.
    """
    document = layers.document
    if document is None:
        document = Branch({}, Origin("", ""))
    elif not isinstance(document, Branch):
        problems.add(document.origin, "expected a map with the keys version, pool and profiles")
        document = Branch({}, document.origin)
    pool_changes, profile_changes = environment(env, problems)
    pools = [pool_changes, *(pool for pool, _ in layers.changes)]
    every = [profile_changes, *(profile for _, profile in layers.changes)]
    for change in every:
        if change is not None and "extends" in change.items:
            problems.add(change.items["extends"].origin, "only a profile of a file can extend another")
    items = dict(document.items)
    items["pool"] = _stacked(_section(document, "pool"), pools)
    profiles = _section(document, "profiles")
    if isinstance(profiles, Branch):
        written = {name: node for name, node in profiles.items.items() if not name.startswith("x-")}
        written.setdefault(DEFAULT, Branch({}, Origin("built-in", f"profiles.{DEFAULT}", rank=0)))
        whole = {name: _stacked(_resolved(name, written, problems), every) for name in written}
        items["profiles"] = Branch(whole, profiles.origin)
    return Branch(items, document.origin)


def _section(document: Branch, name: str) -> Node:
    """Return a section; one that is not written, or null, is an empty map."""
    node = document.items.get(name)
    if node is None or (isinstance(node, Leaf) and node.value is None):
        return Branch({}, Origin("built-in", name, rank=0))
    return node


def _stacked(base: Node, tops: Iterable[Branch | None]) -> Node:
    for top in tops:
        if top is not None:
            base = overlay(base, top) if isinstance(base, Branch) else base
    return base


def _resolved(name: str, profiles: Mapping[str, Node], problems: Problems) -> Node:
    """Return a profile with everything it inherits; ranks rise from the root of the chain."""
    chain: list[Branch] = []
    seen: list[str] = []
    at: str | None = name
    while at is not None:
        node = profiles[at]
        seen.append(at)
        if isinstance(node, Leaf) and node.value is None:
            node = Branch({}, node.origin)
        if not isinstance(node, Branch):
            # Its section reports what it should have been.
            return node
        chain.append(node)
        at = _base(node, seen, profiles, problems)
    whole = chain[-1]
    for depth, node in enumerate(reversed(chain[:-1]), start=1):
        whole = overlay(whole, branch_with_rank(node, FILE + depth))
    return whole


def _base(node: Branch, seen: list[str], profiles: Mapping[str, Node], problems: Problems) -> str | None:
    """Return the name of the profile that another one extends."""
    base = node.items.get("extends")
    if base is None or (isinstance(base, Leaf) and base.value is None):
        return None
    if not isinstance(base, Leaf) or not isinstance(base.value, str):
        problems.add(base.origin, "expected the name of one profile")
        return None
    name = base.value.strip()
    if name in seen:
        circle = seen[seen.index(name) :]
        # One report, at one place, for all that stand in the circle.
        if name == min(circle):
            problems.add(base.origin, f"extends itself in a circle: {' -> '.join([*circle, name])}")
        return None
    if name not in profiles:
        problems.add(base.origin, f"no profile {name!r} in this file; there are: {', '.join(profiles)}")
        return None
    return name


def environment(env: Mapping[str, str], problems: Problems) -> tuple[Branch | None, Branch | None]:
    """Read LLM_CLIENT_POOL__... and LLM_CLIENT_PROFILE__...; the latter hold for every profile.

    Returns:
        What they say about the pool, and about profiles.
    """
    found: dict[str, dict[str, Any]] = {"pool": {}, "profile": {}}
    for variable in sorted(env):
        if not variable.startswith(_PREFIX):
            continue
        section, *steps = variable[len(_PREFIX) :].lower().split(_STEP)
        origin = Origin(f"environment {variable}", ".".join([section, *steps]), rank=ENVIRONMENT)
        if section not in found or not steps or not all(steps):
            # LLM_CLIENT_PROFILES, which names a file, is not one of these.
            if section in found or section.startswith(("pool_", "profile_")):
                text = "write a level after each double underscore, as in LLM_CLIENT_POOL__QUEUE__SIZE"
                problems.add(Origin(origin.label), text)
            continue
        place = found[section]
        for step in steps[:-1]:
            below = place.setdefault(step, {})
            if not isinstance(below, dict):
                problems.add(origin, "another variable sets the section that this one is in; keep one of them")
                break
            place = below
        else:
            place[steps[-1]] = _value(variable, env[variable], origin, problems)
    return _variables(found["pool"], "pool"), _variables(found["profile"], "profile")


def _value(variable: str, text: str, origin: Origin, problems: Problems) -> Node:
    """Make a tree of a variable's text: a YAML list or map in brackets, or one value."""
    text = text.strip()
    if text.startswith(("[", "{")):
        node = compose(text, origin.label, problems=problems, path=origin.path)
        return Leaf(None, origin) if node is None else with_rank(node, ENVIRONMENT)
    if text in _NULL:
        return Leaf(None, origin)
    # By reference, so that a secret among them is treated as one from the environment, which it is.
    return Leaf(f"${{{variable}}}", origin, is_text=True)


def _variables(found: dict[str, Any], path: str) -> Branch | None:
    if not found:
        return None
    made = from_python(found, Origin("environment", path, rank=ENVIRONMENT))
    return made if isinstance(made, Branch) else None
