"""A load against a modelled server, through the real stack with your own profile, in virtual time.

    report = simulate(Scenario(server=Batch(), load=Poisson(rate=1.5)), file=profiles.load("profiles.yaml"))
    report.goodput, report.sends_per_answer, report.classes["high"].on_time

Nothing is mocked but sockets and clocks: queue, limit, circuit, retries and readers are those of production. The
server models are in `llm_client.testing.servers`; they rank profiles, they do not predict your GPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from random import Random
from typing import Any

from llm_client.compose.calls import make_call
from llm_client.compose.pool import Pool
from llm_client.drivers.virtual import VirtualDriver, World
from llm_client.flow.effects import Flow
from llm_client.flow.reading import read_on
from llm_client.flow.run import Reply, Run
from llm_client.flow.stack import stack
from llm_client.model import UNSET, Priority, Request, Size
from llm_client.profiles.types import File
from llm_client.testing.scenario import SERVERS, Kind, Scenario
from llm_client.testing.servers import BatchServer, SlotsServer

__all__ = ["SERVERS", "ClassReport", "Kind", "Moment", "Outcome", "Report", "Scenario", "quantile", "simulate"]


@dataclass(frozen=True, slots=True)
class Moment:
    """What a second of the play looked like.

    Attributes:
        at: seconds since the start.
        limit: calls that may be in flight, over all clients.
        inflight: calls that are.
        waiting: calls in the clients' queues.
    """

    at: float
    limit: float
    inflight: int
    waiting: int


@dataclass(slots=True)
class Outcome:
    """How one call went; seconds since the start."""

    kind: Kind
    arrived: float
    prompt: int
    output: int
    client: int = 0
    sent: float = inf
    first: float = inf
    ended: float = inf
    error: str = ""
    sends: int = 0

    @property
    def on_time(self) -> bool:
        """Whether it was answered before its deadline."""
        return not self.error and self.ended - self.arrived <= (self.kind.deadline or inf)


def simulate(
    scenario: Scenario,
    *,
    file: File | None = None,
    pool: Mapping[str, Any] | None = None,
    profile: Mapping[str, Any] | None = None,
    seed: int = 1,
    watch: Callable[[float, list[Pool]], None] | None = None,
) -> Report:
    """Play a scenario to its end.

    Args:
        scenario: what happens.
        file: the profile file; its endpoints are replaced by the modelled server. None for the built-in profile.
        pool: pool settings that differ.
        profile: settings of the default profile that differ.
        seed: of arrivals, lengths and jitter.
        watch: called once per simulated second with the time and the pools.
    """
    return _Play(scenario, file, pool, profile, seed).run(watch)


class _Play:
    def __init__(
        self,
        scenario: Scenario,
        file: File | None,
        pool: Mapping[str, Any] | None,
        profile: Mapping[str, Any] | None,
        seed: int,
    ) -> None:
        self.scenario = scenario
        self.rng = Random(seed)
        self.world = World()
        self.server = SERVERS[scenario.server](world=self.world, rng=Random(seed + 1), **scenario.settings)
        endpoints = [{"name": "server", "base_url": "http://server/v1"}]
        settings = {**(pool or {}), "endpoints": endpoints}
        self.pools = [
            Pool(file=file, pool=settings, profile=profile, clock=self.world, seed=seed * 1000 + number)
            for number in range(scenario.clients)
        ]
        self.drivers = [VirtualDriver(each.gate, self.server, self.world) for each in self.pools]
        self.outcomes: list[Outcome] = []
        self.moments: list[Moment] = []
        self._open = 0
        self._arriving = 0

    def run(self, watch: Callable[[float, list[Pool]], None] | None) -> Report:
        scenario, world = self.scenario, self.world
        for number in range(scenario.burst):
            self._arriving += 1
            world.at(0.0, self._start, self._kind(0.0), number)
        rate = scenario.rate or self._rate()
        if rate:
            self._arrivals(rate / self._shares(0.0))
        for when, name, value in scenario.changes:
            world.at(when, self.server.change, name, value)
        self._tick(watch)
        world.run(done=lambda: not self._arriving and not self._open)
        return Report(scenario, self.outcomes, self.server, self.moments, world.now)

    def _arrivals(self, per_share: float) -> None:
        """Draw a Poisson process whose rate changes as kinds come and go."""
        kinds, seconds = self.scenario.kinds, self.scenario.seconds
        edges = sorted({0.0, seconds, *(edge for kind in kinds for edge in (kind.begin, kind.end) if edge < seconds)})
        number = 0
        for begin, end in pairwise(edges):
            rate = per_share * self._shares(begin)
            at = begin
            while rate > 0.0 and (at := at + self.rng.expovariate(rate)) < end:
                self._arriving += 1
                self.world.at(at, self._start, self._kind(at), number)
                number += 1

    def _rate(self) -> float:
        if not self.scenario.load:
            return 0.0
        assert isinstance(self.server, BatchServer)  # noqa: S101 - the scenario has seen to it
        kinds, total = self._kinds(0.0), self._shares(0.0)
        prompt = sum(kind.share * kind.prompt for kind in kinds) / total
        output = sum(kind.share * kind.output for kind in kinds) / total
        return self.scenario.load * self.server.capacity(prompt, output)

    def _kinds(self, at: float) -> list[Kind]:
        return [kind for kind in self.scenario.kinds if kind.begin <= at < kind.end]

    def _shares(self, at: float) -> float:
        return sum(kind.share for kind in self._kinds(at))

    def _kind(self, at: float) -> Kind:
        kinds = self._kinds(at)
        return self.rng.choices(kinds, [kind.share for kind in kinds])[0]

    def _tokens(self, mean: float, sigma: float) -> int:
        return max(1, round(mean * self.rng.lognormvariate(-(sigma**2) / 2, sigma) if sigma else mean))

    def _start(self, kind: Kind, number: int) -> None:
        self._arriving -= 1
        self._open += 1
        client = number % len(self.pools)
        pool, driver = self.pools[client], self.drivers[client]
        outcome = Outcome(
            kind=kind,
            arrived=self.world.now,
            prompt=self._tokens(kind.prompt, kind.sigma),
            output=self._tokens(kind.output, kind.sigma),
            client=client,
        )
        self.outcomes.append(outcome)
        body = {"model": "m", "messages": [], "stream": kind.stream, "sizes": [outcome.prompt, outcome.output]}
        plan = pool.plan(kind.profile)
        call = make_call(
            pool,
            plan,
            Request(path="chat/completions", body=json.dumps(body).encode()),
            route="chat",
            model="m",
            stream=kind.stream,
            data=body,
            size=Size(text=outcome.prompt * 4),
            max_tokens=kind.max_tokens,
            priority=Priority.parse(kind.priority),
            deadline=UNSET if kind.deadline is None else kind.deadline,
        )
        run = Run(call, plan, pool.services)

        def done(reply: Reply | None, error: BaseException | None) -> None:
            del reply
            self._open -= 1
            outcome.ended = self.world.now
            outcome.sends = len(run.records)
            if run.records:
                outcome.sent = run.records[-1].started
                if run.first_token is not None:
                    outcome.first = outcome.sent + run.first_token
            if error is not None:
                outcome.error = getattr(error, "kind", type(error).__name__)

        driver.start(_whole(run), done)

    def _tick(self, watch: Callable[[float, list[Pool]], None] | None) -> None:
        limits = [pool.endpoints[0].limit for pool in self.pools]
        self.moments.append(
            Moment(
                self.world.now,
                sum(each.limit for each in limits),
                sum(each.inflight for each in limits),
                sum(pool.gate.waiting for pool in self.pools),
            )
        )
        if watch is not None:
            watch(self.world.now, self.pools)
        if self._arriving or self._open:
            self.world.at(self.world.now + 1.0, self._tick, watch)


def _whole(run: Run) -> Flow[Reply]:
    """Carry a call out and read its body to the end."""
    reply = yield from stack(run)
    if reply.delivery is not None:
        try:
            while (yield from read_on(reply.delivery)) is not None:
                pass
        finally:
            reply.delivery.give_up()
    return reply


@dataclass(slots=True)
class ClassReport:
    """One class of calls; waits in seconds until the first token, or the end of a plain answer."""

    calls: int
    on_time: int
    shed: int
    wait_p50: float
    wait_p95: float


@dataclass(slots=True)
class Report:
    """What a simulation came to."""

    scenario: Scenario
    outcomes: list[Outcome]
    server: SlotsServer
    moments: list[Moment]
    seconds: float

    @property
    def answered(self) -> int:
        """Calls that brought an answer."""
        return sum(not each.error for each in self.outcomes)

    @property
    def makespan(self) -> float:
        """Seconds until the last call was over."""
        return max((each.ended for each in self.outcomes), default=0.0)

    @property
    def sends_per_answer(self) -> float:
        """Requests on the wire per answer."""
        return self.server.books.arrived / max(1, self.answered)

    def goodput(self, begin: float = 0.0, end: float = inf) -> float:
        """Calls answered in time per second, of those that ended in a window."""
        end = min(end, self.seconds)
        return sum(each.on_time and begin <= each.ended < end for each in self.outcomes) / max(1e-9, end - begin)

    @property
    def wasted(self) -> float:
        """Share of generated tokens that nobody got in time."""
        late = sum(each.output for each in self.outcomes if not each.error and not each.on_time)
        books = self.server.books
        return (books.wasted + late) / max(1.0, books.tokens + books.wasted)

    @property
    def classes(self) -> dict[str, ClassReport]:
        """The same by class."""
        return {name: self._class(name) for name in dict.fromkeys(each.kind.priority for each in self.outcomes)}

    def fairness(self) -> float:
        """Jain's index over the clients' answers: 1 is even, 1/n is one client alone."""
        shares = [0] * self.scenario.clients
        for each in self.outcomes:
            shares[each.client] += each.on_time
        squares = sum(share * share for share in shares)
        return 1.0 if not squares else sum(shares) ** 2 / (len(shares) * squares)

    def _class(self, name: str) -> ClassReport:
        mine = [each for each in self.outcomes if each.kind.priority == name]
        waits = sorted(min(each.first, each.ended) - each.arrived for each in mine if not each.error)
        return ClassReport(
            calls=len(mine),
            on_time=sum(each.on_time for each in mine),
            shed=sum(bool(each.error) for each in mine),
            wait_p50=quantile(waits, 0.5),
            wait_p95=quantile(waits, 0.95),
        )

    def table(self) -> list[str]:
        """Lines for a terminal."""
        books = self.server.books
        lines = [
            f"calls {len(self.outcomes)}, answered {self.answered}, refused by the server {books.refused}",
            f"goodput {self.goodput():.3f}/s, makespan {self.makespan:.2f} s",
            f"requests per answer {self.sends_per_answer:.3f}, wasted tokens {self.wasted:.1%}",
            f"{'class':<10}{'calls':>7}{'on time':>9}{'shed':>7}{'wait p50':>10}{'p95':>9}",
        ]
        lines += [
            f"{name:<10}{each.calls:>7}{each.on_time:>9}{each.shed:>7}{each.wait_p50:>9.2f}s{each.wait_p95:>8.2f}s"
            for name, each in sorted(self.classes.items(), key=lambda item: Priority.parse(item[0]))
        ]
        return lines


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values; 0.0 of none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
