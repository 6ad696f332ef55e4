"""Events or one document? Told by the first bytes that mean something; labels are missing or wrong too often."""

from __future__ import annotations

from enum import Enum
from typing import Final

from llm_client.wire.problem import decode_json

BOM: Final = b"\xef\xbb\xbf"
EVENT_STREAM: Final = "text/event-stream"
# Content types whose lines of JSON are events rather than one document.
_LINE_TYPES: Final = frozenset({EVENT_STREAM, "application/x-ndjson", "application/ndjson", "application/jsonl"})
# How the first line of events starts where the label does not say that they are some.
_FIELDS: Final = (b"data:", b"data\n", b"data\r", b"event:", b"id:", b"retry:", b"error:", b":")


class Body(Enum):
    """What the bytes of a body are, as far as they have come."""

    UNDECIDED = "nothing yet, or blank lines"
    LINE = "JSON, no line end so far"
    WHOLE = "one whole line of JSON and nothing after it"
    DOCUMENT = "one document"
    EVENTS = "an event stream or lines of JSON"


class Sniffer:
    """Holds the bytes of a body until it is known to be events, else to the end.

    Attributes:
        kind: what the body is.
        blank: blank lines came first, which keep a waiting connection alive (DeepSeek).
        held: the bytes that are not known to be events.
    """

    __slots__ = ("_lines", "_started", "_type", "blank", "held", "kind")

    def __init__(self, content_type: str) -> None:
        """Take the content type without parameters, lower-case."""
        self.kind = Body.UNDECIDED
        self.blank = False
        self.held = bytearray()
        self._started = False  # past a byte order mark
        self._type = content_type
        self._lines = content_type in _LINE_TYPES

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; return what turned out to be events, which is nothing until that is known."""
        self.held += chunk
        if self.kind is Body.UNDECIDED:
            self._decide()
        if self.kind is Body.LINE and b"\n" in chunk:
            self._decide_line()
        elif self.kind is Body.WHOLE and chunk.strip():
            self.kind = Body.EVENTS
        return self.release() if self.kind is Body.EVENTS else b""

    def release(self) -> bytes:
        """Hand over what is held, as events."""
        held = bytes(self.held)
        self.held.clear()
        self.kind = Body.EVENTS
        return held

    def end(self) -> bytes:
        """Say that the body is over; return what is held if it can only be lines of events."""
        if self.kind is Body.UNDECIDED and self.held:
            self.kind = Body.DOCUMENT
        return self.release() if self._lines and self.kind in {Body.LINE, Body.WHOLE} else b""

    def document(self) -> bytes:
        """Return the document without the blank around it."""
        return bytes(self.held).strip()

    @property
    def is_document(self) -> bool:
        """Whether the body, being over, is one document."""
        kind = self.kind
        return kind is Body.LINE or kind is Body.WHOLE or kind is Body.DOCUMENT

    def _decide(self) -> None:
        if not self._started:
            if len(self.held) < len(BOM) and BOM.startswith(bytes(self.held)):
                return  # perhaps a byte order mark, in pieces
            self._started = True
            self.held = self.held.removeprefix(BOM)
        blank = len(self.held)
        self.held = self.held.lstrip()
        self.blank = self.blank or len(self.held) < blank
        if not self.held:
            return
        if self.held.startswith(b"{"):
            self.kind = Body.LINE
        elif self.held.startswith(b"["):
            self.kind = Body.DOCUMENT
        elif self._type == EVENT_STREAM or self.held.startswith(_FIELDS):
            self.kind = Body.EVENTS
        elif not any(field.startswith(bytes(self.held)) for field in _FIELDS):
            self.kind = Body.DOCUMENT

    def _decide_line(self) -> None:
        """A document is not whole after its first line, or ends with it; lines of JSON go on."""
        line, end, rest = bytes(self.held).partition(b"\n")
        if not end:
            return  # the line end in the chunk was of a blank line before
        try:
            decode_json(line)
        except ValueError:
            self.kind = Body.DOCUMENT
        else:
            self.kind = Body.EVENTS if self._lines or rest.strip() else Body.WHOLE
