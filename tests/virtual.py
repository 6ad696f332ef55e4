"""A pool in virtual time with scripted or modelled servers, for tests of the whole stack without sockets."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any

from llm_client import Pool
from llm_client.compose.calls import make_call
from llm_client.drivers.virtual import VirtualDriver, VirtualExchange, World
from llm_client.flow.effects import Close, Fault, FaultKind, Flow
from llm_client.flow.reading import read_on
from llm_client.flow.run import Reply, Run
from llm_client.flow.stack import stack
from llm_client.model import UNSET, Call, Headers, Request
from llm_client.wire.measure import measure

Handler = Callable[["Server", VirtualExchange], None]


def completion(text: str = "hello", tokens: int = 5) -> bytes:
    """A plain chat answer."""
    return json.dumps(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": 3 + tokens},
        }
    ).encode()


def event(data: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def delta(text: str | None = None, *, finish: str | None = None, role: bool = False) -> bytes:
    """One chunk of a chat stream."""
    content: dict[str, Any] = {"role": "assistant"} if role else {}
    if text is not None:
        content["content"] = text
    return event(
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": content, "finish_reason": finish}],
        }
    )


DONE = event(b"[DONE]")
JSON = Headers([("content-type", "application/json")])
SSE = Headers([("content-type", "text/event-stream")])


def error_body(message: str, code: Any = None, kind: str = "server_error") -> bytes:
    """An OpenAI-shaped error body."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


def answer(after: float = 0.1, text: str = "hello") -> Handler:
    """Answer well after so many seconds, plain or streamed as asked."""

    def handle(server: Server, exchange: VirtualExchange) -> None:
        world = server.world
        if json.loads(exchange.request.body or b"{}").get("stream"):
            world.at(world.now, exchange.respond, 200, SSE)
            world.at(world.now + min(0.05, after / 5), exchange.push, delta(text))
            world.at(world.now + after, exchange.push, delta(finish="stop") + DONE)
            world.at(world.now + after, exchange.end)
            return
        world.at(world.now + after, exchange.respond, 200, JSON)
        world.at(world.now + after, exchange.push, completion(text))
        world.at(world.now + after, exchange.end)

    return handle


def status(code: int, body: bytes = b"", *, after: float = 0.002, **headers: str) -> Handler:
    """Answer with an HTTP status; header names take underscores for hyphens."""

    def handle(server: Server, exchange: VirtualExchange) -> None:
        world = server.world
        found = Headers([("content-type", "application/json"), *((k.replace("_", "-"), v) for k, v in headers.items())])
        world.at(world.now + after, exchange.respond, code, found)
        if body:
            world.at(world.now + after, exchange.push, body)
        world.at(world.now + after, exchange.end)

    return handle


def fault(kind: FaultKind, *, after: float = 0.0, sent: bool = True) -> Handler:
    """Break the connection."""
    return lambda server, exchange: server.world.at(server.world.now + after, lambda: exchange.fail(kind, sent=sent))


def silence(server: Server, exchange: VirtualExchange) -> None:
    """Never answer."""


def sse(*pieces: tuple[float, bytes], end: bool = True) -> Handler:
    """Stream pieces at the given seconds after the request; headers come at once."""

    def handle(server: Server, exchange: VirtualExchange) -> None:
        world = server.world
        world.at(world.now, exchange.respond, 200, SSE)
        last = 0.0
        for at, data in pieces:
            world.at(world.now + at, exchange.push, data)
            last = max(last, at)
        if end:
            world.at(world.now + last, exchange.end)

    return handle


class Server:
    """Takes requests at every address; per endpoint a script of handlers, then a default one."""

    def __init__(self, world: World, default: Handler | None = None) -> None:
        self.world = world
        self.default = default or answer()
        self.scripts: dict[str, deque[Handler]] = {}
        self.defaults: dict[str, Handler] = {}
        self.requests: list[tuple[float, Request]] = []
        self.inflight = 0
        self.peak = 0

    def script(self, *handlers: Handler, host: str = "a") -> None:
        """Answer the next requests to a host with these."""
        self.scripts.setdefault(host, deque()).extend(handlers)

    def receive(self, exchange: VirtualExchange) -> None:
        self.requests.append((self.world.now, exchange.request))
        host = (exchange.request.url or "").split("/")[2]
        script = self.scripts.get(host)
        handler = script.popleft() if script else self.defaults.get(host, self.default)
        handler(self, exchange)

    def times(self, host: str | None = None) -> list[float]:
        """When requests came in."""
        return [at for at, request in self.requests if host is None or f"//{host}/" in (request.url or "")]


class SlotServer(Server):
    """S slots of a fixed service time and a bounded queue; refuses beyond it, frees its slot before it answers."""

    def __init__(self, world: World, slots: int, queue: int, seconds: float, retry_after: float | None = 1.0) -> None:
        super().__init__(world)
        self.slots, self.room, self.seconds, self.retry_after = slots, queue, seconds, retry_after
        self.line: deque[VirtualExchange] = deque()
        self.busy = 0
        self.refused = 0

    def receive(self, exchange: VirtualExchange) -> None:
        self.requests.append((self.world.now, exchange.request))
        self.world.at(self.world.now + 0.001, self._arrive, exchange)

    def _arrive(self, exchange: VirtualExchange) -> None:
        exchange.on_gone = lambda: self.line.remove(exchange) if exchange in self.line else None
        if self.busy < self.slots:
            self._start(exchange)
        elif len(self.line) < self.room:
            self.line.append(exchange)
        else:
            self.refused += 1
            headers = {} if self.retry_after is None else {"retry_after": f"{self.retry_after:g}"}
            status(429, error_body("too many", "rate_limit_exceeded"), after=0.001, **headers)(self, exchange)

    def _start(self, exchange: VirtualExchange) -> None:
        self.busy += 1
        world = self.world
        if json.loads(exchange.request.body).get("stream"):
            first = world.now + min(0.2 * self.seconds, 0.05)
            world.at(first, exchange.respond, 200, SSE)
            world.at(first, exchange.push, delta("hello"))
        world.at(world.now + self.seconds, self._finish, exchange)

    def resize(self, slots: int) -> None:
        """Have another count of slots from now on."""
        self.slots = slots
        self._fill()

    def _fill(self) -> None:
        while self.line and self.busy < self.slots:
            self._start(self.line.popleft())

    def _finish(self, exchange: VirtualExchange) -> None:
        self.busy -= 1
        self._fill()
        if exchange.status:
            self.world.at(self.world.now + 0.001, exchange.push, delta(finish="stop") + DONE)
            self.world.at(self.world.now + 0.001, exchange.end)
        else:
            answer(0.001)(self, exchange)


class Bench:
    """One pool, one world, one server; several benches may share the world."""

    def __init__(
        self,
        *,
        pool: dict[str, Any] | None = None,
        profile: dict[str, Any] | None = None,
        server: Callable[[World], Server] = Server,
        hosts: tuple[str, ...] = ("a",),
        file: Any = None,
        seed: int = 1,
        world: World | None = None,
    ) -> None:
        self.world = world or World()
        settings = dict(pool or {})
        if file is None:
            settings.setdefault("endpoints", [{"name": h, "base_url": f"http://{h}/v1"} for h in hosts])
        self.pool = Pool(pool=settings or None, profile=profile, clock=self.world, seed=seed, file=file)
        self.server = server(self.world)
        self.driver = VirtualDriver(self.pool.gate, self.server, self.world)
        self.results: list[Any] = []
        self.events: list[Any] = []
        self.pool.listen(self.events.append)

    @property
    def station(self) -> Any:
        return self.pool.endpoints[0]

    def call(
        self, text: str = "hi", *, stream: bool = False, profile: str = "default", route: str = "chat", **options: Any
    ) -> Call:
        body: dict[str, Any] = {"model": options.pop("model", "m"), "messages": [{"role": "user", "content": text}]}
        body |= options.pop("body", {})
        if stream:
            body["stream"] = True
        data = json.dumps(body).encode()
        return make_call(
            self.pool,
            self.pool.plan(profile),
            Request(path="chat/completions", body=data),
            route=route,
            model=body["model"],
            stream=stream,
            data=body,
            size=measure(body),
            max_tokens=body.get("max_tokens"),
            priority=options.pop("priority", UNSET),
            deadline=options.pop("deadline", UNSET),
            fallback=options.pop("fallback", UNSET),
            **options,
        )

    def start(self, text: str = "hi", *, profile: str = "default", **options: Any) -> Result:
        """Start a call now, read its body to the end."""
        result = Result(self.world.now)
        self.results.append(result)
        call = self.call(text, profile=profile, **options)
        run = Run(call, self.pool.plan(profile), self.pool.services)
        result.process = self.driver.start(_whole(stack(run), result), result.done(self.world))
        return result

    def at(self, when: float, text: str = "hi", **options: Any) -> Result:
        """Start a call later; the result object is there now."""
        result = Result(when)
        self.results.append(result)

        def go() -> None:
            call = self.call(text, **options)
            run = Run(call, self.pool.plan(options.get("profile", "default")), self.pool.services)
            result.process = self.driver.start(_whole(stack(run), result), result.done(self.world))

        self.world.at(when, go)
        return result

    def run(self, until: float = 10_000.0) -> Bench:
        """Let time pass until every started call is over."""
        pending = self.results
        first = 0

        def done() -> bool:
            nonlocal first
            while first < len(pending) and pending[first].over:
                first += 1
            return first == len(pending)

        self.world.run(until, done=done)
        return self

    def idle(self) -> dict[str, float]:
        """Everything that must be back at the end."""
        stations = self.pool.endpoints
        return {
            "inflight": sum(s.limit.inflight for s in stations),
            "outstanding": sum(s.outstanding for s in stations),
            "waiting": self.pool.gate.waiting,
            "probes": sum(s.breaker.probing for s in stations),
        }


IDLE = {"inflight": 0, "outstanding": 0, "waiting": 0, "probes": 0}


class Result:
    """How a call went."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.ended = 0.0
        self.reply: Reply | None = None
        self.error: BaseException | None = None
        self.over = False
        self.text = ""
        self.process: Any = None

    def done(self, world: World) -> Callable[[Any, BaseException | None], None]:
        def finish(reply: Any, error: BaseException | None) -> None:
            self.over, self.ended, self.error = True, world.now, error
            self.reply = reply or self.reply

        return finish

    @property
    def elapsed(self) -> float:
        return self.ended - self.began

    @property
    def ok(self) -> bool:
        return self.over and self.error is None


def _whole(flow: Flow[Reply], result: Result) -> Flow[Reply]:
    """Run a call and read its body to the end."""
    reply = yield from flow
    result.reply = reply
    delivery = reply.delivery
    if delivery is None:
        return reply
    try:
        while (yield from read_on(delivery)) is not None:
            pass
    finally:
        result.text = delivery.text
        delivery.give_up()
    yield Close(delivery.exchange)
    return reply


__all__ = ["DONE", "IDLE", "Bench", "Fault", "FaultKind", "Server", "SlotServer"]
