"""Text that can always be encoded."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.wire.unicode import clean, clean_tree

TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("plain", "plain"),
        ("Zoë 🍸", "Zoë 🍸"),
        ("ok \ud83d end", "ok \ufffd end"),
        ("\udf78", "\ufffd"),
        ("\ud83c\udf78", "🍸"),
        ("\ud83c\ud83c\udf78", "\ufffd🍸"),
    ],
)
def test_pairs_join_and_lone_halves_are_replaced(given, expected):
    """A pair in two code points is one character; half of one is U+FFFD."""
    assert expected == clean(given)


@given(TEXT)
def test_clean_text_always_encodes_and_clean_text_is_untouched(text):
    """The result is UTF-8; text without surrogates is the same object."""
    made = clean(text)
    made.encode()

    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        assert made is text


@given(st.recursive(TEXT | st.none() | st.integers(), lambda s: st.lists(s) | st.dictionaries(TEXT, s), max_leaves=8))
def test_trees_encode_and_keep_their_shape(tree):
    """Keys and values at every depth are mended; nothing is lost but halves."""
    made = clean_tree(tree)

    json.dumps(made, ensure_ascii=False).encode()
    assert type(made) is type(tree)


def test_a_clean_tree_is_not_copied():
    """The usual case costs no copy."""
    tree = {"a": [{"b": "Zoë"}], "c": {}}

    assert clean_tree(tree) is tree


def test_broken_keys_are_mended():
    """A model may write a key as well as a value."""
    assert clean_tree([{"\ud83d": 1}]) == [{"\ufffd": 1}]
