"""YAML's grammar without YAML's surprises."""

import pytest
import yaml
from llm_client.profiles.compose import compose
from llm_client.profiles.problems import Problems
from llm_client.profiles.tree import Branch, Items, Leaf
from tests.profiles.helpers import mistakes, read


@pytest.fixture(params=["C", "Python"], autouse=True)
def parser(request, monkeypatch):
    """Both parsers of PyYAML: not every build has the one in C."""
    if request.param == "C":
        pytest.importorskip("yaml.cyaml", exc_type=ImportError)
    else:
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)


def tree(text):
    """Return the tree of a text that has no mistake."""
    problems = Problems()
    node = compose(text, "f.yaml", problems=problems)
    problems.check()
    return node


def plain(node):
    """Return a tree without origins."""
    if isinstance(node, Branch):
        return {key: plain(child) for key, child in node.items.items()}
    return [plain(child) for child in node.items] if isinstance(node, Items) else node.value


def test_scalars_stay_the_text_that_was_typed():
    """Words, dates and odd numbers that YAML 1.1 would turn into something else."""
    text = "{a: NO, on: yes, c: 0600, d: 2024-02-01, e: 1:30, f: 1_000, g: 'x', h: 1e3, i: .inf}"

    found = plain(tree(text))

    assert found == {
        "a": "NO",
        "on": "yes",
        "c": "0600",
        "d": "2024-02-01",
        "e": "1:30",
        "f": "1_000",
        "g": "x",
        "h": "1e3",
        "i": ".inf",
    }


def test_null_is_null_only_when_it_is_plain():
    """A quoted word is a word."""
    assert plain(tree("{a: null, b: ~, c: , d: 'null', e: \"~\", f: ''}")) == {
        "a": None,
        "b": None,
        "c": None,
        "d": "null",
        "e": "~",
        "f": "",
    }


def test_nodes_know_their_line_and_path():
    """The line is that of the key, where people look."""
    found = tree("a:\n  b:\n    - c: 1\n    - d:\n        2\n")

    assert isinstance(found, Branch)
    inner = found.items["a"].items["b"].items[1].items["d"]

    assert isinstance(inner, Leaf)
    assert (inner.origin.label, inner.origin.path, inner.origin.line) == ("f.yaml, line 4", "a.b[1].d", 4)


def test_a_key_written_twice_is_told_with_both_lines():
    """The last one does not win without a word."""
    said = mistakes("pool:\n  queue:\n    size: 5\n    ageing: 3s\n    size: 6\n")

    assert said == "<string>, line 5: pool.queue.size: written twice: in line 3 and in line 5; keep one"


def test_a_merge_key_may_be_overridden():
    """What `<<` brings is a default."""
    text = "x-a: &a {size: 5, ageing: 3s}\nx-b: &b {size: 6, max_bytes: 1MB}\npool: {queue: {<<: [*a, *b], ageing: 4s}}"

    queue = read(text).pool.queue

    assert (queue.size, queue.ageing, queue.max_bytes) == (5, 4.0, 1_000_000)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [1", "not valid YAML"),
        ("a: b: c", "not valid YAML: mapping values are not allowed"),
        ("a: *nowhere", "not valid YAML"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
        ("a: \x00", "not valid YAML"),
        ("a: !env KEY", "YAML tags (!word) have no meaning here"),
        ("a: !!python/object:os.system x", "YAML tags (!word) have no meaning here"),
        ("? [a]\n: b", "a key must be a word"),
        ("~: b", "a key must be a word"),
        ("<<: [1]", "<< takes a map"),
        ("- a\n- b", "expected a map with the keys version, pool and profiles"),
        ("a: &a [*a]", "too many levels or aliases"),
        ("a: &a {b: *a}", "too many levels or aliases"),
        ("a: " + "[" * 60 + "]" * 60, "too many levels or aliases"),
        ("a: 1\n" * 300_000, "larger than a megabyte"),
    ],
)
def test_what_is_no_profile_is_refused(text, told):
    """Broken YAML, tags, odd keys, endless aliases, great depth, great size."""
    assert told in mistakes(text)


def test_aliases_cannot_blow_up():
    """Nine levels of nine aliases would be 387 million nodes."""
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]

    assert "too many levels or aliases" in mistakes("\n".join(levels))


def test_the_parser_s_complaint_quotes_nothing_long():
    """It may have stumbled over a key."""
    said = mistakes("pool: {endpoints: [{base_url: 'http://h', api_key: *canary-sk-1234}]}")

    assert "canary" not in said
    assert "line 1" in said


def test_deep_nesting_does_not_exhaust_the_stack():
    """Neither in C nor in Python."""
    assert "not valid YAML" in mistakes("[" * 500) or "nested" in mistakes("[" * 500)


def test_an_empty_document_is_the_built_in_profile():
    """Nothing written, nothing changed."""
    assert read("").pool == read("# only a comment\n").pool == read("pool:\nprofiles:\n").pool
