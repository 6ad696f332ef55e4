"""What endpoints say beside their answers: which server they are, and how busy."""

from __future__ import annotations

import json

import pytest
from llm_client.model import Headers
from tests.virtual import JSON, Bench, FaultKind, answer, completion, fault, silence, status


def models(owner):
    """A server that says whose models it has, and answers calls."""

    def handle(server, exchange):
        if exchange.request.method == "GET":
            body = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": owner}]}
            status(200, json.dumps(body).encode())(server, exchange)
        else:
            answer(0.1)(server, exchange)

    return handle


def bench(handler, **keys):
    made = Bench(pool={"endpoints": [{"name": "a", "base_url": "http://a/v1", "forward_priority": True, **keys}]})
    made.server.default = handler
    return made


def priorities(made):
    """What each call said about its priority to the server."""
    return [json.loads(request.body).get("priority") for _, request in made.server.requests if request.method == "POST"]


def asked(made):
    return [request.url for _, request in made.server.requests if request.method == "GET"]


@pytest.mark.parametrize(("owner", "high"), [("vllm", -1), ("sglang", 1), ("somebody", None)])
def test_the_direction_of_priorities_is_learned(owner, high):
    """The model list names the engine; it is asked once, before the first call that needs it."""
    made = bench(models(owner))
    for n in range(3):
        made.at(float(n), priority="high")
    made.run()

    assert asked(made) == ["http://a/v1/models"]
    assert priorities(made) == [high] * 3
    assert all(each.ok for each in made.results)


def test_one_call_asks_the_others_go_on():
    """Until it is known no priority is sent, and nobody waits for the one that asks."""
    made = bench(models("vllm"))
    for _ in range(3):
        made.start(priority="high")
    made.run()

    assert len(asked(made)) == 1
    assert sorted(priorities(made), key=str) == [-1, None, None]


@pytest.mark.parametrize("broken", [status(404), status(200, b"<html>"), fault(FaultKind.RESET), silence])
def test_a_server_that_does_not_say_gets_no_priority(broken):
    """The call goes on without, after two seconds at most; a minute later it is asked again."""

    def handle(server, exchange):
        (broken if exchange.request.method == "GET" else answer(0.1))(server, exchange)

    made = bench(handle)
    first = made.start(priority="high")
    made.run()
    second = made.start(priority="high")
    made.run()

    assert first.ok
    assert second.ok
    assert first.elapsed <= 2.2
    assert priorities(made) == [None, None]
    assert len(asked(made)) == 1

    made.world.run(made.world.now + 61.0)
    made.server.default = models("vllm")
    made.start(priority="high")
    made.run()

    assert priorities(made)[-1] == -1


def test_nobody_asks_where_it_does_not_matter():
    """A dialect that is told, or no priority to forward."""
    for keys in ({"dialect": "vllm"}, {"forward_priority": False}):
        made = bench(models("vllm"), **keys)
        made.start(priority="high")
        made.run()

        assert asked(made) == []


def reporting(value):
    """A server that reports its load with its answers."""

    def handle(server, exchange):
        world = server.world
        world.at(world.now + 0.1, exchange.respond, 200, Headers([*JSON.pairs, ("endpoint-load-metrics", value)]))
        world.at(world.now + 0.1, exchange.push, completion())
        world.at(world.now + 0.1, exchange.end)

    return handle


REPORT = "TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=2, named_metrics.num_requests_running=7"


def test_a_load_report_is_asked_for_and_kept():
    """Where the dialect has them; it can be read at the endpoint."""
    made = bench(reporting(REPORT), dialect="vllm")
    made.start()
    made.run()
    sent = dict(made.server.requests[0][1].headers)
    report = made.station.report

    assert sent["endpoint-load-metrics-format"] == "TEXT"
    assert (report.kv_cache, report.waiting, report.running) == (0.4, 2.0, 7.0)
    assert made.station.reported(made.world.now) == 9.0


@pytest.mark.parametrize("value", ["", "TEXT", "JSON {", "TEXT a=b", "\x00"])
def test_an_unreadable_report_is_no_report(value):
    """It is a hint and never an error."""
    made = bench(reporting(value), dialect="vllm")
    result = made.start()
    made.run()

    assert result.ok
    assert made.station.report is None


def test_no_report_is_asked_of_others():
    """A header that nobody knows may be refused."""
    made = bench(answer(0.1), dialect="sglang")
    made.start()
    made.run()

    assert "endpoint-load-metrics-format" not in dict(made.server.requests[0][1].headers)
