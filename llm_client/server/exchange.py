"""One inference request from its first byte to its last: read, admit, wait, answer, and book it once."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Mapping

from pydantic import ValidationError

from .job import CLASSES, ClientGoneError, EngineError, Job, Phase, Refusal
from .ledger import Record
from .reply import EVENTS, JSON, Headers, Receive, Scope, Send, read_body, refusal_answer, send_whole, too_large
from .routes import Route, dump
from .state import State
from .text import prefix_blocks
from .work import Work


class Exchange:
    """Answers one request of one route; an ASGI application.

    Args:
        state: what all requests share.
        route: how this kind of call reads and answers.
        headers: the request's headers.
    """

    def __init__(self, state: State, route: Route, headers: Mapping[str, str]) -> None:
        self._state = state
        self._route = route
        self._headers = headers
        self._gone = False
        self._head_sent = False
        self._status = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve it; every way out books exactly one result."""
        state = self._state
        record = state.ledger.open(self._route.path, time.time())
        record.attempt = self._headers.get("x-llm-client-attempt")
        record.idempotency_key = self._headers.get("idempotency-key")
        job: Job | None = None
        watch: asyncio.Task[None] | None = None
        try:
            work = await self._read(receive, record)
            job = self._job(work, record)
            watch = asyncio.create_task(self._watch(receive, job))
            state.door.enter(job)
            await job.until_started()
            if work.stream:
                await self._stream(send, work, job)
            else:
                await self._whole(send, work, job)
            self._book(record, work, job)
        except Refusal as refusal:
            await self._refuse(send, record, refusal)
        except (ClientGoneError, ConnectionError):
            state.ledger.close(record, "abandoned")
        except EngineError as error:
            await self._broken(send, record, str(error))
        finally:
            record.status = self._status
            if job is not None:
                if job.phase is not Phase.DONE:
                    state.door.abandon(job)
                record.queued, record.service = job.queue_time, job.service_time
                record.tokens = job.produced * job.width
            if watch is not None:
                watch.cancel()
            # A cancelled handler (server shutdown) leaves its client without an answer.
            state.ledger.close(record, "failed", "shutdown")

    # Reading.

    async def _read(self, receive: Receive, record: Record) -> Work:
        settings = self._state.settings
        if self._state.ledger.in_flight > settings.max_concurrency:
            raise Refusal("too_many_requests_in_progress", "Too many requests in progress.", status=503, wait=1.0)
        length = self._headers.get("content-length", "")
        if length.isdigit() and int(length) > settings.max_body:
            raise too_large(settings.max_body)
        raw = await read_body(receive, settings.max_body, settings.read_timeout)
        record.body = hashlib.sha256(raw).hexdigest()[:32]
        try:
            body = self._route.body.model_validate_json(raw)
        except ValidationError as error:
            raise invalid(error) from None
        work = self._route.work(body, settings)
        if settings.strict_models and work.model not in settings.models:
            raise Refusal(
                "model_not_found",
                f"The model `{work.model[:100]}` does not exist. Served: {', '.join(settings.models)}.",
                status=404,
                kind="invalid_request_error",
                param="model",
            )
        return work

    def _job(self, work: Work, record: Record) -> Job:
        rank = 2
        tie = 0
        if work.priority is not None:
            rank, tie = min(max(work.priority, 0), 3), work.priority
        record.priority, record.stream, record.model = CLASSES[rank], work.stream, work.model[:100]
        return Job(
            rank=rank,
            tie=tie,
            prompt_tokens=work.prompt_tokens,
            output_tokens=work.output_tokens,
            width=work.width,
            stream=work.stream,
            blocks=prefix_blocks(work.whole),
        )

    async def _watch(self, receive: Receive, job: Job) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._state.door.abandon(job)

    # Answering.

    async def _whole(self, send: Send, work: Work, job: Job) -> None:
        await job.until_done()
        work.cached_tokens = job.cached_tokens
        body = dump(self._route.answer(work))
        self._check_gone()
        self._status = 200
        await send_whole(send, 200, body, [JSON, *self._common(work, job)])

    async def _stream(self, send: Send, work: Work, job: Job) -> None:
        headers: Headers = [EVENTS, (b"cache-control", b"no-cache"), *self._common(work, job)]
        self._status = 200
        self._head_sent = True
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        pending = self._route.opening(work)
        seen = 0
        while True:
            await job.until_progress(seen)
            work.cached_tokens = job.cached_tokens
            produced = job.produced
            pending.extend(self._route.deltas(work, seen, produced))
            seen = produced
            last = job.phase is Phase.DONE
            if last:
                pending.extend(self._route.closing(work))
            self._check_gone()
            await send({"type": "http.response.body", "body": b"".join(pending), "more_body": not last})
            if last:
                return
            pending.clear()

    def _common(self, work: Work, job: Job) -> Headers:
        headers: Headers = [
            (b"x-request-id", self._headers.get("x-request-id", work.id).encode("latin-1", "replace")[:200]),
            (b"x-queue-time", b"%d" % round(job.queue_time * 1000)),
        ]
        if job.phase is Phase.DONE:
            headers.append((b"x-inference-time", b"%d" % round(job.service_time * 1000)))
        return headers

    def _check_gone(self) -> None:
        if self._gone:
            raise ClientGoneError

    def _book(self, record: Record, work: Work, job: Job) -> None:
        ledger = self._state.ledger
        ledger.prompt_tokens += work.prompt_tokens
        ledger.completion_tokens += work.output_tokens * work.width
        self._state.metrics.served(job)
        ledger.close(record, "answered")

    async def _refuse(self, send: Send, record: Record, refusal: Refusal) -> None:
        status, body, headers = refusal_answer(self._state.settings, refusal)
        if self._head_sent:
            error = json.loads(body)["error"]
            with contextlib.suppress(OSError):
                await send({"type": "http.response.body", "body": b"data: " + dump({"error": error}) + b"\n\n"})
        else:
            self._status = status
            await send_whole(send, status, body, headers)
        self._state.ledger.close(record, "refused", refusal.code)

    async def _broken(self, send: Send, record: Record, message: str) -> None:
        refusal = Refusal("engine_error", message, status=500, kind="server_error")
        self._state.ledger.close(record, "failed", "engine_error")
        await self._refuse(send, record, refusal)


def invalid(error: ValidationError) -> Refusal:
    """A 400 that names the first field at fault."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    text = f"{where}: {first['msg']}" if where else str(first["msg"])
    return Refusal(
        "invalid_request", text[:500], status=400, kind="invalid_request_error", param=where or None
    )  # fmt: skip
