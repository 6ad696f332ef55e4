"""Deterministic text, tokens and values for schemas."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_client.server import text
from llm_client.server.sample import sample
from llm_client.server.work import Work, lengths, pieces


def test_answers_stay_the_same_for_ever():
    """Users' tests assert on these words."""
    assert text.answer("hello", 4) == "2cf24dba hazel hollow oxygen"
    assert text.answer("hello", 4, choice=1) != text.answer("hello", 4)
    assert text.natural_length("hello") == 52


def test_no_two_prompts_share_even_the_shortest_answer():
    """One token is enough to tell whose answer it is."""
    answers = {text.answer(f"prompt {number}", 1) for number in range(1000)}

    assert len(answers) == 1000


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=50), st.integers(1, 200))
def test_answer_has_the_tokens_asked_for(prompt, count):
    """Never more, never fewer, and a longer answer continues a shorter one."""
    assert len(text.tokens(prompt, count)) == count
    assert text.tokens(prompt, count + 1)[:count] == text.tokens(prompt, count)


@given(st.text())
def test_token_ids_give_back_the_text(words):
    """Encode and decode are each other's opposite, and the count agrees with them."""
    ids = text.encode(words)

    assert text.decode(ids) == words
    assert len(ids) == (text.count_tokens(words) if words else 0)


def test_prompts_share_the_blocks_of_their_common_start():
    """Sixteen tokens a block, each depending on all before it."""
    one, other = text.prefix_blocks("a" * 128 + "b" * 64), text.prefix_blocks("a" * 128 + "c" * 64)

    assert one[:2] == other[:2]
    assert one[2] != other[2]
    assert text.prefix_blocks("a" * 63) == ()


@given(st.text())
def test_pieces_lose_nothing(words):
    """Cut anywhere, joined again it is the same text."""
    assert "".join(pieces(words)) == words


@pytest.mark.parametrize(
    ("limit", "endless", "least", "expected"),
    [(None, False, 0, (52, 52)), (10, False, 0, (10, 52)), (100, False, 0, (52, 52)), (100, True, 0, (100, 101)),
     (100, False, 70, (70, 70))],
)  # fmt: skip
def test_length_follows_limit_minimum_and_ignore_eos(limit, endless, least, expected):
    """`max_tokens` cuts, `min_tokens` stretches, `ignore_eos` runs to the limit."""
    assert lengths("hello", limit, None, endless=endless, least=least) == expected


def test_fixed_text_is_cut_by_the_limit():
    """A limit of two tokens cuts a text of three, and the reason says so."""
    work = Work(model="m", prompts=("p",), prompt_tokens=1, output_tokens=9, natural=9)
    work.say("one two three", 2)

    assert "".join(work.tokens()) == "one two"
    assert work.finish_reason == "length"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "w"),
        ({"type": "string", "minLength": 3}, "waa"),
        ({"type": "string", "format": "date"}, "2026-01-01"),
        ({"enum": ["b", "a"]}, "b"),
        ({"const": 7}, 7),
        ({"type": "integer", "minimum": 5}, 5),
        ({"type": "number", "exclusiveMinimum": 5}, 6),
        ({"type": "boolean"}, True),
        ({"type": ["null", "string"]}, "w"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, 1),
        ({"type": "array", "items": {"type": "string"}, "minItems": 2}, ["w", "w"]),
        ({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "null"}}}, {"a": "w", "b": None}),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "string"}}}, "w"),
        ("nonsense", "w"),
    ],
)
def test_sample_fits_its_schema(schema, expected):
    """The simplest value the schema accepts."""
    assert sample(schema, "w") == expected


def test_schema_that_refers_to_itself_ends():
    """A tree of trees does not run for ever."""
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}}

    assert "child" in sample(tree)
