"""What a client is constructed with, and what it says to arguments that cannot work."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import httpx
import pytest
from llm_client import AsyncClient, Client, ConfigError, Pool
from tests.client.kit import GOOD, MESSAGES, call
from tests.transport.rawserver import RawServer

URL = "http://gpu-a:8000/v1"
COLOURS = pytest.mark.parametrize("colour", ["sync", "async"])
KINDS = pytest.mark.parametrize("kind", [Client, AsyncClient])


def plan(**arguments):
    return Client(base_url=URL, **arguments)._settings.plan


def test_importing_the_package_loads_no_heavy_library():
    """A script that only catches our errors pays for no pydantic, no HTTP library and no YAML."""
    heavy = {"pydantic", "httpx", "yaml", "tenacity", "pybreaker"}
    code = f"import sys, llm_client; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("timeout", "deadline"),
    [
        (7, 7.0),
        (None, float("inf")),
        (httpx.Timeout(9.0), 9.0),
        (httpx.Timeout(4.0, read=30.0), 30.0),
        (httpx.Timeout(4.0, read=None), float("inf")),
        (httpx.Timeout(None), float("inf")),
        (httpx.Timeout(None, read=3.0), 3.0),
    ],
)
def test_timeout_is_the_deadline(timeout, deadline):
    """openai-python's word, as number or as the HTTP library's object."""
    assert plan(timeout=timeout).deadline == deadline


def test_a_connect_timeout_bounds_connecting():
    """The one part of it that has a setting of its own; it never lengthens the profile's."""
    assert plan(timeout=httpx.Timeout(60.0, connect=0.5)).bounds.connect == 0.5
    assert plan(timeout=httpx.Timeout(60.0)).bounds.connect == 5.0


@pytest.mark.parametrize("timeout", [0, -1, True, "10", float("nan"), httpx.Timeout(0.0)])
def test_a_timeout_that_cannot_work_is_told(timeout):
    """By its name."""
    with pytest.raises(ConfigError, match=r"^timeout: expected seconds > 0"):
        Client(base_url=URL, timeout=timeout)


def test_max_retries_are_further_attempts():
    """None at all also means no second try after a refusal."""
    assert (plan(max_retries=4).retry.attempts, plan(max_retries=4).retry.refusals) == (5, 50)
    assert (plan(max_retries=0).retry.attempts, plan(max_retries=0).retry.refusals) == (1, 0)
    for bad in (-1, 1.5, True, "2"):
        with pytest.raises(ConfigError, match=r"^max_retries: expected an int >= 0"):
            Client(base_url=URL, max_retries=bad)


@KINDS
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("http_client", "llm_client.http_client"),
        ("max_retry", "did you mean 'max_retries'"),
        ("azure_endpoint", "api-version"),
        ("workload_identity", "pass a callable as api_key"),
        ("xyzzy", "it takes pool, profile"),
    ],
)
def test_an_unknown_argument_is_told_what_to_write_instead(kind, name, said):
    """In the constructor, and nearly so in with_options."""
    with pytest.raises(TypeError, match=said):
        kind(base_url=URL, **{name: 1})
    with pytest.raises(TypeError, match="with_options takes no"):
        kind(base_url=URL).with_options(**{name: 1})


def test_other_servers_need_another_client():
    """with_options stays on the pool."""
    with pytest.raises(TypeError, match="make a new client"):
        Client(base_url=URL).with_options(base_url="http://other/v1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"default_headers": {"x-a": "b\r\nx-c: d"}}, "default_headers: the value of 'x-a' has a line break"),
        ({"default_headers": {"x a": "b"}}, "default_headers: 'x a' is not a header name"),
        ({"default_headers": {"x-a": "\u00e9"}}, "outside ASCII"),
        ({"default_headers": {"x-a": b"b"}}, "'x-a' is bytes"),
        ({"default_headers": ["x-a"]}, "default_headers: expected a mapping"),
        ({"default_query": {"a": {}}}, "default_query: 'a' is dict"),
        ({"default_query": "a=b"}, "default_query: expected a mapping"),
        ({"organization": "a\nb"}, "openai-organization"),
        ({"pool": 3}, "pool: expected a Pool or a mapping"),
        ({"profile": 3}, "profile: expected a name or a mapping"),
        ({"pool": {"endpoints": [{"base_url": URL}]}}, "leave out base_url and api_key"),
    ],
)
def test_a_bad_argument_is_told_at_construction(arguments, said):
    """Not at the first call, and not as a broken connection."""
    with pytest.raises(ConfigError, match=said):
        Client(base_url=URL, **arguments)


@KINDS
@pytest.mark.parametrize("key", ["sk-canary b", "sk-\u00e9canary", "sk-canary\nb", "sk-canary\x00"])
def test_fc_cf_10_a_broken_key_is_told_at_construction(kind, key):
    """FC-CF-10: blanks inside and characters outside ASCII are the set-up's mistake; the key is not quoted."""
    with pytest.raises(ConfigError) as caught:
        kind(base_url=URL, api_key=key)

    assert "api_key" in str(caught.value)
    assert "canary" not in str(caught.value)


@COLOURS
@pytest.mark.parametrize(
    ("key", "sent"), [("sk-abc\n", "Bearer sk-abc"), (" sk-abc ", "Bearer sk-abc"), ("", None), (None, None)]
)
def test_fc_cf_10_a_key_is_cleaned_and_an_empty_one_is_none(colour, key, sent):
    """FC-CF-10: outer white space goes; without a key there is no header, for local servers."""
    with RawServer(GOOD) as server:
        call(colour, server, api_key=key)

        assert [seen.headers.get("authorization") for seen in server.requests] == [sent]


@COLOURS
def test_openai_pythons_arguments_go_with_every_call(colour):
    """Headers, query, organization and project."""
    with RawServer(GOOD) as server:
        call(
            colour,
            server,
            default_headers={"X-Team": "a", "x-none": None},
            default_query={"api-version": "1", "tags": ["a", "b"], "on": True, "off": None},
            organization="org",
            project="proj",
        )
        seen = server.requests[0]

        assert [seen.headers[name] for name in ("x-team", "openai-organization", "openai-project")] == [
            "a",
            "org",
            "proj",
        ]
        assert "x-none" not in seen.headers
        assert seen.target == "/v1/chat/completions?api-version=1&tags=a&tags=b&on=true"


@COLOURS
def test_the_environment_says_where_and_with_which_key(colour, monkeypatch):
    """OPENAI_BASE_URL and OPENAI_API_KEY, as openai-python reads them."""
    with RawServer(GOOD) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url("/v1"))
        monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
        call(colour, server, base_url=None)

        assert server.requests[0].headers["authorization"] == "Bearer sk-env"


def test_a_profile_file_wins_over_openai_variables_and_loses_to_arguments(monkeypatch, tmp_path):
    """LLM_CLIENT_PROFILES is ours; base_url is nearer than both."""
    path = tmp_path / "profiles.yaml"
    path.write_text(
        "version: 1\npool: {endpoints: [{name: filed, base_url: 'http://filed/v1'}]}\n"
        "profiles: {slow: {deadline: 1h}}\n"
    )
    monkeypatch.setenv("LLM_CLIENT_PROFILES", str(path))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://env/v1")

    assert [each.name for each in Client(profile="slow").pool.endpoints] == ["filed"]
    assert Client(profile="slow")._settings.plan.deadline == 3600.0
    assert [each.name for each in Client(base_url=URL).pool.endpoints] == ["gpu-a:8000"]
    with pytest.raises(ConfigError, match="LLM_CLIENT_PROFILES"):
        Client(api_key="sk")


def test_without_a_server_the_message_says_how_to_name_one():
    """Three ways."""
    with pytest.raises(ConfigError, match=r"base_url=.*OPENAI_BASE_URL.*LLM_CLIENT_PROFILES"):
        Client()


def test_a_shared_pool_knows_its_servers():
    """And its profiles, by name."""
    pool = Pool(base_url=URL)
    for arguments in ({"base_url": URL}, {"api_key": "k"}, {"profile": {"deadline": 3}}):
        with pytest.raises(ConfigError):
            Client(pool, **arguments)
    with pytest.raises(ConfigError, match="'bulk'"):
        Client(pool, "bulk")


def test_with_options_changes_a_copy_only():
    """Headers add up without regard to case; the pool is the same and stays open."""
    client = Client(base_url=URL, default_headers={"X-Team": "a", "x-b": "c"}, default_query={"v": "1"})
    other = client.with_options(
        timeout=3, max_retries=1, default_headers={"x-team": "z", "x-b": None}, default_query={"w": 2}
    )

    assert other.pool is client.pool
    assert other._settings.headers == (("x-team", "z"),)
    assert other._settings.query == (("v", "1"), ("w", "2"))
    assert (other._settings.plan.deadline, other._settings.plan.retry.attempts) == (3.0, 2)
    assert client._settings.headers == (("X-Team", "a"), ("x-b", "c"))
    assert client._settings.plan.deadline == 600.0
    other.close()
    client.copy(timeout=1).close()
    with RawServer(GOOD) as server:
        owner = Client(base_url=server.url("/v1"))
        owner.with_options(timeout=5).close()

        assert owner.chat.completions.create(model="m", messages=MESSAGES).text == "hello"
        owner.close()


async def _token():
    return "t"


class _Async:
    async def __call__(self):
        return "t"


@pytest.mark.parametrize("function", [_token, _Async()])
def test_an_async_function_under_a_client_for_threads_is_told_at_construction(function):
    """For the key, alone and through a shared pool, for the fallback, and for the drop-in."""
    from llm_client import transport

    with pytest.raises(ConfigError, match="use AsyncClient"):
        Client(base_url=URL, api_key=function)
    pool = Pool(base_url=URL, api_key=function)
    with pytest.raises(ConfigError, match="use AsyncClient"):
        Client(pool)
    with pytest.raises(ConfigError, match="a sync HTTP client"):
        transport(pool)

    assert AsyncClient(pool).pool is pool


def test_the_function_called_transport_stays_one():
    """The package of the same name is loaded with the first pool, and does not take its place."""
    code = (
        "import llm_client; pool = llm_client.Pool(base_url='http://gpu-a/v1'); "
        "print(callable(llm_client.transport), bool(llm_client.transport(pool)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "True True"


@KINDS
def test_clients_are_not_pickled(kind):
    """A sentence instead of a pickle with keys in it, or a copy with half a lock."""
    client = kind(base_url=URL, api_key="sk-canary")
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        for what in (client, client.pool, client.with_options(timeout=1)):
            with pytest.raises(TypeError, match="cannot be pickled") as caught:
                act(what)

            assert "canary" not in str(caught.value)


def test_closing_twice_is_closing_once_and_a_closed_client_says_so():
    """For threads."""
    with RawServer(GOOD) as server:
        client = Client(base_url=server.url("/v1"))
        client.chat.completions.create(model="m", messages=MESSAGES)
        client.close()
        client.close()
        with pytest.raises(RuntimeError, match="the pool is closed"):
            client.chat.completions.create(model="m", messages=MESSAGES)

        assert len(server.requests) == 1


async def test_closing_twice_on_a_loop():
    """The same for event loops; a pool that is shared stays open."""
    with RawServer(GOOD) as server:
        async with Pool(base_url=server.url("/v1")) as pool:
            async with AsyncClient(pool) as client:
                await client.chat.completions.create(model="m", messages=MESSAGES)
            await AsyncClient(pool).chat.completions.create(model="m", messages=MESSAGES)
        client = AsyncClient(base_url=server.url("/v1"))
        await client.chat.completions.create(model="m", messages=MESSAGES)
        await client.close()
        await client.aclose()
        with pytest.raises(RuntimeError, match="the pool is closed"):
            await client.chat.completions.create(model="m", messages=MESSAGES)

        assert len(server.requests) == 3
