"""The JSON Schema for editors says what loading does."""

import json
import re

from llm_client.profiles.hints import paths
from llm_client.profiles.json_schema import SHIPPED, json_schema, text

SCHEMA = json_schema()


def resolved(schema):
    """Follow a reference."""
    reference = schema.get("$ref")
    return SCHEMA["$defs"][reference.rpartition("/")[2]] if reference else schema


def keys(schema, path=""):
    """Iterate over the key paths that a schema knows, as `hints.paths` writes them."""
    schema = resolved(schema)
    for name, below in schema.get("properties", {}).items():
        at = f"{path}.{name}" if path else name
        yield at
        yield from keys(below, at)
    for each in schema.get("anyOf", ()):
        yield from keys(each, path)
    if isinstance(schema.get("items"), dict):
        yield from keys(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from keys(schema["additionalProperties"], f"{path}.<>")


def test_the_shipped_schema_is_in_step():
    """If not: `python -c "from llm_client.profiles import json_schema as s; s.SHIPPED.write_text(s.text())"`."""
    assert SHIPPED.read_text() == text()
    assert json.loads(text()) == SCHEMA


def test_the_schema_knows_every_key():
    """And no other."""
    assert {re.sub(r"<\w+>", "<>", path) for path in paths()} == set(keys(SCHEMA))


def test_the_schema_refuses_unknown_keys_and_allows_notes():
    """In every section."""
    assert SCHEMA["additionalProperties"] is False
    assert SCHEMA["patternProperties"] == {"^x-": {}}


def test_the_schema_tells_meaning_and_default():
    """Where the cursor is."""
    queue = SCHEMA["properties"]["pool"]["properties"]["queue"]["properties"]

    assert queue["size"]["description"] == "Calls that may wait; 0 lets none wait. Default: 10000."
    assert "Default: 10s." in queue["ageing"]["description"]


def test_every_reference_leads_somewhere():
    """No definition is missing, none is idle."""
    used = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(SCHEMA)))

    assert used == set(SCHEMA["$defs"])


def test_patterns_agree_with_the_readers():
    """What an editor accepts as a duration, size or rate is accepted, and what it marks is not."""
    from llm_client.profiles import scalars

    cases = {
        "duration": (scalars.read_span, ["30s", "1m30s", "500 ms", "1.5h"], ["30", "s", "1w", "x"]),
        "size": (scalars.read_size, ["256MB", "1.5 GiB", "10B", "1kB"], ["256", "1mb", "MB"]),
        "rate": (scalars.read_rate, ["600/min", "10 / s", "5/30s", "0.5/hour"], ["600", "/s", "1/week"]),
    }
    for name, (read, right, wrong) in cases.items():
        pattern = SCHEMA["$defs"][name]["anyOf"][0]["pattern"]
        for each in right:
            assert re.search(pattern, each)
            read(each)
        for each in wrong:
            assert not re.search(pattern, each)
            try:
                read(each)
            except ValueError:
                continue
            raise AssertionError(f"{each} was read")
