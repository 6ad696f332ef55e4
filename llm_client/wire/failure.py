"""The exception of an outcome: the class follows the kind, the message says what to do next."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from llm_client import errors
from llm_client.model import AttemptRecord, Headers, Kind, Outcome
from llm_client.wire.problem import read_problem
from llm_client.wire.words import ECHO

MAX_MESSAGE: Final = 500
MAX_BODY: Final = 64 * 1024
_MAX_WORDS: Final = 300  # of the server's own

_CLASSES: Final[Mapping[Kind, type[errors.APIStatusError]]] = {
    Kind.BAD_REQUEST: errors.BadRequestError,
    Kind.CONTEXT_LENGTH: errors.ContextLengthError,
    Kind.CONTENT_FILTER: errors.ContentFilterError,
    Kind.AUTH: errors.AuthenticationError,
    Kind.PERMISSION: errors.PermissionDeniedError,
    Kind.NOT_FOUND: errors.NotFoundError,
    Kind.RATE_LIMITED: errors.RateLimitError,
    Kind.QUOTA_EXHAUSTED: errors.QuotaExceededError,
    Kind.SERVER_ERROR: errors.InternalServerError,
    Kind.OVERLOADED: errors.OverloadedError,
    Kind.UNAVAILABLE: errors.InternalServerError,
}
_BY_STATUS: Final[Mapping[int, type[errors.APIStatusError]]] = {
    409: errors.ConflictError,
    422: errors.UnprocessableEntityError,
}
_ADVICE: Final[Mapping[Kind, str]] = {
    Kind.BAD_REQUEST: "Correct the request; sending it again will not help.",
    Kind.CONTEXT_LENGTH: "Shorten the prompt, lower max_tokens or use a model with a larger context.",
    Kind.CONTENT_FILTER: "A content policy refused it; change the prompt.",
    Kind.AUTH: "Check the API key of this endpoint.",
    Kind.PERMISSION: "This key may not do that; check its rights, region and model access.",
    Kind.NOT_FOUND: "Check the model name and that base_url ends where the server's API begins, usually /v1.",
    Kind.RATE_LIMITED: "Send less with this key, or set limits for the account so that calls wait here.",
    Kind.QUOTA_EXHAUSTED: "Waiting will not cure it: check balance, plan and spend limits of the account.",
    Kind.SERVER_ERROR: "The server failed; see its log, or try another endpoint.",
    Kind.OVERLOADED: "The server has more work than it can take; try later or add replicas.",
    Kind.UNAVAILABLE: "The server is starting, stopping or unreachable behind its gateway; try later.",
    Kind.TIMEOUT: "It may still have been processed; allow more time, ask for less, or stream.",
    Kind.PROTOCOL: "Check base_url, proxies and what answers there.",
    Kind.STREAM_INTERRUPTED: "The connection or the server broke; the request can be sent again.",
    Kind.DEADLINE: "Give the call a longer deadline, or ask for less.",
}
_CONNECT: Final = "Check base_url, that the server is running, and the network between."
_SECRET: Final = re.compile(r"\b(?:sk|pk|gsk|hf|nvapi|xai)[-_][\w.*\-]{6,}|\bBearer\s+\S+", re.IGNORECASE)


def to_error(
    outcome: Outcome,
    *,
    body: bytes = b"",
    headers: Headers | None = None,
    endpoint: str | None = None,
    attempts: tuple[AttemptRecord, ...] = (),
    partial: str = "",
    delivered: bool = False,
) -> errors.LLMClientError:
    """Make the exception of a failed attempt.

    Args:
        outcome: what `classify` made of it; not ok.
        body: the error's body; kept decoded on the exception, at most 64 KiB.
        headers: the response's headers.
        endpoint: the endpoint's name.
        attempts: the call's story so far.
        partial: the text delivered before a stream broke.
        delivered: something reached the caller, though perhaps no text; implied by `partial`.

    Returns:
        After the first content always a `StreamInterruptedError`, caused by the error that would have been raised
        before it; its `kind` is the outcome's.
    """
    common: dict[str, Any] = {
        "kind": None if outcome.kind is None else outcome.kind.value,
        "endpoint": endpoint,
        "attempts": attempts,
        "retry_after": None if outcome.hint is None else outcome.hint.seconds,
    }
    message = _message(outcome, endpoint)
    if outcome.kind is Kind.DEADLINE:
        return errors.DeadlineExceededError(message, **common)
    error = _plain(outcome, message, body, headers, common)
    if (partial or delivered) and not isinstance(error, errors.StreamInterruptedError):
        broken = errors.StreamInterruptedError(
            _cut(f"The stream broke after its first content. {message}", MAX_MESSAGE), partial=partial, **common
        )
        broken.__cause__ = error
        return broken
    if isinstance(error, errors.StreamInterruptedError):
        error.partial = partial
    return error


def _plain(
    outcome: Outcome, message: str, body: bytes, headers: Headers | None, common: dict[str, Any]
) -> errors.LLMClientError:
    """Choose the class as if nothing had been delivered."""
    kind, status = outcome.kind, outcome.status
    if not outcome.sent:
        timed_out = kind is Kind.TIMEOUT
        return (errors.APITimeoutError if timed_out else errors.ConnectError)(message, **common)
    if kind is Kind.STREAM_INTERRUPTED:
        return errors.StreamInterruptedError(message, **common)
    if kind is Kind.PROTOCOL and (status is None or status < 500):
        return errors.InvalidResponseError(message, status_code=status or 0, body=_kept(body), **common)
    if status is None or (kind is Kind.TIMEOUT and 200 <= status < 300):
        timed_out = kind is Kind.TIMEOUT
        return (errors.APITimeoutError if timed_out else errors.APIConnectionError)(message, **common)
    return _class(kind, status)(
        message,
        status_code=status,
        code=outcome.code,
        type=outcome.type,
        param=outcome.param,
        body=_kept(body),
        request_id=outcome.request_id,
        headers=headers,
        **common,
    )


def _class(kind: Kind | None, status: int) -> type[errors.APIStatusError]:
    if kind is Kind.BAD_REQUEST:
        return _BY_STATUS.get(status, errors.BadRequestError)
    found = None if kind is None else _CLASSES.get(kind)
    if found is None:
        # A time-out or protocol error that a gateway reported with a status.
        found = errors.InternalServerError if status >= 500 else errors.APIStatusError
    return found


def _kept(body: bytes) -> object:
    problem = read_problem(body[:MAX_BODY])
    return None if problem is None else problem.body


def _message(outcome: Outcome, endpoint: str | None) -> str:
    what = "no answer" if outcome.status is None else f"HTTP {outcome.status}"
    where = f" from {endpoint}" if endpoint else ""
    kind = outcome.kind.value if outcome.kind else "failed"
    said = _cut(_safe(outcome.message), _MAX_WORDS)
    hint = outcome.hint
    wait = f" Try again in {hint.seconds:g} s." if hint is not None and not outcome.permanent else ""
    advice = _CONNECT if not outcome.sent else _ADVICE.get(outcome.kind, "") if outcome.kind else ""
    return _cut(f"{kind} ({what}{where}){': ' + said if said else ''}{_stop(said)} {advice}{wait}", MAX_MESSAGE)


def _safe(text: str) -> str:
    """Leave out what a server repeats of the request, and keys it shows in part."""
    return _SECRET.sub("[key]", ECHO.sub(" ...", " ".join(text.split())))


def _stop(said: str) -> str:
    return "" if said.endswith((".", "!", "?")) else "."


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 3] + "..."
