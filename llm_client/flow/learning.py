"""What an endpoint says about itself beside its answers: which server it is, and how busy."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from llm_client.core.permit import Permit
from llm_client.flow.effects import Close, Exchange, Fault, Flow, Peek, Send
from llm_client.flow.plan import Target
from llm_client.flow.run import Run
from llm_client.model import Headers, Request
from llm_client.wire.dialects import AUTO, dialect, guess, parse_load
from llm_client.wire.problem import decode_json

# Seconds that a call waits for its server's model list, once; and seconds until a server that gave none is asked again.
_PATIENCE: Final = 2.0
_AGAIN: Final = 60.0
_LONGEST: Final = 262_144


def learn_dialect(run: Run, target: Target) -> Flow[Target]:
    """Ask an endpoint which server it is, where it matters: priorities run in opposite directions.

    One call asks, the others go on without a priority until it is known.
    """
    asked, now = run.services.asked, run.now()
    if target.dialect is not AUTO or asked.get(target.name, -_AGAIN) > now - _AGAIN:
        return target
    asked[target.name] = now
    until = min(run.deadline, now + _PATIENCE)
    request = Request(
        method="GET",
        path="models",
        url=f"{target.base_url.rstrip('/')}/models",
        query=target.query,
        headers=(*target.headers, ("accept", "application/json")),
    )
    try:
        exchange: Exchange = yield Send(request, until, run.plan.bounds.connect)
        body = yield from _read(exchange, until)
        yield Close(exchange, drain=True)
    except Fault:
        return target
    try:
        models = decode_json(body)
    except ValueError:
        models = None
    found = guess(exchange.headers, models)
    if found == AUTO.name:
        return target
    known = replace(target, dialect=dialect(found))
    if run.services.targets.get(target.name) is target:
        run.services.targets[target.name] = known
    return known


def _read(exchange: Exchange, until: float) -> Flow[bytes]:
    pieces, size = [], 0
    while size <= _LONGEST:
        data = yield Peek(exchange, until)
        if data is None:
            break
        size += len(data)
        pieces.append(data)
    return b"".join(pieces)


def note_load(run: Run, permit: Permit, target: Target, headers: Headers) -> None:
    """Keep the load report that came with an answer, if its server gives any."""
    name = target.dialect.load_response
    if name is None:
        return
    value = headers.get(name)
    report = None if value is None else parse_load(value)
    if report is None:
        return
    busy = (report.waiting or 0.0) + (report.running or 0.0)
    permit.station.told(report, busy or report.kv_cache or 0.0, run.now())
