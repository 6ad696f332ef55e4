"""What users of other inference servers complained about, and what this one does instead."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from llm_client.server.run import Server, running
from llm_client.server.settings import Settings

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Start servers on free ports."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(running(Settings(**{"port": 0, "drain": 0.0, **settings})))


def _until(condition: Callable[[], Any], limit: float = 5.0) -> float:
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit:
            raise AssertionError("it did not happen in time")
        time.sleep(0.002)
    return time.monotonic() - began


@pytest.fixture
def connect() -> Iterator[Callable[[Server, dict[str, Any]], socket.socket]]:
    """Send a chat call on a bare socket."""
    with ExitStack() as stack:

        def send(server: Server, body: dict[str, Any]) -> socket.socket:
            host, port = server.url.removeprefix("http://").split(":")
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=5))
            data = json.dumps(body).encode()
            connection.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(data), data)
            )
            return connection

        yield send


@pytest.fixture(scope="module")
def post() -> Iterator[Callable[..., tuple[httpx.Response, float]]]:
    """Send a chat call and time it; one client, because making one takes longer than the calls."""
    with httpx.Client(timeout=30, verify=False) as client:

        def send(url: str, body: dict[str, Any] | None = None, **options: Any) -> tuple[httpx.Response, float]:
            began = time.monotonic()
            response = client.post(f"{url}/v1/chat/completions", json=body or CHAT, **options)
            return response, time.monotonic() - began

        yield send


@pytest.mark.parametrize("status", [429, 503])
def test_fc_sv_01_full_queue_is_told_apart_from_a_defect(serve, post, status):
    """Three of six are served, three refused at once with a code and a time that grows with the queue."""
    server = serve(workers=1, queue=2, seconds=1.0, status=status)
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda _: post(server.url), range(6)))
    refused = [(response, took) for response, took in answers if response.status_code != 200]

    assert sorted(response.status_code for response, _ in answers) == [200] * 3 + [status] * 3
    for response, took in refused:
        assert response.json()["error"]["code"] == "queue_full"
        assert int(response.headers["retry-after"]) >= 1
        # The refusal itself is immediate; connecting and threads on a busy machine are not.
        assert took < 0.5
    empty = serve(workers=1, queue=0, seconds=1.0)
    with ThreadPoolExecutor(2) as threads:
        hints = [r.headers.get("retry-after-ms") for r, _ in threads.map(lambda _: post(empty.url), range(2))]
    assert int(next(hint for hint in hints if hint)) < int(refused[0][0].headers["retry-after-ms"])


@pytest.mark.parametrize("place", ["non-stream", "stream before first token", "stream after three tokens", "queued"])
def test_fc_sv_03_disconnect_is_seen_behind_a_middleware(serve, connect, place):
    """Within half a second in all four places, though a middleware logs every request."""
    server = serve(workers=1, queue=5, seconds=10.0)
    seen: list[str] = []

    class Logging:
        """A middleware in the way of the disconnect."""

        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            seen.append(scope["path"])

            async def noted(message: Any) -> None:
                seen.append(message["type"])
                await send(message)

            await self.app(scope, receive, noted)

    server.app.add_middleware(Logging)
    ledger, door = server.parts.ledger, server.parts.door
    blocker = connect(server, {**CHAT, "max_tokens": 5}) if place == "queued" else None
    if blocker is not None:
        _until(lambda: door.engine.load().running == 1)
    body = {**CHAT, "stream": place.startswith("stream"), "max_tokens": 100, "ignore_eos": True}
    connection = connect(server, body)
    _until(lambda: len(door.live) == (2 if blocker is not None else 1))
    time.sleep(0.2)
    if "after" in place:
        data = b""
        while data.count(b'"content":"') < 4:  # the first one is the empty one of the role
            data += connection.recv(65536)

    connection.close()
    took = _until(lambda: ledger.client_disconnected == 1)

    assert took < 0.5
    assert door.engine.load().running == (1 if blocker is not None else 0)
    assert door.waiting == 0
    assert "/v1/chat/completions" in seen


def test_fc_sv_05_streams_are_refused_before_the_body_and_broken_aloud(serve, post, connect):
    """A full queue answers by status; a failure after three tokens by an error event and nothing after it."""
    server = serve(workers=1, queue=0, seconds=1.0)
    blocker = connect(server, CHAT)
    _until(lambda: server.parts.door.engine.load().running == 1)
    refused, _ = post(server.url, {**CHAT, "stream": True})
    blocker.close()
    _until(lambda: server.parts.door.engine.load().running == 0)
    broken, _ = post(server.url, {**CHAT, "stream": True}, headers={"x-llm-fault": "stream_error=3"})
    events = [json.loads(line[6:]) for line in broken.text.split("\n") if line.startswith("data: ")]

    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "queue_full"
    assert broken.status_code == 200
    assert [bool(event.get("error")) for event in events] == [False] * 4 + [True]
    assert events[-1]["error"]["code"] == 500


def _load_model(server: Server, seconds: float) -> None:
    """From now on the model is being loaded; not from the start, which on a busy machine was long ago."""
    until = time.monotonic() + seconds
    server.loop.call_soon_threadsafe(setattr, server.parts.door, "loading_until", until)


def test_fc_sv_07_health_is_not_tied_to_work(serve, post):
    """Live always and quickly; not ready while loading, ready while all workers burn processor time."""
    server = serve(workers=2, queue=20, seconds=1.0, burn=True)
    lives: list[float] = []
    readiness: list[tuple[float, int]] = []
    with httpx.Client(base_url=server.url, timeout=10) as client, ThreadPoolExecutor(8) as threads:
        client.get("/health/live")
        _load_model(server, 1.0)
        began = time.monotonic()
        loading = client.post("/v1/chat/completions", json=CHAT)
        work: list[Any] = []
        while (now := time.monotonic() - began) < 2.2:
            asked = time.monotonic()
            assert client.get("/health/live").status_code == 200
            lives.append(time.monotonic() - asked)
            readiness.append((now, client.get("/health/ready").status_code))
            if now > 1.1 and not work:
                work = [threads.submit(post, server.url) for _ in range(8)]
            time.sleep(0.05)
        statuses = [job.result()[0].status_code for job in work]

    assert (loading.status_code, loading.json()["error"]["code"]) == (503, "model_loading")
    assert int(loading.headers["retry-after"]) >= 1
    # The median: on a machine with other work the slowest tell about that work.
    assert sorted(lives)[len(lives) // 2] < 0.1
    assert max(lives) < 1.0
    assert {status for when, status in readiness if when < 0.7} == {503}
    assert {status for when, status in readiness if when > 1.3} == {200}
    assert statuses == [200] * 8


def test_fc_sv_07_client_waits_for_the_model_and_keeps_its_breaker_closed(serve):
    """Loading is a reason to come back, not evidence that the endpoint is broken."""
    from llm_client import Client

    server = serve(workers=2, seconds=0.05)
    with Client(base_url=f"{server.url}/v1", api_key="k") as client:
        _load_model(server, 1.0)
        done = client.chat.completions.create(model="m", messages=CHAT["messages"], max_tokens=3)

    assert done.choices[0].message.content
    assert server.parts.ledger.reasons["model_loading"] >= 1
    assert server.parts.ledger.results["answered"] == 1


@pytest.mark.parametrize("by", ["header", "server"])
def test_fc_sv_09_expired_work_is_answered_and_never_run(serve, post, connect, by):
    """At one second, with a code and a time, and the engine has not seen it."""
    server = serve(workers=1, seconds=3.0, queue_timeout=1.0 if by == "server" else None)
    connect(server, CHAT)
    _until(lambda: server.parts.door.engine.load().running == 1)
    headers = {"x-llm-client-deadline": "1"} if by == "header" else {}
    response, took = post(server.url, headers=headers)

    assert response.status_code == 504
    assert response.json()["error"]["code"] == "queue_timeout"
    assert int(response.headers["retry-after"]) >= 1
    assert 0.95 < took < 1.6
    assert server.parts.ledger.executed == 1
