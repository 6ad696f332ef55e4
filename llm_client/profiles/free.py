"""A value of any form: what goes into a request's body as it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from llm_client.profiles.frozen import FrozenMap
from llm_client.profiles.reading import FAILED, Reading
from llm_client.profiles.shapes import Shape
from llm_client.profiles.tree import Branch, Items, Node, join

_TAKES: Final = "any value"


@dataclass(frozen=True, slots=True)
class _Anything:
    """Numbers, booleans and null as JSON writes them, lists and maps; every other text is a text."""

    takes: str = _TAKES
    takes_null: bool = False

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        """Return the value, or FAILED after reporting why not."""
        if isinstance(node, Branch):
            inner = {name: self.read(child, join(path, name), reading) for name, child in node.items.items()}
            return FAILED if FAILED in inner.values() else FrozenMap(inner)
        if isinstance(node, Items):
            values = tuple(self.read(child, join(path, at), reading) for at, child in enumerate(node.items))
            return FAILED if FAILED in values else values
        if not isinstance(node.value, str):
            if node.value is None or isinstance(node.value, bool | int | float):
                return node.value
            return reading.fail(node, f"{type(node.value).__name__} does not fit into a JSON body")
        text = reading.text(node)
        if text is FAILED or not node.is_text:
            return text
        import json  # noqa: PLC0415 - a light import

        try:
            return json.loads(str(text))
        except ValueError:
            return text

    def json(self) -> dict[str, Any]:
        """Describe it in JSON Schema."""
        return {}

    def show(self, value: Any) -> str:
        """Write a value as YAML would have it."""
        import json  # noqa: PLC0415 - a light import

        return json.dumps(plain(value), ensure_ascii=False)


def anything() -> Shape:
    """A value of any form."""
    return _Anything()


def plain(value: Any) -> Any:
    """Return what JSON can write of a value that was read."""
    if isinstance(value, FrozenMap):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, tuple) else value
