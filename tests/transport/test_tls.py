"""TLS on both libraries and in both colours: one trust store, and certificates of our own."""

import ssl
import sys

import certifi
import pytest
from llm_client.errors import ConfigError
from llm_client.flow.faults import Fault, FaultKind
from llm_client.profiles.pool_types import ClientCert, HttpSpec
from llm_client.profiles.secret import Secret
from llm_client.transport.trust import Trust
from tests.transport.kit import busy, post
from tests.transport.rawserver import FIN, HANG, LAST, STREAM, RawServer, answer, chunk, event


def test_a_private_authority_is_trusted_by_ca_file(kit, tls):
    """And the connection is kept like any other."""
    with RawServer([answer(body=b"hi")], tls=tls.server) as server:
        transport = kit.make(ca_file=tls.ca_file)
        for _ in range(3):
            assert kit.fetch(transport, server.url()) == b"hi"

        assert [seen.connection for seen in server.requests] == [0, 0, 0]


def test_an_unknown_authority_is_refused(kit, tls):
    """The public authorities did not sign it; the fault says what is wrong, and nothing was sent."""
    with RawServer([answer()], tls=tls.server) as server:
        transport = kit.make()
        with pytest.raises(Fault, match="not trusted") as caught:
            kit.send(transport, post(server.url()))

        assert (caught.value.kind, caught.value.sent) == (FaultKind.TLS, False)
        assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
        assert server.requests == []
        assert busy(transport) == []


def test_a_certificate_for_another_name_is_refused(kit, tls):
    """Signed by the right authority, for the wrong host."""
    with RawServer([answer()], tls=tls.wrong_name) as server:
        with pytest.raises(Fault, match="not trusted") as caught:
            kit.send(kit.make(ca_file=tls.ca_file), post(server.url()))

        assert caught.value.kind is FaultKind.TLS


def test_verify_false_takes_anything(kit, tls):
    """When the user says so."""
    with RawServer([answer()], tls=tls.wrong_name) as server:
        assert kit.fetch(kit.make(verify=False), server.url()) == b"{}"


def test_the_environment_may_name_the_authorities(kit, tls, monkeypatch):
    """SSL_CERT_FILE counts, unless trust_env is off."""
    monkeypatch.setenv("SSL_CERT_FILE", tls.ca_file)
    with RawServer([answer()], tls=tls.server) as server:
        assert kit.fetch(kit.make(), server.url()) == b"{}"
        with pytest.raises(Fault):
            kit.fetch(kit.make(trust_env=False), server.url())


def test_a_client_certificate_is_shown(kit, tls):
    """As two files, or as one."""
    certificates = [ClientCert(cert=tls.client_pem, key=tls.client_key), ClientCert(cert=tls.client_both)]
    with RawServer([answer()], tls=tls.strict) as server:
        for certificate in certificates:
            transport = kit.make(ca_file=tls.ca_file, client_cert=certificate)
            assert kit.fetch(transport, server.url()) == b"{}"
        with pytest.raises(Fault):
            kit.fetch(kit.make(ca_file=tls.ca_file), server.url())


def test_wrong_files_are_refused_when_the_transport_is_made(tmp_path, tls):
    """With the key to correct; a password is not shown."""
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    wrong = ClientCert(cert=tls.client_pem, key=str(empty), password=Secret("pw-1"))
    for spec, path in [
        (HttpSpec(ca_file=str(tmp_path / "none.pem")), "http.ca_file"),
        (HttpSpec(ca_file=str(empty)), "http.ca_file"),
        (HttpSpec(client_cert=ClientCert(cert=str(tmp_path / "none.pem"))), "http.client_cert"),
        (HttpSpec(client_cert=wrong), "http.client_cert"),
    ]:
        with pytest.raises(ConfigError, match=path) as caught:
            Trust(spec)

        assert caught.value.path == path
        assert "pw-1" not in str(caught.value)


def test_both_families_trust_the_same_authorities():
    """Certifi's, loaded at the first TLS connection and not before."""
    bundle = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bundle.load_verify_locations(certifi.where())
    for family in ("httpx", "httpx2"):
        trust = Trust(HttpSpec(family=family, trust_env=False))

        assert not trust.loaded
        assert trust.context.cert_store_stats()["x509_ca"] == 0
        trust.load()
        trust.load()
        assert trust.context.cert_store_stats() == bundle.cert_store_stats()


def test_plain_http_never_loads_the_authorities(kit):
    """Tens of milliseconds that a local server's client need not pay."""
    with RawServer([answer()]) as server:
        transport = kit.make()
        kit.fetch(transport, server.url())

        assert not transport._trust.loaded


def test_large_bodies_both_ways(kit, tls):
    """More than a record, more than a buffer."""
    body = bytes(range(256)) * 8192
    with RawServer(lambda seen: [answer(body=seen.body)], tls=tls.server) as server:
        transport = kit.make(ca_file=tls.ca_file)

        assert kit.read_all(kit.send(transport, post(server.url(), body))) == body


def test_a_stream_over_tls(kit, tls):
    """Piece by piece; closing in the middle is seen at once; a cut is a cut."""
    with RawServer(
        [STREAM, chunk(b"one"), 0.02, chunk(b"two"), LAST],
        [STREAM, event("a"), HANG],
        [STREAM, event("a"), FIN],
        tls=tls.server,
    ) as server:
        transport = kit.make(ca_file=tls.ca_file)
        assert list(kit.pieces(kit.send(transport, post(server.url())))) == [b"one", b"two"]
        exchange = kit.send(transport, post(server.url()))
        kit.read(exchange)
        kit.close(exchange)
        assert server.requests[1].gone.wait(0.5)
        exchange = kit.send(transport, post(server.url()))
        kit.read(exchange)
        with pytest.raises(Fault) as caught:
            kit.read(exchange)

        assert caught.value.kind is FaultKind.EOF
        assert busy(transport) == []


def test_a_dropped_answer_over_tls_disconnects_at_once(kit, tls):
    """Without a word of TLS."""
    with RawServer([STREAM, event("a"), HANG], tls=tls.server) as server:
        exchange = kit.send(kit.make(ca_file=tls.ca_file), post(server.url()))
        kit.read(exchange)
        del exchange

        assert server.requests[0].gone.wait(0.5)
        kit.tick(0.005)


@pytest.mark.skipif(sys.platform == "win32", reason="certificates in a folder of hashed names")
def test_ca_file_may_be_a_folder(tmp_path):
    """OpenSSL's own form of a trust store."""
    assert Trust(HttpSpec(ca_file=str(tmp_path))).loaded
