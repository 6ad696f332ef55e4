"""The layer that answers with a substitute when nothing else works, and says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from llm_client.errors import LLMClientError
from llm_client.events import FallbackUsed
from llm_client.flow.answers import LONGEST, key_of
from llm_client.flow.context import too_small
from llm_client.flow.effects import Flow, Invoke
from llm_client.flow.plan import CachedStep, CallableStep, OtherStep, StaticStep, Step
from llm_client.flow.prepare import for_model
from llm_client.flow.run import Reply, Run
from llm_client.model import UNSET, Headers
from llm_client.wire import PEEKED
from llm_client.wire.static import static_completion

Inner = Callable[[Run], Flow[Reply]]


def with_fallback(run: Run, steps: tuple[Step, ...], inner: Inner) -> Flow[Reply]:
    """Run the call; when it fails for a reason the chain covers, take the chain's first answer.

    Without a chain there is nothing to do here, and the layer may be left out.

    Raises:
        LLMClientError: the call's own error, when the chain has no answer either.
    """
    try:
        reply = yield from inner(run)
    except LLMClientError as error:
        if not _covers(run, error):
            raise
        for step in steps:
            substitute = yield from _take(run, step, error, inner)
            if substitute is not None:
                return substitute
        raise
    for step in steps:
        if isinstance(step, CachedStep):
            _keep(run, step, reply)
    return reply


def chain(run: Run) -> tuple[Step, ...]:
    """Return what a call falls back on: its own chain, or else its profile's."""
    given = run.call.fallback
    if given is UNSET:
        return tuple(run.plan.fallback)
    if given is None:
        return ()
    if isinstance(given, str):
        return (StaticStep(text=given),)
    if callable(given):
        return (CallableStep(function=given),)
    return tuple(given)


def _covers(run: Run, error: LLMClientError) -> bool:
    """A chain given with the call covers every failure; the profile's covers what it lists."""
    return run.call.fallback is not UNSET or error.kind in run.plan.fallback_on


def _take(run: Run, step: Step, error: LLMClientError, inner: Inner) -> Flow[Reply | None]:
    call = run.call
    if isinstance(step, OtherStep):
        try:
            other = _under(run, step)
        except ValueError:
            error.add_note("fallback model skipped: the request's body is no JSON, so its model stays")
            return None
        name = f"{step.kind} {step.model or step.plan.name!r}"
        if why := too_small(other.call, step.plan, run.services.targets):
            error.add_note(f"fallback {name} skipped: the call {why}")
            return None
        try:
            reply = yield from inner(other)
        except LLMClientError as again:
            run.records.extend(other.records)
            error.add_note(f"fallback {name} failed too: {again.message}")
            return None
        run.records.extend(other.records)
        answered = reply.run  # another one than `other` when a hedge won
        answered.before -= len(run.records) - len(other.records)
        answered.records = run.records
        answered.fallback = step.kind
        _tell(run, step.kind, error)
        return reply
    if isinstance(step, CachedStep):
        key = key_of(call)
        kept = None if key is None else step.answers.get(key, run.now())
        if kept is None:
            error.add_note("fallback cached skipped: this request got no answer before that is kept still")
            return None
        return _made(run, "cached", kept.body, error, kept.content_type)
    if isinstance(step, StaticStep):
        if not _plain(run):
            error.add_note("fallback static skipped: a fixed text cannot stand for tools or a structured answer")
            return None
        body = static_completion(step.text, call.model or "", call.stream, route=call.route)
        return _made(run, "static", body, error)
    value = yield Invoke(step.function, (call.data, error))
    if value is None:
        return None
    return _made(run, "callable", _body(run, value), error)


def _under(run: Run, step: OtherStep) -> Run:
    call = replace(run.call, fallback=None)
    if step.model is not None:
        call = for_model(call, step)
    return Run(
        call=call,
        plan=step.plan,
        services=run.services,
        owner=run.owner,
        started=run.started,
        waited=run.waited,
        before=len(run.records),
    )


def _keep(run: Run, step: CachedStep, reply: Reply) -> None:
    """Keep a good answer for the same request later: now, or when the rest of it has come."""
    key = key_of(run.call)
    if key is None or reply.status != 200:
        return
    content_type = reply.headers.get("content-type", "application/json")

    def put(body: bytes) -> None:
        step.answers.put(key, body, content_type, run.now())

    if reply.delivery is None:
        put(reply.body)
    else:
        reply.delivery.keep(put, LONGEST)


def _plain(run: Run) -> bool:
    if run.call.route not in PEEKED:
        return False
    data = run.call.data
    if data is None:
        data = json.loads(run.call.request.body or b"{}")
    return not any(data.get(field) for field in ("tools", "functions", "response_format", "text"))


def _body(run: Run, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return static_completion(value, run.call.model or "", run.call.stream, route=run.call.route)
    if hasattr(value, "model_dump_json"):
        return str(value.model_dump_json()).encode()
    return json.dumps(value).encode()


def _made(run: Run, kind: str, body: bytes, error: LLMClientError, content_type: str = "") -> Reply:
    run.fallback = kind
    _tell(run, kind, error)
    content_type = content_type or ("text/event-stream" if run.call.stream else "application/json")
    headers = Headers([("content-type", content_type), ("x-llm-client-fallback", kind)])
    return Reply(status=200, headers=headers, run=run, body=body)


def _tell(run: Run, kind: str, error: LLMClientError) -> None:
    run.emit(FallbackUsed(at=run.now(), call=run.call.id, profile=run.plan.name, kind=kind, reason=error.kind))
