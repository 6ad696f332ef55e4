"""Faults by HTTP, while the server runs. Off unless enabled, and only for clients on this machine."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response

from .access import on_this_machine
from .faults import Rule, rules
from .job import Refusal
from .reply import read_body
from .state import State

_WRONG: Any = {400: {"description": "Not a rule, or not a number"}}
_MAX = 1 << 20  # bytes of a list of rules


def router(state: State) -> APIRouter:
    """The routes under `/admin`."""
    routes = APIRouter(prefix="/admin", dependencies=[Depends(_allowed)])
    describe: Any = {"required": True, "content": {"application/json": {"schema": Rule.model_json_schema()}}}
    denied: Any = {403: {"description": "Not from this machine"}, 415: {"description": "Not JSON"}}
    missing: Any = {404: {"description": "No such rule"}}

    @routes.get("/faults", responses=denied)
    async def listing() -> Response:
        """The rules in force."""
        return JSONResponse({"faults": state.faults.listing(_now())})

    @routes.post(
        "/faults",
        status_code=201,
        openapi_extra={"requestBody": describe},
        responses={**denied, **_WRONG, 413: {"description": "Too large"}},
    )
    async def add(request: Request) -> Response:
        """Put one rule, or a list of them, into force."""
        raw = await read_body(request.receive, _MAX, state.settings.read_timeout)
        try:
            parsed = rules(json.loads(raw))
        except (ValueError, RecursionError) as error:
            raise _no(400, str(error)[:500]) from None
        return JSONResponse({"ids": [state.faults.add(rule, _now()) for rule in parsed]}, 201)

    @routes.delete("/faults", status_code=204, responses=denied)
    async def clear() -> Response:
        """Take all rules out."""
        state.faults.clear()
        return Response(status_code=204)

    @routes.delete("/faults/{number}", status_code=204, responses={**denied, **_WRONG, **missing})
    async def remove(number: int) -> Response:
        """Take one rule out."""
        if not state.faults.remove(number):
            raise _no(404, f"There is no rule {number}.")
        return Response(status_code=204)

    return routes


async def _allowed(request: Request) -> None:
    if not on_this_machine(request):
        raise _no(403, "Only clients on this machine may use /admin.")
    # A page from elsewhere cannot send this type without asking first, and it is never allowed to.
    if request.method == "POST" and not request.headers.get("content-type", "").startswith("application/json"):
        raise _no(415, "Send `content-type: application/json`.")


def _no(status: int, message: str) -> Refusal:
    return Refusal("admin", message, status=status, kind="invalid_request_error")


def _now() -> float:
    return asyncio.get_running_loop().time()
