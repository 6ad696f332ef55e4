"""Several endpoints in virtual time, over the whole stack: a black hole, unequal speeds, flapping, a stampede."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from llm_client import InternalServerError, StreamInterruptedError
from llm_client.drivers.virtual import World
from tests.virtual import IDLE, Bench, FaultKind, Server, SlotServer, answer, error_body, fault, status

BOOM = error_body("boom")


class Fleet(Server):
    """One modelled server per host."""

    def __init__(self, world, servers):
        super().__init__(world)
        self.servers = servers

    def receive(self, exchange):
        self.requests.append((self.world.now, exchange.request))
        self.servers[exchange.request.url.split("/")[2]].receive(exchange)


def host(request):
    return request.url.split("/")[2]


def poisson(rng, rate, seconds):
    """Instants of an open loop."""
    at = 0.0
    while (at := at + rng.expovariate(rate)) < seconds:
        yield at


def first_content(result):
    """Seconds from a call's arrival to its first content."""
    run = result.reply.run
    return run.records[-1].started + run.first_token - result.began


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))]


def test_a_thousand_waiting_calls_send_two_probes():
    """At the end of the open time at most `probes` go out, and nobody else until their verdict (S8)."""
    bench = Bench(pool={"breaker": {"failures": 3, "open_for": 5.0}}, profile={"retry": {"attempts": 1}})
    bench.server.script(*[status(500, BOOM)] * 3)
    for n in range(3):
        bench.at(n * 0.01)
    bench.world.run(1.0)

    assert bench.station.breaker.state == "open"

    before = len(bench.server.requests)
    bench.server.default = answer(1.0)
    for _ in range(1000):
        bench.start()
    until = bench.station.breaker.until
    bench.world.run(until + 0.99)

    assert len(bench.server.requests) - before <= 2
    assert min(bench.server.times()[before:]) >= until

    bench.run()

    assert sum(result.ok for result in bench.results) == 1000
    assert bench.idle() == IDLE


def test_a_stampede_meets_a_server_that_is_still_down():
    """Two sends per opening, not a thousand (S8)."""
    bench = Bench(pool={"breaker": {"failures": 3, "open_for": 5.0}}, profile={"retry": {"attempts": 1}})
    bench.server.default = status(500, BOOM)
    for n in range(3):
        bench.at(n * 0.01)
    bench.world.run(1.0)
    before = len(bench.server.requests)
    for _ in range(1000):
        bench.start(deadline=30.0)
    bench.world.run(26.0)

    assert len(bench.server.requests) - before <= 2 * 5


@pytest.mark.parametrize("seed", range(5))
def test_a_black_hole_starves(seed):
    """One of four fails in 5 ms at 60 % load: at most 5 % of the calls after 2 s, 1 % failed for the caller (S11)."""
    hosts = ("a", "b", "c", "d")

    def fleet(world):
        servers = {name: SlotServer(world, 32, 64, 1.0) for name in hosts[1:]}
        hole = Server(world, status(500, BOOM, after=0.005))
        return Fleet(world, {"a": hole, **servers})

    bench = Bench(hosts=hosts, server=fleet, seed=seed)
    rng = random.Random(seed)
    results = [bench.at(at) for at in poisson(rng, 0.6 * 4 * 32, 20.0)]
    bench.run()
    late = Counter(host(request) for at, request in bench.server.requests if at > 2.0)
    failed = sum(not each.ok for each in results)

    assert late["a"] <= 0.05 * sum(late.values())
    assert failed <= 0.01 * len(results)
    assert bench.idle() == IDLE


def unequal_speeds(clients, seed):
    """Run speeds 1, 1, 1 and 0.5 at 85 % load; return the p95 of first contents once the limits are found."""
    hosts = ("a", "b", "c", "slow")
    world = World()
    fleet = Fleet(world, {name: SlotServer(world, 16, 64, 4.0 if name == "slow" else 2.0) for name in hosts})
    benches = [Bench(hosts=hosts, seed=100 * seed + n, world=world, server=lambda _: fleet) for n in range(clients)]
    rng = random.Random(seed)
    rate = 0.85 * (3 * 16 / 2.0 + 16 / 4.0)
    results = [rng.choice(benches).at(at, stream=True) for at in poisson(rng, rate, 120.0)]
    world.run(1000.0, done=lambda: results[-1].over and all(each.over for each in results))

    assert all(each.ok for each in results)

    return percentile([first_content(each) for each in results if each.began > 60.0], 0.95)


@pytest.mark.parametrize(("clients", "bound", "seed"), [(1, 1.5, 0), (1, 1.5, 1), (16, 4.0, 0)])
def test_unequal_speeds(clients, bound, seed):
    """One replica of half the speed at 85 % load: p95 of first contents (S12)."""
    assert unequal_speeds(clients, seed) <= bound


def up_and_down(server, exchange):
    """Work for five seconds, fail for five."""
    (status(500, BOOM) if server.world.now % 10.0 >= 5.0 else answer(0.2))(server, exchange)


@pytest.mark.parametrize("seed", range(3))
def test_a_flapping_endpoint_is_asked_less_and_less(seed):
    """5 s up, 5 s down, and another beside it: after the third cycle at most 10 % meet the down phase (S22)."""

    def flapping(world):
        made = Server(world)
        made.defaults["a"] = up_and_down
        return made

    bench = Bench(hosts=("a", "b"), server=flapping, seed=seed)
    for n in range(10 * 120):
        bench.at(n / 10)
    bench.run()
    sent = [(at, host(request)) for at, request in bench.server.requests if at > 30.0]
    down = [at for at, where in sent if where == "a" and at % 10.0 >= 5.0]

    assert all(each.ok for each in bench.results)
    assert len(down) <= 0.1 * len(sent)


def test_a_flapping_endpoint_alone_fails_few():
    """Nobody else to go to: calls wait, the open time grows, few meet the down phase (S22)."""
    bench = Bench()
    bench.server.default = up_and_down
    for n in range(10 * 120):
        bench.at(n / 10)
    bench.run()
    sent = [at for at, _ in bench.server.requests if at > 30.0]
    down = [at for at in sent if at % 10.0 >= 5.0]
    times = [each.until - each.at for each in bench.events if getattr(each, "new", "") == "open"]

    assert max(times) >= 8 * min(times)
    assert len(down) <= 0.1 * len(sent)
    assert sum(each.ok for each in bench.results) >= 0.99 * len(bench.results)


class Restarting(SlotServer):
    """A replica that can go down: `term` says 503 to newcomers until its work is done, `kill` drops everything."""

    def __init__(self, world, slots, seconds):
        super().__init__(world, slots, 20, seconds)
        self.state = "up"
        self.open = []

    def receive(self, exchange):
        if self.state == "up":
            self.open.append(exchange)
            super().receive(exchange)
        elif self.state == "draining":
            status(503, error_body("The server is shutting down. Send the request elsewhere."))(self, exchange)
        else:
            fault(FaultKind.CONNECT_REFUSED, after=0.001, sent=False)(self, exchange)

    def turn(self, state):
        self.state = state
        if state == "killed":
            for exchange in self.open:
                exchange.fail(FaultKind.EOF if exchange.status else FaultKind.RESET)
            self.busy = 0
            self.line.clear()
            self._finish = lambda exchange: None
        elif state == "up":
            self.__dict__.pop("_finish", None)
            self.open.clear()


@pytest.mark.parametrize("how", ["term", "kill"])
@pytest.mark.parametrize("seed", range(4))
def test_a_rolling_restart_in_virtual_time(how, seed):
    """Four replicas with 16 slots at 60 % load, each down for 3 s: no call is lost but streams that had begun."""
    hosts, world, slots, seconds = ("a", "b", "c", "d"), World(), 16, 1.0
    servers = {name: Restarting(world, slots, seconds) for name in hosts}
    fleet = Fleet(world, servers)
    bench = Bench(hosts=hosts, world=world, server=lambda _: fleet, seed=seed, profile={"deadline": 30.0})
    at = 5.0
    for server in servers.values():
        if how == "term":
            world.at(at, server.turn, "draining")
            at += 10.0  # as long as a drain may take
        world.at(at, server.turn, "killed")
        world.at(at + 3.0, server.turn, "up")
        at += 3.5
    rng = random.Random(seed)
    results = [
        bench.at(when, stream=n % 3 == 0) for n, when in enumerate(poisson(rng, 0.6 * 4 * slots / seconds, at + 2.0))
    ]
    bench.run()
    lost = [each for each in results if not each.ok]

    assert all(isinstance(each.error, StreamInterruptedError) and each.text for each in lost)
    assert not lost if how == "term" else len(lost) <= 4 * slots
    assert bench.idle() == IDLE


def open_by_rate(bench, seconds=60.0):
    """Let half of the answers everywhere be failures, never several in a row; return how many are out at most."""
    turn = Counter()

    def every_other(server, exchange):
        name = host(exchange.request)
        turn[name] += 1
        (status(500, BOOM, after=0.1) if turn[name] % 2 else answer(0.1))(server, exchange)

    bench.server.default = every_other
    for n in range(int(seconds * 20)):
        bench.at(n / 20)
    out = []
    for n in range(int(seconds * 10)):
        at = n / 10
        bench.world.at(at, lambda: out.append(sum(each.breaker.state == "open" for each in bench.pool.endpoints)))
    bench.run()
    return max(out)


@pytest.mark.parametrize(("count", "most"), [(2, 1), (4, 2), (8, 4)])
def test_rates_never_open_the_whole_pool(count, most):
    """Half of all answers fail everywhere: then the rate says nothing about an endpoint, and half of them stay."""
    hosts = tuple("abcdefgh"[:count])
    bench = Bench(hosts=hosts, profile={"retry": {"attempts": 1}}, pool={"breaker": {"open_for": 30.0}})

    assert most == open_by_rate(bench)


def test_failures_in_a_row_open_them_all():
    """There is no panic: a pool whose every server is dead stops sending."""
    bench = Bench(hosts=("a", "b", "c", "d"), profile={"retry": {"attempts": 1}}, pool={"breaker": {"open_for": 30.0}})
    bench.server.default = status(500, BOOM)
    for n in range(100):
        bench.at(n / 10, deadline=5.0)
    bench.run()

    assert {"open"} == {each.breaker.state for each in bench.pool.endpoints}
    assert len(bench.server.requests) == 4 * 5
    assert isinstance(bench.results[0].error, InternalServerError)


def test_models_have_endpoints_of_their_own():
    """A call goes only where its model is served, under the name that it has there."""
    endpoints = [
        {"name": "a", "base_url": "http://a", "models": ["llama"]},
        {"name": "b", "base_url": "http://b", "models": {"llama": "meta/llama", "qwen": "qwen-2"}},
        {"name": "c", "base_url": "http://c", "models": ["phi"]},
    ]
    bench = Bench(pool={"endpoints": endpoints})
    for n in range(40):
        bench.at(float(n), model="llama" if n % 2 else "qwen")
    bench.run()
    asked = {(host(request), request.body.split(b'"model":')[1].split(b'"')[1]) for _, request in bench.server.requests}

    assert {("a", b"llama"), ("b", b"meta/llama"), ("b", b"qwen-2")} == asked


def test_prompts_that_begin_alike_share_an_endpoint():
    """With `affinity: prefix` sequential turns of one talk stay together; other talks spread over the pool."""
    bench = Bench(hosts=("a", "b", "c", "d"), pool={"routing": {"affinity": "prefix", "prefix_bytes": 64}})
    for n in range(200):
        bench.at(float(n), f"talk {n % 20} " + "x" * 60 + f" turn {n}")
    bench.run()
    places = {}
    for n, (_, request) in enumerate(bench.server.requests):
        places.setdefault(n % 20, set()).add(host(request))

    assert all(len(where) == 1 for where in places.values())
    assert len(set.union(*places.values())) >= 3


def test_a_popular_prompt_spreads_when_it_must():
    """Bounded load: one system prompt for all calls does not make one server the whole pool."""
    bench = Bench(
        hosts=("a", "b", "c", "d"),
        pool={"routing": {"affinity": "prefix"}, "concurrency": {"kind": "fixed", "limit": 40}},
    )
    bench.server.default = answer(10.0)
    for _ in range(80):
        bench.start("the same beginning " * 100)
    bench.run()
    counts = Counter(host(request) for _, request in bench.server.requests)

    assert max(counts.values()) <= 1.25 * 80 / 4 + 1


def test_affinity_is_off_by_default():
    """Then the prompt decides nothing."""
    bench = Bench(hosts=("a", "b", "c", "d"))
    for n in range(100):
        bench.at(float(n), "the same beginning")
    bench.run()

    assert len({host(request) for _, request in bench.server.requests}) == 4
