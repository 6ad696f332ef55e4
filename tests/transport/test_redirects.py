"""Redirects: a key is shown to nobody who did not have it before."""

import pytest
from llm_client.flow.faults import Fault, FaultKind
from tests.transport.kit import busy, post
from tests.transport.rawserver import RawServer, answer

SECRETS = (("Authorization", "Bearer sk-1"), ("api-key", "sk-2"), ("x-own", "sk-3"))


def refused(kit, url, headers=SECRETS):
    """The fault of a request that is redirected where it may not go."""
    transport = kit.make()
    with pytest.raises(Fault) as caught:
        kit.send(transport, post(url, headers=headers))
    kit.tick()
    assert FaultKind.REDIRECT is caught.value.kind
    assert busy(transport) == []
    return str(caught.value)


@pytest.mark.parametrize("status", [307, 308])
def test_the_same_origin_is_followed(kit, status):
    """Method, body and headers are repeated; the connection too."""
    with RawServer([answer(status, Location="/v2/x?a=b")], [answer(body=b"there")]) as server:
        exchange = kit.send(kit.make(), post(server.url("/v1/x"), b"question", headers=SECRETS))

        assert kit.read_all(exchange) == b"there"
        assert [
            (seen.method, seen.target, seen.body, seen.headers["api-key"], seen.connection) for seen in server.requests
        ] == [("POST", "/v1/x", b"question", "sk-2", 0), ("POST", "/v2/x?a=b", b"question", "sk-2", 0)]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "form", ["http://127.0.0.1:{port}/x?sig=secret", "//127.0.0.1:{port}/x", "http://localhost:{port}/x"]
)
def test_another_origin_hears_nothing(kit, status, form):
    """FC-SE-05: other port or other name, also by a network-path reference; the fault shows the target."""
    with RawServer([answer()]) as other:
        location = form.format(port=other.port)
        with RawServer([answer(status, Location=location)]) as server:
            message = refused(kit, server.url())

        assert other.connections == 0
        assert f":{other.port}/x" in message
        assert "secret" not in message
        assert "sk-" not in message


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_post_never_becomes_a_get(kit, status):
    """FC-SE-05: not even on the same origin."""
    with RawServer([answer(status, Location="/v2")]) as server:
        message = refused(kit, server.url())

        assert "change the method" in message
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x", "http://[::1", "http://h:x/"]
)
def test_other_schemes_and_nonsense_are_refused(kit, location):
    """FC-SE-06."""
    with RawServer([answer(307, Location=location)]) as server:
        refused(kit, server.url())

        assert len(server.requests) == 1


def test_a_loop_is_bounded(kit):
    """FC-SE-06: three are followed."""
    with RawServer([answer(307, Location="/again")]) as server:
        message = refused(kit, server.url())

        assert "after 3 redirects" in message
        assert len(server.requests) == 4


def test_https_is_never_left_for_http(kit, tls):
    """FC-SE-06: same host, other scheme; nothing is sent in clear."""
    with RawServer([answer()]) as plain:
        script = [answer(308, Location=f"http://127.0.0.1:{plain.port}/x")]
        with RawServer(script, tls=tls.server) as server:
            transport = kit.make(ca_file=tls.ca_file)
            with pytest.raises(Fault, match="another origin"):
                kit.send(transport, post(server.url(), headers=SECRETS))

        assert plain.connections == 0


def test_a_3xx_without_a_target_is_an_answer(kit):
    """Also one that is no redirect at all."""
    for status in (300, 302, 304, 399):
        with RawServer([answer(status, body=b"" if status == 304 else b"x")]) as server:
            exchange = kit.send(kit.make(), post(server.url()))
            kit.read_all(exchange)

            assert status == exchange.status
