"""The one gate through which a family's exceptions become faults.

A kind is decided by three facts: which exception it was, what lay beneath it, and how far the attempt had come. The
library's own words are not passed on: they may quote a header, and so a secret.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Final

from llm_client.flow.faults import Fault, FaultKind
from llm_client.transport.attempt import Attempt, Stopped

_REFUSED_STREAM: Final = 7  # RFC 9113, section 7

# What each exception of a family means; `None` stands for "the connection was lost", which the attempt explains.
MEANINGS: Final[dict[str, FaultKind | None]] = {
    "ConnectTimeout": FaultKind.CONNECT_TIMEOUT,
    "PoolTimeout": FaultKind.CONNECT_TIMEOUT,
    "ReadTimeout": FaultKind.READ_TIMEOUT,
    "WriteTimeout": FaultKind.WRITE,
    "TimeoutException": FaultKind.READ_TIMEOUT,
    "ConnectError": FaultKind.CONNECT,
    "ProxyError": FaultKind.CONNECT,
    "ReadError": None,
    "WriteError": None,
    "CloseError": None,
    "NetworkError": None,
    "RemoteProtocolError": None,
    "ProtocolError": None,
    "DecodingError": FaultKind.DECODE,
    "TooManyRedirects": FaultKind.REDIRECT,
    "LocalProtocolError": FaultKind.OTHER,
    "UnsupportedProtocol": FaultKind.OTHER,
    "InvalidURL": FaultKind.OTHER,
    "CookieConflict": FaultKind.OTHER,
    "HTTPError": FaultKind.OTHER,
    "HTTPStatusError": FaultKind.OTHER,
    "RequestError": FaultKind.OTHER,
    "TransportError": FaultKind.OTHER,
    "SSEError": FaultKind.OTHER,  # httpx2 only
    "StreamError": FaultKind.OTHER,
    "StreamClosed": FaultKind.OTHER,
    "StreamConsumed": FaultKind.OTHER,
    "ResponseNotRead": FaultKind.OTHER,
    "RequestNotRead": FaultKind.OTHER,
}

# Classes of the layer beneath that the upper one lets through.
CORE_MEANINGS: Final[dict[str, FaultKind | None]] = {"ConnectionNotAvailable": None}

_WORDS: Final = {
    FaultKind.CONNECT_REFUSED: "the server refused the connection; is it running, and is the port right?",
    FaultKind.DNS: "the host name cannot be resolved",
    FaultKind.CONNECT_TIMEOUT: "no connection within the connect time-out",
    FaultKind.READ_TIMEOUT: "nothing came from the server within the time-out",
    FaultKind.WRITE: "the server did not take the request within the time-out",
    FaultKind.RESET: "the server closed the connection before answering",
    FaultKind.STALE: "the server had closed this kept-alive connection",
    FaultKind.EOF: "the connection broke in the middle of the answer",
    FaultKind.GOAWAY: "the server is closing the HTTP/2 connection",
    FaultKind.REFUSED_STREAM: "the server refused the HTTP/2 stream before processing it",
    FaultKind.DECODE: "the answer's content encoding is broken",
    FaultKind.REDIRECT: "too many redirects",
}


def translate(error: Exception, attempt: Attempt) -> Fault:
    """Turn an exception of the HTTP library into a fault.

    Args:
        error: what was raised while sending, or while reading the answer.
        attempt: how far the request had come.
    """
    if isinstance(error, Fault):
        return error
    chain = _chain(error)
    kind, detail = _kind(error, chain, attempt)
    fault = Fault(kind, detail or _WORDS.get(kind, "the request failed"), attempt.sent)
    # The system's own error is worth keeping: it names errno or the certificate problem, and holds no header.
    fault.__cause__ = next((cause for cause in chain if isinstance(cause, OSError)), None)
    for one in chain:
        # Tracebacks hold frames, and these the request with its key; the library's also form cycles.
        one.__traceback__ = None
    return fault


def late(attempt: Attempt) -> Fault:
    """The fault of a request whose time is up."""
    kind = FaultKind.READ_TIMEOUT if attempt.sent else FaultKind.CONNECT_TIMEOUT
    return Fault(kind, _WORDS[kind], attempt.sent)


def named(fault: Fault, shown: str) -> Fault:
    """Put where it happened in front of what happened; `shown` holds no secrets."""
    found = Fault(fault.kind, f"{shown}: {fault.message}", fault.sent)
    found.__cause__ = fault.__cause__
    return found


def _kind(error: Exception, chain: list[BaseException], attempt: Attempt) -> tuple[FaultKind, str]:
    names = [base.__name__ for base in type(error).__mro__]
    name = next((name for name in names if name in MEANINGS or name in CORE_MEANINGS), "")
    meaning = MEANINGS.get(name)
    if isinstance(error, Stopped | OSError) or name in CORE_MEANINGS:
        return _lost(error, chain, attempt)
    if not name:
        return FaultKind.OTHER, f"unexpected {type(error).__name__} in {_place(error)}"
    if not attempt.sent and name not in {"UnsupportedProtocol", "InvalidURL", "LocalProtocolError"}:
        return _connect(error, name, chain)
    if meaning is FaultKind.READ_TIMEOUT and not attempt.expired():
        # An HTTP/2 connection ends for all its requests when one of them times out.
        return _lost(error, chain, attempt)
    if meaning is None:
        return _lost(error, chain, attempt)
    return meaning, _DETAILS.get(name, "")


_DETAILS: Final = {
    "LocalProtocolError": "the request is not valid HTTP; look for line breaks or other control characters in headers",
    "UnsupportedProtocol": "the URL must begin with http:// or https://",
    "InvalidURL": "the URL is not valid",
}


def _connect(error: Exception, name: str, chain: list[BaseException]) -> tuple[FaultKind, str]:
    if name == "ProxyError":
        status = str(error)[:3]
        return FaultKind.CONNECT, f"the proxy answered {status}" if status.isdigit() else "the proxy failed"
    if name.endswith("Timeout") or name == "TimeoutException":
        return FaultKind.CONNECT_TIMEOUT, ""
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return FaultKind.TLS, f"the server's certificate is not trusted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return FaultKind.TLS, f"no TLS connection ({cause.reason or 'handshake cut'})"
        if isinstance(cause, socket.gaierror | UnicodeError):
            return FaultKind.DNS, ""
        if isinstance(cause, ConnectionRefusedError):
            return FaultKind.CONNECT_REFUSED, ""
    reason = next((cause.strerror for cause in chain if isinstance(cause, OSError) and cause.strerror), "")
    return FaultKind.CONNECT, f"no connection ({reason})" if reason else "no connection"


def _lost(error: Exception, chain: list[BaseException], attempt: Attempt) -> tuple[FaultKind, str]:
    if not attempt.sent:
        return FaultKind.CONNECT, "no connection"
    for event in (argument for cause in chain for argument in cause.args):
        name = type(event).__name__
        if name == "ConnectionTerminated":
            return FaultKind.GOAWAY, ""
        if name == "StreamReset" and event.error_code == _REFUSED_STREAM:
            return FaultKind.REFUSED_STREAM, ""
    if attempt.answered:
        if type(error).__name__ == "RemoteProtocolError" and not attempt.head and "disconnected" not in str(error):
            return FaultKind.OTHER, "what the server sent is not an HTTP answer"
        return FaultKind.EOF, ""
    return (FaultKind.STALE if attempt.reused else FaultKind.RESET), ""


def _place(error: BaseException) -> str:
    """Say where an exception was raised, for a report: file and line."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return "nowhere" if step is None else f"{Path(step.tb_frame.f_code.co_filename).name}:{step.tb_lineno}"


def _chain(error: BaseException) -> list[BaseException]:
    """List an exception and what lies beneath it, groups opened, at most 16."""
    found: list[BaseException] = []
    open_: list[BaseException | None] = [error]
    while open_ and len(found) < 16:  # deeper chains do not occur; loops must not hang us
        one = open_.pop(0)
        if one is None or one in found:
            continue
        found.append(one)
        if isinstance(one, BaseExceptionGroup):
            open_.extend(one.exceptions)
        # The core keeps the system's error as an argument, and drops it as the cause.
        open_.extend(part for part in one.args if isinstance(part, BaseException))
        open_.append(one.__cause__ or (None if one.__suppress_context__ else one.__context__))
    return found
