"""Proxies: tunnels for https, forwarding for http, from settings or from the environment."""

import asyncio
import time

import pytest
from llm_client.errors import ConfigError
from llm_client.flow.faults import Fault, FaultKind
from llm_client.profiles.pool_types import HttpSpec
from llm_client.profiles.secret import Secret
from llm_client.transport.aio import AsyncTransport
from llm_client.transport.sync import SyncTransport
from tests.transport.kit import CLOCK, busy, post
from tests.transport.proxy import Proxy
from tests.transport.rawserver import HANG, STREAM, RawServer, answer, event


def test_https_goes_through_a_tunnel(kit, tls):
    """CONNECT with the proxy's password, then TLS to the server, then many requests; the proxy sees no key."""
    with Proxy() as proxy, RawServer([answer(body=b"hi")], tls=tls.server) as server:
        url = proxy.url.replace("http://", "http://me:pw@")
        transport = kit.make(ca_file=tls.ca_file, proxy=Secret(url))
        for _ in range(2):
            exchange = kit.send(transport, post(server.url(), headers=(("Authorization", "Bearer sk-1"),)))
            assert kit.read_all(exchange) == b"hi"

        assert [first for first, _ in proxy.asked] == [f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"]
        assert proxy.asked[0][1]["proxy-authorization"] == "Basic bWU6cHc="
        assert "authorization" not in proxy.asked[0][1]
        assert "proxy-authorization" not in server.requests[0].headers
        assert exchange.reused


def test_http_is_forwarded(kit):
    """The proxy gets the whole URL."""
    with Proxy() as proxy, RawServer([answer(body=b"hi")]) as server:
        assert kit.fetch(kit.make(proxy=Secret(proxy.url)), server.url("/v1/x")) == b"hi"

        assert proxy.asked[0][0] == f"POST {server.url('/v1/x')} HTTP/1.1"


def test_a_proxy_reached_by_https(kit, tls):
    """TLS to the proxy, and TLS to the server inside it; one trust store for both."""
    with Proxy(tls=tls.server) as proxy, RawServer([answer(body=b"hi")], tls=tls.server) as server:
        transport = kit.make(ca_file=tls.ca_file, proxy=Secret(proxy.url))

        assert [kit.fetch(transport, server.url()) for _ in range(2)] == [b"hi", b"hi"]
        assert len(proxy.asked) == 1


def test_the_environment_names_a_proxy_and_its_exceptions(kit, monkeypatch):
    """HTTP_PROXY and NO_PROXY count, unless trust_env is off."""
    with Proxy() as proxy, RawServer([answer(body=b"hi")]) as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        kit.fetch(kit.make(), server.url())
        assert len(proxy.asked) == 1
        kit.fetch(kit.make(trust_env=False), server.url())
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        kit.fetch(kit.make(), server.url())

        assert len(proxy.asked) == 1


def test_a_proxy_of_the_environment_is_held_to_our_authorities(kit, tls, monkeypatch):
    """Not to those of the library."""
    with Proxy(tls=tls.server) as proxy, RawServer([answer(body=b"hi")], tls=tls.server) as server:
        monkeypatch.setenv("https_proxy", proxy.url)

        assert kit.fetch(kit.make(ca_file=tls.ca_file), server.url()) == b"hi"
        assert len(proxy.asked) == 1


@pytest.mark.parametrize("status", [407, 503])
def test_a_proxy_that_refuses(kit, status):
    """Not sent; the fault names the proxy's status, and no password."""
    with Proxy(refuse=status) as proxy:
        transport = kit.make(proxy=Secret(proxy.url.replace("http://", "http://me:pw-1@")))
        with pytest.raises(Fault, match=f"the proxy answered {status}") as caught:
            kit.send(transport, post("https://127.0.0.1:1/"))

        assert (caught.value.kind, caught.value.sent) == (FaultKind.CONNECT, False)
        assert "pw-1" not in str(caught.value)
        assert busy(transport) == []


def test_a_proxy_that_does_not_answer(kit):
    """Waiting for the tunnel is connecting: the connect time-out counts, and nothing was sent."""
    with Proxy(silent=True) as proxy:
        transport = kit.make(proxy=Secret(proxy.url))
        with pytest.raises(Fault) as caught:
            kit.send(transport, post("https://127.0.0.1:1/"), connect=0.05)

        assert (caught.value.kind, caught.value.sent) == (FaultKind.CONNECT_TIMEOUT, False)
        assert busy(transport) == []


def test_a_proxy_that_is_not_there(kit):
    """Refused, like a server."""
    with Proxy() as proxy:
        pass
    with pytest.raises(Fault) as caught:
        kit.send(kit.make(proxy=Secret(proxy.url)), post("https://127.0.0.1:1/"))

    assert (caught.value.kind, caught.value.sent) == (FaultKind.CONNECT_REFUSED, False)


def test_a_dropped_answer_disconnects_through_a_tunnel(kit, tls):
    """The proxy passes the end on."""
    with Proxy() as proxy, RawServer([STREAM, event("a"), HANG], tls=tls.server) as server:
        exchange = kit.send(kit.make(ca_file=tls.ca_file, proxy=Secret(proxy.url)), post(server.url()))
        kit.read(exchange)
        del exchange

        assert server.requests[0].gone.wait(0.5)
        kit.tick(0.005)


async def test_cancelled_while_the_tunnel_is_made_it_is_never_sent(family):
    """The proxy's own request is not the request."""
    with Proxy(silent=True) as proxy:
        transport = AsyncTransport(HttpSpec(family=family, proxy=Secret(proxy.url)))
        until = time.monotonic() + 5
        task = asyncio.create_task(transport.send(post("https://127.0.0.1:1/"), until=until, connect=0.3, clock=CLOCK))
        while not proxy.asked:
            await asyncio.sleep(0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert sum(len(lane.tasks) for lane in transport._lanes.values()) == 1
        await asyncio.sleep(0.35)
        assert busy(transport) == []
        await transport.aclose()


@pytest.mark.parametrize(
    "proxy", ["127.0.0.1:3128", "ftp://x", "socks5://127.0.0.1:1", "http://[::1", "http://u:sk-1@h:x"]
)
def test_a_proxy_that_makes_no_sense_is_refused_at_once(family, proxy):
    """With the key to correct, and no password."""
    for made in (SyncTransport, AsyncTransport):
        with pytest.raises(ConfigError, match=r"http\.proxy") as caught:
            made(HttpSpec(family=family, proxy=Secret(proxy)))

        assert "sk-1" not in str(caught.value)
