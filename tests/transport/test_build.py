"""Whole clients, and what happens when the library is not what we know."""

import subprocess
import sys

import pytest
from llm_client.errors import ConfigError
from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport import build, family
from llm_client.transport.aio import AsyncTransport
from llm_client.transport.net_aio import AsyncBackend
from llm_client.transport.net_sync import SyncBackend
from llm_client.transport.sync import SyncTransport
from tests.transport.kit import pools


def test_a_missing_family_names_its_extra(monkeypatch):
    """The remedy is one line."""
    family.load.cache_clear()
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(ConfigError, match=r"pip install 'resilient-llm-client\[httpx2\]'"):
        family.load("httpx2")
    family.load.cache_clear()


def test_an_unknown_family_names_the_known_ones():
    """No guess."""
    with pytest.raises(ConfigError, match="one of httpx, httpx2, got 'aiohttp'"):
        family.load("aiohttp")


def test_every_pool_has_our_connections(kit, monkeypatch):
    """Those of proxies from the environment too; nobody waits in them, and they retry nothing."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    transport = kit.make()
    if kit.loop is None:
        found, backend = pools(transport), SyncBackend
    else:
        (client,) = transport._spare.clients()
        found = [one._pool for one in (client._transport, *client._mounts.values()) if one]
        backend = AsyncBackend

    assert len(found) == 2
    assert {type(pool._network_backend) for pool in found} == {backend}
    assert {pool._max_connections for pool in found} == {sys.maxsize}
    assert {pool._max_keepalive_connections for pool in found} == {sys.maxsize}
    assert {pool._keepalive_expiry for pool in found} == {4.0}
    assert {pool._retries for pool in found} == {0}
    assert {pool._ssl_context for pool in found} == {transport._trust.context}


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ("HTTPTransport", lambda self, **_: None),  # no pool inside
        ("HTTPTransport", lambda self, **_: setattr(self, "_pool", object())),  # a pool without a backend
    ],
)
def test_a_library_that_was_rebuilt_is_refused(family, monkeypatch, place, change):
    """Loudly and at once, not at the first time-out that does not work."""
    http = build.Family.__module__ and __import__(family)
    for prefix, made in (("", SyncTransport), ("Async", AsyncTransport)):
        monkeypatch.setattr(getattr(http, prefix + place), "__init__", change)
        with pytest.raises(ConfigError, match="built differently"):
            made(HttpSpec(family=family))


def test_http2_without_its_package_names_it(family, monkeypatch):
    """Before anything is sent."""
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=rf"pip install '{family}\[http2\]'"):
        SyncTransport(HttpSpec(family=family, http2=True))


def test_importing_the_transports_imports_no_library():
    """They load when the first transport is made."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "import llm_client.transport.sync, llm_client.transport.aio\n"
        "print(sorted({'httpx', 'httpx2', 'httpcore', 'httpcore2', 'anyio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
