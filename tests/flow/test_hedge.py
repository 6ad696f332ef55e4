"""A second request beside a slow first: when it goes out, who wins, and what is left of the loser."""

from __future__ import annotations

import pytest
from llm_client import InternalServerError
from tests.virtual import DONE, IDLE, Bench, answer, delta, error_body, silence, sse, status

HEDGE = {"after": 1.0, "budget": 1.0, "priority": "high"}
URGENT = {"priority": "high", "hedge": HEDGE}
BUSY = error_body("The engine is currently busy", 503, "Service Unavailable")


class Cancelled(BaseException):
    """Stands for CancelledError: not an Exception."""


def bench(**hedge):
    return Bench(hosts=("a", "b"), profile={**URGENT, "hedge": {**HEDGE, **hedge}})


def hosts(bench):
    return [request.url.split("/")[2] for _, request in bench.server.requests]


def slow_first(bench, slow=silence, then=None):
    """Answer the first request slowly wherever it goes, the second well."""
    handlers = [slow, then or answer(0.1)]

    def next_one(server, exchange):
        (handlers.pop(0) if handlers else answer(0.1))(server, exchange)

    bench.server.default = next_one


def test_a_slow_first_request_gets_a_second_elsewhere():
    """After `after`, to the other endpoint; the first to answer is taken, the loser is closed at once."""
    made = bench()
    gone = []

    def hang(server, exchange):
        exchange.on_gone = lambda: gone.append(server.world.now)

    slow_first(made, hang)
    result = made.start()
    made.run()

    assert result.ok
    assert pytest.approx(1.1) == result.elapsed
    assert made.server.times() == [0.0, 1.0]
    assert {"a", "b"} == set(hosts(made))
    assert [pytest.approx(1.1)] == gone
    assert made.idle() == IDLE


def test_the_story_holds_both_requests():
    """The loser as cancelled, the winner last; each with the number that it carried."""
    made = bench()
    slow_first(made)
    result = made.start()
    made.run()
    lost, won = result.reply.meta.attempts
    sent = [dict(request.headers)["x-llm-client-attempt"] for _, request in made.server.requests]

    assert (lost.kind, won.kind) == ("cancelled", None)
    assert [lost.number, won.number] == [1, 2]
    assert sent == ["1", "2"]
    assert hosts(made) == [lost.endpoint, won.endpoint]
    assert won.endpoint == result.reply.meta.endpoint


def test_the_first_may_win_after_all():
    """The second is closed; the winner stands last in the story and keeps its number."""
    made = bench()
    slow_first(made, answer(1.5), silence)
    result = made.start()
    made.run()
    lost, won = result.reply.meta.attempts

    assert pytest.approx(1.5) == result.elapsed
    assert (lost.kind, won.kind) == ("cancelled", None)
    assert [lost.number, won.number] == [2, 1]
    assert hosts(made)[0] == result.reply.meta.endpoint
    assert made.idle() == IDLE


@pytest.mark.parametrize("winner", [1, 2])
def test_a_stream_is_raced_to_its_first_content(winner):
    """And then read to its end from whoever had it; nothing of the other is seen."""
    made = bench()
    late = sse((0.0, delta(role=True)), (1.2, delta("one")), (3.0, delta(finish="stop") + DONE))
    never = sse((0.0, delta(role=True)), end=False)
    slow_first(made, late if winner == 1 else never, silence if winner == 1 else answer(1.0, "two"))
    result = made.start(stream=True)
    made.run()
    lost, won = result.reply.meta.attempts

    assert ("one" if winner == 1 else "two") == result.text
    assert (lost.kind, won.kind) == ("cancelled", None)
    assert winner == won.number
    assert len(made.server.requests) == 2
    assert made.idle() == IDLE


def test_no_second_after_the_first_content():
    """A stream that has begun is never doubled, however slowly it goes on."""
    made = bench()
    slow_first(made, sse((0.9, delta("a")), (60.0, delta(finish="stop") + DONE)))
    result = made.start(stream=True)
    made.run()

    assert result.text == "a"
    assert len(made.server.requests) == 1


def test_never_after_a_refusal():
    """A server that refuses has too much to do already: the second try is not doubled."""
    made = bench()
    slow_first(made, status(503, BUSY), answer(5.0))
    result = made.start()
    made.run()

    assert result.ok
    assert len(made.server.requests) == 2


@pytest.mark.parametrize(
    ("options", "hedge"),
    [({"priority": "normal"}, {}), ({"text": "x" * 8000}, {"max_prompt": 100})],
    ids=["class", "prompt"],
)
def test_only_for_those_who_may(options, hedge):
    """The least urgent class and the longest prompt that are worth a second request."""
    made = bench(**hedge)
    slow_first(made, answer(5.0))
    result = made.start(**options)
    made.run()

    assert result.ok
    assert len(made.server.requests) == 1


def test_only_where_a_place_is_free_at_once():
    """A second request waits for nobody, and takes no place that another call waits for."""
    made = Bench(hosts=("a", "b"), profile=URGENT, pool={"concurrency": {"kind": "fixed", "limit": 1}})
    made.server.default = answer(5.0)
    made.start()
    made.start()
    made.run()

    assert len(made.server.requests) == 2
    assert len(set(hosts(made))) == 2


@pytest.mark.parametrize(("there", "requests"), [(2, 2), (3, 1)])
def test_an_endpoint_near_its_limit_is_left_alone(there, requests):
    """Above 0.7 of the limit, the second request would be paid for by that endpoint's own calls."""
    endpoints = [{"name": "a", "base_url": "http://a", "models": ["m"]}, {"name": "b", "base_url": "http://b"}]
    made = Bench(profile=URGENT, pool={"endpoints": endpoints, "concurrency": {"kind": "fixed", "limit": 4}})
    made.server.default = answer(5.0)
    for _ in range(there):
        made.start(model="only b has it", priority="normal")
    made.start()
    made.run()

    assert there + requests == len(made.server.requests)


def test_an_open_circuit_is_no_place_for_a_hedge():
    """Nor is a probe: it must tell about the endpoint, and nobody waits for the loser."""
    made = bench()
    made.pool.isolate("b")
    slow_first(made, answer(5.0))
    result = made.start()
    made.run()

    assert result.ok
    assert hosts(made) == ["a"]


def test_a_circuit_that_may_be_probed_is_no_place_either():
    """Its open time is over: the next call may find out, a hedge may not."""
    endpoints = [{"name": "a", "base_url": "http://a", "models": ["m"]}, {"name": "b", "base_url": "http://b"}]
    made = Bench(pool={"endpoints": endpoints, "breaker": {"failures": 1, "open_for": 0.5}}, profile=URGENT)
    made.server.script(status(500, error_body("boom")), host="b")
    made.start(model="only b has it")
    made.world.run(0.4)
    made.server.requests.clear()
    made.server.default = answer(5.0)
    made.at(0.4)
    made.world.run(3.0)

    assert "a" in hosts(made)
    assert made.pool.endpoints[1].breaker.probing <= 1  # the retry of the call that only b serves
    assert len([at for at in made.server.times("b") if at >= 1.4]) == 0


def test_no_second_after_the_first_content_that_nobody_saw():
    """A plain call that is streamed under the hood has begun when its first content is there."""
    made = Bench(hosts=("a", "b"), profile={**URGENT, "measure_first_token": True})
    made.server.default = sse((0.5, delta("a")), (5.0, delta(finish="stop") + DONE))
    result = made.start()
    made.run()

    assert result.ok
    assert len(made.server.requests) == 1


def test_the_share_of_hedges_is_bounded():
    """Budget 0.1: of 200 slow calls at most 20 are sent twice."""
    made = bench(budget=0.1)
    made.server.default = answer(3.0)
    for n in range(200):
        made.at(n * 4.0)
    made.run()

    assert 218 <= len(made.server.requests) <= 220
    assert all(each.ok for each in made.results)
    assert made.idle() == IDLE


def test_the_retry_budget_pays_for_hedges():
    """An empty purse allows one in ten seconds, as for any retry."""
    made = Bench(hosts=("a", "b"), profile=URGENT, pool={"retry_budget": {"ratio": 0, "burst": 1}})
    made.server.default = answer(2.0)
    for n in range(20):
        made.at(n * 2.5)
    made.run()

    assert 20 + 1 <= len(made.server.requests) <= 20 + 1 + 5


def test_p95_needs_fifty_samples_and_is_never_under_half_a_second():
    """Before that nobody knows what slow is; after it the slowest twentieth is."""
    made = bench(after="p95")
    made.server.default = answer(0.1)
    for n in range(49):
        made.at(n * 1.0)
    made.run()
    made.server.default = answer(4.0)
    made.start()
    made.run()

    assert len(made.server.requests) == 50

    result = made.start()
    made.run()
    sent = [at - result.began for at in made.server.times()[50:]]

    assert sent == [0.0, 0.5]


def test_p95_is_taken_from_what_was_seen():
    """Calls of 0.8 to 1.2 s: one that has taken longer than nearly all of them gets a second."""
    made = bench(after="p95")
    for n in range(100):
        made.world.at(n * 2.0, lambda n=n: setattr(made.server, "default", answer(0.8 + 0.004 * n)))
        made.at(n * 2.0)
    made.run()
    made.server.default = answer(6.0)
    result = made.start()
    made.run()
    sent = [at - result.began for at in made.server.times()[-2:]]

    assert [0.0, pytest.approx(0.8 + 0.004 * 94)] == sent


def test_when_both_fail_the_call_goes_on_as_after_one():
    """The first's failure is the call's; both are in the story."""
    made = bench()
    made.server.default = status(500, error_body("boom"), after=1.5)
    result = made.start()
    made.run()
    kinds = [each.kind for each in result.error.attempts]

    assert isinstance(result.error, InternalServerError)
    assert kinds[:2] == ["server_error", "server_error"]
    assert len(kinds) == 5
    assert made.idle() == IDLE


def test_a_failed_second_does_not_hurt_the_first():
    """It was a bet; the first goes on."""
    made = bench()
    slow_first(made, answer(3.0), status(500, error_body("boom")))
    result = made.start()
    made.run()

    assert result.ok
    assert pytest.approx(3.0) == result.elapsed
    assert [each.kind for each in result.reply.meta.attempts] == ["server_error", None]


@pytest.mark.parametrize("at", [0.5, 1.0, 1.05, 1.5, 2.5])
@pytest.mark.parametrize("stream", [False, True])
def test_a_cancelled_call_leaves_neither(at, stream):
    """Both requests are closed, both permits are free."""
    made = bench()
    gone = []

    def hang(server, exchange):
        exchange.on_gone = lambda: gone.append(server.world.now)

    made.server.default = hang
    result = made.start(stream=stream)
    made.world.at(at, lambda: result.process.cancel(Cancelled()))
    made.run()

    assert isinstance(result.error, Cancelled)
    assert len(made.server.requests) == len(gone)
    assert all(at == pytest.approx(each) for each in gone)
    assert made.idle() == IDLE


def test_off_by_default():
    """Nobody pays for a second request who did not ask for it."""
    made = Bench(hosts=("a", "b"), profile={"priority": "critical"})
    made.server.default = answer(30.0)
    made.start()
    made.run()

    assert len(made.server.requests) == 1
