"""A value that a JSON Schema accepts: what the server puts into tool calls and structured output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DEPTH = 12  # a schema that refers to itself ends here
_FORMATS = {
    "date-time": "2026-01-01T00:00:00Z",
    "date": "2026-01-01",
    "time": "00:00:00Z",
    "duration": "PT1S",
    "email": "user@example.com",
    "uri": "https://example.com",
    "url": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
}


def sample(schema: Any, word: str = "amber") -> Any:
    """The simplest value that fits; the same for the same schema and word.

    Args:
        schema: a JSON Schema; what it does not understand is ignored.
        word: used where any string will do.
    """
    root = schema if isinstance(schema, dict) else {}
    return _value(root, root, word, _DEPTH)


def _value(schema: Any, root: Mapping[str, Any], word: str, depth: int) -> Any:
    if not isinstance(schema, dict) or depth <= 0:
        return None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    if "default" in schema:
        return schema["default"]
    if "$ref" in schema:
        return _value(_resolve(str(schema["$ref"]), root), root, word, depth - 1)
    for key in ("anyOf", "oneOf", "allOf"):
        options = schema.get(key)
        if isinstance(options, list) and options:
            real = [each for each in options if isinstance(each, dict) and each.get("type") != "null"]
            return _value((real or options)[0], root, word, depth - 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    return _of_kind(kind, schema, root, word, depth)


def _of_kind(kind: Any, schema: dict[str, Any], root: Mapping[str, Any], word: str, depth: int) -> Any:
    if kind == "object" or (kind is None and "properties" in schema):
        properties = schema.get("properties")
        items = properties.items() if isinstance(properties, dict) else ()
        return {name: _value(each, root, word, depth - 1) for name, each in items}
    if kind == "array":
        count = max(1, _number(schema.get("minItems"), 1))
        return [_value(schema.get("items", {}), root, word, depth - 1) for _ in range(min(count, 16))]
    if kind in {"integer", "number"}:
        low = _number(schema.get("minimum"), _number(schema.get("exclusiveMinimum"), 0) + 1)
        return min(low, _number(schema.get("maximum"), low))
    if kind == "boolean":
        return True
    if kind == "null":
        return None
    text = _FORMATS.get(str(schema.get("format")), word)
    return text.ljust(min(_number(schema.get("minLength"), 0), 1000), "a")[: _number(schema.get("maxLength"), 1000)]


def _number(value: Any, default: int) -> int:
    return int(value) if isinstance(value, int | float) else default


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    node: Any = root
    for part in reference.removeprefix("#/").split("/"):
        node = node.get(part) if isinstance(node, dict) else None
    return node
