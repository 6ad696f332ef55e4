"""Bearer tokens that a function gives: asked before each request, once more after a 401."""

from __future__ import annotations

import pytest
from llm_client import AuthenticationError, ConfigError
from llm_client.model import Request
from llm_client.profiles import built_in
from tests.virtual import IDLE, Bench, error_body, status

DENIED = status(401, error_body("token expired"))


def bench(token, **options):
    made = Bench(file=built_in("http://a/v1", token, env={}), **options)
    made.call = _with_headers(made.call)
    return made


def _with_headers(call):
    def make(*arguments, headers=(), **options):
        made = call(*arguments, **options)
        request = made.request
        if not headers:
            return made
        from dataclasses import replace

        return replace(made, request=Request(path=request.path, body=request.body, headers=headers))

    return make


def keys(made):
    return [
        [value for name, value in request.headers if name.lower() in {"authorization", "api-key"}]
        for _, request in made.server.requests
    ]


def test_the_function_is_asked_before_every_request():
    """Keeping a token is its own business."""
    made = bench(iter(["t1", "t2"]).__next__)
    made.start()
    made.run()
    made.start()
    made.run()

    assert keys(made) == [["Bearer t1"], ["Bearer t2"]]


def test_a_401_asks_once_more_and_sends_again_without_an_attempt():
    """Even with one attempt allowed."""
    made = bench(iter(["old", "new"]).__next__, profile={"retry": {"attempts": 1}})
    made.server.script(DENIED)
    result = made.start()
    made.run()

    assert result.ok
    assert keys(made) == [["Bearer old"], ["Bearer new"]]
    assert [(each.status, each.refusal) for each in result.reply.meta.attempts] == [(401, True), (200, False)]
    assert [dict(request.headers)["x-llm-client-attempt"] for _, request in made.server.requests] == ["1", "2"]
    assert made.idle() == IDLE


def test_a_second_401_is_the_answer():
    """Exactly once: a key that is wrong is not asked for ever."""
    made = bench(lambda: "t")
    made.server.script(DENIED, DENIED)
    result = made.start()
    made.run()

    assert isinstance(result.error, AuthenticationError)
    assert len(made.server.requests) == 2
    assert made.idle() == IDLE


def test_a_403_asks_for_no_other_token():
    """The token is right; what it may do is not for a new one to say."""
    made = bench(lambda: "t")
    made.server.script(status(403, error_body("no")))
    made.start()
    made.run()

    assert len(made.server.requests) == 1


@pytest.mark.parametrize("name", ["Authorization", "api-key"])
def test_the_callers_own_key_replaces_it(name):
    """The function is not even asked, and a 401 says that the caller's key is wrong."""
    asked = []
    made = bench(lambda: asked.append(1) or "t")
    made.server.script(DENIED)
    result = made.start(headers=((name, "Bearer tenant"),))
    made.run()

    assert isinstance(result.error, AuthenticationError)
    assert keys(made) == [["Bearer tenant"]]
    assert asked == []


@pytest.mark.parametrize(
    ("given", "told"),
    [(None, "NoneType"), ("", "nothing"), ("Bearer sk-canary", "without 'Bearer'"), ("sk-\u00e9canary", "ASCII")],
)
def test_what_is_no_token_is_told_and_not_quoted(given, told):
    """A ConfigError that names the endpoint; nothing is sent."""
    made = bench(lambda: given)
    result = made.start()
    made.run()

    assert isinstance(result.error, ConfigError)
    assert told in str(result.error)
    assert "canary" not in str(result.error)
    assert made.server.requests == []
    assert made.idle() == IDLE


def test_white_space_around_a_token_is_dropped():
    """It came from a file."""
    made = bench(lambda: " t\n")
    made.start()
    made.run()

    assert keys(made) == [["Bearer t"]]
