"""Carries the requests of a foreign HTTP client out through a pool, and answers in its terms."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Final

from llm_client.compose.calls import make_call
from llm_client.compose.pool import Pool
from llm_client.drivers.aio import AsyncBody
from llm_client.drivers.sync import SyncBody
from llm_client.errors import ConfigError, LLMClientError
from llm_client.flow.run import Reply
from llm_client.model import UNSET, Call, Request, Size
from llm_client.transport.host import Answered
from llm_client.transport.refusal import end_to_end, refusal
from llm_client.wire import OTHER, route_of
from llm_client.wire.measure import max_output, measure
from llm_client.wire.problem import decode_json

# Read time-outs that libraries set by themselves: httpx 5 s, openai 600 s. They are nobody's wish.
_DEFAULT_TIMEOUTS: Final = frozenset({5.0, 600.0})
_OURS: Final = "x-llm-client-"
_DROPPED: Final = frozenset(
    {"accept-encoding", "connection", "content-length", "host", "transfer-encoding", "user-agent"}
)


class Host:
    """Carries the requests of one foreign client out."""

    def __init__(self, pool: Pool, profile: str) -> None:
        self._pool = pool
        self._plan = pool.plan(profile)

    def handle(self, request: Any) -> Answered:
        """Carry a request out in this thread; a failure becomes a response."""
        try:
            call = self._call(request, request.read())
        except ConfigError as error:
            return _misused(error)
        try:
            reply = self._pool.run(call, self._plan)
        except LLMClientError as error:
            return Answered(*refusal(error))
        pieces = None if reply.delivery is None else SyncBody(reply.delivery, self._pool.works.sync_driver())
        return _answered(reply, pieces)

    async def handle_async(self, request: Any) -> Answered:
        """Carry a request out on the running event loop; a failure becomes a response."""
        try:
            call = self._call(request, await request.aread())
        except ConfigError as error:
            return _misused(error)
        try:
            reply = await self._pool.arun(call, self._plan)
        except LLMClientError as error:
            return Answered(*refusal(error))
        pieces = None if reply.delivery is None else AsyncBody(reply.delivery, self._pool.works.async_driver())
        return _answered(reply, pieces)

    def _call(self, request: Any, body: bytes) -> Call:
        path = request.url.path
        route = route_of(path)
        data = _json(request, body) if route != OTHER else None
        headers = [(name, value) for name, value in request.headers.multi_items() if self._passes(name)]
        wishes = request.headers
        return make_call(
            self._pool,
            self._plan,
            Request(
                method=request.method,
                path=_relative(path),
                query=tuple(request.url.params.multi_items()),
                headers=tuple(headers),
                body=body,
            ),
            route=route,
            model=data.get("model") if data is not None else None,
            stream=bool(data.get("stream")) if data is not None else False,
            data=data,
            size=measure(data) if data is not None else Size(),
            max_tokens=max_output(data) if data is not None else None,
            priority=_priority(wishes.get(_OURS + "priority")),
            deadline=_deadline(self._plan.deadline, wishes.get(_OURS + "deadline"), request.extensions),
            tenant=wishes.get(_OURS + "tenant"),
            replayable="transfer-encoding" not in wishes,
        )

    def _passes(self, name: str) -> bool:
        name = name.lower()
        if name in _DROPPED or name.startswith(_OURS):
            return False
        return name not in {"authorization", "api-key"} or not self._pool.has_keys


def _answered(reply: Reply, pieces: Any) -> Answered:
    headers = end_to_end(reply.headers, whole=pieces is None)
    headers.append(("x-llm-client-attempts", str(len(reply.run.records))))
    return Answered(reply.status, headers, reply.body, pieces)


def _misused(error: ConfigError) -> Answered:
    """Answer a request whose wishes cannot be read: the caller's mistake, whichever SDK is above."""
    _, headers, body = refusal(error)
    return Answered(400, headers, body)


def _json(request: Any, body: bytes) -> Mapping[str, Any] | None:
    if "json" not in request.headers.get("content-type", ""):
        return None
    try:
        data = decode_json(body)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def _relative(path: str) -> str:
    """Return the part of a path that follows the SDK's base URL; ours takes its place."""
    for known in ("/chat/completions", "/audio/transcriptions", "/audio/translations"):
        if path.endswith(known):
            return known[1:]
    if route_of(path) != OTHER:
        return path.rsplit("/", 1)[1]
    _, found, rest = path.partition("/v1/")
    return rest if found else path


def _priority(text: str | None) -> Any:
    if text is None:
        return UNSET
    return int(text) if text.isdigit() else text


def _deadline(profile: float, wish: str | None, extensions: Mapping[str, Any]) -> Any:
    """Return the call's deadline: the header's, else the profile's, bounded by a read time-out somebody chose."""
    seconds = profile
    if wish is not None:
        try:
            seconds = float(wish)
        except ValueError as error:
            raise ConfigError(f"{_OURS}deadline: expected seconds, got {wish!r}") from error
    read = (extensions.get("timeout") or {}).get("read")
    if read is not None and read not in _DEFAULT_TIMEOUTS:
        seconds = min(seconds, read)
    return None if seconds == inf else seconds
