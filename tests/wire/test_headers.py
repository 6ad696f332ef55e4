"""Headers: any case, repeated names, and the questions that each answer is asked."""

from __future__ import annotations

import pytest
from llm_client.model import Headers
from llm_client.wire.classify import request_id

PAIRS = [("Content-Type", "text/plain"), ("X-Thing", "one"), ("x-thing", "two, three"), ("Empty", "")]


@pytest.mark.parametrize("given", [PAIRS, tuple(PAIRS), iter(PAIRS)])
def test_repeated_names_are_joined_and_kept(given):
    """RFC 9110 section 5.3 for a look-up; every value in order for whoever asks."""
    headers = Headers(given)

    assert headers["x-THING"] == "one, two, three"
    assert headers.get_list("X-thing") == ["one", "two, three"]
    assert headers.pairs == tuple(PAIRS)
    assert list(headers) == ["content-type", "x-thing", "empty"]


def test_a_look_up_in_vain_gives_the_default_and_an_empty_value_does_not():
    """An empty header is there."""
    headers = Headers(PAIRS)

    assert headers.get("EMPTY", "x") == ""
    assert headers.get("Missing") is None
    assert headers.get("Missing", "x") == "x"
    assert headers.get_list("missing") == []
    with pytest.raises(KeyError):
        headers["missing"]


def test_a_mapping_and_other_headers_are_taken_as_well():
    """`Headers` is a mapping itself; what was repeated stays joined."""
    assert Headers({"A": "b"})["a"] == "b"
    assert Headers(Headers(PAIRS)).get("x-thing") == "one, two, three"


def test_names_that_all_lack_are_told_at_once():
    """Lower-case names, against names in any case."""
    headers = Headers(PAIRS)

    assert headers.lacks(frozenset({"x-request-id", "cf-ray"}))
    assert not headers.lacks(frozenset({"cf-ray", "x-thing"}))


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], None),
        ([("Server", "x")], None),
        ([("CF-Ray", "ray")], "ray"),
        ([("cf-ray", "ray"), ("X-Request-ID", "first")], "first"),
    ],
)
def test_the_request_id_is_the_first_of_those_known(pairs, expected):
    """The server's own before the gateway's."""
    assert request_id(Headers(pairs)) == expected
