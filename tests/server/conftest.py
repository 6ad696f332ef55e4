"""The reference server inside a test: in virtual time without sockets, and for real on a port."""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from llm_client.server.app import create_app
from llm_client.server.run import Server, running
from llm_client.server.settings import Settings


class _Leap(selectors.SelectSelector):
    """A selector that does not wait: it moves the clock."""

    now = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        """Poll; nothing to do until a timer means that its time has come."""
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("deadlock: nothing is ready and no timer runs")
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose seconds cost nothing."""

    def __init__(self) -> None:
        self._leap = _Leap()
        super().__init__(self._leap)
        # Leaps shorter than the resolution would never arrive.
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Virtual seconds."""
        return self._leap.now


@dataclass
class Answer:
    """What came back from a call inside the test."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    parts: list[tuple[float, bytes]] = field(default_factory=list)
    complete: bool = False
    took: float = 0.0
    error: BaseException | None = None

    @property
    def body(self) -> bytes:
        return b"".join(part for _, part in self.parts)

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The JSON of each data line, `[DONE]` as a string."""
        lines = [line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: ")]
        return [line.decode() if line == b"[DONE]" else json.loads(line) for line in lines]

    @property
    def text(self) -> str:
        """What a chat stream says."""
        choices = [event["choices"][0] for event in self.events if isinstance(event, dict) and event.get("choices")]
        return "".join(choice["delta"].get("content") or "" for choice in choices)


class Inside:
    """A server without sockets."""

    def __init__(self, **settings: Any) -> None:
        self.app = create_app(Settings(**{"workers": 1, "seconds": 1.0, **settings}))
        self.state = self.app.state.server
        self.ledger = self.state.ledger
        self.door = self.state.door

    async def call(
        self,
        path: str = "/infer",
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        method: str = "POST",
        leave_after: float | None = None,
        client: str = "127.0.0.1",
        raw: bytes | None = None,
    ) -> Answer:
        """Call it; with `leave_after` the client disconnects that many seconds after it began."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = Answer()
        done = asyncio.Event()
        sent = False
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        fields = {"host": "localhost", "content-type": "application/json", **(headers or {})}

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": content, "more_body": False}
            try:
                async with asyncio.timeout_at(None if leave_after is None else began + leave_after):
                    await done.wait()
            except TimeoutError:
                pass
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            else:
                answer.parts.append((loop.time() - began, message.get("body", b"")))
                if not message.get("more_body", False):
                    answer.complete = True
                    done.set()

        path, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(k.lower().encode(), v.encode()) for k, v in fields.items()],
            "client": (client, 1), "server": ("localhost", 80), "state": {},
        }  # fmt: skip
        try:
            await self.app(scope, receive, send)
        except ConnectionResetError as error:
            answer.error = error
        answer.took = loop.time() - began
        return answer

    async def chat(self, text: str = "hello", headers: dict[str, str] | None = None, **more: Any) -> Answer:
        """A chat call; `leave_after` and `client` go to `call`, the rest into the body."""
        outside = {name: more.pop(name) for name in ("leave_after", "client") if name in more}
        body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
        return await self.call("/v1/chat/completions", body, headers, **outside)


@pytest.fixture
def inside() -> type[Inside]:
    """Make a server without sockets."""
    return Inside


@pytest.fixture
def simulate() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine in virtual time and return what it returns."""

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(coroutine)

    return run


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Start real servers on free ports; they end with the test."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(running(Settings(**{"port": 0, "drain": 0.0, **settings})))
