"""Whose key, under which name, at which address: rotating tokens, Azure-style endpoints, aliases, tenants' keys."""

from __future__ import annotations

import json

import pytest
from llm_client import AsyncClient, AuthenticationError, Client, Pool, http_client
from tests.client.kit import GOOD, MESSAGES, call, refused, streamed
from tests.transport.rawserver import RawServer

COLOURS = pytest.mark.parametrize("colour", ["sync", "async"])
DENIED = refused(401, "token expired", "invalid_api_key")


def keys(server):
    return [(seen.headers.get("authorization"), seen.headers.get("api-key")) for seen in server.requests]


def rotating(colour, *tokens):
    left = list(tokens)
    if colour == "sync":
        return lambda: left.pop(0)

    async def ask():
        return left.pop(0)

    return ask


@COLOURS
def test_a_rotating_token_is_renewed_once_after_a_401(colour):
    """Asked before sending, asked again after the 401, sent again once; it costs no attempt."""
    with RawServer(DENIED, GOOD) as server:
        done = call(colour, server, api_key=rotating(colour, "old", "new"), max_retries=0)

        assert done.text == "hello"
        assert keys(server) == [("Bearer old", None), ("Bearer new", None)]
        assert [(each.status, each.refusal) for each in done.meta.attempts] == [(401, True), (200, False)]


@COLOURS
def test_a_second_401_is_raised(colour):
    """Two requests and no third."""
    with RawServer(DENIED) as server:
        with pytest.raises(AuthenticationError):
            call(colour, server, api_key=rotating(colour, "a", "b", "c"))

        assert [key for key, _ in keys(server)] == ["Bearer a", "Bearer b"]


def test_a_sync_function_serves_a_loop_too():
    """It is called there."""
    with RawServer(GOOD) as server:
        call("async", server, api_key=lambda: "t")

        assert keys(server) == [("Bearer t", None)]


def test_a_pool_takes_a_function_as_well():
    """And gives its tokens to every client, the drop-in included, whose own key is not sent."""
    with RawServer(GOOD) as server, Pool(base_url=server.url("/v1"), api_key=lambda: "t") as pool:
        Client(pool).chat.completions.create(model="m", messages=MESSAGES)
        with http_client(pool) as http:
            http.post(
                "http://x/v1/chat/completions",
                json={"model": "m", "messages": MESSAGES},
                headers={"authorization": "Bearer sdk"},
            ).raise_for_status()

        assert keys(server) == [("Bearer t", None), ("Bearer t", None)]


def azure(server, **more):
    base_url = f"{server.url('')}/openai/deployments/gpt"
    return {
        "base_url": base_url,
        "api_key": "sk-azure",
        "auth": "api-key",
        "query": {"api-version": "2024-10-21"},
        "path": "as_is",
        **more,
    }


@COLOURS
def test_an_azure_style_endpoint(colour):
    """Its key in `api-key`, its version in the query, its path as it is, for plain calls and for streams."""
    with RawServer(GOOD, streamed("a")) as server:
        pool = {"endpoints": [azure(server)]}
        done = call(colour, server, base_url=None, pool=pool)
        call(colour, server, base_url=None, pool=pool, arguments={"extra_query": {"x": "1"}, "stream": True})

        assert done.text == "hello"
        assert keys(server) == [(None, "sk-azure")] * 2
        assert [seen.target for seen in server.requests] == [
            "/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
            "/openai/deployments/gpt/chat/completions?api-version=2024-10-21&x=1",
        ]


@COLOURS
def test_each_endpoint_has_its_own_names_for_models(colour):
    """The caller says one name; each server is asked for what it knows, and who knows none is not asked."""
    with RawServer(GOOD) as first, RawServer(GOOD) as second:
        pool = {
            "endpoints": [
                {"name": "a", "base_url": first.url("/v1"), "models": {"large": "org/large-70b", "small": "s"}},
                {"name": "b", "base_url": second.url("/v1"), "models": {"small": "small-v2"}},
            ]
        }
        done = call(colour, first, base_url=None, pool=pool, arguments={"model": "large"})
        for _ in range(6):
            call(colour, first, base_url=None, pool=pool, arguments={"model": "small"})

        assert done.meta.endpoint == "a"
        names = [json.loads(seen.body)["model"] for seen in first.requests]
        assert names[0] == "org/large-70b"
        assert set(names[1:]) <= {"s"}
        assert {json.loads(seen.body)["model"] for seen in second.requests} <= {"small-v2"}
        assert len(first.requests) + len(second.requests) == 7


@COLOURS
@pytest.mark.parametrize("endpoint", ["bearer", "api-key", "callable"])
def test_a_tenants_own_key_replaces_the_endpoints(colour, endpoint):
    """Per call, in whichever header: the endpoint's key is not shown beside it, and no token is asked for."""
    asked = []
    with RawServer(GOOD) as server:
        way = {
            "bearer": {"api_key": "sk-ours"},
            "api-key": {"api_key": "sk-ours", "auth": "api-key"},
            "callable": {"auth": {"callable": lambda: asked.append(1) or "sk-ours"}},
        }[endpoint]
        pool = {"endpoints": [{"base_url": server.url("/v1"), **way}]}
        for headers in ({"authorization": "Bearer sk-tenant"}, {"API-Key": "sk-tenant"}):
            call(colour, server, base_url=None, pool=pool, arguments={"extra_headers": headers})

        assert keys(server) == [("Bearer sk-tenant", None), (None, "sk-tenant")]
        assert asked == []


def test_a_view_with_a_key_of_its_own():
    """`with_options(api_key=...)` for a tenant; the original keeps the pool's."""
    with RawServer(GOOD) as server, Client(base_url=server.url("/v1"), api_key="sk-ours") as client:
        client.with_options(api_key=" sk-tenant\n").chat.completions.create(model="m", messages=MESSAGES)
        client.chat.completions.create(model="m", messages=MESSAGES)

        assert [key for key, _ in keys(server)] == ["Bearer sk-tenant", "Bearer sk-ours"]


MEASURED = {"measure_first_token": True}


@COLOURS
def test_a_plain_call_is_streamed_under_the_hood(colour):
    """The same typed result, and the first token's time beside it."""
    with RawServer(streamed("The answer", " is 42.")) as server:
        done = call(colour, server, profile=MEASURED)

        assert (done.text, done.object, done.choices[0].finish_reason) == (
            "The answer is 42.",
            "chat.completion",
            "stop",
        )
        assert 0 < done.meta.first_token < 5
        assert json.loads(server.requests[0].body)["stream"] is True


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_the_drop_in_gets_plain_json_from_a_stream_under_the_hood(asynchronous):
    """An SDK that asked for no stream sees a JSON answer with a JSON content type and the right length."""
    with RawServer(streamed("The answer")) as server, Pool(base_url=server.url("/v1"), profile=MEASURED) as pool:
        request = {"url": "http://x/v1/chat/completions", "json": {"model": "m", "messages": MESSAGES}}
        if asynchronous:
            async with http_client(pool, asynchronous=True) as http:
                response = await http.post(**request)
        else:
            with http_client(pool) as http:
                response = http.post(**request)

        assert response.headers["content-type"] == "application/json"
        assert response.json()["choices"][0]["message"]["content"] == "The answer"
        assert json.loads(server.requests[0].body)["stream"] is True
        await pool.aclose()


async def test_a_wish_of_the_drop_ins_caller_that_cannot_be_read_is_a_400():
    """Not a broken connection that the SDK tries again."""
    with RawServer(GOOD) as server, Pool(base_url=server.url("/v1")) as pool, http_client(pool) as http:
        response = http.post(
            "http://x/v1/chat/completions", json={"model": "m"}, headers={"x-llm-client-priority": "urgent"}
        )

        assert (response.status_code, response.headers["x-should-retry"]) == (400, "false")
        assert "priority" in response.json()["error"]["message"]
        assert server.requests == []


async def test_many_tokens_for_many_calls_on_one_loop():
    """Each call asks for its own."""
    import asyncio

    count = iter(range(100))

    async def ask():
        await asyncio.sleep(0)
        return f"t{next(count)}"

    with RawServer(GOOD) as server:
        async with AsyncClient(base_url=server.url("/v1"), api_key=ask) as client:
            await asyncio.gather(*(client.chat.completions.create(model="m", messages=MESSAGES) for _ in range(5)))

        assert sorted(key for key, _ in keys(server)) == [f"Bearer t{number}" for number in range(5)]
