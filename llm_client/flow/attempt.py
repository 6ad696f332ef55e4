"""The innermost layer: one request to one endpoint, read far enough to know what it is."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from math import inf

from llm_client.core.permit import Permit
from llm_client.core.retry_after import rate_headers
from llm_client.errors import DeadlineExceededError, LLMClientError
from llm_client.events import AttemptStarted
from llm_client.flow.bearer import clean_token, has_own_key
from llm_client.flow.delivery import Delivery, announce
from llm_client.flow.effects import Close, Exchange, Fault, FaultKind, Flow, Invoke, Peek, Send
from llm_client.flow.learning import learn_dialect, note_load
from llm_client.flow.measured import refuses_streaming
from llm_client.flow.plan import Target
from llm_client.flow.prepare import prepare
from llm_client.flow.run import Failed, Reply, Run
from llm_client.model import OK, Headers, Kind, Outcome, Usage
from llm_client.wire import PEEKED
from llm_client.wire.classify import of_fault, of_response
from llm_client.wire.dialects import AUTO
from llm_client.wire.failure import to_error
from llm_client.wire.stream import Chunk, StreamReader

# A stream that has said nothing of substance after this much is handed over as it is.
PEEK_LIMIT = 65_536
# An error body longer than this is cut: it is for reading, not for delivery.
ERROR_LIMIT = 65_536


@dataclass(slots=True)
class _Reading:
    """What was read of one answer before it was judged.

    Attributes:
        target: the endpoint as it was then; it may be gone before the answer is.
        streamed: the server was asked for a stream, by the caller or under the hood.
        hidden: under the hood: the caller gets the whole answer.
        over: the answer was read to its end.
    """

    target: Target
    streamed: bool
    hidden: bool
    raw: list[bytes] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    reader: StreamReader | None = None
    live: bool = False
    over: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.raw)

    @property
    def usage(self) -> Usage | None:
        return None if self.reader is None else self.reader.usage


def attempt(run: Run, permit: Permit) -> Flow[Reply | Failed]:
    """Send one request under a permit; give back a reply, or what the failure taught.

    The permit is settled here, or handed to the reply's delivery.
    """
    run.limit = permit.station.limit.limit
    handed = False
    started = run.now()
    target, bounds = run.services.targets[permit.endpoint], run.plan.bounds
    try:
        while True:
            exchange: Exchange | None = None
            hidden = run.measured(permit.endpoint)
            reading = _Reading(target, streamed=run.call.stream or hidden, hidden=hidden)
            patience = bounds.first_token if reading.streamed else bounds.attempt
            until = min(run.deadline, started + patience)
            _tell(run, permit, started)
            try:
                exchange = yield from _send(run, until, reading)
                if permit.reservation is not None:
                    permit.windows = rate_headers(exchange.headers, wall=run.services.clock.wall())
                outcome = yield from _read(run, permit, exchange, reading, started=started, until=until)
            except Fault as fault:
                outcome = _judge(run, fault, exchange, reading)
            if outcome.ok or exchange is None or not _once_more(run, permit, outcome, reading):
                break
            run.record(permit, started, replace(outcome, refusal=True), now=run.now())  # it costs no attempt
            yield Close(exchange, drain=True)
            started = run.now()
        if reading.live and exchange is not None:
            delivery = Delivery(
                run, permit, exchange, reading.reader, chunks=reading.chunks, raw=reading.raw, started=started
            )
            handed = True
            return _reply(run, reading, exchange, b"", delivery)
        usage, now = reading.usage, run.now()
        permit.settle(outcome, now, usage)
        handed = True
        run.record(permit, started, outcome, now=now, usage=usage)
        if exchange is not None and not reading.over:
            yield Close(exchange, drain=outcome.ok)
        if outcome.ok and exchange is not None:
            if run.services.learn is not None:
                run.services.learn(run.call, usage)
            return _complete(run, permit, exchange, reading)
        return Failed(outcome, _error(run, permit, outcome, exchange, reading), permit.endpoint)
    finally:
        if not handed:
            now = run.now()
            permit.drop(now)
            run.record(permit, started, OK, now=now, cancelled=True)


def _tell(run: Run, permit: Permit, started: float) -> None:
    if run.services.listening:
        run.emit(
            AttemptStarted(
                at=started, call=run.call.id, profile=run.plan.name, endpoint=permit.endpoint, number=run.number
            )
        )


def _once_more(run: Run, permit: Permit, outcome: Outcome, reading: _Reading) -> bool:
    """Tell whether to send again under the same permit after a failure, at most once for each reason.

    After a 401 to a token that a function of the user's gave: it may have run out on the way. After an error
    about streaming that the caller did not ask for: he gets the plain answer that he asked for.
    """
    name = permit.endpoint
    if not run.call.replayable:
        return False
    renewable = reading.target.token is not None and not has_own_key(run.call)
    if outcome.kind is Kind.AUTH and renewable and name not in run.renewed:
        run.renewed |= {name}
        return True
    if reading.hidden and refuses_streaming(outcome, reading.body):
        run.plain |= {name}
        return True
    return False


def _send(run: Run, until: float, reading: _Reading) -> Flow[Exchange]:
    """Send, and once more on a new connection when a kept-alive one died under the request."""
    target, token = reading.target, None
    if target.token is not None and not has_own_key(run.call):
        token = yield from _token(run, target)
    if target.forward_priority and target.dialect is AUTO:
        target = yield from learn_dialect(run, target)
        reading.target = target
    request = prepare(run.call, target, run.number, token, streamed=reading.hidden)
    connect = run.plan.bounds.connect
    try:
        exchange: Exchange = yield Send(request, until, connect)
    except Fault as fault:
        if fault.kind is not FaultKind.STALE or run.resent or not _may_resend(run):
            raise
        run.resent = True
        exchange = yield Send(request, until, connect, fresh=True)
    return exchange


def _token(run: Run, target: Target) -> Flow[str]:
    """Ask the user's function for a token, for as long as the call has time."""
    assert target.token is not None  # noqa: S101 - asked by the caller
    try:
        given = yield Invoke(target.token, (), None if run.deadline == inf else run.deadline)
    except Fault:
        raise DeadlineExceededError(
            f"auth of endpoint {target.name}: the function gave no token before the call's deadline",
            endpoint=target.name,
            attempts=tuple(run.records),
        ) from None
    return clean_token(given, target.name)


def _may_resend(run: Run) -> bool:
    return run.call.replayable and run.plan.retry.unknown_outcome


def _read(
    run: Run, permit: Permit, exchange: Exchange, reading: _Reading, *, started: float, until: float
) -> Flow[Outcome]:
    """Read until it is clear what the answer is: all of a plain one, the first content of a stream."""
    call = run.call
    headers, status = exchange.headers, exchange.status
    note_load(run, permit, reading.target, headers)
    wall = run.services.clock.wall()
    cap = run.plan.retry.cap
    if not 200 <= status < 300 or status == 202:
        yield from _collect(exchange, until, reading, limit=ERROR_LIMIT)
        return of_response(status, headers, reading.body, route=call.route, wall=wall, cap=cap)
    if call.route in PEEKED:
        reader = StreamReader(
            call.route,
            strict=run.plan.strict_end,
            held=reading.hidden,
            content_type=headers.get("content-type", ""),
            status=status,
            headers=headers,
            wall=wall,
            cap=cap,
        )
        reading.reader = reader
        if reading.hidden:
            return (yield from _read_hidden(run, permit, exchange, reading, reader, started=started, until=until))
        return (yield from _peek(run, permit, exchange, reading, reader, started=started, until=until))
    if call.route != "other" and not call.stream:
        yield from _collect(exchange, until, reading, limit=inf)
        return of_response(status, headers, reading.body, route=call.route, wall=wall, cap=cap)
    exchange.unbound()
    reading.live = True
    announce(run, permit, started)
    return OK


def _peek(
    run: Run,
    permit: Permit,
    exchange: Exchange,
    reading: _Reading,
    reader: StreamReader,
    *,
    started: float,
    until: float,
) -> Flow[Outcome]:
    stream, liveness = run.call.stream, run.plan.bounds.liveness
    size = 0
    while True:
        wait = min(until, run.now() + liveness) if stream else until
        data = yield Peek(exchange, wait)
        if data is None:
            reading.over = True
            outcome = reader.end()
            if stream:
                reading.chunks += reader.late
            return outcome
        size += len(data)
        reading.raw.append(data)
        reading.chunks += reader.feed(data)
        if reader.failure is not None:
            return reader.failure
        if reader.ended:
            if reader.content and stream:
                announce(run, permit, started)
            return reader.end()
        if stream and (reader.content or size > PEEK_LIMIT):
            reading.live = True
            announce(run, permit, started)
            return OK
        if run.now() >= until:  # bytes kept coming, but no content did
            raise Fault(FaultKind.READ_TIMEOUT, "no content in time")


def _read_hidden(
    run: Run,
    permit: Permit,
    exchange: Exchange,
    reading: _Reading,
    reader: StreamReader,
    *,
    started: float,
    until: float,
) -> Flow[Outcome]:
    """Read a stream to its end for a caller who waits for the whole, by the clocks of a stream."""
    bounds, progress = run.plan.bounds, 0
    while not reader.ended:
        data = yield Peek(exchange, min(until, run.now() + bounds.liveness))
        if data is None:
            reading.over = True
            break
        now = run.now()
        permit.alive(now)
        reading.raw.append(data)
        reader.feed(data)
        if reader.progress != progress:
            if not progress:
                announce(run, permit, started)
            progress = reader.progress
            until = min(run.deadline, now + bounds.progress)
        elif not reader.streamed:  # the server answers plainly all the same
            until = min(run.deadline, started + bounds.attempt)
        if now >= until:
            raise Fault(FaultKind.READ_TIMEOUT, "no progress in time")
    return reader.end() if reader.failure is None else reader.failure


def _collect(exchange: Exchange, until: float, reading: _Reading, *, limit: float) -> Flow[None]:
    size = 0
    while size <= limit:
        data = yield Peek(exchange, until)
        if data is None:
            reading.over = True
            return
        size += len(data)
        reading.raw.append(data)


def _judge(run: Run, fault: Fault, exchange: Exchange | None, reading: _Reading) -> Outcome:
    """Say what a fault means for this call: our own deadline is not the server's time-out."""
    kind = fault.kind
    if kind in (FaultKind.READ_TIMEOUT, FaultKind.CONNECT_TIMEOUT) and run.now() >= run.deadline:
        kind = FaultKind.DEADLINE
    if exchange is None:
        again, run.reset = run.reset and kind is FaultKind.RESET, kind is FaultKind.RESET
        return of_fault(kind, again=again)
    if not 200 <= exchange.status < 300:  # the status is the answer; a cut error body does not change it
        return of_response(
            exchange.status,
            exchange.headers,
            reading.body,
            route=run.call.route,
            wall=run.services.clock.wall(),
            cap=run.plan.retry.cap,
            truncated=True,
        )
    if reading.reader is not None:
        return reading.reader.cut(kind)
    return of_fault(kind, body_started=True)


def _complete(run: Run, permit: Permit, exchange: Exchange, reading: _Reading) -> Reply:
    """Make the reply of a complete body; an event stream that answers a plain call is put together."""
    reader = reading.reader
    plain = reader is None or not reader.streamed
    if permit.endpoint in run.plain or (reading.hidden and plain):
        run.services.plain_only.add(permit.endpoint)
    if plain or reader is None or run.call.stream:
        reply = _reply(run, reading, exchange, reading.body, None)
        reply.chunks = reading.chunks
        return reply
    body = json.dumps(reader.assemble(), ensure_ascii=False).encode("utf-8", "replace")
    reply = _reply(run, reading, exchange, body, None)
    about = [(name, value) for name, value in reply.headers.pairs if name.lower() != "content-type"]
    reply.headers = Headers([*about, ("content-type", "application/json")])
    return reply


def _error(run: Run, permit: Permit, outcome: Outcome, exchange: Exchange | None, reading: _Reading) -> LLMClientError:
    partial = reading.reader.text if reading.reader is not None else ""
    if reading.hidden and outcome.kind is not Kind.STREAM_INTERRUPTED:
        partial = ""  # the caller knows of no stream: the class is that of a plain call
    return to_error(
        outcome,
        body=reading.body,
        headers=None if exchange is None else exchange.headers,
        endpoint=permit.endpoint,
        attempts=tuple(run.records),
        partial=partial,
    )


def _reply(run: Run, reading: _Reading, exchange: Exchange, body: bytes, delivery: Delivery | None) -> Reply:
    headers = exchange.headers
    if run.request_id is None:
        run.request_id = headers.get("x-request-id") or headers.get("request-id")
    return Reply(
        status=exchange.status,
        headers=headers,
        run=run,
        body=body,
        delivery=delivery,
        url=f"{reading.target.base_url}/{run.call.request.path}",
    )
