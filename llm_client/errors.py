"""The exceptions, who decided, and whether anything was sent.

    LLMClientError                      .kind .endpoint .attempts .retry_after
    ├─ ConfigError (ValueError)         the set-up is wrong; nothing was sent
    ├─ RejectedError                    we decided; nothing was sent; safe to resubmit
    │  ├─ QueueFullError
    │  ├─ QueueTimeoutError
    │  ├─ DeadlineUnreachableError
    │  ├─ RateLimitedLocallyError
    │  └─ CircuitOpenError
    ├─ DeadlineExceededError            total time used up; __cause__ is the last attempt's error
    ├─ APIStatusError                   the server said no: .status_code .code .body .request_id
    │  ├─ BadRequestError               400, 413
    │  │  ├─ ContextLengthError
    │  │  └─ ContentFilterError
    │  ├─ AuthenticationError           401
    │  ├─ PermissionDeniedError         403
    │  ├─ NotFoundError                 404
    │  ├─ ConflictError                 409
    │  ├─ UnprocessableEntityError      422
    │  ├─ RateLimitError                429
    │  │  └─ QuotaExceededError         no waiting cures it
    │  └─ InternalServerError           5xx
    │     └─ OverloadedError
    ├─ APIConnectionError               no answer
    │  ├─ ConnectError                  certainly not sent
    │  ├─ APITimeoutError               one attempt; may have been processed
    │  └─ StreamInterruptedError        after the first content; .partial
    └─ InvalidResponseError             2xx that is not what the API promises
       ├─ OutputParseError
       └─ LengthFinishReasonError

Names follow openai-python where it has one; its remaining names are aliases at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


def _rebuild(cls: type[LLMClientError], message: str, state: dict[str, Any]) -> LLMClientError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class LLMClientError(Exception):
    """Base of everything this package raises on purpose.

    Attributes:
        kind: one word for what happened; see `llm_client.Kind`.
        endpoint: the name of the endpoint that was spoken to last, if any.
        attempts: one record per request sent for this call, oldest first.
        retry_after: seconds after which trying again may help; None when nobody knows.
    """

    default_kind: ClassVar[str] = "server_error"
    # Attributes that may hold a prompt, an answer or a secret never leave the process.
    _private: ClassVar[frozenset[str]] = frozenset({"body", "headers", "response", "partial", "raw_content"})

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        endpoint: str | None = None,
        attempts: tuple[Any, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        """Keep what a handler needs to decide."""
        super().__init__(message)
        self.message = message
        self.kind: str = kind or self.default_kind
        self.endpoint = endpoint
        self.attempts = attempts
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without bodies and headers."""
        state = {name: (None if name in self._private else value) for name, value in self.__dict__.items()}
        return (_rebuild, (type(self), self.message, state))


class ConfigError(LLMClientError, ValueError):
    """The set-up is wrong; nothing was sent.

    Attributes:
        file: the profile file, if there is one.
        line: its line, counted from 1.
        path: the key path inside it, such as `pool.queue.size`.
    """

    default_kind = "config"

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        path: str | None = None,
    ) -> None:
        """Say where and what was expected."""
        super().__init__(message)
        self.file = file
        self.line = line
        self.path = path


class RejectedError(LLMClientError):
    """We decided; nothing was sent; safe to resubmit."""


class QueueFullError(RejectedError):
    """The local queue is at its bound, by count or by bytes."""

    default_kind = "queue_full"


class QueueTimeoutError(RejectedError):
    """The call waited `queue.max_wait` without getting a turn."""

    default_kind = "queue_timeout"


class DeadlineUnreachableError(RejectedError):
    """Even if sent now, the answer would come after the deadline."""

    default_kind = "deadline_unreachable"


class RateLimitedLocallyError(RejectedError):
    """A local token bucket cannot serve this call before its deadline."""

    default_kind = "rate_limited_locally"


class CircuitOpenError(RejectedError):
    """Every endpoint that could serve this call has an open circuit."""

    default_kind = "circuit_open"


class DeadlineExceededError(LLMClientError, TimeoutError):
    """The total time of the call is used up; `__cause__` is the last attempt's error."""

    default_kind = "deadline"


class APIError(LLMClientError):
    """Anything that came of speaking to a server."""


class APIStatusError(APIError):
    """The server said no.

    Attributes:
        status_code: the HTTP status; for an error frame inside a 200 stream, the code the frame named, else 200.
        code: the error code of the body, if any.
        body: the decoded error object, or text; at most 64 KiB. Not pickled, not printed.
        request_id: the server's id for this request, if it sent one.
        headers: the response's headers. Not pickled, not printed.
    """

    def __init__(
        self,
        message: str,
        *,
        status_code: int = 0,
        code: str | None = None,
        type: str | None = None,  # noqa: A002 - openai-python's name
        param: str | None = None,
        body: object = None,
        request_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        **common: Any,
    ) -> None:
        """Keep the answer's parts."""
        super().__init__(message, **common)
        self.status_code = status_code
        self.code = code
        self.type = type
        self.param = param
        self.body = body
        self.request_id = request_id
        self.headers = headers


class BadRequestError(APIStatusError):
    """400 or 413: the request itself is at fault."""

    default_kind = "bad_request"


class ContextLengthError(BadRequestError):
    """The prompt does not fit the model's context."""

    default_kind = "context_length"


class ContentFilterError(BadRequestError):
    """A content policy refused prompt or answer."""

    default_kind = "content_filter"


class AuthenticationError(APIStatusError):
    """401: the key is missing or wrong."""

    default_kind = "auth"


class PermissionDeniedError(APIStatusError):
    """403: the key may not do this."""

    default_kind = "permission"


class NotFoundError(APIStatusError):
    """404: no such model or route."""

    default_kind = "not_found"


class ConflictError(APIStatusError):
    """409."""

    default_kind = "bad_request"


class UnprocessableEntityError(APIStatusError):
    """422."""

    default_kind = "bad_request"


class RateLimitError(APIStatusError):
    """429: too many requests for this key."""

    default_kind = "rate_limited"


class QuotaExceededError(RateLimitError):
    """No money, no credits, no daily allowance; no waiting cures it."""

    default_kind = "quota_exhausted"


class InternalServerError(APIStatusError):
    """5xx: the server failed."""

    default_kind = "server_error"


class OverloadedError(InternalServerError):
    """The server has more work than it can take."""

    default_kind = "overloaded"


class APIConnectionError(APIError):
    """No answer, or only a part of one."""

    default_kind = "unavailable"


class ConnectError(APIConnectionError):
    """No connection: the request was certainly not sent."""


class APITimeoutError(APIConnectionError, TimeoutError):
    """One attempt took too long; the server may have processed it."""

    default_kind = "timeout"


class StreamInterruptedError(APIConnectionError):
    """The stream broke after its first content.

    Attributes:
        partial: the text delivered before the break. Not pickled, not printed.
    """

    default_kind = "stream_interrupted"

    def __init__(self, message: str, *, partial: str = "", **common: Any) -> None:
        """Keep the text so far."""
        super().__init__(message, **common)
        self.partial = partial


class InvalidResponseError(APIError):
    """A 2xx answer that is not what the API promises."""

    default_kind = "protocol"

    def __init__(self, message: str, *, status_code: int = 0, body: object = None, **common: Any) -> None:
        """Keep the answer."""
        super().__init__(message, **common)
        self.status_code = status_code
        self.body = body


class OutputParseError(InvalidResponseError):
    """The model's text does not parse into the asked type.

    Attributes:
        raw_content: the text. Not pickled, not printed.
        finish_reason: why generation ended.
        usage: token counts, if the server sent them.
    """

    def __init__(
        self,
        message: str,
        *,
        raw_content: str = "",
        finish_reason: str | None = None,
        usage: object = None,
        **common: Any,
    ) -> None:
        """Keep text, reason and usage."""
        super().__init__(message, **common)
        self.raw_content = raw_content
        self.finish_reason = finish_reason
        self.usage = usage


class LengthFinishReasonError(OutputParseError):
    """The text was cut at the token limit before it could be parsed."""


# openai-python's names for the same things.
OpenAIError = LLMClientError
APIResponseValidationError = InvalidResponseError
