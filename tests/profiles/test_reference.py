"""The reference page and the example profiles say what loading does."""

import re
from pathlib import Path

import pytest
from llm_client.model import UNSET
from llm_client.profiles.containers import Many, Or, Short, Table
from llm_client.profiles.hints import paths
from llm_client.profiles.load import load
from llm_client.profiles.schema import FILE
from llm_client.profiles.section import Section

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "profile.md"
EXAMPLES = sorted((ROOT / "examples" / "profiles").glob("*.yaml"))
HEAD = "| key | meaning | takes | default |\n|---|---|---|---|"


def inner(shape, path):
    """Return the section inside a shape, with the path of its keys."""
    if isinstance(shape, Section):
        return shape, path
    if isinstance(shape, Or):
        return inner(shape.shape, path)
    if isinstance(shape, Short):
        return inner(shape.long, path)
    if isinstance(shape, Many):
        return inner(shape.shape, f"{path}[]")
    if isinstance(shape, Table):
        return inner(shape.shape, f"{path}.<{shape.entry}>")
    return None, path


def row(section, key):
    """Write a key as the page has it."""
    default = section.default(key)
    only = f" Only with `{key.only[0]}: {' or '.join(key.only[1])}`." if key.only else ""
    whole_section = isinstance(key.shape, Or) and isinstance(key.shape.shape, Section) and default is not None
    if isinstance(key.shape, Section) or whole_section or (isinstance(key.shape, Table) and not default):
        held = ""
    elif key.required:
        held = "required"
    elif default is UNSET or default == "":
        held = ""
    else:
        held = f"`{key.shape.show(default)}`"
    takes = key.shape.takes.replace(" | ", ", ")
    return f"| `{key.name}` | {key.doc}{only} | {takes} | {held} |"


def tables(section=FILE, path=""):
    """Iterate over the page's tables: where they belong, and what they say."""
    yield path, "\n".join([HEAD, *(row(section, key) for key in section.keys)])
    for key in section.keys:
        below, at = inner(key.shape, f"{path}.{key.name}" if path else key.name)
        if below is not None:
            yield from tables(below, at)


@pytest.mark.parametrize(("path", "table"), list(tables()), ids=lambda each: each if "|" not in each else "")
def test_the_page_has_every_table(path, table):
    """Key, meaning, what it takes, default; the same sections of limits and rates are told once."""
    assert table in PAGE.read_text()


def test_the_page_names_every_section():
    """So that a key path of a message is found."""
    text = PAGE.read_text()
    sections = {path for path, _ in tables() if path}

    assert set() == {path for path in sections if f"`{path}`" not in text}


def test_the_tables_name_every_key():
    """None is forgotten by the walk above."""
    named = set()
    for path, table in tables():
        for name in re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE):
            named.add(f"{path}.{name}" if path else name)

    assert named == set(paths())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_valid(path):
    """With nothing set but the keys that have no default."""
    file = load(path, env={"AZURE_KEY": "k"})

    assert file.pool.endpoints
    assert file.profiles["default"].deadline


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_holds_no_secret(path):
    """Nothing that looks like a key, and nothing that forbids pickling."""
    assert not load(path, env={"AZURE_KEY": "k"}).recipe.literals
    assert "sk-" not in path.read_text()


def test_the_page_s_profiles_are_valid(tmp_path):
    """Every YAML block that is a whole file."""
    blocks = re.findall(r"^```yaml[^\n]*\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    whole = [block for block in blocks if block.startswith("version:")]
    env = {"VLLM_A": "http://a", "VLLM_B": "http://b", "VLLM_KEY": "k"}

    assert whole
    for block in whole:
        (tmp_path / "p.yaml").write_text(block)
        assert load(tmp_path / "p.yaml", env=env).profiles
