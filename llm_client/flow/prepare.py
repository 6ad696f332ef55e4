"""From a call to the request that one endpoint gets: address, headers, model name, priority."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from llm_client._version import __version__
from llm_client.flow.bearer import KEYS, has_own_key
from llm_client.flow.measured import streaming_fields
from llm_client.flow.plan import OtherStep, Target
from llm_client.model import Call, Request

USER_AGENT = f"llm_client/{__version__}"


def prepare(call: Call, target: Target, attempt: int, token: str | None = None, *, streamed: bool = False) -> Request:
    """Build the request of one attempt.

    All attempts of a call carry the same `Idempotency-Key` and count up `x-llm-client-attempt`, so that
    servers and gateways can tell a repetition from a new call. The caller's own headers win; with a key of the
    caller's own, in whichever header, none of the endpoint's is sent.

    Args:
        call: what the user asked.
        target: the endpoint it goes to.
        attempt: counted from 1.
        token: a bearer token that replaces the endpoint's own authorisation.
        streamed: ask for a stream although the call is a plain one.
    """
    given = {name.lower() for name, _ in call.request.headers}
    own = [
        ("user-agent", USER_AGENT),
        ("content-type", "application/json"),
        ("accept", "text/event-stream" if call.stream or streamed else "application/json"),
        ("idempotency-key", call.id),
        *target.headers,
    ]
    if token is not None or has_own_key(call):
        own = [(name, value) for name, value in own if name.lower() not in KEYS]
    if token is not None:
        own.append(("authorization", f"Bearer {token}"))
    headers = [(name, value) for name, value in own if name.lower() not in given] if given else own
    if target.dialect.load_request is not None and target.dialect.load_request[0] not in given:
        headers.append(target.dialect.load_request)
    headers += call.request.headers
    headers.append(("x-llm-client-attempt", str(attempt)))
    path = call.request.path
    return Request(
        method=call.request.method,
        path=path,
        query=(*target.query, *call.request.query),
        headers=tuple(headers),
        body=_body(call, target, streamed=streamed),
        url=address(target.base_url, path),
    )


def address(base_url: str, path: str) -> str:
    """Join an address; a path that begins with a slash stands beside the API's `/v1`, not below it."""
    base_url = base_url.rstrip("/")
    if path.startswith("/"):
        return base_url.removesuffix("/v1") + path
    return f"{base_url}/{path}" if path else base_url


def _body(call: Call, target: Target, *, streamed: bool) -> bytes:
    """Return the call's bytes, rewritten only where this endpoint knows another name, takes a priority or streams."""
    changes: dict[str, Any] = {}
    if target.models is not None and call.model is not None:
        served = target.models.get(call.model, call.model)
        if served != call.model:
            changes["model"] = served
    field = target.dialect.priority_field if target.forward_priority else None
    if not changes and field is None and not streamed:
        return call.request.body
    data = call.data if call.data is not None else json.loads(call.request.body)
    if field is not None and field not in data:
        changes[field] = target.dialect.priority_value(call.priority)
    if streamed:
        changes |= streaming_fields(call, data)
    return json.dumps({**data, **changes}, ensure_ascii=False, separators=(",", ":")).encode()


def for_model(call: Call, step: OtherStep) -> Call:
    """Return the call asking for another model, with the fields that the other model takes."""
    data = dict(call.data if call.data is not None else json.loads(call.request.body))
    for old, new in step.rename.items():
        if old in data:
            data[new] = data.pop(old)
    data = {name: value for name, value in data.items() if name not in step.drop}
    data |= {**step.set, "model": step.model}
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    return replace(call, model=step.model, request=replace(call.request, body=body), data=data)
