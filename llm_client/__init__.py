"""Back-pressure from the producer side for OpenAI-compatible LLM inference servers.

Nothing is set up by importing: no logging handler, no connection, no thread. Everything a user needs is here;
what is not listed here or in the reference is private.
"""

# The package of this name is loaded before the function of this name takes its place; loaded later, it would take
# the function's.
import llm_client.transport as _transport_package  # noqa: F401 - see above
from llm_client._version import __version__
from llm_client.client.aio import AsyncClient
from llm_client.client.restart import StreamRestarted, arestarting, restarting
from llm_client.client.stream import AsyncStream, Stream
from llm_client.client.sync import Client
from llm_client.compose.dropin import http_client, transport
from llm_client.compose.pool import Pool
from llm_client.compose.scope import scope
from llm_client.errors import (
    APIConnectionError,
    APIError,
    APIResponseValidationError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    CircuitOpenError,
    ConfigError,
    ConflictError,
    ConnectError,
    ContentFilterError,
    ContextLengthError,
    DeadlineExceededError,
    DeadlineUnreachableError,
    InternalServerError,
    InvalidResponseError,
    LengthFinishReasonError,
    LLMClientError,
    NotFoundError,
    OpenAIError,
    OutputParseError,
    OverloadedError,
    PermissionDeniedError,
    QueueFullError,
    QueueTimeoutError,
    QuotaExceededError,
    RateLimitedLocallyError,
    RateLimitError,
    RejectedError,
    StreamInterruptedError,
    UnprocessableEntityError,
)
from llm_client.model import Kind, Meta, Priority
from llm_client.observe.log import install as _install_log

# openai-python's names for the two clients: an existing script changes its import and nothing else.
OpenAI = Client
AsyncOpenAI = AsyncClient

_install_log()

__all__ = [
    "APIConnectionError",
    "APIError",
    "APIResponseValidationError",
    "APIStatusError",
    "APITimeoutError",
    "AsyncClient",
    "AsyncOpenAI",
    "AsyncStream",
    "AuthenticationError",
    "BadRequestError",
    "CircuitOpenError",
    "Client",
    "ConfigError",
    "ConflictError",
    "ConnectError",
    "ContentFilterError",
    "ContextLengthError",
    "DeadlineExceededError",
    "DeadlineUnreachableError",
    "InternalServerError",
    "InvalidResponseError",
    "Kind",
    "LLMClientError",
    "LengthFinishReasonError",
    "Meta",
    "NotFoundError",
    "OpenAI",
    "OpenAIError",
    "OutputParseError",
    "OverloadedError",
    "PermissionDeniedError",
    "Pool",
    "Priority",
    "QueueFullError",
    "QueueTimeoutError",
    "QuotaExceededError",
    "RateLimitError",
    "RateLimitedLocallyError",
    "RejectedError",
    "Stream",
    "StreamInterruptedError",
    "StreamRestarted",
    "UnprocessableEntityError",
    "__version__",
    "arestarting",
    "http_client",
    "restarting",
    "scope",
    "transport",
]
