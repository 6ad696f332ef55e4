r"""Server-sent events from any cut of the bytes, as the WHATWG standard frames them and as servers bend it.

Lines end at CR LF, LF or CR and nowhere else: U+2028, U+2029 and U+0085 are text. Beyond the standard, because servers
do so: a pending event is dispatched at the end of the body when it is whole; a line that is a JSON object by itself is
an event (Lemonade, LMDeploy's proxy, NDJSON); a field named `error` is an error event (llama.cpp until September
2025); a line that starts with `<` is a page some proxy put in.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from llm_client.wire.problem import decode_json

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
DONE: Final = "[DONE]"
# The name under which an HTML line is reported; no server-sent event can be called so by accident.
HTML: Final = "<html>"
ERROR: Final = "error"

_BOM: Final = b"\xef\xbb\xbf"
_OVERHEAD: Final = 32  # bytes an empty line of data costs all the same
# Half the price of calling the class, once per token.
_new: Final = tuple.__new__


class ServerEvent(NamedTuple):
    """One event. `name` is empty for the usual unnamed one."""

    name: str
    data: str


class Decoder:
    """Turns chunks of bytes into events.

    Not thread-safe; owned by whoever reads the body.

    Attributes:
        comments: how many keep-alive comments were seen.
        overflow: an event exceeded the bound; everything after it is dropped.
        leftover: the body ended inside an event.
    """

    __slots__ = (
        "_counted", "_data", "_head", "_held", "_limit", "_name", "_size", "_skip_lf", "_unusual",
        "comments", "leftover", "overflow",
    )  # fmt: skip

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """Bound one event, line ends included, to `max_event_bytes`."""
        self.comments = 0
        self.overflow = False
        self.leftover = False
        self._limit = max_event_bytes
        self._head: bytes | None = b""  # the first bytes, until it is known whether they are a BOM
        self._held = bytearray()  # the line whose end has not come yet
        self._unusual = True  # the next chunk needs a look at its first bytes
        self._skip_lf = False  # the last chunk ended with CR: a LF right after it belongs to it
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0  # bytes in the first `_counted` lines of `_data`
        self._counted = 0

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Take the next bytes; return the events they complete."""
        if self._unusual or b"\r" in chunk:
            chunk = self._plain(chunk)
        if not chunk or self.overflow:
            return []
        lines = chunk.split(b"\n")
        tail = lines.pop()
        if lines and self._held:
            lines[0] = self._whole_line(lines[0])
        events: list[ServerEvent] = []
        data = self._data
        for line in lines:
            if line.startswith(b"data: "):
                data.append(line[6:])
            elif line:
                self._rare_line(line, events)
            elif len(data) == 1 and not self._name and data[0]:
                # The path of every token: an unnamed event of one line.
                events.append(_new(ServerEvent, ("", data.pop().decode("utf-8", "replace"))))
            elif data or self._name:
                self._dispatch(events)
        if tail or data:
            self._hold(tail, fresh=bool(events))
        return events

    def end(self) -> list[ServerEvent]:
        """Say that the body is over; return the event it ended in, if that is whole."""
        events: list[ServerEvent] = []
        self._held += self._head or b""
        if self._held:
            line = self._whole_line(b"")
            if line.startswith(b"data: "):
                self._data.append(line[6:])
            else:
                self._rare_line(line, events)
        if self._data or self._name == ERROR:
            text = self._text().strip()
            if self._name == ERROR or text.startswith(DONE) or _is_json(text):
                self._dispatch(events)
            else:
                self.leftover = True
        return events

    def _plain(self, chunk: bytes) -> bytes:
        """Drop a leading byte order mark and make every line end LF, across chunks."""
        if self._head is not None:
            chunk = self._head + chunk
            if len(chunk) < 3 and _BOM.startswith(chunk):
                self._head = chunk
                return b""
            self._head = None
            chunk = chunk.removeprefix(_BOM)
        if self._skip_lf and chunk:
            self._skip_lf = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._unusual = self._skip_lf
        return chunk

    def _whole_line(self, rest: bytes) -> bytes:
        self._held += rest
        line = bytes(self._held)
        self._held.clear()
        return line

    def _hold(self, tail: bytes, *, fresh: bool) -> None:
        """Keep an unfinished line; give up when one event grows beyond the limit."""
        self._held += tail
        if fresh or not self._data:  # what is pending is of another event than before
            self._counted = self._size = 0
        for value in self._data[self._counted :]:
            self._size += len(value) + _OVERHEAD
        self._counted = len(self._data)
        if len(self._held) + self._size > self._limit:
            self.overflow = True
            self._held.clear()
            self._data.clear()

    def _rare_line(self, line: bytes, events: list[ServerEvent]) -> None:
        first = line[0]
        if first == 58:  # a comment
            self.comments += 1
        elif first == 60:  # "<"
            events.append(ServerEvent(HTML, line.decode("utf-8", "replace")))
        elif first == 123:  # "{"
            text = line.decode("utf-8", "replace")
            if _is_json(text):
                if self._data:
                    self._dispatch(events)
                events.append(ServerEvent("", text))
        else:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"event":
                self._name = value.decode("utf-8", "replace")
            elif name == b"data":  # without a colon the value is empty
                self._data.append(value)
            elif name == b"error":
                events.append(ServerEvent(ERROR, value.decode("utf-8", "replace")))

    def _text(self) -> str:
        data = self._data
        joined = data[0] if len(data) == 1 else b"\n".join(data)
        return joined.decode("utf-8", "replace")

    def _dispatch(self, events: list[ServerEvent]) -> None:
        if self._data or self._name == ERROR:
            text = self._text() if self._data else ""
            if text or self._name == ERROR:
                events.append(ServerEvent(self._name, text))
            self._data.clear()
        self._name = ""


def _is_json(text: str) -> bool:
    try:
        decode_json(text)
    except ValueError:
        return False
    return True
