"""What operators and clients ask beside inference: models, health, metrics, the books, token counts."""

from __future__ import annotations

import math
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, PlainTextResponse, Response

from . import text
from .access import on_this_machine
from .job import Refusal
from .schema import TokenIds
from .state import State

_WRONG: Any = {400: {"description": "A field is wrong"}}


class Tokenize(BaseModel):
    """`/tokenize`."""

    model_config = ConfigDict(strict=True)

    prompt: str


class Detokenize(BaseModel):
    """`/detokenize`."""

    model_config = ConfigDict(strict=True)

    tokens: TokenIds


def router(state: State) -> APIRouter:
    """All of these routes."""
    routes = APIRouter()
    _models(routes, state)
    _health(routes, state)
    _books(routes, state)
    _tokens(routes, state)
    return routes


def _models(routes: APIRouter, state: State) -> None:
    def row(name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "llm_client",
            "max_model_len": state.settings.longest,
        }

    denied: Any = {401: {"description": "Wrong or missing API key"}}

    @routes.get("/v1/models", responses=denied)
    async def models(request: Request) -> Any:
        """The served models."""
        state.keys.check(request.headers, "")
        return {"object": "list", "data": [row(name) for name in state.settings.models]}

    @routes.get("/v1/models/{name:path}", responses={**denied, 404: {"description": "Unknown model"}})
    async def model(request: Request, name: str) -> Any:
        """One of them."""
        state.keys.check(request.headers, "")
        if name in state.settings.models:
            return row(name)
        message = f"The model `{name[:100]}` does not exist."
        raise Refusal("model_not_found", message, status=404, kind="invalid_request_error")


def _health(routes: APIRouter, state: State) -> None:
    @routes.get("/health", responses={503: {"description": "Loading or draining"}})
    @routes.get("/health/ready", responses={503: {"description": "Loading or draining"}})
    async def ready() -> Response:
        """Readiness: 200 while new work is welcome, busy or not; 503 while loading or draining."""
        door = state.door
        word = "draining" if door.draining else "loading" if door.loading else "ok"
        body = {"status": word, "ready": door.ready, "running": door.engine.load().running, "waiting": door.waiting}
        headers = {} if door.ready else {"retry-after": str(max(1, math.ceil(door.wait_until_ready())))}
        return JSONResponse(body, 200 if door.ready else 503, headers)

    @routes.get("/health/live")
    async def live() -> dict[str, Any]:
        """Liveness: 200 as long as the process answers at all."""
        return {"status": "ok"}

    @routes.get("/load")
    async def load() -> dict[str, Any]:
        """How much is waiting and running."""
        return {"server_load": state.ledger.in_flight, "load_ratio": round(state.door.load(), 4), **state.door.report()}


def _books(routes: APIRouter, state: State) -> None:
    @routes.get("/metrics", response_class=PlainTextResponse)
    async def metrics(request: Request) -> Response:
        """Prometheus text, or OpenMetrics when asked for."""
        body, content_type = state.metrics.expose(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    @routes.get("/stats", responses=_WRONG)
    async def stats(request: Request, log: Annotated[int, Query(ge=0, le=10_000_000)] = 0) -> Response:
        """The books as JSON; `log=N` adds the last N requests, for clients on this machine."""
        out = state.ledger.as_dict()
        load = state.door.engine.load()
        out["executing"], out["slots"], out["kv_usage"] = load.running, load.slots, load.kv_usage
        out["queued"], out["queue_size"] = state.door.waiting, state.door.size_or_minus_one
        out["queued_by_class"] = state.door.by_class()
        if log > 0 and on_this_machine(request):
            out["log"] = [record.as_dict() for record in list(state.ledger.records)[-log:]]
        return JSONResponse(out)

    @routes.post("/stats/reset", status_code=204, responses={403: {"description": "Not from this machine"}})
    async def reset(request: Request) -> Response:
        """Count from here; for clients on this machine."""
        if not on_this_machine(request):
            message = "Only clients on this machine may reset the books."
            raise Refusal("forbidden", message, status=403, kind="invalid_request_error")
        state.ledger.reset()
        return Response(status_code=204)


def _tokens(routes: APIRouter, state: State) -> None:
    @routes.post("/tokenize", responses=_WRONG)
    async def tokenize(body: Tokenize) -> dict[str, Any]:
        """A text as token ids."""
        ids = text.encode(body.prompt)
        return {"count": len(ids), "max_model_len": state.settings.longest, "tokens": ids, "token_strs": None}

    @routes.post("/detokenize", responses=_WRONG)
    async def detokenize(body: Detokenize) -> dict[str, Any]:
        """Token ids as a text; ids that are none of ours are left out."""
        return {"prompt": text.decode(body.tokens)}
