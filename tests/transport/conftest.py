"""The matrix of every transport test: both libraries, both colours."""

import gc
import ssl

import pytest
import trustme
from tests.transport.kit import Kit


@pytest.fixture(params=["httpx-sync", "httpx-async", "httpx2-sync", "httpx2-async"])
def kit(request):
    """A transport maker; on leaving, nothing may be left unclosed."""
    made = Kit(*request.param.split("-"))
    yield made
    made.close_all()


@pytest.fixture(scope="module", autouse=True)
def nothing_left():
    """What was left unclosed complains here, at the latest."""
    yield
    gc.collect()


@pytest.fixture(params=["httpx", "httpx2"])
def family(request):
    """Both libraries."""
    return request.param


class Tls:
    """A certificate authority of the test's own, and what it signed for 127.0.0.1 and localhost."""

    def __init__(self, folder):
        authority = trustme.CA()
        self.ca_file = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(self.ca_file)
        self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.leaf = authority.issue_cert("127.0.0.1", "localhost")
        self.leaf.configure_cert(self.server)
        self.strict = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.ca_file)
        self.strict.verify_mode = ssl.CERT_REQUIRED
        authority.issue_cert("127.0.0.1").configure_cert(self.strict)
        client = authority.issue_cert("client")
        self.client_pem, self.client_key = str(folder / "client.pem"), str(folder / "client.key")
        self.client_both = str(folder / "both.pem")
        client.cert_chain_pems[0].write_to_path(self.client_pem)
        client.private_key_pem.write_to_path(self.client_key)
        client.private_key_and_cert_chain_pem.write_to_path(self.client_both)
        self.wrong_name = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("example.org").configure_cert(self.wrong_name)


@pytest.fixture(scope="session")
def tls(tmp_path_factory):
    """Certificates, made once."""
    return Tls(tmp_path_factory.mktemp("tls"))
