"""What goes along while a tree is read: the environment, the mistakes found so far, and who set what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from llm_client.profiles.expand import BadReferenceError, expand, refers
from llm_client.profiles.problems import Problems
from llm_client.profiles.tree import BUILT_IN, Leaf, Node, Origin


class Failed(Enum):
    """The sentinel of "reported, nothing to use"."""

    FAILED = "failed"


FAILED: Final = Failed.FAILED
_SHOWN: Final = 60


class Row(NamedTuple):
    """One effective setting: its key path, its value as YAML would write it, and who set it."""

    path: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A row before it is written out."""

    origin: Origin
    shown: str


class Reading:
    """The context of one reading.

    Args:
        env: the environment that `${VAR}` refers to.
        folder: relative `file:` references start here.
        problems: takes the mistakes.
        explain: write out each setting's value; costs time, so only on demand.
    """

    def __init__(self, env: Mapping[str, str], folder: Path, problems: Problems, *, explain: bool = False) -> None:
        self.env = env
        self.folder = folder
        self.problems = problems
        self.explain = explain
        self.settings: dict[str, Setting] = {}
        # Where each section that was written stands.
        self.sections: dict[str, Origin] = {}
        # Key paths of secrets that are written literally.
        self.literals: list[str] = []

    def fail(self, node: Node | Origin, text: str) -> Failed:
        """Report a mistake."""
        self.problems.add(node if isinstance(node, Origin) else node.origin, text)
        return FAILED

    def text(self, leaf: Leaf, *, secret: bool = False) -> str | Failed:
        """Return a text with the environment's values put in."""
        try:
            return expand(leaf.value, self.env, empty_is_unset=secret) if leaf.is_text else str(leaf.value)
        except BadReferenceError as error:
            return self.fail(leaf, str(error))

    def unknown(self, name: str, path: str, local: Sequence[str]) -> str:
        """Say that a key is not known, and which one was meant."""
        # Loaded for a mistake only: comparing words costs an import.
        from llm_client.profiles.hints import unknown  # noqa: PLC0415

        return unknown(name, path, local)

    def located(self, path: str) -> Path:
        """Return a file's absolute path; a relative one starts at the profile's folder."""
        return (self.folder / Path(path).expanduser()).absolute()

    def note(self, path: str, origin: Origin, shown: str = "") -> None:
        """Remember who set what."""
        self.settings[path] = Setting(origin, shown)

    def origin(self, path: str) -> Origin:
        """Tell where a key path was set."""
        setting = self.settings.get(path)
        found = self.sections.get(path) if setting is None else setting.origin
        return found if found is not None and found.rank > BUILT_IN else Origin("built-in", path, rank=BUILT_IN)

    def rank(self, path: str) -> int:
        """Tell the layer that set a key path."""
        setting = self.settings.get(path)
        return BUILT_IN if setting is None else setting.origin.rank

    def rows(self) -> list[Row]:
        """Write out who set what."""
        return [Row(path, setting.shown, setting.origin.label) for path, setting in self.settings.items()]


def got(leaf: Leaf) -> str:
    """Quote what was written, shortened; a reference is quoted as such, never with its value."""
    if not isinstance(leaf.value, str):
        return f"got {type(leaf.value).__name__} {leaf.value!r}"[:_SHOWN]
    text = leaf.value if len(leaf.value) <= _SHOWN else f"{leaf.value[:_SHOWN]}..."
    return f"got the value of {text}" if leaf.is_text and refers(leaf.value) else f"got {text!r}"
