"""A 2xx answer to chat, completions or responses, read as it arrives: what it says, and when it counts as whole.

Decided by what arrives, not by what was asked for: an event stream, one JSON document, JSON lines or a page of HTML.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

from pydantic_core import from_json

from llm_client.model import Headers, Outcome, Usage
from llm_client.wire import classify
from llm_client.wire.assemble import Assembly, as_chunk, read_usage, usage_of
from llm_client.wire.assemble_responses import ENDS, ResponseAssembly
from llm_client.wire.halves import Halves
from llm_client.wire.problem import Broken, decode_event, decode_json, is_problem
from llm_client.wire.sniff import EVENT_STREAM, Body, Sniffer
from llm_client.wire.sse import DONE, ERROR, HTML, Decoder, ServerEvent

MAX_DOCUMENT_BYTES: Final = 64 * 1024 * 1024
_SHOWN: Final = 200  # characters of a broken event in a message


# Half the price of calling the class, once per token.
_new: Final = tuple.__new__


class Chunk(NamedTuple):
    """One chunk for the caller.

    Attributes:
        data: the decoded object.
        raw: its text as it came.
        name: the event's name; empty for the usual unnamed one.
    """

    data: dict[str, Any]
    raw: str
    name: str


class StreamReader:
    """Reads one answer, sans I/O: feed it bytes, then say how the body ended. Not thread-safe.

    Attributes:
        ended: a terminal marker was seen (`[DONE]`, the Responses API's last event, a failure); stop reading.
        failure: the error the answer turned out to be, as soon as it is known.
        unfinished: the answer was accepted although no finish reason came.
    """

    __slots__ = (
        "_body", "_cap", "_chunks", "_decoder", "_document", "_halves", "_headers", "_held", "_ignored",
        "_late", "_outcome", "_responses", "_route", "_status", "_strict", "_text", "_type", "_unfolded", "_wall",
        "ended", "failure", "unfinished",
    )  # fmt: skip

    def __init__(
        self,
        route: str,
        *,
        headers: Headers,
        wall: float,
        content_type: str = "",
        status: int = 200,
        strict: bool = False,
        held: bool = False,
        cap: float = classify.DEFAULT_CAP,
        max_event_bytes: int = 16 * 1024 * 1024,
    ) -> None:
        """Prepare for one answer.

        Args:
            route: `chat`, `completions` or `responses`.
            headers: the response's headers.
            wall: seconds since the epoch, for dates in an error.
            content_type: the response's; taken from the headers when left out.
            status: the 2xx status.
            strict: take `[DONE]` without any finish reason for a cut stream.
            held: nothing is delivered before the end, so that a broken answer may be asked for again.
            cap: seconds; a server-ordered wait above it makes the call fail.
            max_event_bytes: the bound of one event.
        """
        self.ended = False
        self.failure: Outcome | None = None
        self.unfinished = False
        self._late: list[Chunk] = []
        self._route = route
        self._headers = headers
        self._wall = wall
        self._cap = cap
        self._status = status
        self._strict = strict
        self._held = held
        self._type = (content_type or headers.get("content-type", "")).partition(";")[0].strip().lower()
        self._decoder = Decoder(max_event_bytes)
        self._text = Assembly(route)
        self._responses = ResponseAssembly() if route == "responses" else None
        self._halves = Halves()
        self._body = Sniffer(self._type)
        self._document: dict[str, Any] | None = None  # decoded, where the answer is one
        self._unfolded: dict[str, Any] | None = None  # it, until somebody asks for what only a stream needs of it
        self._chunks = 0
        self._outcome: Outcome | None = None  # once the body is over
        self._ignored = False  # an event of a name that means nothing here

    # What has been read so far.

    @property
    def late(self) -> list[Chunk]:
        """Chunks that became known only when the body ended; deliver them before the outcome."""
        self._fold()
        return self._late

    @property
    def content(self) -> bool:
        """Whether anything was delivered: text, reasoning or a tool-call delta, none of them empty."""
        return self.progress > 0

    @property
    def progress(self) -> int:
        """A counter that grows with every real delta, and with nothing else."""
        if self._unfolded is not None:
            self._fold()
        return self._text.news if self._responses is None else self._text.news + self._responses.news

    @property
    def usage(self) -> Usage | None:
        """What the server says it cost; None when it did not say."""
        if self._unfolded is not None:
            return read_usage(usage_of(self._unfolded))
        found = self._responses.tokens if self._responses else None
        return found or self._text.tokens

    @property
    def streamed(self) -> bool:
        """Whether the answer came as events rather than as one JSON document."""
        return not self._body.is_document

    @property
    def text(self) -> str:
        """The content of the first choice so far."""
        return self.text_of(0)

    def text_of(self, index: int) -> str:
        """Return the content of one choice so far."""
        if self._responses and index == 0:
            return self._responses.text
        self._fold()
        return self._text.text(index)

    @property
    def reasoning(self) -> str:
        """The reasoning of the first choice so far."""
        if self._responses:
            return self._responses.reasoning
        self._fold()
        first = self._text.choices.get(0)
        return "".join(first.reasoning) if first else ""

    @property
    def finish_reason(self) -> str | None:
        """Why the first choice ended; None when the server did not say."""
        if self._responses:
            return self._responses.finish_reason
        self._fold()
        first = self._text.choices.get(0)
        return first.finish if first else None

    def assemble(self) -> dict[str, Any]:
        """Return the complete non-streamed body, whichever way it came."""
        if self._document is not None:
            return self._document
        return self._responses.body() if self._responses else self._text.body()

    # Reading.

    def feed(self, chunk: bytes) -> list[Chunk]:
        """Take the next bytes of the body; return the chunks they complete, for the caller and in order."""
        if self.ended or not chunk:
            return []
        body = self._body
        if body.kind is not Body.EVENTS:
            chunk = body.feed(chunk)
            if len(body.held) > MAX_DOCUMENT_BYTES:
                self._fail(classify.protocol("the answer is larger than 64 MiB", self._headers, retryable=False))
        return self._take(self._decoder.feed(chunk)) if chunk else []

    def end(self) -> Outcome:
        """Say that the body ended cleanly; return what the answer amounts to."""
        return self._finish(None)

    def cut(self, fault: str) -> Outcome:
        """Say that the body did not end but the network or the clock did; `fault` is a word of `FaultKind`."""
        return self._finish(fault)

    # Events.

    def _take(self, events: list[ServerEvent]) -> list[Chunk]:
        chunks: list[Chunk] = []
        assembly = self._text
        for event in events:
            name, text = event
            # The path of every token: an unnamed event that holds choices and no error.
            if not name or name == "message":
                try:
                    data = from_json(text)
                except ValueError:
                    data = None
                if type(data) is dict and data.get("choices") and not data.get("error") and not self._halves:
                    assembly.add(data)
                    chunks.append(_new(Chunk, (data, text, name)))
                    if assembly.stopped is not None:
                        self._stop(last=False)
                        if self.ended:
                            break
                    continue
            self._rare(event, chunks)
            if self.ended:
                break
        self._chunks += len(chunks)
        if self._decoder.overflow and not self.ended:
            self._fail(classify.protocol("one event exceeds its bound", self._headers, retryable=False))
        return chunks

    def _rare(self, event: ServerEvent, chunks: list[Chunk]) -> None:
        """Read what is not a plain chunk: the end, errors, named events, oddities."""
        name, text = event.name, event.data.strip()
        if text.startswith(DONE):
            self.ended = True
            self._stop(last=True)
        elif name == HTML:
            self._fail(classify.protocol("an HTML page inside the stream", self._headers, retryable=False))
        elif name == ERROR:
            self._fail_by(decode_event(text) if text[:1] in {"{", "["} else text)
        elif name in {"", "message"} or name.startswith("response."):
            self._decoded_event(decode_event(text), event, chunks)
        else:
            self._ignored = True

    def _decoded_event(self, data: object, event: ServerEvent, chunks: list[Chunk]) -> None:
        if isinstance(data, Broken):
            message = f"an event of the stream is not JSON: {data[:_SHOWN]!r}"
            self._fail(classify.protocol(message, self._headers, retryable=True))
            return
        if isinstance(data, list) and len(data) == 1:
            data = data[0]
        if not isinstance(data, dict):
            return  # null, a number, a string: says nothing
        if self._halves or "\\u" in event.data:
            data = self._halves.join(data)
        kind = event.name or str(data.get("type", ""))
        if kind.startswith("response."):
            self._response_event(kind, data, event, chunks)
        elif is_problem(data):
            self._text.add_finish(data)
            self._fail_by(data)
        else:
            self._text.add(data)
            chunks.append(Chunk(data, event.data, event.name))

    def _stop(self, *, last: bool) -> None:
        """Act on a finish reason that is no finish; an error frame after it would say more, so wait for one."""
        choice = self._text.stopped
        if choice is None or self.failure is not None:
            return
        if choice.get("error"):
            self._fail_by({"error": choice["error"]})
        elif last:
            outcome = classify.of_finish(str(choice.get("finish_reason")), self._headers)
            if outcome is not None:
                self._fail(outcome)

    def _response_event(self, kind: str, data: dict[str, Any], event: ServerEvent, chunks: list[Chunk]) -> None:
        if self._responses is None:
            self._responses = ResponseAssembly()
        self._responses.add(kind, data)
        if kind in ENDS:
            final = {**(self._responses.final or {}), "status": kind.removeprefix("response.")}
            failed = classify.of_response_object(final, self._headers, wall=self._wall, cap=self._cap)
            if failed is not None:
                self._fail(failed)
                return
            self.ended = True
        chunks.append(Chunk(data, event.data, event.name or kind))

    # The end.

    def _finish(self, fault: str | None) -> Outcome:
        if self._outcome is None:
            self._outcome = self._conclude(fault)
        return self._outcome

    def _conclude(self, fault: str | None) -> Outcome:
        if not self.ended:
            rest = self._body.end()
            if rest:
                self._late += self._take(self._decoder.feed(rest))
        if not self.ended and self._body.is_document:
            self._finish_document(fault)
        elif not self.ended:
            self._late += self._take(self._decoder.end())
        self._stop(last=True)
        if self.failure is not None:
            return self.failure
        if not self._whole():
            if not self.ended or not self._chunks or self._strict:
                return self._fail(self._incomplete(fault))
            self.unfinished = True
        return classify.fine(self._status, self._headers)

    def _whole(self) -> bool:
        if self._document is not None or (self._responses is not None and self._responses.final is not None):
            return True
        return self._text.finished

    def _incomplete(self, fault: str | None) -> Outcome:
        """Name an answer that ended without being whole."""
        if self.ended and not self._chunks:
            return classify.protocol("the stream ended without a single chunk", self._headers, retryable=True)
        if fault is None and self._body.kind is Body.UNDECIDED and self._type != EVENT_STREAM:
            return classify.protocol("an empty answer", self._headers, retryable=True, status=self._status)
        if fault in classify.CLOCKS:
            outcome = classify.of_fault(fault)
        else:
            outcome = classify.interrupted("the stream ended before the answer did", self._headers)
        waiting = not self._chunks and not self._decoder.leftover
        if waiting and (self._decoder.comments or self._ignored or self._body.blank):
            # Nothing but keep-alives: a queue that did not move, which is overload and no fault.
            outcome = replace(outcome, breaker=False, overload=True)
        return replace(outcome, status=self._status, request_id=classify.request_id(self._headers))

    def _finish_document(self, fault: str | None) -> None:
        text = self._body.document()
        try:
            data = decode_json(text)
        except ValueError:
            if self._type == EVENT_STREAM and text.startswith(b"{"):
                self._late += self._take(self._decoder.feed(self._body.release()) + self._decoder.end())
                return
            truncated = fault is not None
            outcome = classify.undecodable(text, self._headers, status=self._status, truncated=truncated)
            if fault in classify.CLOCKS:
                outcome = classify.of_fault(fault)
            self._fail(outcome)
            return
        if isinstance(data, list) and len(data) == 1:
            data = data[0]
        data = self._halves.join(data) if isinstance(data, dict) and b"\\u" in text else data
        outcome = classify.of_answer(
            data, self._headers, status=self._status, route=self._route, wall=self._wall, cap=self._cap
        )
        if not outcome.ok:
            self._fail(outcome)
        elif isinstance(data, dict):
            self._keep_document(data)

    def _keep_document(self, data: dict[str, Any]) -> None:
        self._chunks += 1
        line = str(data.get("object")).endswith(".chunk")  # a stream of one line; its finish reasons decide
        if not line:
            self._document = data
            if self._responses is None:
                self._unfolded = data
                return
        self._text.add(data)
        event = {"type": "response.completed", "response": data}
        if self._responses is not None:
            self._responses.add("response.completed", event)
        self._late.append(Chunk(data, "", "") if line else Chunk(event, "", "response.completed"))

    def _fold(self) -> None:
        """Read a document as the one chunk of a stream; a plain call never asks for it."""
        document, self._unfolded = self._unfolded, None
        if document is not None:
            self._text.add(document)
            self._late.append(Chunk(as_chunk(document), "", ""))

    def _fail(self, outcome: Outcome) -> Outcome:
        """Settle on a failure; once anything was delivered nothing may be repeated."""
        if self.content and not self._held:
            outcome = replace(outcome, retryable=False, refusal=False)
        self.failure = outcome
        self.ended = True
        return outcome

    def _fail_by(self, data: object) -> None:
        self._fail(classify.of_frame(data, self._headers, wall=self._wall, cap=self._cap))
