"""The layer that answers with a substitute when nothing else works, and says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from llm_client.errors import LLMClientError
from llm_client.events import FallbackUsed
from llm_client.flow.effects import Flow, Invoke
from llm_client.flow.plan import CallableStep, OtherStep, Plan, StaticStep, Step
from llm_client.flow.prepare import with_model
from llm_client.flow.run import Reply, Run
from llm_client.model import UNSET, Headers
from llm_client.wire import PEEKED
from llm_client.wire.static import static_completion

Inner = Callable[[Run], Flow[Reply]]


def with_fallback(run: Run, inner: Inner) -> Flow[Reply]:
    """Run the call; when it fails for a reason the chain covers, take the chain's first answer.

    Raises:
        LLMClientError: the call's own error, when the chain has no answer either.
    """
    try:
        return (yield from inner(run))
    except LLMClientError as error:
        steps = _chain(run.plan, run.call.fallback)
        if not steps or not _covers(run, error):
            raise
        for step in steps:
            reply = yield from _take(run, step, error, inner)
            if reply is not None:
                return reply
        raise


def _chain(plan: Plan, given: Any) -> tuple[Step, ...]:
    if given is UNSET:
        return tuple(plan.fallback)
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
        other = _under(run, step)
        try:
            reply = yield from inner(other)
        except LLMClientError as again:
            run.records.extend(other.records)
            error.add_note(f"fallback {step.kind} {step.model or step.plan.name!r} failed too: {again.message}")
            return None
        run.records[:] = [*run.records, *other.records]
        other.records = run.records
        other.fallback = step.kind
        _tell(run, step.kind, error)
        return reply
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
        data = None if call.data is None else {**call.data, "model": step.model}
        call = replace(call, model=step.model, request=with_model(call, step.model), data=data)
    return Run(
        call=call, plan=step.plan, services=run.services, owner=run.owner, started=run.started, waited=run.waited
    )


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


def _made(run: Run, kind: str, body: bytes, error: LLMClientError) -> Reply:
    run.fallback = kind
    _tell(run, kind, error)
    content_type = "text/event-stream" if run.call.stream else "application/json"
    headers = Headers([("content-type", content_type), ("x-llm-client-fallback", kind)])
    return Reply(status=200, headers=headers, run=run, body=body)


def _tell(run: Run, kind: str, error: LLMClientError) -> None:
    run.emit(FallbackUsed(at=run.now(), call=run.call.id, profile=run.plan.name, kind=kind, reason=error.kind))
