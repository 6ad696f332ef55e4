"""What the network does, and the word that comes of it."""

import contextlib
import gc
import socket
import ssl
import threading
import time
import weakref

import pytest
from llm_client.flow.faults import Fault, FaultKind
from llm_client.transport import faults
from llm_client.transport.attempt import Attempt
from llm_client.transport.family import FAMILIES, exceptions, load
from llm_client.transport.faults import CORE_MEANINGS, MEANINGS, translate
from tests.transport.kit import CLOCK, busy, post
from tests.transport.rawserver import FIN, HANG, RESET, STREAM, RawServer, answer, event, head


def fault_of(kit, transport, request, **options):
    """Send and read to the end; return the fault that comes."""
    with pytest.raises(Fault) as caught:
        kit.read_all(kit.send(transport, request, **options))
    kit.tick(0.005)
    assert busy(transport) == []
    return caught.value


def test_every_exception_of_a_family_has_a_meaning(family):
    """A class that the library adds must be looked at before it is shipped."""
    found = load(family)
    upper = {error.__name__ for error in found.errors}
    lower = {error.__name__ for error in exceptions(found.core)}

    assert set() == upper - set(MEANINGS)
    assert lower == {name for name in upper if hasattr(found.core, name)} | set(CORE_MEANINGS)


def test_no_meaning_is_left_over():
    """A name that neither library has is a misspelling."""
    names = {error.__name__ for name in FAMILIES for error in load(name).errors}

    assert set() == set(MEANINGS) - names


def test_every_exception_of_a_family_becomes_a_fault(family):
    """Whatever is raised, before or after the request went out, the gate lets nothing else through."""
    found = load(family)
    for error_type in (*found.errors, *exceptions(found.core)):
        for sent in (False, True):
            attempt = Attempt(CLOCK, time.monotonic() + 5, 5)
            attempt.sent = sent
            error = error_type.__new__(error_type)
            Exception.__init__(error, "Bearer secret")
            fault = translate(error, attempt)

            assert isinstance(fault, Fault)
            assert sent is fault.sent
            assert "secret" not in str(fault)


def test_an_unknown_exception_becomes_a_fault_too():
    """A bug of the library must not pass for a bug of the caller; the fault says where it was raised."""
    attempt = Attempt(CLOCK, time.monotonic() + 5, 5)
    try:
        {}["sk-secret"]
    except KeyError as error:
        fault = translate(error, attempt)

    assert fault.kind is FaultKind.OTHER
    assert "unexpected KeyError in test_faults.py:" in str(fault)
    assert "sk-secret" not in str(fault)


def test_connection_refused(kit):
    """Certainly not sent; the system's error is the cause."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    fault = fault_of(kit, kit.make(), post(f"http://127.0.0.1:{port}/v1/x?key=secret"))

    assert (fault.kind, fault.sent) == (FaultKind.CONNECT_REFUSED, False)
    assert isinstance(fault.__cause__, ConnectionRefusedError)
    assert f"http://127.0.0.1:{port}/v1/x: the server refused" in str(fault)
    assert "secret" not in str(fault)


def test_localhost_is_refused_on_every_address(kit):
    """A name with two addresses gives one fault."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert FaultKind.CONNECT_REFUSED is fault_of(kit, kit.make(), post(f"http://localhost:{port}/")).kind


def test_a_name_with_a_dead_address_first_is_reached_by_the_second(kit, monkeypatch):
    """Both colours try the next address."""
    with RawServer([answer()]) as server:
        info = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        found = [(*info, ("127.0.0.1", 1)), (*info, ("127.0.0.1", server.port))]
        real = socket.getaddrinfo
        # The blocking side asks for addresses only, so the dead one needs an address of its own there.
        dead = [(*info, ("127.1.1.1", server.port)), (*info, ("127.0.0.1", server.port))]
        chosen = dead if kit.loop is None else found
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, *a, **k: chosen if host == "two.test" else real(host, *a, **k)
        )

        assert kit.fetch(kit.make(), f"http://two.test:{server.port}/") == b"{}"


@pytest.mark.parametrize("host", ["does-not-exist.invalid", "a" * 64 + ".invalid"])
def test_a_name_that_cannot_be_resolved(kit, host):
    """Unknown, or no host name at all."""
    fault = fault_of(kit, kit.make(), post(f"http://{host}/v1"))

    assert (fault.kind, fault.sent) == (FaultKind.DNS, False)


def test_a_tls_server_that_speaks_plain_text(kit):
    """The commonest wrong base_url."""
    with RawServer(on_connect=[b"HTTP/1.1 400 Bad Request\r\n\r\n"]) as server:
        fault = fault_of(kit, kit.make(), post(server.url().replace("http:", "https:")))

    assert (fault.kind, fault.sent) == (FaultKind.TLS, False)
    assert isinstance(fault.__cause__, ssl.SSLError)


def test_a_connection_that_dies_before_the_answer(kit):
    """Fresh: reset, and it may have been processed."""
    for end in (FIN, RESET):
        with RawServer([end]) as server:
            fault = fault_of(kit, kit.make(), post(server.url()))

            assert (fault.kind, fault.sent) == (FaultKind.RESET, True)


def test_a_reused_connection_that_dies_before_the_answer(kit):
    """The server's idle time-out won the race: stale, which the caller's layer re-sends on a fresh one."""
    for end in (FIN, RESET):
        with RawServer([answer()], [end], [answer()]) as server:
            transport = kit.make()
            kit.fetch(transport, server.url())
            fault = fault_of(kit, transport, post(server.url()))

            assert (fault.kind, fault.sent) == (FaultKind.STALE, True)
            assert kit.fetch(transport, server.url(), fresh=True) == b"{}"


def test_a_head_that_is_cut_is_neither_stale_nor_reset(kit):
    """Bytes of an answer came, so the request was at work."""
    with RawServer([answer()], [b"HTTP/1.1 200 OK\r\nContent-", 0.005, FIN]) as server:
        transport = kit.make()
        kit.fetch(transport, server.url())

        assert FaultKind.EOF is fault_of(kit, transport, post(server.url())).kind


@pytest.mark.parametrize(
    "script",
    [
        [STREAM, event("a"), FIN],
        [STREAM, event("a"), 0.005, RESET],
        [head(200, content_length="10"), b"abc", FIN],
        [STREAM, b"zz\r\n"],
    ],
    ids=["chunked-fin", "chunked-reset", "length-fin", "garbled"],
)
def test_a_body_that_is_cut(kit, script):
    """Whatever the framing, and however it ends."""
    with RawServer(script) as server:
        fault = fault_of(kit, kit.make(), post(server.url()))

        assert (fault.kind, fault.sent) == (FaultKind.EOF, True)


def test_what_is_no_http_at_all(kit):
    """Named as such, without quoting it."""
    with RawServer([b"SSH-2.0-OpenSSH_9.2\r\n\r\n", HANG]) as server:
        fault = fault_of(kit, kit.make(), post(server.url()))

        assert FaultKind.OTHER is fault.kind
        assert "not an HTTP answer" in str(fault)


def test_no_answer_in_time(kit):
    """The request went out; the server sees that nobody waits."""
    with RawServer([HANG]) as server:
        started = time.monotonic()
        fault = fault_of(kit, kit.make(), post(server.url()), within=0.05)

        assert (fault.kind, fault.sent) == (FaultKind.READ_TIMEOUT, True)
        assert 0.045 < time.monotonic() - started < 1
        assert server.requests[0].gone.wait(0.5)


def test_time_used_up_before_the_request(kit):
    """Nothing is sent when nothing can come of it."""
    with RawServer([answer()]) as server:
        fault = fault_of(kit, kit.make(), post(server.url()), within=0.0)

        assert (fault.kind, fault.sent) == (FaultKind.DEADLINE, False)
        assert server.connections == 0


def test_no_connection_in_time(kit):
    """A TLS handshake that hangs counts as connecting, and so does everything up to it together."""
    with RawServer(on_connect=[HANG]) as server:
        started = time.monotonic()
        fault = fault_of(kit, kit.make(), post(server.url().replace("http:", "https:")), connect=0.05)

        assert (fault.kind, fault.sent) == (FaultKind.CONNECT_TIMEOUT, False)
        assert time.monotonic() - started < 1


def test_a_full_backlog_is_a_connect_timeout(kit):
    """The kernel drops our SYN; only the connect time-out gets out."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        held = []
        for _ in range(3):  # fill it
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
            held.append(sock)
        fault = fault_of(kit, kit.make(), post(f"http://127.0.0.1:{port}/"), connect=0.05)
        for sock in held:
            sock.close()

        assert (fault.kind, fault.sent) == (FaultKind.CONNECT_TIMEOUT, False)


def test_a_server_that_takes_no_request(kit):
    """The upload stalls: a write fault, not a read time-out."""
    release = threading.Event()
    with RawServer(on_connect=[release]) as server:
        fault = fault_of(kit, kit.make(), post(server.url(), b"x" * 20_000_000), within=0.3)
        release.set()

        assert (fault.kind, fault.sent) == (FaultKind.WRITE, True)


@pytest.mark.parametrize("url", ["ftp://host/x?k=secret", "file:///etc/passwd", "/v1/x", "http://[::1", "http://h:x/"])
def test_a_url_that_cannot_be_sent_to(kit, url):
    """Refused without a connection, and without quoting a secret."""
    fault = fault_of(kit, kit.make(), post(url))

    assert (fault.kind, fault.sent) == (FaultKind.OTHER, False)
    assert "secret" not in str(fault)


@pytest.mark.parametrize("value", ["Bearer sk-1\nx: y", "Bearer sk-1\u00fc", "Bearer sk-1\x00"])
def test_a_header_that_cannot_be_sent(kit, value):
    """The fault says where to look, and keeps the key to itself."""
    with RawServer([answer()]) as server:
        request = post(server.url(), headers=(("Authorization", value),))
        fault = fault_of(kit, kit.make(), request)

        assert (fault.kind, fault.sent) == (FaultKind.OTHER, False)
        assert "sk-1" not in "".join(map(repr, (fault, fault.__cause__, fault.__context__)))
        assert server.requests == []


def test_faults_hold_no_secret(kit):
    """Not of the URL, not of the headers, in message, arguments and chain."""
    with RawServer([RESET]) as server:
        url = server.url("/v1/x?api-key=sk-1").replace("http://", "http://me:sk-2@")
        request = post(url, b"sk-3", headers=(("x-key", "sk-4"),))
        fault = fault_of(kit, kit.make(), request)
        texts, error = [], fault
        while error is not None:
            texts.append(repr(error) + str(error))
            error = error.__cause__ or error.__context__

        assert f"http://127.0.0.1:{server.port}/v1/x: " in str(fault)
        assert "sk-" not in "".join(texts)


def test_a_message_is_short(kit):
    """A path may be long; a message is not."""
    with RawServer([RESET]) as server:
        assert len(str(fault_of(kit, kit.make(), post(server.url("/" + "x" * 5000))))) < 400


def test_words_exist_for_every_kind_the_gate_gives():
    """No kind is left with its bare name."""
    given = {meaning for meaning in MEANINGS.values() if meaning} | {
        FaultKind.RESET,
        FaultKind.STALE,
        FaultKind.EOF,
        FaultKind.GOAWAY,
        FaultKind.REFUSED_STREAM,
    }

    assert given - {FaultKind.OTHER, FaultKind.CONNECT} <= set(faults._WORDS)


def test_a_fault_holds_nothing_in_a_cycle(kit):
    """Exchange, request and connection go when the fault goes, without the collector."""

    async def on_a_loop():
        exchange = await transport.send(post(server.url()), until=time.monotonic() + 5, connect=5, clock=CLOCK)
        gone = weakref.ref(exchange)
        with contextlib.suppress(Fault):
            while True:
                await exchange.read(time.monotonic() + 5)
        del exchange
        assert gone() is None

    def in_a_thread():
        exchange = transport.send(post(server.url()), until=time.monotonic() + 5, connect=5, clock=CLOCK)
        gone = weakref.ref(exchange)
        with contextlib.suppress(Fault):
            while True:
                exchange.read(time.monotonic() + 5)
        del exchange
        assert gone() is None

    with RawServer([STREAM, event("a"), FIN]) as server:
        transport = kit.make()
        gc.collect()
        gc.disable()
        try:
            kit.run(on_a_loop() if kit.loop else in_a_thread())
        finally:
            gc.enable()
