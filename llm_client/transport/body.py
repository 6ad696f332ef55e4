"""Content decoding in bounded steps: gzip and deflate come out in pieces of 64 KiB at most.

A body is pushed in as it arrives and pulled out piece by piece, so that no answer, however well it compresses, makes
more than one step's worth of memory at once. What is counted is the output (RFC 9110, 8.4).
"""

from __future__ import annotations

import zlib
from typing import Any, Final

from llm_client.flow.faults import Fault, FaultKind
from llm_client.model import Headers

# As much as a read from a socket gives. Larger steps cost: the events of one mebibyte take twenty when parsed at once.
STEP: Final = 1 << 16
MAX_BODY: Final = 256 << 20

# What we ask for, and can undo.
ACCEPTED: Final = "gzip, deflate"
_GZIP: Final = frozenset({"gzip", "x-gzip"})
_GZIP_MAGIC: Final = b"\x1f\x8b"


def accept_encoding(wished: str | None) -> str:
    """Reduce a caller's `accept-encoding` to codings that are undone here."""
    if wished is None:
        return ACCEPTED
    codings = [part.split(";")[0].strip().lower() for part in wished.split(",")]
    kept = [coding for coding in codings if coding in _GZIP or coding in {"deflate", "identity"}]
    return ", ".join(kept) or "identity"


def undone(coding: str) -> bool:
    """Tell whether a content coding is undone here; "" and `identity` need nothing."""
    return coding in _GZIP or coding == "deflate"


class Body:
    """The decoded bytes of one answer.

    Attributes:
        unknown: the content coding that could not be undone, and so was left in place; "" otherwise.
        limit: how many decoded bytes an answer may have; None for any number. Event streams have none.
    """

    __slots__ = ("_coding", "_count", "_fed", "_held", "_inflater", "_input", "_stream", "limit", "unknown")

    def __init__(self, headers: Headers, limit: int | None = MAX_BODY) -> None:
        """Read the coding and the kind of content from the answer's headers."""
        coding = headers.get("content-encoding", "").strip().lower()
        if coding in {"", "identity"}:
            coding = ""
        self._stream = headers.get("content-type", "").lstrip().lower().startswith("text/event-stream")
        self.limit = None if self._stream else limit
        self.unknown = ""
        if coding and not undone(coding):
            self.unknown, coding = coding, ""
        self._coding = coding
        self._inflater: Any = None
        self._input = b""
        self._held = b""
        self._count = 0
        self._fed = False

    def feed(self, data: bytes) -> None:
        """Take bytes off the wire; `take` must have returned b"" before."""
        self._input = self._held + data
        self._held = b""
        self._fed = True

    def take(self) -> bytes:
        """Return the next piece, at most `STEP` bytes when decoded; b"" when more input is needed.

        Raises:
            Fault: DECODE, the coding is broken or the body is larger than `limit`.
        """
        data = self._input
        if not data:
            return b""
        if self._coding:
            data = self._inflate(data)
        else:
            self._input = b""
        self._count += len(data)
        if self.limit is not None and self._count > self.limit:
            msg = f"the answer's body is larger than {self.limit} bytes; it was dropped"
            raise Fault(FaultKind.DECODE, msg)
        return data

    def end(self) -> None:
        """Note that the wire has ended.

        An event stream may lack its compression trailer: whether it is complete, its events tell.

        Raises:
            Fault: DECODE, the compressed data ended too early.
        """
        started = self._fed and self._coding and not self._stream
        if started and (self._inflater is None or not self._inflater.eof):
            msg = f"the answer's {self._coding} data ended too early"
            raise Fault(FaultKind.DECODE, msg)

    def _inflate(self, data: bytes) -> bytes:
        """Undo one step's worth, across the members that gzip data may consist of (RFC 1952, 2.2)."""
        try:
            while data:
                if self._inflater is None:
                    self._inflater = self._start(data)
                elif self._inflater.eof:
                    if data == _GZIP_MAGIC[:1]:
                        self._held = data  # half of a member's first two bytes, or padding: the next byte tells
                        break
                    if self._coding == "deflate" or data[:2] != _GZIP_MAGIC:
                        break  # padding after the last member; every decoder in use ignores it
                    self._inflater = self._start(data)
                out: bytes = self._inflater.decompress(data, STEP)
                data = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
                if out:
                    self._input = data
                    return out
        except zlib.error:
            msg = f"the answer's body is not valid {self._coding} data"
            raise Fault(FaultKind.DECODE, msg) from None
        self._input = b""
        return b""

    def _start(self, data: bytes) -> Any:
        if self._coding in _GZIP:
            return zlib.decompressobj(zlib.MAX_WBITS | 16)
        # "deflate" means the zlib format, but some servers send the bare one. The header's check bits tell.
        zlib_format = data[0] & 0x0F == 8 and (len(data) < 2 or (data[0] << 8 | data[1]) % 31 == 0)
        return zlib.decompressobj(zlib.MAX_WBITS if zlib_format else -zlib.MAX_WBITS)
