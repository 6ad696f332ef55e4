"""What the network did, in one word: the exception that a transport raises instead of an answer."""

from __future__ import annotations

from enum import StrEnum


class FaultKind(StrEnum):
    """What happened on the wire; `wire.classify` gives it a meaning."""

    CONNECT_REFUSED = "connect_refused"
    DNS = "dns_error"
    TLS = "tls_error"
    CONNECT_TIMEOUT = "connect_timeout"
    CONNECT = "connect_error"
    READ_TIMEOUT = "read_timeout"
    WRITE = "write_error"
    RESET = "reset"
    STALE = "stale"
    EOF = "eof_abrupt"
    GOAWAY = "h2_goaway"
    REFUSED_STREAM = "h2_refused_stream"
    DEADLINE = "client_deadline"
    DECODE = "decode_error"
    REDIRECT = "redirect"
    OTHER = "other"


class Fault(Exception):  # noqa: N818 - what the network did, not what the caller sees
    """The network failed one attempt.

    Attributes:
        kind: what happened.
        message: one sentence without secrets: no headers, no query, no user name.
        sent: False when the request certainly never reached a server.
    """

    def __init__(self, kind: FaultKind, message: str = "", sent: bool = True) -> None:
        """Take the three parts by position, so that the fault survives pickling."""
        super().__init__(kind, message, sent)
        self.kind = kind
        self.message = message
        self.sent = sent

    def __str__(self) -> str:
        """Read as a sentence."""
        return self.message or self.kind.value
