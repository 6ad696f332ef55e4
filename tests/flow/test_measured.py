"""Plain calls that are streamed under the hood: same answer, first token seen, stalls noticed."""

from __future__ import annotations

import json

import pytest
from llm_client import APITimeoutError, BadRequestError, StreamInterruptedError
from llm_client.events import FirstContent
from tests.virtual import (
    DONE,
    IDLE,
    JSON,
    Bench,
    FaultKind,
    completion,
    delta,
    error_body,
    event,
    fault,
    silence,
    sse,
    status,
)

MEASURED = {"measure_first_token": True}
USAGE = event({"id": "c", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}})
STREAM = sse((0.2, delta("The answer", role=True)), (0.4, delta(" is 42.")), (0.5, delta(finish="stop") + USAGE + DONE))


def sent(bench):
    return [json.loads(request.body) for _, request in bench.server.requests]


def test_a_plain_call_is_streamed_and_put_together():
    """The server is asked for a stream with its counts; the caller gets one JSON object and no event."""
    bench = Bench(profile=MEASURED)
    bench.server.script(STREAM)
    result = bench.start()
    bench.run()
    body = json.loads(result.reply.body)

    assert [(each["stream"], each["stream_options"]) for each in sent(bench)] == [(True, {"include_usage": True})]
    assert result.reply.delivery is None
    assert result.reply.headers["content-type"] == "application/json"
    assert body["object"] == "chat.completion"
    assert {name: body["choices"][0]["message"][name] for name in ("role", "content")} == {
        "role": "assistant",
        "content": "The answer is 42.",
    }
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["total_tokens"] == 5
    assert pytest.approx(0.2) == result.reply.meta.first_token
    assert [type(each).__name__ for each in bench.events if isinstance(each, FirstContent)] == ["FirstContent"]
    assert bench.idle() == IDLE


def test_it_is_off_unless_the_profile_says_so():
    """The body goes out as the caller made it."""
    bench = Bench()
    bench.start()
    bench.run()

    assert "stream" not in sent(bench)[0]


@pytest.mark.parametrize(
    "body", [{"n": 2}, {"best_of": 3}, {"audio": {"voice": "a"}}, {"prompt_logprobs": 1}, {"background": True}]
)
def test_what_a_stream_cannot_say_is_asked_for_plainly(body):
    """Several choices and whole-answer extras are not streamed."""
    bench = Bench(profile=MEASURED)
    result = bench.start(body=body)
    bench.run()

    assert result.ok
    assert "stream" not in sent(bench)[0]


def test_a_long_generation_outlives_the_bound_of_a_plain_attempt():
    """The clocks are those of a stream: 30 s of tokens pass although a plain attempt may take 5 s."""
    bench = Bench(profile={**MEASURED, "timeouts": {"attempt": 5.0, "progress": 2.0, "first_token": 3.0}})
    pieces = [(float(n), delta("x")) for n in range(1, 31)]
    bench.server.script(sse(*pieces, (30.0, delta(finish="stop") + DONE)))
    result = bench.start()
    bench.run()

    assert json.loads(result.reply.body)["choices"][0]["message"]["content"] == "x" * 30
    assert len(bench.server.requests) == 1


def test_a_stall_is_noticed_by_the_progress_clock_and_tried_again():
    """Nothing was delivered, so a stall after content costs an attempt and not the call."""
    bench = Bench(profile={**MEASURED, "timeouts": {"progress": 2.0}, "retry": {"attempts": 2}})
    bench.server.script(
        sse((0.1, delta("x")), *[(0.1 + n * 0.5, b": ping\n\n") for n in range(1, 9)], end=False), STREAM
    )
    result = bench.start()
    bench.run()
    first, second = bench.server.times()

    assert json.loads(result.reply.body)["choices"][0]["message"]["content"] == "The answer is 42."
    assert 2.1 <= second - first <= 4.0
    assert [each.kind for each in result.reply.meta.attempts] == ["timeout", None]
    assert bench.idle() == IDLE


def test_the_last_stall_is_a_time_out_like_that_of_a_plain_call():
    """The caller asked for no stream and meets no error of one."""
    bench = Bench(profile={**MEASURED, "timeouts": {"progress": 2.0}, "retry": {"attempts": 1}})
    bench.server.script(sse((0.1, delta("x")), end=False))
    result = bench.start()
    bench.run()

    assert type(result.error) is APITimeoutError
    assert pytest.approx(2.1, abs=0.01) == result.elapsed


def test_a_cut_answer_is_tried_again_and_in_the_end_keeps_its_text():
    """As a cut plain answer; `partial` has what came."""
    bench = Bench(profile={**MEASURED, "retry": {"attempts": 2}})
    bench.server.script(sse((0.1, delta("half"))), sse((0.1, delta("half"))))
    result = bench.start()
    bench.run()

    assert type(result.error) is StreamInterruptedError
    assert result.error.partial == "half"
    assert len(bench.server.requests) == 2


def test_a_first_token_that_does_not_come_is_a_time_out():
    """The first-token clock bounds the wait for the head as well."""
    bench = Bench(profile={**MEASURED, "timeouts": {"first_token": 1.0}, "retry": {"attempts": 1}})
    bench.server.script(silence)
    result = bench.start()
    bench.run()

    assert type(result.error) is APITimeoutError
    assert pytest.approx(1.0, abs=0.01) == result.elapsed


@pytest.mark.parametrize("code", [400, 422])
def test_a_server_that_refuses_to_stream_is_asked_plainly(code):
    """At once, under the same permit, without costing an attempt; from then on it is not asked to stream."""
    bench = Bench(profile={**MEASURED, "retry": {"attempts": 1}})
    bench.server.script(status(code, error_body("stream_options: extra inputs are not permitted")))
    first = bench.start()
    bench.run()
    second = bench.start()
    bench.run()

    assert first.ok
    assert second.ok
    assert ["stream" in each for each in sent(bench)] == [True, False, False]
    assert [each.refusal for each in first.reply.meta.attempts] == [True, False]
    assert bench.idle() == IDLE


def test_a_bad_request_of_the_callers_own_is_one_request():
    """An error that says nothing of streams is the caller's."""
    bench = Bench(profile=MEASURED)
    bench.server.script(status(400, error_body("temperature must be at most 2")))
    result = bench.start()
    bench.run()

    assert type(result.error) is BadRequestError
    assert len(bench.server.requests) == 1


def test_a_request_that_is_bad_either_way_teaches_nothing():
    """Two requests, and the endpoint still counts as one that streams."""
    bench = Bench(profile=MEASURED)
    bad = status(400, error_body("bad stream"))
    bench.server.script(bad, bad, STREAM)
    first = bench.start()
    bench.run()
    second = bench.start()
    bench.run()

    assert type(first.error) is BadRequestError
    assert second.ok
    assert ["stream" in each for each in sent(bench)] == [True, False, True]


def test_plain_json_in_answer_to_a_stream_is_the_answer():
    """A server that ignores `stream` is understood, and not asked again."""

    def ignoring(server, exchange):
        server.world.at(server.world.now + 0.1, exchange.respond, 200, JSON)
        server.world.at(server.world.now + 0.1, exchange.push, completion("plain"))
        server.world.at(server.world.now + 0.1, exchange.end)

    bench = Bench(profile=MEASURED)
    bench.server.script(ignoring, ignoring)
    first = bench.start()
    bench.run()
    bench.start()
    bench.run()

    assert b"plain" in first.reply.body
    assert ["stream" in each for each in sent(bench)] == [True, False]


def test_a_reset_before_content_is_retried():
    """As ever."""
    bench = Bench(profile=MEASURED)
    bench.server.script(fault(FaultKind.RESET, after=0.1), STREAM)
    result = bench.start()
    bench.run()

    assert result.ok
    assert len(bench.server.requests) == 2
