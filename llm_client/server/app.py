"""The application: routes, and who answers them. FastAPI describes them; the hot ones are answered by plain ASGI."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from llm_client._version import __version__

from .chat import Chat
from .completions import Completions
from .embeddings import Embeddings, Rerank, Score
from .exchange import Exchange
from .job import Refusal
from .reply import refusal_answer
from .responses import Responses
from .routes import Infer, Route
from .settings import Settings
from .state import State, build

ROUTES: tuple[Route, ...] = (Infer(), Chat(), Completions(), Responses(), Embeddings(), Rerank(), Score())


class RawRoute(APIRoute):
    """A route that OpenAPI knows in full while its endpoint returns an ASGI application per request."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Hand the request over untouched: no body parsing, no dependencies."""
        make: Callable[[Request], Any] = self.endpoint.answer  # type: ignore[attr-defined]

        async def handle(request: Request) -> Response:
            answer: Response = make(request)
            return answer

        return handle


def create_app(settings: Settings | None = None) -> FastAPI:
    """A server as an ASGI application; `app.state.server` holds its parts."""
    settings = settings or Settings()
    state = build(settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        state.begin()
        yield

    app = FastAPI(
        title="llm_client reference server",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # its pages load assets from elsewhere
        redoc_url=None,
    )
    app.state.server = state
    for route in ROUTES:
        _add(app, state, route)
    _add_operations(app, state)

    @app.exception_handler(HTTPException)
    async def unknown(_request: Request, error: HTTPException) -> Response:
        refusal = Refusal("not_found" if error.status_code == 404 else "invalid_request", str(error.detail),
                          status=error.status_code, kind="invalid_request_error")  # fmt: skip
        status, body, headers = refusal_answer(settings, refusal)
        return Response(body, status, {k.decode(): v.decode() for k, v in headers} | dict(error.headers or {}))

    return app


def _add(app: FastAPI, state: State, route: Route) -> None:
    async def endpoint(body: Any) -> dict[str, Any]:
        raise NotImplementedError(body)

    endpoint.__annotations__["body"] = route.body
    endpoint.__doc__ = type(route).__doc__
    endpoint.answer = lambda request: Exchange(state, route, request.headers)  # type: ignore[attr-defined]
    paths = [route.path] if route.path == "/infer" else [route.path, route.path.removeprefix("/v1")]
    for path in paths:
        app.router.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            name=route.name,
            route_class_override=RawRoute,
            response_model=None,
            include_in_schema=path == route.path,
        )


def _add_operations(app: FastAPI, state: State) -> None:
    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The served models."""
        rows = [
            {"id": name, "object": "model", "created": 0, "owned_by": "llm_client"} for name in state.settings.models
        ]
        return {"object": "list", "data": rows}

    @app.get("/health", response_model=None)
    async def health() -> Response:
        """Readiness: 200 while new work is welcome, busy or not; 503 while loading or draining."""
        word = "draining" if state.door.draining else "loading" if state.door.loading else "ok"
        return JSONResponse({"status": word, "ready": state.door.ready}, 200 if state.door.ready else 503)

    @app.get("/health/live")
    async def live() -> dict[str, Any]:
        """Liveness: always 200."""
        return {"status": "ok"}

    @app.get("/metrics", response_model=None)
    async def metrics(request: Request) -> Response:
        """Prometheus text, or OpenMetrics when asked for."""
        body, content_type = state.metrics.expose(request.headers.get("accept", ""))
        return Response(body, media_type=content_type)

    @app.get("/stats", response_model=None)
    async def stats(log: int = 0) -> Response:
        """The books as JSON; `log=N` adds the last N requests."""
        out = state.ledger.as_dict()
        load = state.engine.load()
        out["executing"], out["slots"] = load.running, load.slots
        out["queued"], out["queue_size"] = state.door.waiting, state.door.size_or_minus_one
        if log > 0:
            out["log"] = [record.as_dict() for record in list(state.ledger.records)[-log:]]
        return JSONResponse(out)

    @app.post("/stats/reset", status_code=204)
    async def reset() -> None:
        """Start counting from here."""
        state.ledger.reset()
