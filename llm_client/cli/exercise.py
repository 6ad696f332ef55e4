"""The exercise: N calls at once to a server with a short queue, carried out by three kinds of client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from llm_client.cli.reference import ReferenceServer
from llm_client.client.aio import AsyncClient
from llm_client.compose.pool import Pool
from llm_client.errors import LLMClientError
from llm_client.events import BreakerChanged, Event, Listener
from llm_client.model import AttemptRecord


@dataclass(frozen=True, slots=True)
class Shape:
    """The server and the load: queue places, workers, seconds per request, calls at once."""

    queue: int
    workers: int
    seconds: float
    calls: int

    @property
    def ideal(self) -> float:
        """Seconds of whole waves of workers that never idle."""
        return ceil(self.calls / self.workers) * self.seconds


@dataclass(slots=True)
class Story:
    """One call as the timeline draws it; seconds since the act began."""

    began: float
    ended: float = 0.0
    outcome: str = ""
    sends: list[tuple[float, float, bool]] = field(default_factory=list)  # from, to, refused


@dataclass(slots=True)
class Act:
    """What one act came to.

    Attributes:
        stats: the server's own books.
        makespan: seconds until the last of the first calls was over.
        transitions: of the circuit: seconds, from, to.
        resumed: calls answered after the circuit closed again.
    """

    title: str
    shape: Shape
    stories: list[Story] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    makespan: float = 0.0
    transitions: list[tuple[float, str, str]] = field(default_factory=list)
    resumed: int = 0

    @property
    def answered(self) -> int:
        """Calls of the first wave that brought an answer."""
        return sum(story.outcome == "ok" for story in self.stories[: self.shape.calls])


async def _ask(client: AsyncClient, number: int) -> Sequence[AttemptRecord]:
    done = await client.chat.completions.create(
        model="reference", messages=[{"role": "user", "content": f"Question {number}"}], max_tokens=8
    )
    return done.meta.attempts


async def _call(act: Act, client: AsyncClient, number: int, start: float) -> Story:
    """Carry one call out and write its story; the attempts are on the answer as well as on the error."""
    story = Story(began=time.monotonic() - start)
    act.stories.append(story)
    attempts: Sequence[AttemptRecord]
    try:
        attempts = await _ask(client, number)
        story.outcome = "ok"
    except LLMClientError as error:
        story.outcome, attempts = error.kind, error.attempts
    story.ended = time.monotonic() - start
    for each in attempts:
        began = each.started - start
        story.sends.append((began, began + each.elapsed, each.kind is not None))
    return story


def _circuit(act: Act, start: float) -> Listener:
    def hear(event: Event) -> None:
        if isinstance(event, BreakerChanged):
            act.transitions.append((event.at - start, event.old, event.new))

    return hear


async def naive(shape: Shape, server: ReferenceServer) -> Act:
    """A client that sends everything at once and takes what comes."""
    import httpx

    act = Act("a naive client: everything at once, no second try", shape)
    start = time.monotonic()
    body = {"model": "reference", "max_tokens": 8}
    async with httpx.AsyncClient(timeout=None) as http:  # noqa: S113 - a naive client waits for ever

        async def call(number: int) -> None:
            story = Story(began=time.monotonic() - start)
            act.stories.append(story)
            messages = [{"role": "user", "content": f"Question {number}"}]
            answer = await http.post(f"{server.url}/v1/chat/completions", json={**body, "messages": messages})
            story.ended = time.monotonic() - start
            refused = answer.status_code != httpx.codes.OK
            story.sends.append((story.began, story.ended, refused))
            story.outcome = f"HTTP {answer.status_code}" if refused else "ok"

        await asyncio.gather(*(call(number) for number in range(shape.calls)))
    act.makespan = time.monotonic() - start
    act.stats = server.stats()
    return act


async def classic(shape: Shape, server: ReferenceServer, *, failures: int = 3, reset: float = 10.0) -> Act:
    """The textbook's breaker, which takes refusals for failures; then callers who come back now and then."""
    title = f"the classic breaker: {failures} failures open it for {reset:g} s, nothing else is limited"
    act = Act(title, shape)
    start = time.monotonic()
    pool = Pool(
        base_url=f"{server.url}/v1",
        pool={
            "concurrency": {"kind": "off"},
            "breaker": {
                "failures": failures,
                "failure_rate": None,
                "open_for": reset,
                "probes": 1,
                "successes": 1,
                "counts": ["failures", "rate_limited", "overloaded", "timeout"],
            },
        },
        profile={"retry": {"attempts": 1}},
    )
    async with pool:
        pool.listen(_circuit(act, start))
        client = AsyncClient(pool)
        await asyncio.gather(*(_call(act, client, n, start) for n in range(shape.calls)))
        act.makespan = time.monotonic() - start
        number, until = shape.calls, start + reset + 20 * shape.seconds + act.makespan
        while act.resumed < 3 and time.monotonic() < until:
            story = await _call(act, client, number, start)
            number += 1
            closed = any(new == "closed" for _, _, new in act.transitions)
            act.resumed += closed and story.outcome == "ok"
            await asyncio.sleep(reset / 10)
    act.stats = server.stats()
    return act


async def built_in(shape: Shape, server: ReferenceServer) -> Act:
    """The default profile, told nothing about the server."""
    act = Act("llm_client with its built-in profile, nothing told about the server", shape)
    start = time.monotonic()
    async with AsyncClient(base_url=f"{server.url}/v1") as client:
        client.pool.listen(_circuit(act, start))
        await asyncio.gather(*(_call(act, client, n, start) for n in range(shape.calls)))
        act.makespan = time.monotonic() - start
    act.stats = server.stats()
    return act
