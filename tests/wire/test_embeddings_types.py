"""Embeddings: base64 in, floats out, long inputs in batches."""

from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.errors import InvalidResponseError
from llm_client.wire.embeddings import CreateEmbeddingResponse, build_body, decode, join, split_batches


def packed(*numbers: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def answer(*vectors, **fields) -> CreateEmbeddingResponse:
    rows = [{"object": "embedding", "index": number, "embedding": made} for number, made in enumerate(vectors)]
    return CreateEmbeddingResponse.from_dict({"object": "list", "model": "e", "data": rows, **fields})


def test_base64_is_asked_for_by_default():
    """A named format is left alone."""
    assert build_body({"input": "a"})["encoding_format"] == "base64"
    assert build_body({"input": "a", "encoding_format": "float"})["encoding_format"] == "float"
    assert build_body({"input": "a"}, {"encoding_format": "float"})["encoding_format"] == "float"


def test_base64_becomes_floats():
    """As in openai-python."""
    made = decode(answer(packed(0.5, -1.25), packed(2.0)), {"input": ["a", "b"]})

    assert [row.embedding for row in made.data] == [[0.5, -1.25], [2.0]]


def test_floats_pass_where_the_server_knows_no_base64():
    """It ignored the format."""
    assert decode(answer([0.5]), {"input": "a"}).vectors == [[0.5]]


def test_a_named_format_is_not_decoded():
    """Who asks for base64 gets base64, and `vectors` all the same."""
    made = decode(answer(packed(0.5)), {"input": "a", "encoding_format": "base64"})

    assert packed(0.5) == made.data[0].embedding
    assert made.vectors == [[0.5]]


@pytest.mark.parametrize("text", ["!!!!", "AAA", base64.b64encode(b"12345").decode()])
def test_base64_that_is_no_vector_is_an_error(text):
    """Cut or garbled."""
    with pytest.raises(InvalidResponseError, match="32-bit floats"):
        decode(answer(text), {"input": "a"})


@pytest.mark.parametrize("data", [None, []])
def test_an_answer_without_vectors_is_an_error(data):
    """An empty list is never right."""
    with pytest.raises(InvalidResponseError, match="no vectors"):
        decode(CreateEmbeddingResponse.from_dict({"data": data}), {"input": "a"})


@pytest.mark.parametrize("embedding", [[None], {"a": 1}, ["x"]])
def test_a_vector_that_is_none_is_an_error(embedding):
    """Nothing is guessed here."""
    with pytest.raises(InvalidResponseError, match="embedding"):
        answer(embedding)


@pytest.mark.parametrize("one", ["text", [1, 2, 3], ["a"], [[1, 2]], iter(["a"])])
def test_one_input_is_one_batch(one):
    """A text, or a list of token numbers."""
    expected = list(one) if not isinstance(one, str) and not hasattr(one, "__next__") else one

    batches = split_batches({"input": one, "model": "e"})

    assert len(batches) == 1
    assert batches[0]["model"] == "e"
    assert (expected if not hasattr(one, "__next__") else ["a"]) == batches[0]["input"]


def test_batches_keep_to_both_bounds():
    """By count, and by tokens guessed from bytes or counted from numbers."""
    assert [len(made["input"]) for made in split_batches({"input": list("abcde")}, max_inputs=2)] == [2, 2, 1]
    assert [b["input"] for b in split_batches({"input": ["aaa", "bbb", "ccc"]}, max_tokens=2)] == [
        ["aaa", "bbb"],
        ["ccc"],
    ]
    assert [b["input"] for b in split_batches({"input": [[1, 2], [3], [4]]}, max_tokens=2)] == [[[1, 2]], [[3], [4]]]


def test_an_input_larger_than_the_bound_goes_alone():
    """The server says what it thinks of it."""
    assert [b["input"] for b in split_batches({"input": ["x" * 30, "a"]}, max_tokens=5)] == [["x" * 30], ["a"]]


@given(st.lists(st.text(max_size=9), max_size=30), st.integers(1, 7), st.integers(1, 9))
def test_batches_lose_and_reorder_nothing(texts, inputs, tokens):
    """All inputs, once each, in order, never an empty batch where there are inputs."""
    batches = split_batches({"input": texts}, max_inputs=inputs, max_tokens=tokens)

    assert texts == [text for made in batches for text in made["input"]]
    assert all(made["input"] and len(made["input"]) <= inputs for made in batches if texts)


@pytest.mark.parametrize("bound", [{"max_inputs": 0}, {"max_tokens": 0}])
def test_bounds_below_one_are_refused(bound):
    """They would never end."""
    with pytest.raises(ValueError, match="at least 1"):
        split_batches({"input": ["a"]}, **bound)


def test_joining_counts_indexes_through_and_sums_usage():
    """As if one call had been made; rows out of order are put in order."""
    first = CreateEmbeddingResponse.from_dict(
        {
            "model": "e",
            "data": [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}],
            "usage": {"prompt_tokens": 2, "total_tokens": 2},
        }
    )
    second = answer([3.0], usage={"prompt_tokens": 1, "total_tokens": 1})

    made = join([first, second])

    assert [(row.index, row.embedding) for row in made.data] == [(0, [1.0]), (1, [2.0]), (2, [3.0])]
    assert (made.usage.prompt_tokens, made.usage.total_tokens, made.model) == (3, 3, "e")
    assert [row.index for row in first.data] == [1, 0]


def test_joined_usage_is_unknown_when_a_part_is():
    """Half a sum would pass for a whole one."""
    assert join([answer([1.0], usage={"total_tokens": 1}), answer([2.0])]).usage.total_tokens is None


def test_joining_needs_an_answer():
    """And one is itself."""
    one = answer([1.0])

    assert join([one]) is one
    with pytest.raises(ValueError, match="at least one"):
        join([])
