"""The live page at `/`: one file without outside assets, fed by server-sent events."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from .access import on_this_machine
from .job import Refusal
from .state import State

_EVERY = 0.5  # seconds between two updates
_VIEWERS = 50  # pages fed at the same time


def router(state: State) -> APIRouter:
    """The page and its feed."""
    routes = APIRouter()
    html = files(__package__).joinpath("page.html").read_text("utf-8")
    headers = {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": policy(html),
        "x-content-type-options": "nosniff",
        "cache-control": "no-cache",
    }
    viewers: set[object] = set()

    @routes.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(html, headers=headers)

    @routes.get("/events", include_in_schema=False)
    async def events(request: Request) -> Response:
        if len(viewers) >= _VIEWERS:
            raise Refusal("too_many_viewers", "Too many pages are open.", status=503, wait=5.0)
        switches = state.settings.admin and on_this_machine(request)

        async def feed() -> AsyncIterator[bytes]:
            viewer = object()
            viewers.add(viewer)
            try:
                while not (state.door.draining and state.ledger.in_flight == 0):
                    yield b"data: " + json.dumps(snapshot(state, switches=switches)).encode() + b"\n\n"
                    await asyncio.sleep(_EVERY)
            finally:
                viewers.discard(viewer)

        return StreamingResponse(feed(), media_type="text/event-stream", headers={"cache-control": "no-cache"})

    return routes


def policy(html: str) -> str:
    """A content security policy that allows this page's own script and style by their hashes, and nothing else."""
    script, style = (re.search(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL) for tag in ("script", "style"))
    hashes = [
        base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode() if found else ""
        for found in (script, style)
    ]  # fmt: skip
    return (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def snapshot(state: State, *, switches: bool) -> dict[str, Any]:
    """Everything the page shows.

    Args:
        state: the server.
        switches: whether whoever looks may switch faults.
    """
    door, ledger, load = state.door, state.ledger, state.engine.load()
    now = asyncio.get_running_loop().time()
    return {
        "at": time.time(),
        "state": "draining" if door.draining else "loading" if door.loading else "ready",
        "queue": {"size": door.queue.size, "waiting": door.waiting, "classes": door.by_class()},
        "engine": {
            "name": state.settings.engine,
            "running": load.running,
            "slots": load.slots,
            "kv_usage": load.kv_usage,
            "preemptions": load.preemptions,
            "prefix_hit_tokens": load.prefix_hit_tokens,
            "pace": state.engine.pace(),
        },
        "books": {"arrived": ledger.arrived, **ledger.results, "in_flight": ledger.in_flight},
        "reasons": dict(ledger.reasons.most_common(12)),
        "latency": percentiles([whole for _, whole in ledger.latencies]),
        "first_token": percentiles([first for first, _ in ledger.latencies]),
        "tokens": {"prompt": ledger.prompt_tokens, "completion": ledger.completion_tokens},
        "buckets": state.limits.levels(now) if state.limits.active else [],
        "faults": state.faults.listing(now),
        "switches": switches,
        "dialect": state.settings.dialect,
    }


def percentiles(values: list[float]) -> dict[str, float | None]:
    """The median and the 95th percentile, in seconds."""
    if not values:
        return {"p50": None, "p95": None}
    ordered = sorted(values)
    return {name: round(ordered[int(share * (len(ordered) - 1))], 4) for name, share in (("p50", 0.5), ("p95", 0.95))}
