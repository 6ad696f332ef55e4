"""What a failed call looks like to an SDK above us: a response that it will not try again by itself."""

from __future__ import annotations

import json
from math import ceil

from llm_client.errors import (
    APIConnectionError,
    APIStatusError,
    DeadlineExceededError,
    InvalidResponseError,
    LLMClientError,
)
from llm_client.model import Headers, Kind
from llm_client.transport.body import undone

# Kinds whose server named no status of its own, as when the refusal came inside a 200 stream.
_STATUS = {
    Kind.RATE_LIMITED: 429,
    Kind.QUOTA_EXHAUSTED: 429,
    Kind.OVERLOADED: 503,
    Kind.UNAVAILABLE: 503,
    Kind.BAD_REQUEST: 400,
    Kind.CONTEXT_LENGTH: 400,
    Kind.CONTENT_FILTER: 400,
    Kind.AUTH: 401,
    Kind.PERMISSION: 403,
    Kind.NOT_FOUND: 404,
    Kind.TIMEOUT: 504,
    Kind.DEADLINE: 504,
    Kind.SERVER_ERROR: 500,
    Kind.PROTOCOL: 502,
    Kind.STREAM_INTERRUPTED: 502,
}
_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding"})
_REPRESENTATION = frozenset({"content-encoding", "content-length"})


def end_to_end(headers: Headers, *, whole: bool) -> list[tuple[str, str]]:
    """Leave out headers that speak of a connection, or of an encoding which the body no longer has.

    Args:
        headers: of the answer.
        whole: the body was read to its end here, and may have been put together anew: its length is another.
    """
    coding = headers.get("content-encoding", "").strip().lower()
    dropped = set(_CONNECTION)
    if undone(coding):
        dropped |= _REPRESENTATION
    elif whole:
        dropped.add("content-length")
    return [(name, value) for name, value in headers.pairs if name.lower() not in dropped]


def refusal(error: LLMClientError) -> tuple[int, list[tuple[str, str]], bytes]:
    """Return status, headers and body for an error.

    Retrying is done: `x-should-retry: false` keeps SDKs that honour it from multiplying our attempts. What a
    server said is passed on in its words; what we decided has our kind as its `code`.
    """
    headers = [("content-type", "application/json"), ("x-should-retry", "false"), ("x-llm-client-kind", error.kind)]
    headers.append(("x-llm-client-attempts", str(len(error.attempts))))
    if error.retry_after is not None:
        headers.append(("retry-after", str(ceil(error.retry_after))))
        headers.append(("retry-after-ms", str(ceil(error.retry_after * 1000))))
    body: object = {"error": {"message": error.message, "type": "llm_client", "param": None, "code": error.kind}}
    if isinstance(error, APIStatusError):
        status = error.status_code
        if error.body is not None:
            body = error.body
        if error.request_id is not None:
            headers.append(("x-request-id", error.request_id))
    elif isinstance(error, DeadlineExceededError):
        status = 504
    elif isinstance(error, APIConnectionError | InvalidResponseError):
        status = 0
    else:
        status = 503
    if status < 400:
        status = _STATUS.get(Kind(error.kind), 503)
    if isinstance(body, str):
        body = {"error": {"message": body, "type": "upstream", "param": None, "code": error.kind}}
    return status, headers, json.dumps(body).encode()
