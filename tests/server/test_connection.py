"""On real sockets: slow and oversized clients, keep-alive, pipelining, draining, many at once."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest


def _connect(server):
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=5)


def _read_all(connection):
    data = b""
    while part := connection.recv(65536):
        data += part
    return data


def _answer(data):
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def test_head_that_trickles_in_is_a_408(serve):
    """A byte now and then does not keep a connection open."""
    server = serve(read_timeout=0.2)
    began = time.monotonic()
    with _connect(server) as connection:
        connection.sendall(b"POST /infer HTTP/1.1\r\n")
        time.sleep(0.1)
        connection.sendall(b"host: x\r\n")
        data = _read_all(connection)

    assert _answer(data) == (408, "request_timeout")
    assert time.monotonic() - began < 1.0


def test_body_that_does_not_come_is_a_408(serve):
    """A promised body is waited for that long and no longer; the connection closes."""
    server = serve(read_timeout=0.2)
    with _connect(server) as connection:
        connection.sendall(b"POST /infer HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        data = _read_all(connection)

    assert _answer(data) == (408, "request_timeout")
    assert b"connection: close" in data.lower()


def test_silent_connection_is_closed(serve):
    """One that never says anything is no use."""
    server = serve(read_timeout=0.1)
    with _connect(server) as connection:
        assert _answer(_read_all(connection)) == (408, "request_timeout")


def test_idle_connection_between_requests_is_kept(serve):
    """The clock for heads does not run between two requests."""
    server = serve(read_timeout=0.1, seconds=0.0)
    with _connect(server) as connection:
        for _ in range(2):
            connection.sendall(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            time.sleep(0.3)


def test_second_head_may_not_trickle_in_either(serve):
    """The clock runs again as soon as the next request begins."""
    server = serve(read_timeout=0.1, seconds=0.0)
    with _connect(server) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /health/live HT")
        assert _answer(_read_all(connection)) == (408, "request_timeout")


def test_long_answer_is_no_slow_head(serve):
    """The clock stops when the head is complete, however long the answer takes."""
    server = serve(read_timeout=0.1, seconds=0.4)
    answer = httpx.post(f"{server.url}/infer", json={"prompt": "x"}, verify=False, timeout=30)

    assert answer.status_code == 200


def test_oversized_head_is_a_431(serve):
    """With a sentence that says what to do."""
    server = serve(max_headers=2048)
    with _connect(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * 10_000)
        data = _read_all(connection)

    assert _answer(data) == (431, "head_too_large")


def test_nonsense_is_a_400(serve):
    """What is no HTTP gets a JSON error all the same."""
    with _connect(serve()) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert _answer(_read_all(connection)) == (400, "invalid_request")


def test_huge_body_is_refused_before_it_is_read(serve):
    """By its announced length."""
    server = serve(max_body=1000)
    with _connect(server) as connection:
        connection.sendall(b"POST /infer HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n")
        assert _answer(_read_all(connection)) == (413, "request_too_large")


def test_huge_chunked_body_is_refused_while_it_is_read(serve):
    """One that does not say how long it is."""
    server = serve(max_body=1000)
    with _connect(server) as connection:
        head = b"POST /infer HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        connection.sendall(head + b"800\r\n" + b"x" * 0x800 + b"\r\n")
        assert _answer(_read_all(connection)) == (413, "request_too_large")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("queued", [False, True])
def test_closing_the_socket_frees_the_slot(serve, stream, queued):
    """Within 50 ms, running or queued, streaming or not."""
    server = serve(workers=1, seconds=30.0)
    ledger, engine = server.parts.ledger, server.parts.engine
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "stream": stream}).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    connections = []
    for _ in range(2 if queued else 1):
        connections.append(_connect(server))
        connections[-1].sendall(request)
        _until(lambda: ledger.in_flight == len(connections) and server.parts.door.live)
    _until(lambda: engine.load().running == 1 and server.parts.door.waiting == (1 if queued else 0))

    connections[-1].close()
    took = _until(lambda: ledger.client_disconnected == 1)

    assert took < 0.05 + 0.2  # shared machines stall now and then
    assert server.parts.door.waiting == 0
    assert engine.load().running == (1 if queued else 0)
    for connection in connections:
        connection.close()


def _until(condition, limit=5.0):
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit:
            raise AssertionError("it did not happen in time")
        time.sleep(0.002)
    return time.monotonic() - began


def _process(*options):
    process = subprocess.Popen(
        [sys.executable, "-m", "llm_client.server", "--port", "0", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1]


def test_program_prints_one_line_when_it_listens_and_drains_on_sigterm():
    """Running work finishes; new work gets 503 and a time, `/health` says why; then it ends with 0."""
    process, url = _process("--workers", "1", "--seconds", "1.5")
    try:
        with httpx.Client(base_url=url, timeout=10) as client:
            results = {}
            running = threading.Thread(
                target=lambda: results.update(a=client.post("/infer", json={"prompt": "a", "max_tokens": 2}))
            )
            running.start()
            time.sleep(0.4)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            new = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]})
            health = client.get("/health")
            running.join()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()

    assert results["a"].status_code == 200
    assert (new.status_code, new.json()["error"]["code"]) == (503, "draining")
    assert int(new.headers["retry-after"]) >= 1
    assert (health.status_code, health.json()["status"]) == (503, "draining")


def test_drain_is_bounded():
    """Work that outlasts it is refused, a stream gets an error frame."""
    process, url = _process("--workers", "1", "--seconds", "60", "--drain", "300ms")
    try:
        with httpx.Client(base_url=url, timeout=10) as client:
            body = {"messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 5}
            with client.stream("POST", "/v1/chat/completions", json=body) as stream:
                process.send_signal(signal.SIGTERM)
                text = stream.read()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()

    assert b'"code":"draining"' in text


def test_second_signal_ends_it_at_once():
    """For the impatient."""
    process, url = _process("--workers", "1", "--seconds", "60")
    try:
        with (
            httpx.Client(base_url=url, timeout=10) as client,
            client.stream(
                "POST", "/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}], "stream": True}
            ),
        ):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            process.wait(10)
            took = time.monotonic() - began
    finally:
        process.kill()
        process.communicate()

    assert took < 5


def test_port_in_use_is_an_error_and_no_hang(serve):
    """The thread that asked learns of it."""
    server = serve()
    port = int(server.url.rsplit(":", 1)[1])

    with pytest.raises(RuntimeError, match="did not start"):
        serve(port=port)


def test_many_connections_at_once_all_get_their_answer(serve):
    """Sixty streams and a queue of sixty, no loss; thousands are the matter of `test_load.py`."""
    server = serve(workers=60, queue=60, seconds=0.5)
    url = server.url

    async def one(client, number):
        async with client.stream(
            "POST", f"{url}/v1/chat/completions",
            json={"messages": [{"role": "user", "content": str(number)}], "stream": True, "max_tokens": 5},
        ) as stream:  # fmt: skip
            return stream.status_code, (await stream.aread()).endswith(b"data: [DONE]\n\n")

    async def scenario():
        limits = httpx.Limits(max_connections=150)
        async with httpx.AsyncClient(limits=limits, timeout=60) as client:
            return await asyncio.gather(*(one(client, n) for n in range(120)))

    assert set(asyncio.run(scenario())) == {(200, True)}
    assert server.parts.ledger.results["answered"] == 120
    assert server.parts.ledger.executing_peak == 60


def test_file_limit_is_raised(serve):
    """As far as the system allows."""
    import resource

    serve()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert soft == hard
