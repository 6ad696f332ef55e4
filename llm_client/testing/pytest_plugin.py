"""pytest fixtures that start the reference server: `llm_server` on a port, `llm_server_app` inside the test.

Loaded by pytest when the package is installed; the server itself is imported when a test asks for it.

    @pytest.mark.llm_server(queue=2, workers=1, seconds=0.2)
    def test_my_application(llm_server):
        llm_server.faults(status=503, times=1)
        assert my_application(llm_server.base_url).answers("hello")
        assert [request.outcome for request in llm_server.requests] == ["failed", "answered"]
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from fastapi import FastAPI

    from llm_client.server.ledger import Record
    from llm_client.server.run import Server
    from llm_client.server.state import State

T = TypeVar("T")

MARKER = "llm_server"
_DEFAULTS: dict[str, Any] = {"port": 0, "seconds": 0.0, "workers": 16, "drain": 0.0}
_PATIENCE = 10.0  # seconds to wait for the server's thread


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    text = f"{MARKER}(**settings): settings of the reference server, such as queue=2, workers=1, seconds=0.2"
    config.addinivalue_line("markers", text)


class _Handle:
    """What both fixtures offer."""

    def __init__(self, state: State) -> None:
        self._state = state

    def _run(self, action: Callable[[], T]) -> T:
        return action()

    @property
    def requests(self) -> list[Record]:
        """The inference requests that arrived, oldest first."""
        return self._run(lambda: list(self._state.ledger.records))

    def faults(self, **rule: Any) -> int:
        """Put a fault into force; its number takes it out again.

        Args:
            **rule: what goes wrong and for whom, such as `status=503, times=2` or `stall=3, stall_for=1.0`;
                the words are those of `llm_client.server.faults.Rule`.

        Raises:
            ValueError: naming the word at fault.
        """
        from llm_client.server.faults import rules

        parsed = rules(rule)[0]
        return self._run(lambda: self._state.faults.add(parsed, time.monotonic()))

    def clear_faults(self, number: int | None = None) -> None:
        """Take out one fault, or all."""
        if number is None:
            self._run(self._state.faults.clear)
        else:
            self._run(lambda: self._state.faults.remove(number))

    def stats(self) -> dict[str, Any]:
        """The counters: arrived, answered, refused, abandoned, failed, in_flight, executing_peak and more."""
        return self._run(self._state.ledger.as_dict)

    def reset(self) -> None:
        """Forget requests and counters; faults stay."""
        self._run(self._state.ledger.reset)


class LLMServer(_Handle):
    """A reference server in a thread of this process.

    Attributes:
        url: where it listens, such as `http://127.0.0.1:40123`.
        base_url: the same for OpenAI clients, with `/v1`.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(server.parts)
        self._server = server
        self.url = server.url
        self.base_url = f"{server.url}/v1"

    def _run(self, action: Callable[[], T]) -> T:
        async def on_its_loop() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(on_its_loop(), self._server.loop).result(_PATIENCE)


class LLMServerApp(_Handle):
    """A reference server as an ASGI application, for clients that can call one without a socket.

    Resets and cut connections need a socket; here they raise `ConnectionResetError` into the client.
    `httpx.ASGITransport` collects a whole answer before it hands it over, streams included.

    Attributes:
        app: give it to `httpx.ASGITransport(app=...)`.
    """

    def __init__(self, app: FastAPI) -> None:
        super().__init__(app.state.server)
        self.app = app


def _settings(request: pytest.FixtureRequest, **given: Any) -> Any:
    try:
        from llm_client.server.settings import Settings
    except ModuleNotFoundError as error:
        _missing(error)
    marker = request.node.get_closest_marker(MARKER)
    return Settings(**{**_DEFAULTS, **(marker.kwargs if marker else {}), **given})


def _missing(error: ModuleNotFoundError) -> None:
    pytest.fail(f"llm_server needs {error.name}: pip install 'resilient-llm-client[server]'", pytrace=False)


@pytest.fixture
def start_llm_server(request: pytest.FixtureRequest) -> Iterator[Callable[..., LLMServer]]:
    """Start reference servers: `start_llm_server(queue=2)`; they end with the test."""
    with ExitStack() as stack:

        def start(**settings: Any) -> LLMServer:
            chosen = _settings(request, **settings)
            try:
                from llm_client.server.run import running
            except ModuleNotFoundError as error:
                _missing(error)
            return LLMServer(stack.enter_context(running(chosen)))

        yield start


@pytest.fixture
def llm_server(start_llm_server: Callable[..., LLMServer]) -> LLMServer:
    """A reference server on a free port; its settings come from the marker `llm_server`."""
    return start_llm_server()


@pytest.fixture
def llm_server_app(request: pytest.FixtureRequest) -> LLMServerApp:
    """A reference server inside the test; its settings come from the marker `llm_server`."""
    settings = _settings(request)
    try:
        from llm_client.server.app import create_app
    except ModuleNotFoundError as error:
        _missing(error)
    return LLMServerApp(create_app(settings))
