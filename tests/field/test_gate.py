"""Field cases of queue, concurrency, breaker and Retry-After, over the whole stack in virtual time."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from llm_client import (
    CircuitOpenError,
    DeadlineExceededError,
    DeadlineUnreachableError,
    InternalServerError,
    OverloadedError,
    Pool,
    QueueFullError,
    RateLimitError,
)
from llm_client.events import BreakerChanged
from tests.virtual import IDLE, Bench, Server, SlotServer, answer, error_body, silence, sse, status

ONE = {"concurrency": {"kind": "fixed", "limit": 1}}
SLOW_DOWN = error_body("slow down", "rate_limit_exceeded", "rate_limit_error")
BOOM = error_body("boom")


def texts(bench):
    """What the server saw, in order."""
    import json

    return [json.loads(request.body)["messages"][0]["content"] for _, request in bench.server.requests]


# -- queue


@pytest.mark.parametrize("known", [False, True])
def test_fc_qu_01_who_is_out_of_time_is_never_sent(known):
    """FC-QU-01: the second call ends at its deadline, or at once when answer times are known; the third starts at 2 s."""
    bench = Bench(pool=ONE)
    bench.server.default = answer(2.0)
    if known:
        for _ in range(8):
            bench.start("before")
            bench.run()
    begin = bench.world.now
    first = bench.start("first")
    second = bench.start("second", deadline=0.5)
    third = bench.start("third", deadline=5.0)
    bench.run()

    assert first.ok
    assert isinstance(second.error, DeadlineUnreachableError if known else DeadlineExceededError)
    assert pytest.approx(0.0 if known else 0.5, abs=0.05) == second.elapsed
    assert "second" not in texts(bench)
    assert third.ok
    assert bench.server.times()[-1] - begin == pytest.approx(2.0, abs=0.05)
    assert bench.pool.gate.expired == (0 if known else 1)
    assert bench.idle() == IDLE


def test_fc_qu_03_order_is_by_priority_and_strictly_first_in_first_out():
    """FC-QU-03: a thousand calls of three priorities behind a busy endpoint; payloads are never compared."""
    bench = Bench(pool={**ONE, "queue": {"order": "fifo", "ageing": "off"}}, profile={"deadline": None})
    bench.server.default = answer(0.01)
    bench.server.script(answer(1.0))
    bench.start("blocker")
    rng = random.Random(3)
    priorities = [rng.randrange(3) for _ in range(1000)]
    for n, priority in enumerate(priorities):
        bench.start(str(n), priority=priority, body={"metadata": {"n": n}})
    bench.run()

    assert all(each.ok for each in bench.results)
    assert [int(text) for text in texts(bench)[1:]] == sorted(range(1000), key=lambda n: (priorities[n], n))


def test_fc_qu_05_a_full_queue_refuses_with_depth_and_a_time():
    """FC-QU-05, reject: six of ten are accepted, four are told at once how deep it is and when to come back."""
    bench = Bench(pool={**ONE, "queue": {"size": 5, "overflow": "reject"}})
    bench.server.default = answer(1.0)
    for n in range(10):
        bench.start(f"c{n}")
    refused = [each for each in bench.results if each.over]

    assert len(refused) == 4
    for each in refused:
        assert isinstance(each.error, QueueFullError)
        assert each.elapsed == 0.0
        assert "5" in str(each.error)
        assert each.error.retry_after > 0.0

    bench.run()

    assert sum(each.ok for each in bench.results) == 6
    assert len(bench.server.requests) == 6


def test_fc_qu_05_overflow_wait_blocks_producers_in_order():
    """FC-QU-05, wait: nobody is refused, and at most five stand in the queue at any time."""
    bench = Bench(pool={**ONE, "queue": {"size": 5, "overflow": "wait"}})
    bench.server.default = answer(1.0)
    depth = []
    for n in range(10):
        bench.start(f"c{n}")
        depth.append(bench.pool.gate._room.count)
    for tick in range(100):
        bench.world.at(tick * 0.1, lambda: depth.append(bench.pool.gate._room.count))
    bench.run()

    assert all(each.ok for each in bench.results)
    assert max(depth) == 5
    assert texts(bench) == [f"c{n}" for n in range(10)]


def test_fc_qu_08_an_interactive_call_is_the_next_behind_a_running_batch():
    """FC-QU-08: two hundred batch calls wait, the urgent one goes within one answer; no priority goes on the wire."""
    bench = Bench(pool={"concurrency": {"kind": "fixed", "limit": 2}})
    bench.server.default = answer(0.2)
    for n in range(200):
        bench.start(f"b{n}", priority="low")
    urgent = bench.at(0.05, "urgent", priority="high")
    bench.run()
    sent = bench.server.times()[texts(bench).index("urgent")]

    assert urgent.ok
    assert texts(bench).index("urgent") == 2
    assert sent - 0.05 <= 0.25
    assert not [request for _, request in bench.server.requests if b'"priority"' in request.body]

    forwarding = Bench(
        pool={"endpoints": [{"name": "a", "base_url": "http://a/v1", "dialect": "vllm", "forward_priority": True}]}
    )
    forwarding.start("urgent", priority="high")
    forwarding.start("batch", priority="low")
    forwarding.run()
    numbers = [request.body.partition(b'"priority":')[2][:2] for _, request in forwarding.server.requests]

    assert numbers == [b"-1", b"1}"]  # the smaller number runs first there


# -- concurrency


def test_fc_cc_05_a_call_that_backs_off_holds_no_place():
    """FC-CC-05: B, submitted while A sleeps between two attempts, is answered at once."""
    bench = Bench(
        pool=ONE, profile={"retry": {"attempts": 4, "backoff": {"kind": "exponential", "base": "1s", "cap": "8s"}}}
    )
    bench.server.script(status(503, BOOM), answer(0.02), status(503, BOOM), status(503, BOOM), answer(0.02))
    a = bench.start("a")
    b = bench.at(0.5, "b")
    held = []
    bench.world.at(0.49, lambda: held.append(bench.idle()))
    bench.run()

    assert b.ok
    assert b.ended < 0.7
    assert held[0]["inflight"] == 0
    assert a.ok
    assert [each.status for each in a.reply.run.records] == [503, 503, 503, 200]
    assert bench.idle() == IDLE


def test_fc_cc_06_more_calls_than_any_connection_pool_wait_in_the_queue():
    """FC-CC-06: 500 at once, 6 s each, 1,500 calls, 5 s to connect: all answered in 18 s, the wait booked as queue."""
    bench = Bench(pool={"concurrency": {"kind": "fixed", "limit": 500}}, profile={"timeouts": {"connect": "5s"}})
    bench.server.default = answer(6.0)
    for n in range(1500):
        bench.start(f"c{n}")
    bench.run()
    waited = sorted(each.reply.meta.waited.get("queue", 0.0) for each in bench.results)

    assert all(each.ok for each in bench.results)
    assert max(each.ended for each in bench.results) == pytest.approx(18.0, abs=0.1)
    assert len(bench.server.requests) == 1500
    assert [waited[250], waited[750], waited[1250]] == pytest.approx([0.0, 6.0, 12.0], abs=0.1)


class Recovering(SlotServer):
    """Refuses everything for ten seconds, then serves 32 at a time with room for as many more."""

    def __init__(self, world):
        super().__init__(world, 32, 32, 0.1)

    def _arrive(self, exchange):
        if self.world.now < 10.0:
            self.refused += 1
            status(429, SLOW_DOWN, after=0.001, retry_after="1")(self, exchange)
        else:
            super()._arrive(exchange)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_fc_cc_12_the_limit_comes_back_within_hundreds_of_answers(stream):
    """FC-CC-12: driven down by ten seconds of refusals, it is at 16 after 200 answers and at 28 after 600."""
    bench = Bench(server=Recovering)
    for n in range(1500):
        bench.start(f"c{n}", stream=stream)
    low, reached = [], {}

    def look():
        done = sum(each.ok for each in bench.results)
        limit = bench.station.limit.limit
        if bench.world.now < 10.0:
            low.append(limit)
        for count in (200, 600):
            if done <= count:
                reached[count] = max(limit, reached.get(count, 0.0))
        if done < 1500:
            bench.world.at(bench.world.now + 0.01, look)

    look()
    bench.world.run(10.0)
    before = bench.server.refused
    bench.run()
    refused = bench.server.refused - before

    assert all(each.ok for each in bench.results)
    assert min(low) <= 2.0
    assert reached[200] >= 16.0
    assert reached[600] >= 28.0
    assert refused <= 0.05 * (len(bench.server.requests) - before)


class Full(Server):
    """Takes what comes until told to refuse."""

    refusing = False

    def receive(self, exchange):
        self.requests.append((self.world.now, exchange.request))


def test_fc_cc_13_one_overshoot_is_one_decrease():
    """FC-CC-13: 20 of 32 in flight are refused within 5 ms: the limit falls once, to about the 12 that stayed."""
    bench = Bench(server=Full)
    held = []
    bench.server.receive = held.append
    limit = bench.station.limit
    limit.limit = limit._goal = 32.0
    limit._ramp = False
    for n in range(60):
        bench.start(f"c{n}")

    assert len(held) == 32

    epochs = limit.epoch
    for n in range(20):
        bench.world.at(0.0002 * n, status(429, SLOW_DOWN, after=0.0, retry_after="30"), bench.server, held[n])
    bench.world.run(0.02)

    assert limit.epoch - epochs == 1
    assert 9.0 <= limit.limit <= 15.0


# -- breaker


@pytest.mark.parametrize("mode", ["plain", "stream", "frame"])
def test_fc_br_01_failures_open_the_circuit_in_every_mode(mode):
    """FC-BR-01: two failures, then the third call is refused here; the server saw two."""
    bench = Bench(
        pool={"breaker": {"failures": 2, "open_for": "60s"}},
        profile={"retry": {"attempts": 1}, "queue": {"max_wait": 0}},
    )
    frame = b'data: {"error": {"message": "boom", "type": "server_error", "code": 500}}\n\n'
    bench.server.default = sse((0.01, frame)) if mode == "frame" else status(503, BOOM)
    for _ in range(3):
        bench.start(stream=mode != "plain")
        bench.run()
    first, second, third = (each.error for each in bench.results)

    assert isinstance(first, InternalServerError)
    assert isinstance(second, InternalServerError)
    assert isinstance(third, CircuitOpenError)
    assert len(bench.server.requests) == 2


def test_fc_br_02_one_probe_goes_and_the_others_are_told_at_once():
    """FC-BR-02: of a hundred calls at the end of the cool-down one reaches the server before the verdict."""
    bench = Bench(
        pool={"breaker": {"failures": 1, "open_for": "60s", "probes": 1, "successes": 1}},
        profile={"retry": {"attempts": 1}, "queue": {"max_wait": 0}},
    )
    bench.server.script(status(500, BOOM))
    bench.start()
    bench.run()
    bench.server.default = answer(0.2)
    bench.world.run(bench.station.breaker.ready_at(bench.world.now) + 0.001)
    for n in range(100):
        bench.start(f"c{n}")
    bench.world.run(bench.world.now + 0.1)
    refused = [each for each in bench.results[1:] if each.over]

    assert len(bench.server.requests) == 2
    assert len(refused) == 99
    assert all(isinstance(each.error, CircuitOpenError) and each.elapsed < 0.05 for each in refused)

    bench.run()

    assert bench.results[1].ok
    assert bench.station.breaker.state == "closed"


def test_fc_br_05_bad_requests_of_one_user_open_nothing():
    """FC-BR-05: thirty answers of 400, 404 and 422, then a healthy call reaches the server."""
    bench = Bench(pool={"breaker": {"failures": 3}})
    for code, count in ((400, 20), (404, 5), (422, 5)):
        bench.server.script(*[status(code, error_body("bad request", kind="invalid_request_error"))] * count)
    for n in range(31):
        bench.start(f"c{n}")
        bench.run()

    assert [each.ok for each in bench.results] == [False] * 30 + [True]
    assert len(bench.server.requests) == 31
    assert not [each for each in bench.events if isinstance(each, BreakerChanged)]
    assert bench.station.breaker.state == "closed"


@pytest.mark.parametrize("overloaded", [False, True])
def test_fc_br_07_a_call_ends_when_its_attempts_opened_the_circuit(overloaded):
    """FC-BR-07: three of six attempts go, no more sleeps, the last answer's error; the next call is never sent."""
    classic = ["failures", "rate_limited", "overloaded", "timeout"]
    bench = Bench(
        pool={"breaker": {"failures": 3, "open_for": "60s", "counts": classic}, "concurrency": {"kind": "off"}},
        profile={"retry": {"attempts": 6, "refusals": 5, "backoff": {"kind": "constant", "base": "10ms"}}},
    )
    said = error_body("The engine is currently overloaded", "overloaded") if overloaded else BOOM
    bench.server.default = status(503, said)
    first = bench.start()
    bench.run()
    opened = [each.at for each in bench.events if isinstance(each, BreakerChanged) and each.new == "open"]
    second = bench.start()
    bench.run()

    assert len(bench.server.requests) == 3
    assert first.ended == opened[0]
    assert isinstance(first.error, OverloadedError if overloaded else InternalServerError)
    assert [each.status for each in first.error.attempts] == [503] * 3
    assert any("the circuit of every endpoint (a) is open" in note for note in first.error.__notes__)
    assert isinstance(second.error, CircuitOpenError)


def test_fc_br_12_one_lucky_answer_readmits_nobody():
    """FC-BR-12: a server that is well for one request and then fails gets at most two requests per flap, one at a time."""
    bench = Bench(
        pool={"breaker": {"failures": 1, "successes": 3, "probes": 1, "open_for": "5s"}},
        profile={"retry": {"attempts": 1}, "deadline": "120s"},
    )
    flying, most, states = [0], [0], []
    turn = [0]

    def flap(server, exchange):
        turn[0] += 1
        well = turn[0] % 2 == 0
        flying[0] += 1
        most[0] = max(most[0], flying[0])

        def end():
            flying[0] -= 1

        server.world.at(server.world.now + 0.1, end)
        (answer(0.1) if well else status(503, BOOM, after=0.1))(server, exchange)
        if well:
            server.world.at(server.world.now + 0.11, lambda: states.append(bench.station.breaker.state))

    bench.server.default = flap
    bench.server.script(status(503, BOOM))
    bench.start("trip")
    bench.run()
    begin = bench.world.now
    for n in range(50):
        bench.start(f"c{n}")
    bench.run()
    opened = [each.at for each in bench.events if isinstance(each, BreakerChanged) and each.new == "open"]
    flaps = [sum(begin_ < at <= end for at in bench.server.times() if at >= begin) for begin_, end in pairwise(opened)]

    assert most == [1]
    assert states
    assert set(states) == {"half_open"}
    assert flaps
    assert max(flaps) <= 2


# -- Retry-After


@pytest.mark.parametrize(("cap", "sends"), [("120s", 2), ("60s", 1)])
def test_fc_ra_01_a_long_wait_is_kept_or_the_call_fails_at_once(cap, sends):
    """FC-RA-01: 75 s are waited for under a cap of 120, and refused with 75 under a cap of 60."""
    bench = Bench(profile={"retry": {"retry_after": {"cap": cap}}})
    bench.server.script(status(429, SLOW_DOWN, retry_after="75"))
    result = bench.start()
    bench.run()

    assert len(bench.server.requests) == sends
    if sends == 2:
        first, second = bench.server.times()
        assert result.ok
        assert 75.0 <= second - first <= 75.0 * 1.5 + 0.1
    else:
        assert isinstance(result.error, RateLimitError)
        assert result.error.retry_after == 75.0
        assert result.elapsed < 0.5


@pytest.mark.parametrize("hint", ["0", "past"])
def test_fc_ra_06_a_wait_of_nothing_does_not_wipe_out_the_back_off(hint):
    """FC-RA-06: six requests for five refusals, never back to back, each gap grown from the one before."""
    from email.utils import formatdate

    bench = Bench(
        profile={"retry": {"refusals": 5, "backoff": {"kind": "equal_jitter", "base": "500ms", "cap": "60s"}}}
    )
    said = hint if hint == "0" else formatdate(bench.world.wall() - 5.0, usegmt=True)
    bench.server.default = status(429, SLOW_DOWN, retry_after=said)
    result = bench.start()
    bench.run()
    gaps = [b - a for a, b in pairwise(bench.server.times())]

    assert isinstance(result.error, RateLimitError)
    assert len(bench.server.requests) == 6
    for k, gap in enumerate(gaps):
        assert gap >= 0.05
        assert gap <= 0.5 * 2.0**k * 2 + 0.1
    assert gaps[-1] > gaps[0]


def test_fc_ra_10_a_day_is_no_wait():
    """FC-RA-10: 24 hours against a deadline of 10 s fail at once with the figure, and nothing is left waiting."""
    bench = Bench()
    bench.server.default = status(429, SLOW_DOWN, retry_after="86400")
    result = bench.start(deadline=10.0)
    bench.world.run(1.0)

    assert isinstance(result.error, RateLimitError)
    assert result.error.retry_after == 86400.0
    assert result.elapsed < 1.0
    assert bench.idle() == IDLE
    assert bench.world.run() <= 10.0  # what is left in the world's heap is void by then


def test_fc_ra_12_callers_that_were_told_the_same_come_back_apart():
    """FC-RA-12: twenty refused in one tick with 5 s: none early, no 50 ms hold more than three, all within the spread."""
    bench = Bench(pool={"concurrency": {"kind": "off"}})
    bench.server.script(*[status(429, SLOW_DOWN, retry_after="5")] * 20)
    for n in range(20):
        bench.start(f"c{n}")
    bench.run()
    waits = sorted(at - 0.002 for at in bench.server.times()[20:])

    assert all(each.ok for each in bench.results)
    assert waits[0] >= 5.0 - 1e-9
    assert max(sum(begin <= at < begin + 0.05 for at in waits) for begin in waits) <= 3
    # 5 s x 1.25 plus the configured spread; ours is half of the wait, 2.5 s.
    assert waits[-1] <= 5.0 * 1.25 + 2.5


def test_silence_is_no_answer_for_the_cases_above():
    """The harness can show a call that never ends: it is over at its deadline."""
    bench = Bench(pool=ONE)
    bench.server.default = silence
    result = bench.start(deadline=3.0)
    bench.run()

    assert isinstance(result.error, DeadlineExceededError)
    assert result.elapsed == pytest.approx(3.0)
    assert isinstance(bench.pool, Pool)
