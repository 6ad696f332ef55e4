"""What may be said per call, and what is answered to what makes no sense."""

from __future__ import annotations

import json

import httpx
import pytest
from llm_client import Client, ConfigError, NotFoundError
from tests.client.kit import GOOD, MESSAGES, call, refused
from tests.transport.rawserver import RawServer

COLOURS = pytest.mark.parametrize("colour", ["sync", "async"])
URL = "http://gpu-a:8000/v1"


def create(**options):
    return Client(base_url=URL).chat.completions.create(model="m", messages=MESSAGES, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"deadline": "10"}, "^deadline: expected seconds > 0"),
        ({"deadline": 0}, "^deadline: expected seconds > 0"),
        ({"deadline": True}, "^deadline: "),
        ({"deadline": float("nan")}, "^deadline: "),
        ({"timeout": -1}, "^timeout: expected seconds > 0"),
        ({"timeout": []}, "^timeout: "),
        ({"priority": "urgent"}, "^priority: expected critical"),
        ({"priority": 7}, "^priority: "),
        ({"priority": True}, "^priority: "),
        ({"priority": None}, "^priority: "),
        ({"tenant": 5}, "^tenant: expected a name"),
        ({"tenant": ""}, "^tenant: "),
        ({"extra_body": [1]}, "^extra_body: expected a mapping"),
        ({"extra_body": "x"}, "^extra_body: "),
        ({"extra_headers": ["a"]}, "^extra_headers: expected a mapping"),
        ({"extra_headers": {"x-a": "sk-canary\r\nx-b: c"}}, "^extra_headers: the value of 'x-a'"),
        ({"extra_headers": {"x-a": "sk-canary\u00e9"}}, "^extra_headers: the value of 'x-a'"),
        ({"extra_headers": {"": "b"}}, "^extra_headers: '' is not a header name"),
        ({"extra_headers": {3: "b"}}, "^extra_headers: 3 is not a header name"),
        ({"extra_query": {"a": object()}}, "^extra_query: 'a' is object"),
        ({"extra_query": "a=b"}, "^extra_query: expected a mapping"),
        ({"fallback": 3}, "^fallback: expected None"),
        ({"fallback": {"kind": "static"}}, "^fallback: "),
        ({"fallback": {"kind": "profile", "profile": "nope"}}, "'nope'"),
    ],
)
def test_a_bad_option_is_a_config_error_that_names_it(options, said):
    """Before anything is queued; values that may be secrets are not quoted."""
    with pytest.raises(ConfigError, match=said) as caught:
        create(**options)

    assert "canary" not in str(caught.value)


def test_deadline_and_timeout_together_are_one_too_many():
    """They are names of one thing."""
    with pytest.raises(TypeError, match="give one of the two"):
        create(deadline=1, timeout=1)


@pytest.mark.parametrize(
    "call", [lambda c: c.models.list(foo=1), lambda c: c.health(foo=1), lambda c: c.models.retrieve("m", foo=1)]
)
def test_calls_without_a_body_know_their_arguments_too(call):
    """A misspelt option is not ignored."""
    with pytest.raises(TypeError, match="no argument 'foo'"):
        call(Client(base_url=URL))


@COLOURS
def test_options_go_where_they_belong(colour):
    """None of ours is sent; extras are; a default header can be taken out in any case of its letters."""
    with RawServer(GOOD) as server:
        call(
            colour,
            server,
            default_headers={"X-Team": "a", "x-gone": "b"},
            arguments={
                "priority": "high",
                "deadline": 5,
                "tenant": "t",
                "fallback": None,
                "extra_body": {"priority": 3},
                "extra_headers": {"x-team": "z", "X-Gone": None},
                "extra_query": {"a": 1},
                "stream": None,
            },
        )
        seen = server.requests[0]

        assert json.loads(seen.body) == {"model": "m", "messages": MESSAGES, "priority": 3}
        assert [value for name, value in seen.raw_headers if name.lower() == "x-team"] == ["z"]
        assert "x-gone" not in seen.headers
        assert seen.target.endswith("?a=1")


@COLOURS
def test_an_httpx_timeout_bounds_one_call(colour):
    """As openai-python takes it."""
    with RawServer(GOOD) as server:
        done = call(colour, server, arguments={"timeout": httpx.Timeout(5.0, connect=1.0)})

        assert done.text == "hello"


@COLOURS
@pytest.mark.parametrize(
    ("fallback", "text", "kind"),
    [
        ("sorry", "sorry", "static"),
        (lambda _data, error: f"made of {error.kind}", "made of not_found", "callable"),
        ([lambda _data, _error: None, {"kind": "static", "text": "second"}], "second", "static"),
        ({"kind": "model", "model": "small"}, "hello", "model"),
    ],
)
def test_a_fallback_of_the_call_answers_and_says_so(colour, fallback, text, kind):
    """Text, function, other model, or a chain of them."""
    with RawServer(refused(404), GOOD) as server:
        done = call(colour, server, arguments={"fallback": fallback})

        assert done.text == text
        assert done.meta.fallback == kind
        if kind == "model":
            assert json.loads(server.requests[1].body)["model"] == "small"


@COLOURS
def test_a_call_may_forbid_the_profiles_fallback(colour):
    """None means none."""
    profile = {"fallback": [{"kind": "static", "text": "sorry"}], "fallback_on": ["not_found"]}
    with RawServer(refused(404)) as server:
        assert call(colour, server, profile=profile).text == "sorry"
        with pytest.raises(NotFoundError):
            call(colour, server, profile=profile, arguments={"fallback": None})
