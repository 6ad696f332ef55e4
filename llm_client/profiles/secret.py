"""Text that is used on the wire and shown nowhere else: secrets, and header or query values.

Their repr, str, format and hash tell nothing. Pickling keeps the reference a secret came from (`${VAR}`, `file:/path`)
and reads it anew on the other side; a literal secret refuses, because a pickle is clear text that ends up in queues,
caches and crash dumps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from llm_client.profiles.expand import FILE, expand, resolve

MASK: Final = "********"

_LITERAL = (
    "a {what} written literally is never pickled: a pickle is clear text. "
    "Write it in the profile as ${{VARIABLE}} or file:/path, or make the Pool anew in the other process"
)


class Secret:
    """A secret. `reveal()` is the only way to its text.

    Args:
        value: the secret itself.
        reference: where it came from, such as `${VLLM_KEY}` or `file:/run/secrets/key`; None for a literal.
    """

    __slots__ = ("_value", "reference")

    def __init__(self, value: str, *, reference: str | None = None) -> None:
        self._value = value
        self.reference = reference

    def reveal(self) -> str:
        """Return the secret's text; call it where the bytes of a request are made, and nowhere else."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    def __getstate__(self) -> NoReturn:
        raise TypeError(_LITERAL.format(what="secret"))

    def __reduce__(self) -> tuple[Any, ...]:
        if self.reference is None:
            raise TypeError(_LITERAL.format(what="secret"))
        return (_revive, (self.reference,))


def _revive(reference: str) -> Secret:
    return Secret(resolve(reference), reference=reference)


class PrivateMap(Mapping[str, str]):
    """Headers or query parameters: names are shown, values are not, for they may be secrets.

    Args:
        values: name to value, as it goes on the wire.
        references: name to the text the value came from, for the values that hold `${VAR}`.
        literals: names whose value is a secret written literally; they forbid pickling.
    """

    __slots__ = ("_values", "literals", "references")

    def __init__(
        self,
        values: Mapping[str, str] | None = None,
        *,
        references: Mapping[str, str] | None = None,
        literals: frozenset[str] = frozenset(),
    ) -> None:
        self._values = dict(values or {})
        self.references = dict(references or {})
        self.literals = literals

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"PrivateMap({list(self._values)})"

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __copy__(self) -> PrivateMap:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivateMap:
        return self

    def __getstate__(self) -> NoReturn:
        raise TypeError("a PrivateMap is pickled by its references only")

    def __reduce__(self) -> tuple[Any, ...]:
        if self.literals:
            raise TypeError(_LITERAL.format(what=f"secret value ({', '.join(sorted(self.literals))})"))
        plain = {name: value for name, value in self._values.items() if name not in self.references}
        return (_revive_map, (list(self._values), plain, self.references))


def _revive_map(order: list[str], plain: dict[str, str], references: dict[str, str]) -> PrivateMap:
    values = {name: plain[name] if name in plain else _refreshed(references[name]) for name in order}
    return PrivateMap(values, references=references)


def _refreshed(reference: str) -> str:
    # Only a secret may be a file; in a header `file:` is text like any other.
    return resolve(reference) if reference.startswith(FILE) else expand(reference, os.environ).strip()
