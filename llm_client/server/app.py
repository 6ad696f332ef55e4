"""The application: routes, and who answers them. FastAPI describes them; the hot ones are answered by plain ASGI."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from llm_client._version import __version__

from . import admin, operations, page
from .chat import Chat
from .completions import Completions
from .embeddings import Embeddings, Rerank, Score
from .exchange import Exchange
from .job import Refusal
from .reply import refusal_answer
from .responses import Responses
from .routes import Infer, Route, Whole
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
    app.include_router(operations.router(state))
    if settings.admin:
        app.include_router(admin.router(state))
    app.include_router(page.router(state))

    @app.exception_handler(Refusal)
    async def refused(_request: Request, refusal: Refusal) -> Response:
        status, body, headers = refusal_answer(settings, refusal)
        return Response(body, status, {name.decode(): value.decode() for name, value in headers})

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        code = "not_found" if error.status_code == 404 else "invalid_request"
        headers = dict(error.headers or {})
        if error.status_code == 405:
            # The framework knows the methods of one route; the resource may have several.
            headers["Allow"] = ", ".join(_methods(app, request.url.path)) or headers.get("Allow", "")
        refusal = Refusal(code, str(error.detail), status=error.status_code, kind="invalid_request_error",
                          headers=tuple(headers.items()))  # fmt: skip
        return await refused(request, refusal)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])[:200]
        text = f"{where}: {first['msg']}"[:500]
        return await refused(request, Refusal("invalid_request", text, status=400, kind="invalid_request_error",
                                              param=where or None))  # fmt: skip

    return app


def _methods(app: FastAPI, path: str) -> list[str]:
    """The methods a resource has, by the OpenAPI document."""
    found = set()
    for template, entry in app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            found |= {method.upper() for method in entry}
    return sorted(found)


_ANSWERS: dict[int | str, dict[str, Any]] = {
    400: {"description": "A field is wrong, or the input is too long"},
    401: {"description": "Wrong or missing API key"},
    404: {"description": "Unknown model"},
    408: {"description": "The request did not arrive in time"},
    413: {"description": "The body is too large"},
    429: {"description": "Queue full or rate limit reached; `Retry-After` says when to come back"},
    503: {"description": "Queue full, loading, shedding or draining; `Retry-After` says when to come back"},
    504: {"description": "Its deadline passed while it waited; it was never started"},
}

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {}}, "text/event-stream": {}}}
}


def _add(app: FastAPI, state: State, route: Route) -> None:
    async def endpoint(body: Any) -> dict[str, Any]:
        raise NotImplementedError(body)

    endpoint.__annotations__["body"] = route.body
    endpoint.__doc__ = type(route).__doc__
    endpoint.answer = lambda request: Exchange(state, route, request.scope["headers"])  # type: ignore[attr-defined]
    paths = [route.path] if route.path == "/infer" else [route.path, route.path.removeprefix("/v1")]
    for path in paths:
        app.router.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            name=route.name,
            route_class_override=RawRoute,
            response_model=None,
            responses=_ANSWERS if isinstance(route, Whole) else {**_ANSWERS, **_STREAM},
            include_in_schema=path == route.path,
        )
