"""With HTTP/2 and every logger at DEBUG, secrets stood in the log.

The library that compresses HTTP/2 headers logs each of them at DEBUG. It hides the value of `authorization`, but neither
that of `api-key`, nor a header of the user's own, nor the query in the path. Its logger is now left out of a program's
general DEBUG level as soon as HTTP/2 is offered; who sets a level for that logger itself gets what it says.
"""

import logging
import ssl

import pytest
from llm_client import Client
from tests.field.test_client import Everything
from tests.transport.conftest import Tls
from tests.transport.h2server import H2Server, whole
from tests.virtual import completion

CALL = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def hpack():
    """The logger, as a program finds it that does not know of it."""
    log = logging.getLogger("hpack")
    level = log.level
    log.setLevel(logging.NOTSET)
    yield log
    log.setLevel(level)


@pytest.fixture
def everything():
    """What is logged at DEBUG and above, wherever no level of its own is set."""
    handler, root = Everything(), logging.getLogger()
    level = root.level
    root.setLevel(logging.DEBUG)
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


def send(tmp_path):
    """Make a call with secrets in every place."""
    tls = Tls(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.leaf.configure_cert(context)
    context.set_alpn_protocols(["h2"])
    with H2Server(context, lambda connection, stream, _: whole(connection, stream, completion())) as server:
        endpoint = {
            "base_url": server.url.removesuffix("/x"),
            "api_key": "sk-canary",
            "auth": "api-key",
            "headers": {"x-secret": "canary-header"},
            "query": {"sig": "canary-query"},
        }
        http = {"ca_file": tls.ca_file, "http2": True}
        with Client(base_url=None, pool={"endpoints": [endpoint], "http": http}) as client:
            client.chat.completions.create(**CALL)
        assert server.begun


def test_no_secret_is_logged_under_http_2(tmp_path, hpack, everything):
    """FC-SE-01, with HTTP/2."""
    send(tmp_path)

    assert everything.said
    assert not [said for said in everything.said if "canary" in said]


def test_a_level_of_its_own_is_kept(tmp_path, hpack, everything):
    """It was asked for."""
    hpack.setLevel(logging.DEBUG)
    send(tmp_path)

    assert hpack.level == logging.DEBUG
    assert [said for said in everything.said if "canary" in said]
