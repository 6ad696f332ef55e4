"""A scripted OpenAI-compatible server that keeps a book. Standard library only: it runs in every environment."""

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


@dataclass(frozen=True)
class Seen:
    """One request as it came over the wire; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: dict

    @property
    def prompt(self) -> str:
        """The text of the last message."""
        content = self.body["messages"][-1]["content"]
        return content if isinstance(content, str) else "".join(part["text"] for part in content)


@dataclass(frozen=True)
class Answer:
    """What to send: a body at once, or the frames of an event stream, possibly cut before its end."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: dict | None = None
    frames: tuple[str, ...] = ()
    cut: bool = False


def said(prompt: str) -> str:
    """Give the default answer's text: it shows that each caller gets its own."""
    return f"You said {prompt}"


def chat(seen: Seen, text: str) -> Answer:
    """Answer a chat call, as a stream where it asked for one."""
    if not seen.body.get("stream"):
        message = {"role": "assistant", "content": text}
        return Answer(body=_completion("chat.completion", message=message, finish_reason="stop"))
    return Answer(frames=(*_frames(text), _data(_chunk({}, "stop")), "[DONE]"))


def refused(status: int, code: str, **headers: str) -> Answer:
    """Say no with an error body in OpenAI's shape."""
    error = {"message": f"scripted {code}", "type": "scripted", "param": None, "code": code}
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Answer(status=status, headers=pairs, body={"error": error})


def refused_inside() -> Answer:
    """Say 200, and no in the first frames: what vLLM does over its queue bound."""
    error = {"message": "The engine is currently busy", "type": "Service Unavailable", "param": None, "code": 503}
    return Answer(frames=(_data(_chunk({"role": "assistant", "content": ""})), _data({"error": error}), "[DONE]"))


def cut_short(text: str) -> Answer:
    """Stream a text and drop the connection instead of ending the body."""
    return Answer(frames=tuple(_frames(text)), cut=True)


class Server:
    """Answers on a free loopback port until the `with` block ends.

    Args:
        script: gets a request and how many came before it; None means the default answer.
        text: the default answer's text, from the prompt.
        slots: when given, a request that finds this many in service is refused with 429.
        seconds: how long the default answer takes.
    """

    def __init__(
        self,
        script: Callable[[Seen, int], Answer | None] = lambda _seen, _number: None,
        *,
        text: Callable[[str], str] = said,
        slots: int | None = None,
        seconds: float = 0.0,
    ) -> None:
        """Bind; serving starts with the `with` block."""
        self.seen: list[Seen] = []
        self.refusals = 0
        self._script, self._text, self._slots, self._seconds = script, text, slots, seconds
        self._lock = threading.Lock()
        self._busy = 0
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"owner": self}))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    def __enter__(self) -> Self:
        """Serve on a thread."""
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def answer(self, seen: Seen, send: Callable[[Answer], None]) -> None:
        """Book a request, decide, and send while holding its slot."""
        with self._lock:
            number = len(self.seen)
            self.seen.append(seen)
            full = self._slots is not None and self._busy >= self._slots
            self._busy += not full
            self.refusals += full
        if full:
            send(refused(429, "rate_limit_exceeded"))
            return
        try:
            time.sleep(self._seconds)
            send(self._script(seen, number) or chat(seen, self._text(seen.prompt)))
        finally:
            with self._lock:
                self._busy -= 1


class _Handler(BaseHTTPRequestHandler):
    owner: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.owner.answer(Seen(self.path, headers, body), self._send)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if answer.body is not None:
            content = json.dumps(answer.body).encode()
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for frame in answer.frames:
            event = f"data: {frame}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        if answer.cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


def _completion(kind: str, **choice: object) -> dict:
    usage = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    head = {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "gpt-4o-mini"}
    return {**head, "choices": [{"index": 0, **choice}], **({"usage": usage} if "message" in choice else {})}


def _chunk(delta: dict, finish: str | None = None) -> dict:
    return _completion("chat.completion.chunk", delta=delta, finish_reason=finish)


def _frames(text: str) -> Iterable[str]:
    yield _data(_chunk({"role": "assistant", "content": ""}))
    for word in text.split(" "):
        yield _data(_chunk({"content": word if word == text.split(" ", maxsplit=1)[0] else f" {word}"}))


def _data(value: dict) -> str:
    return json.dumps(value)
