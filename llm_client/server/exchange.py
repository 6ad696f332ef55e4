"""One inference request from its first byte to its last: read, admit, wait, answer, and book it once."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Iterable
from typing import Any

from .dialects import DIALECTS, openai
from .faults import Fault
from .intake import load_report, parse, priority, time_left
from .job import CLASSES, ClientGoneError, Job, Phase, Refusal
from .ledger import Record
from .protocol import TRANSPORT
from .reply import EVENTS, JSON, read_body, refusal_answer, too_large
from .routes import DONE, Route, dump
from .state import State
from .text import prefix_blocks
from .work import Work
from .writer import FaultyWriter, Headers, InjectedError, Receive, Scope, Send, Writer, break_connection

_log = logging.getLogger(__name__)


class Exchange:
    """Answers one request of one route; an ASGI application.

    Args:
        state: what all requests share.
        route: how this kind of call reads and answers.
        headers: the request's headers, names in lower case.
    """

    def __init__(self, state: State, route: Route, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._state = state
        self._route = route
        # A dict, because the framework's headers search their list for every name asked for.
        self._headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        self._dialect = DIALECTS[state.settings.dialect]
        self._key = ""
        self._number = 0
        self._charged = 0
        self._gone = False
        self._head_sent = False
        self._status = 0
        self._job: Job | None = None
        self._watch: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve it; every way out books exactly one result."""
        state = self._state
        state.begin()  # for servers without a lifespan, such as one inside a test
        self._transport = (scope.get("state") or {}).get(TRANSPORT)
        record = state.ledger.open(scope["path"], time.time())
        self._number = record.number
        record.attempt = self._headers.get("x-llm-client-attempt")
        record.idempotency_key = self._headers.get("idempotency-key")
        writer = Writer(send)
        broken = False
        try:
            client = scope.get("client") or ("local", 0)
            work, fault = await self._intake(receive, record, str(client[0]))
            if fault is not None and fault.stream_faults:
                writer = FaultyWriter(send, fault, self._transport, self._pause)
            job = self._admit(work, record)
            if self._dialect.early and work.stream:
                await self._head(writer)
            await job.until_started()
            await (self._stream(writer, work, job) if work.stream else self._whole(writer, work, job))
            self._book(record, work, job)
        except Refusal as refusal:
            await self._refuse(writer, record, refusal)
        except (ClientGoneError, ConnectionError):
            state.ledger.close(record, "abandoned")
        except InjectedError as error:
            state.ledger.close(record, "failed", f"fault_{error.reason}")
            broken = error.reason in {"reset", "cut", "hang"}
        except Exception:  # noqa: BLE001 - a defect of ours must still be booked and answered
            _log.exception("a request failed unexpectedly")
            state.ledger.close(record, "failed", "internal_error")
            text = "The server has a defect; its log tells more."
            await self._refuse(writer, record, Refusal("internal_error", text, status=500, kind="server_error"))
        finally:
            self._settle(record)
        if broken:
            await self._close()

    # Before the engine.

    async def _intake(self, receive: Receive, record: Record, client: str) -> tuple[Work, Fault | None]:
        """Check, read, misbehave where the fault comes first, and say what is to be done."""
        state, settings = self._state, self._state.settings
        if state.ledger.in_flight > settings.max_concurrency:
            raise Refusal("too_many_requests_in_progress", "Too many requests in progress.", status=503, wait=1.0)
        length = self._headers.get("content-length", "")
        if length.isdigit() and int(length) > settings.max_body:
            raise too_large(settings.max_body)
        raw = await read_body(receive, settings.max_body, settings.read_timeout)
        record.body = hashlib.sha256(raw).hexdigest()[:32]
        self._watch = asyncio.create_task(self._watch_client(receive))
        self._key = state.keys.check(self._headers, client)
        body = parse(self._route.body, raw)
        record.model = str(getattr(body, "model", ""))[:100]
        try:
            fault = state.faults.pick(record.path, record.model, self._headers, _now())
            work = self._route.work(body, settings)
        except ValueError as error:
            raise Refusal("invalid_request", str(error)[:500], status=400, kind="invalid_request_error") from None
        record.stream = work.stream
        if fault is not None:
            await self._misbehave(fault, work)
        self._check(work)
        return work, fault

    def _check(self, work: Work) -> None:
        settings = self._state.settings
        if settings.strict_models and work.model not in settings.models:
            text = f"The model `{work.model[:100]}` does not exist. Served: {', '.join(settings.models)}."
            raise Refusal("model_not_found", text, status=404, kind="invalid_request_error", param="model")
        longest = settings.longest
        if work.prompt_tokens + work.output_tokens > longest:
            text = (
                f"This model's maximum context length is {longest} tokens. However, you requested "
                f"{work.prompt_tokens + work.output_tokens} tokens ({work.prompt_tokens} in the input, "
                f"{work.output_tokens} in the answer). Shorten one of them."
            )
            raise Refusal("context_length_exceeded", text, status=400, kind="invalid_request_error")

    async def _misbehave(self, fault: Fault, work: Work) -> None:
        if fault.latency:
            await self._pause(fault.latency)
        if fault.hang:
            await self._pause(fault.stall_for)
            raise InjectedError("hang")
        if (fault.reset == 0 or fault.cut == 0) and self._transport is not None:
            break_connection(self._transport, reset=fault.reset == 0)
            raise InjectedError("reset" if fault.reset == 0 else "cut")
        if fault.overload:
            raise self._state.door.full("could not be queued")
        if fault.status is not None:
            raise _Status(fault)
        if fault.text is not None:
            work.say(fault.text)

    def _admit(self, work: Work, record: Record) -> Job:
        state, now = self._state, _now()
        rank, tie = priority(self._headers, work.priority, larger_first=state.settings.dialect == "sglang")
        record.priority = CLASSES[rank]
        left = time_left(self._headers)
        if state.limits.active:
            charge = work.prompt_tokens + work.output_tokens * work.width
            state.limits.admit(self._key, charge, now)
            self._charged = charge
        job = self._job = Job(
            rank=rank,
            tie=tie,
            prompt_tokens=work.prompt_tokens,
            output_tokens=work.output_tokens,
            width=work.width,
            stream=work.stream,
            blocks=prefix_blocks(work.whole) if state.settings.preset is not None else (),
            deadline=now + left if left < math.inf else math.inf,
        )
        state.door.live.add(job)
        state.door.enter(job)
        return job

    async def _watch_client(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if self._job is not None:
            self._state.door.abandon(self._job)

    async def _pause(self, seconds: float) -> None:
        """Sleep, or raise as soon as the client leaves."""
        if self._watch is not None and seconds > 0:
            await asyncio.wait({self._watch}, timeout=seconds)
        self._check_gone()

    # After the engine.

    async def _whole(self, writer: Writer, work: Work, job: Job) -> None:
        await job.until_done()
        work.cached_tokens = job.cached_tokens
        body = dump(self._route.answer(work))
        self._check_gone()
        self._status = 200
        await writer.whole(200, body, [JSON, *self._common()])

    async def _head(self, writer: Writer) -> None:
        self._status = 200
        self._head_sent = True
        await writer.head([EVENTS, (b"cache-control", b"no-cache"), *self._common()])

    async def _stream(self, writer: Writer, work: Work, job: Job) -> None:
        if not self._head_sent:
            await self._head(writer)
        work.cached_tokens = job.cached_tokens
        writer.put(self._route.opening(work))
        seen, last = 0, False
        while not last:
            await job.until_progress(seen)
            last = job.phase is Phase.DONE
            writer.put(self._route.deltas(work, seen, job.produced), content=True)
            seen = job.produced
            if last:
                writer.put(self._route.closing(work))
            self._check_gone()
            await writer.flush(last=last)

    def _common(self) -> Headers:
        state, job = self._state, self._job
        headers: Headers = []
        name = self._headers.get("x-request-id", f"req-{self._number}")
        headers.append((b"x-request-id", name.encode("latin-1", "replace")[:200]))
        if job is not None and not math.isnan(job.started):
            headers.append((b"x-queue-time", b"%d" % round(job.queue_time * 1000)))
            if job.phase is Phase.DONE:
                headers.append((b"x-inference-time", b"%d" % round(job.service_time * 1000)))
        if (wish := self._headers.get("endpoint-load-metrics-format")) is not None:
            report = load_report(wish, state.door.report())
            if report is not None:
                headers.append((b"endpoint-load-metrics", report))
        if state.limits.active and self._key:
            headers.extend(state.limits.headers(self._key, _now()))
        return headers

    def _check_gone(self) -> None:
        if self._gone:
            raise ClientGoneError

    # The books.

    def _book(self, record: Record, work: Work, job: Job) -> None:
        state = self._state
        state.ledger.prompt_tokens += work.prompt_tokens
        state.ledger.completion_tokens += work.output_tokens * work.width
        state.metrics.served(job)
        if state.door.shedder is not None:
            state.door.shedder.observe(job.finished - job.arrived, _now())
        state.ledger.latencies.append((job.first - job.arrived, job.finished - job.arrived))
        state.ledger.close(record, "answered")

    async def _refuse(self, writer: Writer, record: Record, refusal: Refusal) -> None:
        self._check_in_refusal(record, refusal)
        frame = self._dialect.frames.get(refusal.code) if record.stream else None
        if self._head_sent or frame is not None:
            if not self._head_sent:
                await self._head(Writer(writer.send))
            frame = frame or self._frame(refusal)
            plain = Writer(writer.send)
            plain.put([b"data: " + dump(frame) + b"\n\n", DONE])
            await plain.flush(last=True)
            return
        if isinstance(refusal, _Status):
            status, body, headers = refusal.answer(self._state)
        else:
            status, body, headers = refusal_answer(self._state.settings, refusal)
        self._status = status
        await Writer(writer.send).whole(status, body, [*headers, *self._common()])

    def _frame(self, refusal: Refusal) -> dict[str, Any]:
        """The error frame of a refusal that this dialect has no words for."""
        shape = self._dialect.other(refusal.status or 503, refusal)
        return shape if isinstance(shape, dict) and "error" in shape else openai(0, refusal)

    def _check_in_refusal(self, record: Record, refusal: Refusal) -> None:
        if isinstance(refusal, _Status):
            self._state.ledger.close(record, "failed", "fault_status")
        else:
            self._state.ledger.close(record, "refused", refusal.code)

    def _settle(self, record: Record) -> None:
        state, job = self._state, self._job
        record.status = self._status
        if job is not None:
            state.door.abandon(job)  # does nothing for one that is done
            state.door.done(job)
            record.queued, record.service = job.queue_time, job.service_time
            record.tokens = job.produced * job.width
        if self._charged:
            used = 0 if job is None or math.isnan(job.started) else job.prompt_tokens + job.produced * job.width
            state.limits.settle(self._key, self._charged - used, _now())
        if self._watch is not None:
            self._watch.cancel()
        # A cancelled handler (the server is being stopped) leaves its client without an answer.
        state.ledger.close(record, "failed", "shutdown")

    async def _close(self) -> None:
        """Make sure that a connection broken on purpose is gone before the framework looks at it."""
        if self._transport is None:
            raise ConnectionResetError("fault injected: the connection is broken")
        self._transport.close()
        await asyncio.sleep(0.01)  # the protocol learns of it in a later turn of the loop


_KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


def _kind(status: int) -> str:
    """Return the error type that goes with a status: a fault that says 500 must not read as overload."""
    return _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")


class _Status(Refusal):
    """An answer that a fault prescribes."""

    def __init__(self, fault: Fault) -> None:
        status = fault.status or 500
        super().__init__("injected_fault", f"Fault injected: status {status}.", status=status, kind=_kind(status))
        self._fault = fault

    def answer(self, state: State) -> tuple[int, bytes, Headers]:
        fault = self._fault
        status, body, headers = refusal_answer(state.settings, self)
        if fault.body is not None:
            body, headers = fault.body.encode(), [(b"content-type", fault.content_type.encode())]
        headers.extend((name.lower().encode(), value.encode("latin-1")) for name, value in fault.headers.items())
        return fault.status or status, body, headers


def _now() -> float:
    return asyncio.get_running_loop().time()
