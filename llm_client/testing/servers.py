"""Modelled servers for simulations: fixed slots, continuous batching, a token bucket; all refuse as real ones do."""

from __future__ import annotations

import heapq
import json
from collections import deque
from dataclasses import dataclass, field
from math import ceil, inf
from random import Random
from typing import Any

from llm_client.drivers.virtual import VirtualExchange, World
from llm_client.model import Headers

_JSON = Headers([("content-type", "application/json")])
_SSE = Headers([("content-type", "text/event-stream")])
# One way over the network, seconds: from and to.
WAY = (0.001, 0.0025)


@dataclass(slots=True, eq=False)
class Job:
    """One request at a modelled server. Work is seconds for slots, tokens for a batch."""

    exchange: VirtualExchange
    arrived: float
    prompt: int
    output: int
    stream: bool
    state: str = "queued"
    started: float = inf
    ends: float = inf
    late: bool = False
    generated: float = 0.0


@dataclass(slots=True)
class Books:
    """What a server counted.

    Attributes:
        abandoned: requests that their client gave up.
        tokens, wasted: generated for answers, and for requests that were then given up.
        arrivals: when requests came, seconds.
        firsts: of each first token when it was made, and how many seconds after its request came.
    """

    arrived: int = 0
    answered: int = 0
    refused: int = 0
    abandoned: int = 0
    tokens: float = 0.0
    wasted: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    firsts: list[tuple[float, float]] = field(default_factory=list)


@dataclass(kw_only=True)
class SlotsServer:
    """S slots of a fixed or log-normal service time and a bounded queue; it frees its slot before it answers.

    Attributes:
        seconds: mean service time.
        sigma: of the log-normal spread; 0 is fixed.
        queue: places to wait; inf never refuses.
        retry_after: what a refusal says, seconds; None says nothing.
        status: of refusals.
        down: answers every request with this status while set; `down_after` is its Retry-After.
    """

    world: World
    rng: Random
    slots: int = 8
    queue: float = 8
    seconds: float = 0.2
    sigma: float = 0.0
    retry_after: float | None = 1.0
    status: int = 429
    down: int = 0
    down_after: float | None = None
    books: Books = field(default_factory=Books)

    def __post_init__(self) -> None:
        self.line: deque[Job] = deque()
        self.running = 0

    def receive(self, exchange: VirtualExchange) -> None:
        """Take a request in, after its way over the network."""
        body = json.loads(exchange.request.body or b"{}")
        sizes = body.get("sizes") or [100, body.get("max_tokens") or 100]
        job = Job(exchange, self.world.now, int(sizes[0]), int(sizes[1]), bool(body.get("stream")))
        exchange.on_gone = lambda: self.leave(job)
        self._soon(self.arrive, job)

    def arrive(self, job: Job) -> None:
        """Start, queue or refuse."""
        if job.exchange.gone:
            return
        self.count()
        if self.down:
            self._refuse(job, self.down, self.down_after, b'{"error":{"message":"maintenance","type":"server_error"}}')
        elif self.running < self.slots:
            self.start(job)
        elif len(self.line) < self.queue:
            self.line.append(job)
        else:
            self.refuse(job)

    def count(self) -> None:
        """Count a request that came."""
        self.books.arrived += 1
        self.books.arrivals.append(self.world.now)

    def change(self, name: str, value: Any) -> None:
        """Change a setting while the server works; places that come free are given to the line."""
        if not hasattr(self, name):
            raise AttributeError(f"{type(self).__name__} has no setting {name!r}")
        setattr(self, name, value)
        while self.line and self.running < self.slots:
            self.start(self.line.popleft())

    def refuse(self, job: Job) -> None:
        """Say that there is no room."""
        body = b'{"error":{"message":"The request queue is full.","type":"overloaded","code":"queue_full"}}'
        self._refuse(job, self.status, self.retry_after, body)

    def start(self, job: Job) -> None:
        """Begin to work on a job."""
        now = self.world.now
        self.running += 1
        job.state, job.started = "running", now
        work = self.work(job)
        job.ends = now + work
        self.books.firsts.append((now, now - job.arrived))
        if job.stream:
            self.world.at(now + min(0.2 * work, 0.05), self._first, job)
        self.world.at(job.ends, self.finish, job)

    def work(self, job: Job) -> float:
        """Return seconds that a job takes."""
        del job
        if not self.sigma:
            return self.seconds
        return self.seconds * self.rng.lognormvariate(-(self.sigma**2) / 2, self.sigma)

    def finish(self, job: Job) -> None:
        """Free the slot, then answer."""
        if job.state != "running":
            return
        job.state = "done"
        self.books.answered += 1
        self.books.tokens += job.output
        self.free()
        self._soon(_answer, job)

    def free(self) -> None:
        """Give the slot to the next in line."""
        self.running -= 1
        while self.line and self.running < self.slots:
            self.start(self.line.popleft())

    def leave(self, job: Job) -> None:
        """Stop working for a client that has gone."""
        if job.state == "queued" and job in self.line:
            self.line.remove(job)
            self.books.abandoned += 1
        elif job.state == "running":
            self.books.abandoned += 1
            self.books.wasted += self.done_part(job) * job.output
            job.state = "gone"
            self.free()

    def done_part(self, job: Job) -> float:
        """Return the share of a running job that is done."""
        return (self.world.now - job.started) / (job.ends - job.started)

    def _first(self, job: Job) -> None:
        if job.state == "running":
            self._soon(_begin, job)

    def _refuse(self, job: Job, status: int, retry_after: float | None, body: bytes) -> None:
        self.books.refused += 1
        job.state = "refused"
        headers = [*_JSON.pairs]
        if retry_after is not None:
            headers.append(("retry-after", f"{retry_after:g}"))
        self._soon(_say, job, status, Headers(headers), body)

    def _soon(self, act: Any, *args: Any) -> None:
        self.world.at(self.world.now + self.rng.uniform(*WAY), act, *args)


@dataclass(kw_only=True)
class BatchServer(SlotsServer):
    """Continuous batching: every running job gains one token per step, and a step grows with the batch.

    Attributes:
        step: seconds per token with an empty batch.
        per_job: seconds that each running job adds to a step.
        prefill: prompt tokens per second.
        hung: accepts requests and makes no token while set.
    """

    slots: int = 32
    queue: float = 64
    step: float = 0.020
    per_job: float = 0.0005
    prefill: float = 8000.0
    hung: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._clock = 0.0  # tokens that a job which ran from the start would have by now
        self._at = 0.0
        self._decoding: list[tuple[float, int, Job]] = []
        self._turn = 0

    def capacity(self, prompt: float, output: float) -> float:
        """Return jobs per second of a full batch."""
        return self.slots / (prompt / self.prefill + output * (self.step + self.per_job * self.slots))

    def start(self, job: Job) -> None:
        """Prefill, then decode with the others."""
        self._advance()
        self.running += 1
        job.state, job.started = "running", self.world.now
        self.world.at(self.world.now + job.prompt / self.prefill, self._decode, job)
        self._arm()

    def change(self, name: str, value: Any) -> None:
        """Change a setting; what ran until now ran under the old one."""
        self._advance()
        super().change(name, value)
        self._arm()

    def free(self) -> None:
        """Give the slot to the next; the batch is smaller, so steps are shorter."""
        self._advance()
        super().free()
        self._arm()

    def done_part(self, job: Job) -> float:
        """Return the share of a job's tokens that are made."""
        self._advance()
        return 0.0 if job.ends == inf else max(0.0, 1.0 - (job.ends - self._clock) / job.output)

    def _advance(self) -> None:
        if self.running and not self.hung:
            self._clock += (self.world.now - self._at) / (self.step + self.per_job * self.running)
        self._at = self.world.now

    def _decode(self, job: Job) -> None:
        if job.state != "running":
            return
        if self.hung:  # the token comes when the server goes on
            self.world.at(self.world.now + 0.1, self._decode, job)
            return
        self._advance()
        self.books.firsts.append((self.world.now, self.world.now - job.arrived))
        if job.stream:
            self._soon(_begin, job)
        job.ends = self._clock + job.output
        self._turn += 1
        heapq.heappush(self._decoding, (job.ends, self._turn, job))
        self._arm()

    def _arm(self) -> None:
        """Wake up when the next job is done, unless the batch changes before."""
        self._turn += 1
        while self._decoding and self._decoding[0][2].state != "running":
            heapq.heappop(self._decoding)
        if self._decoding and not self.hung:
            left = max(0.0, self._decoding[0][0] - self._clock)
            self.world.at(self.world.now + left * (self.step + self.per_job * self.running), self._tick, self._turn)

    def _tick(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._advance()
        done = []
        while self._decoding and self._decoding[0][0] <= self._clock + 1e-6:
            done.append(heapq.heappop(self._decoding)[2])
        for job in done:
            self.finish(job)
        self._arm()


@dataclass(kw_only=True)
class BucketServer(SlotsServer):
    """A hosted API: so many requests per second and a burst, unlimited slots behind; a refusal costs no token."""

    rate: float = 10.0
    burst: float = 20.0
    slots: int = 10**9

    def __post_init__(self) -> None:
        super().__post_init__()
        self._level, self._seen = self.burst, 0.0

    def arrive(self, job: Job) -> None:
        """Start when the bucket has a token."""
        now = self.world.now
        self._level = min(self.burst, self._level + (now - self._seen) * self.rate)
        self._seen = now
        if self._level < 1.0 and not job.exchange.gone:
            self.count()
            wait = None if self.retry_after is None else ceil((1.0 - self._level) / self.rate)
            self._refuse(job, 429, wait, b'{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}')
            return
        self._level -= not job.exchange.gone
        super().arrive(job)


def _say(job: Job, status: int, headers: Headers, body: bytes) -> None:
    job.exchange.respond(status, headers)
    job.exchange.push(body)
    job.exchange.end()


def _begin(job: Job) -> None:
    if not job.exchange.gone and not job.exchange.status:
        job.exchange.respond(200, _SSE)
        job.exchange.push(_chunk({"delta": {"role": "assistant", "content": "x"}, "index": 0}))


def _answer(job: Job) -> None:
    usage = {
        "prompt_tokens": job.prompt,
        "completion_tokens": job.output,
        "total_tokens": job.prompt + job.output,
    }
    if not job.stream:
        message = {"role": "assistant", "content": "x"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "s", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
        _say(job, 200, _JSON, json.dumps(body).encode())
        return
    _begin(job)
    job.exchange.push(_chunk({"delta": {}, "index": 0, "finish_reason": "stop"}, usage) + b"data: [DONE]\n\n")
    job.exchange.end()


def _chunk(choice: dict[str, Any], usage: dict[str, int] | None = None) -> bytes:
    data = {"id": "s", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
    if usage is not None:
        data["usage"] = usage
    return b"data: " + json.dumps(data).encode() + b"\n\n"
