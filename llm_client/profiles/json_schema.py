"""The JSON Schema of a profile file, for editors; shipped as profile.schema.json beside this module.

It knows what stands alone: keys, types, words, units. What needs more than one key is left to loading.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from llm_client.profiles.endpoint_schema import SCOPE
from llm_client.profiles.schema import FILE
from llm_client.profiles.section import NOTE
from llm_client.profiles.shapes import Shape, flag, level, per_time, size, span

SHIPPED: Final = Path(__file__).with_name("profile.schema.json")

# Written once and referred to, for they occur often.
_SHARED: Final[dict[str, Shape]] = {
    "duration": span(),
    "size": size(),
    "rate": per_time(),
    "flag": flag(),
    "priority": level(),
    "limits": SCOPE,
}


def json_schema() -> dict[str, Any]:
    """Return the schema, in the draft of 2020-12."""
    schema = FILE.json()
    # A profile named like a note is one.
    schema["properties"]["profiles"]["patternProperties"] = {f"^{NOTE}": {}}
    shared = {name: shape.json() for name, shape in _SHARED.items()}
    shared["reference"] = {
        "description": "A value from the environment: ${VARIABLE} or ${VARIABLE:-default}.",
        "type": "string",
        "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "llm_client profile",
        "description": "Settings of llm_client: what calls share (pool), and how kinds of calls use it (profiles).",
        **_referring(schema, shared),
        "$defs": {name: _inside(each, shared) for name, each in shared.items()},
    }


def text() -> str:
    """Return the schema as the shipped file has it."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


def _referring(schema: Any, shared: dict[str, Any]) -> Any:
    """Put references in place of what is shared."""
    if isinstance(schema, dict):
        bare = {key: value for key, value in schema.items() if key != "description"}
        for name, each in shared.items():
            if bare == each:
                return {**{key: schema[key] for key in schema if key == "description"}, "$ref": f"#/$defs/{name}"}
    return _inside(schema, shared)


def _inside(schema: Any, shared: dict[str, Any]) -> Any:
    if isinstance(schema, dict):
        return {key: _referring(value, shared) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_referring(value, shared) for value in schema]
    return schema
