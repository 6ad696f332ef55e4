"""Mistakes, collected so that all of them are told at once, and never with a value that may be a secret."""

from __future__ import annotations

from dataclasses import dataclass

from llm_client.errors import ConfigError
from llm_client.profiles.tree import Origin


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where, and a sentence that says what was expected."""

    label: str
    path: str
    text: str
    file: str | None
    line: int | None

    def told(self) -> str:
        """Tell it in one line."""
        return ": ".join(part for part in (self.label, self.path, self.text) if part)


class Problems:
    """A collector of mistakes."""

    def __init__(self) -> None:
        # The same mistake seen through two heirs of one profile counts once.
        self._found: dict[Problem, None] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, origin: Origin, text: str) -> None:
        """Note a mistake."""
        self._found[Problem(origin.label, origin.path, text, origin.file, origin.line)] = None

    def check(self) -> None:
        """Raise what was found.

        Raises:
            ConfigError: with every mistake in its text, and the place of the first as attributes.
        """
        if not self._found:
            return
        found = sorted(self._found, key=lambda problem: problem.line or 0)
        told = [problem.told() for problem in found]
        message = told[0] if len(told) == 1 else "\n  ".join([f"{len(told)} mistakes in the profile:", *told])
        first = found[0]
        raise ConfigError(message, file=first.file, line=first.line, path=first.path or None)
