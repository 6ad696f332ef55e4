"""From what a server or the network did to an `Outcome`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic_core import from_json

from llm_client.core.retry_after import has_quota, read_hint
from llm_client.model import Headers, Kind, Outcome, RetryHint
from llm_client.wire import rules
from llm_client.wire.problem import Problem, decode_json, is_problem, problem_of, read_problem

DEFAULT_CAP: Final = 120.0
_FINE: Final = Outcome(ok=True, status=200)
_REQUEST_IDS: Final = (
    "x-request-id",
    "request-id",
    "apim-request-id",
    "cf-ray",
    "nvcf-reqid",
    "x-litellm-call-id",
    "x-generation-id",
    "x-amzn-requestid",
)
_ANY_REQUEST_ID: Final = frozenset(_REQUEST_IDS)
_CHOICES: Final = ("choices",)
# What a 2xx body of each route holds; a route that is not listed is passed on unread.
_SHAPES: Final[Mapping[str, tuple[str, ...]]] = {
    "chat": _CHOICES,
    "completions": _CHOICES,
    "responses": ("output", "status"),
    "embeddings": ("data",),
    "models": ("data",),
    "rerank": ("results", "data"),
    "score": ("data",),
    "tokenize": ("tokens", "count"),
    "detokenize": ("prompt", "text"),
}
_PERMANENT: Final = frozenset({
    Kind.CONTENT_FILTER,
    Kind.QUOTA_EXHAUSTED,
    Kind.BAD_REQUEST,
    Kind.CONTEXT_LENGTH,
    Kind.AUTH,
    Kind.PERMISSION,
    Kind.NOT_FOUND,
})  # fmt: skip
_REFUSALS: Final = frozenset({Kind.RATE_LIMITED, Kind.OVERLOADED})

_SENT_NOTHING: Final = frozenset({"connect_refused", "dns_error", "tls_error", "connect_timeout", "connect_error"})
_NO_ANSWER: Final[Mapping[str, Outcome]] = {
    "connect_refused": Outcome(kind=Kind.UNAVAILABLE, retryable=True, breaker=True),
    "dns_error": Outcome(kind=Kind.UNAVAILABLE, retryable=True, breaker=True),
    "connect_error": Outcome(kind=Kind.UNAVAILABLE, retryable=True, breaker=True),
    "connect_timeout": Outcome(kind=Kind.TIMEOUT, retryable=True, breaker=True),
    "read_timeout": Outcome(kind=Kind.TIMEOUT, retryable=True, breaker=True),
    "write_error": Outcome(kind=Kind.UNAVAILABLE, retryable=True, breaker=True),
    "reset": Outcome(kind=Kind.UNAVAILABLE, retryable=True),
    "stale": Outcome(kind=Kind.UNAVAILABLE, retryable=True, stale=True),
    "eof_abrupt": Outcome(kind=Kind.UNAVAILABLE, retryable=True),  # before any byte of a body: a reset
    "h2_goaway": Outcome(kind=Kind.UNAVAILABLE, retryable=True, stale=True),
    # RFC 9113 section 8.7: the server guarantees that it did not process the request.
    "h2_refused_stream": Outcome(kind=Kind.OVERLOADED, retryable=True, overload=True, refusal=True),
    "tls_error": Outcome(kind=Kind.PROTOCOL, breaker=True, permanent=True),
    "client_deadline": Outcome(kind=Kind.DEADLINE),
    "decode_error": Outcome(kind=Kind.PROTOCOL, breaker=True, permanent=True),
    "redirect": Outcome(kind=Kind.PROTOCOL, permanent=True),
}
_CUT: Final = Outcome(kind=Kind.STREAM_INTERRUPTED, retryable=True, breaker=True)
# Faults that keep their name when a body had begun; every other one is then a cut answer.
CLOCKS: Final = frozenset({"read_timeout", "client_deadline", "decode_error"})
_OTHER: Final = Outcome(kind=Kind.UNAVAILABLE, retryable=True, breaker=True)
_WHAT: Final[Mapping[str, str]] = {
    "connect_refused": "the connection was refused",
    "dns_error": "the host name did not resolve",
    "connect_error": "no connection could be made",
    "connect_timeout": "the connection timed out",
    "read_timeout": "the answer made no progress in time",
    "write_error": "the request could not be sent completely",
    "reset": "the connection was reset before an answer",
    "stale": "a kept-alive connection had been closed",
    "eof_abrupt": "the answer was cut off",
    "h2_goaway": "the server is closing its connection",
    "h2_refused_stream": "the server refused the stream",
    "tls_error": "the TLS connection could not be verified",
    "client_deadline": "the deadline ran out",
    "decode_error": "the content-encoding of the answer is broken or inflates without bound",
    "redirect": "the server answered with a redirect that is not followed",
}


def of_response(
    status: int,
    headers: Headers,
    body: bytes,
    *,
    route: str,
    wall: float,
    cap: float = DEFAULT_CAP,
    truncated: bool = False,
) -> Outcome:
    """Classify an answer whose body is complete.

    A 2xx answer to chat, completions or responses may be an event stream although none was asked for; give those to
    `llm_client.wire.stream.StreamReader`, which reads both.

    Args:
        status: the HTTP status.
        headers: the response's headers.
        body: its body, decoded from any content-encoding; for errors the first 64 KiB suffice.
        route: a word of `llm_client.wire.ROUTES`, or `other`.
        wall: seconds since the epoch, for dates in headers.
        cap: seconds; a server-ordered wait above it makes the call fail.
        truncated: the connection died before the body was complete.
    """
    if 200 <= status < 300 and status != 202:
        return _of_success(status, headers, body, route=route, wall=wall, cap=cap, truncated=truncated)
    if status < 400:
        return _misdirected(status, headers)
    problem = read_problem(body) or Problem()
    kind_header = headers.get("x-amzn-errortype")
    if kind_header and problem.type is None:
        problem = replace(problem, type=kind_header.partition(":")[0])
    evidence = rules.Evidence(status=status, inband=False, problem=problem, headers=headers)
    return _outcome(evidence, wall=wall, cap=cap)


def of_frame(data: object, headers: Headers, *, wall: float, cap: float = DEFAULT_CAP) -> Outcome:
    """Classify an error inside a 2xx answer: a decoded frame or body, or the text of an error event."""
    problem = problem_of(data)
    evidence = rules.Evidence(status=problem.number, inband=True, problem=problem, headers=headers)
    return _outcome(evidence, wall=wall, cap=cap)


def of_fault(kind: str, *, delivered: bool = False, body_started: bool = False, again: bool = False) -> Outcome:
    """Classify what the network did.

    Args:
        kind: a word of `FaultKind`.
        delivered: content already reached the caller, so nothing may be repeated.
        body_started: bytes of the answer's body had arrived.
        again: a fresh connection was reset for the second time in a row, which is evidence against the endpoint.
    """
    outcome = _NO_ANSWER.get(kind, _OTHER)
    if body_started or delivered:
        outcome = outcome if kind in CLOCKS else _CUT
    elif kind == "reset" and again:
        outcome = replace(outcome, breaker=True)
    return replace(
        outcome,
        message=_WHAT.get(kind, "the network failed"),
        sent=kind not in _SENT_NOTHING,
        retryable=outcome.retryable and not delivered,
        refusal=outcome.refusal and not delivered,
    )


def of_answer(data: object, headers: Headers, *, status: int, route: str, wall: float, cap: float) -> Outcome:
    """Classify the decoded JSON of a 2xx answer."""
    if isinstance(data, list) and len(data) == 1 and isinstance(data[0], dict):
        data = data[0]
    shape = _SHAPES.get(route)
    if isinstance(data, dict):
        if is_problem(data):
            return of_frame(data, headers, wall=wall, cap=cap)
        if route == "responses":
            failed = of_response_object(data, headers, wall=wall, cap=cap)
            if failed is not None:
                return failed
        elif data.get("choices"):
            failed = _of_choices(data["choices"], headers, wall=wall, cap=cap)
            if failed is not None:
                return failed
    if shape is None or _has_shape(data, route, shape):
        return fine(status, headers)
    return Outcome(
        kind=Kind.PROTOCOL,
        permanent=True,
        status=status,
        message=f"a 2xx answer without {' or '.join(shape)}",
        request_id=request_id(headers),
    )


def of_finish(reason: str, headers: Headers) -> Outcome | None:
    """Read a finish reason that is no finish: `error` and `abort` come with HTTP 200."""
    if reason == "error":
        return Outcome(
            kind=Kind.SERVER_ERROR,
            retryable=True,
            breaker=True,
            status=200,
            message="the server ended the answer with finish_reason error",
            request_id=request_id(headers),
        )
    if reason == "abort":
        return interrupted("the server aborted the answer", headers)
    return None


def of_response_object(data: Mapping[str, Any], headers: Headers, *, wall: float, cap: float) -> Outcome | None:
    """Read the `status` of a Responses API object; None when it is no failure."""
    status = data.get("status")
    if status == "failed":
        return of_frame({"error": data.get("error") or {"message": "the response failed"}}, headers, wall=wall, cap=cap)
    if status == "cancelled":
        return interrupted("the response was cancelled", headers)
    return None


def interrupted(message: str, headers: Headers) -> Outcome:
    """Describe an answer that ended before it was whole."""
    return Outcome(
        kind=Kind.STREAM_INTERRUPTED,
        retryable=True,
        breaker=True,
        status=200,
        message=message,
        request_id=request_id(headers),
    )


def protocol(message: str, headers: Headers, *, retryable: bool, status: int = 200) -> Outcome:
    """Describe a 2xx answer that is not what the API promises."""
    return Outcome(
        kind=Kind.PROTOCOL,
        retryable=retryable,
        breaker=True,
        permanent=not retryable,
        status=status,
        message=message,
        request_id=request_id(headers),
    )


def undecodable(text: bytes, headers: Headers, *, status: int, truncated: bool) -> Outcome:
    """Name a 2xx body that is not JSON."""
    if text.startswith(b"<"):
        message = (read_problem(text) or Problem()).message
        said = f": {message}" if message else ""
        return protocol(f"an HTML page instead of an answer{said}", headers, retryable=False, status=status)
    if truncated or _looks_cut(text):
        return interrupted("the answer was cut off inside its JSON", headers)
    return protocol("the answer is not JSON", headers, retryable=False, status=status)


def request_id(headers: Headers) -> str | None:
    """Find the server's or gateway's id of a request, for support tickets."""
    if headers.lacks(_ANY_REQUEST_ID):
        return None
    return next(headers[name] for name in _REQUEST_IDS if name in headers)


def fine(status: int, headers: Headers) -> Outcome:
    """Describe an answer that is as it was asked for."""
    found = request_id(headers)
    return _FINE if status == 200 and found is None else Outcome(ok=True, status=status, request_id=found)


def _of_success(
    status: int, headers: Headers, body: bytes, *, route: str, wall: float, cap: float, truncated: bool
) -> Outcome:
    if route not in _SHAPES:
        return interrupted("the answer was cut off", headers) if truncated else fine(status, headers)
    text = body.removeprefix(b"\xef\xbb\xbf").strip()
    if not text:
        if truncated:
            return interrupted("the answer was cut off before its first byte", headers)
        return protocol("an empty answer", headers, retryable=True, status=status)
    try:
        data = decode_json(text)
    except ValueError:
        return undecodable(text, headers, status=status, truncated=truncated)
    return of_answer(data, headers, status=status, route=route, wall=wall, cap=cap)


def _looks_cut(text: bytes) -> bool:
    """Tell JSON that ends too early from JSON that is broken: a body framed by closing hides its cut."""
    if text[:1] not in {b"{", b"["}:
        return False
    try:
        from_json(text.decode("utf-8", "replace"), allow_partial=True)
    except ValueError:
        return False
    return True


def _misdirected(status: int, headers: Headers) -> Outcome:
    """202 and 3xx: the answer is elsewhere, and sending the request again would run it twice."""
    kind = Kind.TIMEOUT if status == 303 else Kind.PROTOCOL
    what = "ran too long; its result is at the Location" if status == 303 else "moved or was only accepted"
    return Outcome(
        kind=kind, permanent=True, status=status, message=f"the request {what}", request_id=request_id(headers)
    )


def _of_choices(choices: object, headers: Headers, *, wall: float, cap: float) -> Outcome | None:
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        error = choice.get("error")
        if error and isinstance(error, dict | str):
            return of_frame({"error": error}, headers, wall=wall, cap=cap)
        reason = choice.get("finish_reason")
        failed = None if reason is None else of_finish(str(reason), headers)
        if failed is not None:
            return failed
    return None


def _has_shape(data: object, route: str, shape: tuple[str, ...]) -> bool:
    if isinstance(data, list):
        return route == "rerank"  # TGI and text-embeddings-inference answer with a bare list
    if not isinstance(data, dict):
        return False
    if shape == _CHOICES:
        choices = data.get("choices")
        return isinstance(choices, list) and any(isinstance(choice, dict) for choice in choices)
    return any(name in data for name in shape)


def _outcome(evidence: rules.Evidence, *, wall: float, cap: float) -> Outcome:
    problem, headers = evidence.problem, evidence.headers
    verdict = rules.judge(evidence)
    hint = _capped(read_hint(headers, list(problem.layers), problem.text, wall=wall), cap)
    retryable = verdict.retry
    advice = headers.get("x-should-retry", "").strip().lower()
    if advice == "false":
        retryable = False
    told = advice == "true" and not verdict.firm
    if told:
        retryable = True
    if hint is not None and hint.directive and hint.seconds > cap:
        retryable = False
    account = verdict.kind is Kind.RATE_LIMITED and has_quota(headers)
    return Outcome(
        kind=verdict.kind,
        retryable=retryable,
        refusal=verdict.loading or verdict.kind in _REFUSALS,
        breaker=verdict.breaker,
        overload=verdict.overload,
        loading=verdict.loading,
        permanent=not told and (verdict.kind in _PERMANENT or (verdict.kind is Kind.PROTOCOL and not verdict.retry)),
        hint=hint,
        elsewhere=not account and verdict.kind not in {Kind.QUOTA_EXHAUSTED, Kind.AUTH},
        account=account,
        status=(evidence.status or 200) if evidence.inband else evidence.status,
        message=problem.message,
        code=problem.code,
        type=problem.type,
        param=problem.param,
        request_id=request_id(headers) or problem.request_id,
    )


def _capped(hint: RetryHint | None, cap: float) -> RetryHint | None:
    if hint is None or hint.directive or hint.seconds <= cap:
        return hint
    return replace(hint, seconds=cap)
