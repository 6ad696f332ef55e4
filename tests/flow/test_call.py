"""The path of a call, in virtual time: what the layers do to each kind of answer."""

from __future__ import annotations

import pytest
from llm_client import (
    APITimeoutError,
    AuthenticationError,
    CircuitOpenError,
    DeadlineExceededError,
    InternalServerError,
    OverloadedError,
    QueueFullError,
    QueueTimeoutError,
    RateLimitError,
    StreamInterruptedError,
)
from tests.virtual import (
    DONE,
    IDLE,
    Bench,
    FaultKind,
    answer,
    completion,
    delta,
    error_body,
    event,
    fault,
    silence,
    sse,
    status,
)

BUSY = error_body("The engine is currently busy", 503, "Service Unavailable")


def test_a_plain_call_is_one_request():
    """The ordinary case: one answer, one request, nothing left."""
    bench = Bench()
    result = bench.start()
    bench.run()

    assert result.ok
    assert b"hello" in result.reply.body
    assert len(bench.server.requests) == 1
    assert bench.idle() == IDLE


def test_a_long_plain_answer_is_one_request():
    """180 s without a byte is no failure for a plain call: nothing is sent twice."""
    bench = Bench()
    bench.server.script(answer(180.0))
    result = bench.start()
    bench.run()

    assert result.ok
    assert len(bench.server.requests) == 1
    assert pytest.approx(180.0) == result.elapsed


def test_a_refusal_inside_a_stream_is_a_refusal():
    """200, headers at once, and a 503 frame after a second: retried, booked as refused, never shown."""
    bench = Bench()
    frame = {"error": {"message": "The engine is currently busy", "type": "Service Unavailable", "code": 503}}
    bench.server.script(sse((1.0, delta(role=True)), (1.0, event(frame)), (1.0, DONE)))
    result = bench.start(stream=True)
    bench.run()

    assert result.text == "hello"
    assert len(bench.server.requests) == 2
    first, second = result.reply.run.records
    assert (first.refusal, first.kind) == (True, "overloaded")
    assert (second.refusal, second.kind) == (False, None)
    assert bench.station.breaker.state == "closed"


def test_a_refused_call_is_never_sent_before_its_retry_after():
    """Retry-After is a floor for the refused call, with jitter on top."""
    bench = Bench()
    bench.server.script(status(429, error_body("slow down"), retry_after="7"))
    result = bench.start()
    bench.run()
    first, second = bench.server.times()

    assert result.ok
    assert 7.0 <= second - first <= 7.0 * 1.5 + 0.1
    assert result.reply.meta.waited["retry_after"] >= 7.0


def test_refusals_cost_neither_attempts_nor_budget():
    """Ten refusals in a row do not use up two attempts."""
    bench = Bench(profile={"retry": {"attempts": 2}})
    bench.server.script(*[status(503, BUSY, retry_after="0.1")] * 10)
    result = bench.start()
    bench.run()

    assert result.ok
    assert len(bench.server.requests) == 11


def test_one_attempt_means_one_request():
    """`attempts: 1` implies no second chance after a refusal either."""
    bench = Bench(profile={"retry": {"attempts": 1}})
    bench.server.script(status(429, error_body("slow down"), retry_after="1"))
    result = bench.start()
    bench.run()

    assert isinstance(result.error, RateLimitError)
    assert len(bench.server.requests) == 1
    assert result.error.retry_after == 1.0


def test_a_failure_is_retried_and_the_last_real_error_is_raised():
    """Attempts count failures after send; the error is the server's, with every attempt attached."""
    bench = Bench(profile={"retry": {"attempts": 3}})
    bench.server.script(*[status(500, error_body("boom"), x_request_id=f"r{n}") for n in range(3)])
    result = bench.start()
    bench.run()

    assert type(result.error) is InternalServerError
    assert [each.status for each in result.error.attempts] == [500, 500, 500]
    assert result.error.request_id == "r2"
    assert bench.idle() == IDLE


def test_a_permanent_error_is_one_request():
    """No key, no second try."""
    bench = Bench()
    bench.server.script(status(401, error_body("Unauthorized")))
    result = bench.start()
    bench.run()

    assert isinstance(result.error, AuthenticationError)
    assert len(bench.server.requests) == 1


def test_a_wait_beyond_the_cap_is_raised_at_once():
    """A server that asks for a day gets an error now, with the day on it; nothing sleeps."""
    bench = Bench()
    bench.server.script(status(429, error_body("slow down"), retry_after="86400"))
    result = bench.start()
    bench.run()

    assert isinstance(result.error, RateLimitError)
    assert result.error.retry_after == 86400.0
    assert result.elapsed < 0.1


def test_a_wait_past_the_deadline_is_raised_at_once():
    """A Retry-After that cannot end in time is never slept."""
    bench = Bench()
    bench.server.script(status(429, error_body("slow down"), retry_after="20"))
    result = bench.start(deadline=10.0)
    bench.run()

    assert isinstance(result.error, RateLimitError)
    assert result.elapsed < 0.1


def test_the_deadline_covers_attempts_and_waits():
    """Attempt time-outs do not stretch the deadline; the error says which budget ran out."""
    bench = Bench(profile={"timeouts": {"attempt": 1.0}, "retry": {"attempts": 3}}, server=never_answering)
    result = bench.start(deadline=1.5)
    bench.run()

    assert isinstance(result.error, DeadlineExceededError)
    assert isinstance(result.error.__cause__, APITimeoutError)
    assert pytest.approx(1.5, abs=0.01) == result.elapsed
    assert len(bench.server.requests) <= 2
    assert "1.5 s" in str(result.error)


def never_answering(world):
    from tests.virtual import Server

    return Server(world, silence)


def test_a_stream_without_first_content_times_out_and_is_retried():
    """Role chunks and comments are not content: the first-token clock goes on."""
    bench = Bench(profile={"timeouts": {"first_token": 3.0}})
    bench.server.script(sse((0.1, delta(role=True)), *[(n * 0.5, b": ping\n\n") for n in range(1, 40)], end=False))
    result = bench.start(stream=True)
    bench.run()

    assert result.text == "hello"
    assert len(bench.server.requests) == 2
    assert result.reply.run.records[0].kind == "timeout"


def test_a_stream_that_stalls_raises_with_its_partial_text():
    """After content there is no retry; the partial text is on the error, the slot is free."""
    bench = Bench(profile={"timeouts": {"progress": 2.0}})
    bench.server.script(sse((0.1, delta("The answer")), (0.2, delta(" is")), end=False))
    result = bench.start(stream=True)
    bench.run()

    assert isinstance(result.error, StreamInterruptedError)
    assert result.error.partial == "The answer is"
    assert pytest.approx(2.2, abs=0.01) == result.elapsed
    assert len(bench.server.requests) == 1
    assert bench.idle() == IDLE


def test_keep_alive_comments_are_no_progress():
    """A stream that only pings is cut by the progress clock although bytes keep coming."""
    bench = Bench(profile={"timeouts": {"progress": 2.0}})
    pings = [(0.1 + n * 0.3, b": ping\n\n") for n in range(1, 60)]
    bench.server.script(sse((0.1, delta("x")), *pings, end=False))
    result = bench.start(stream=True)
    bench.run()

    assert isinstance(result.error, StreamInterruptedError)
    assert result.elapsed < 2.5


def test_a_cut_stream_is_not_a_success():
    """A clean end without finish reason or end marker is a cut."""
    bench = Bench()
    bench.server.script(sse((0.1, delta("The answer")), (0.2, delta(" is"))))
    result = bench.start(stream=True)
    bench.run()

    assert isinstance(result.error, StreamInterruptedError)
    assert result.error.partial == "The answer is"


def test_a_stale_connection_is_replaced_without_an_attempt():
    """A kept-alive connection that died under the request costs neither attempt nor back-off."""
    bench = Bench(profile={"retry": {"attempts": 1}})
    bench.server.script(fault(FaultKind.STALE))
    result = bench.start()
    bench.run()

    assert result.ok
    assert len(bench.server.requests) == 2
    assert len(result.reply.run.records) == 1
    assert result.elapsed < 0.2


def test_a_failed_connect_is_tried_again_until_the_server_is_there():
    """A server that is still starting is waited for: a refused connection costs no attempt."""
    bench = Bench(profile={"retry": {"attempts": 2}})
    bench.server.script(*[fault(FaultKind.CONNECT_REFUSED, sent=False)] * 4)
    result = bench.start()
    bench.run()

    assert result.ok
    assert len(bench.server.requests) == 5


def test_all_attempts_of_a_call_carry_one_idempotency_key():
    """Servers can tell a repetition from a new call, and the attempts are counted."""
    bench = Bench()
    bench.server.script(status(500, error_body("boom")), status(500, error_body("boom")))
    bench.start("one")
    bench.run()
    bench.start("two")
    bench.run()
    headers = [dict(request.headers) for _, request in bench.server.requests]
    keys = [each["idempotency-key"] for each in headers]

    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]
    assert [each["x-llm-client-attempt"] for each in headers] == ["1", "2", "3", "1"]
    assert len({request.body for _, request in bench.server.requests[:3]}) == 1


def test_an_unknown_outcome_is_not_repeated_when_forbidden():
    """The connection died after the request: with `unknown_outcome: false` there is one request and an error that says so."""
    bench = Bench(profile={"retry": {"unknown_outcome": False}})
    bench.server.script(fault(FaultKind.RESET, after=0.1))
    result = bench.start()
    bench.run()

    assert len(bench.server.requests) == 1
    assert any("outcome unknown" in note for note in result.error.__notes__)


def test_an_open_circuit_with_a_fallback_answers_at_once():
    """A chain that lists circuit_open does not wait for a probe."""
    bench = Bench(
        pool={"breaker": {"failures": 1, "open_for": {"base": 60, "cap": 60}}},
        profile={"retry": {"attempts": 1}, "fallback": [{"kind": "static", "text": "busy"}]},
    )
    bench.server.script(status(500, error_body("boom")))
    bench.start()
    bench.run()
    second = bench.start()
    streamed = bench.start(stream=True)
    bench.run()

    assert len(bench.server.requests) == 1
    assert b"busy" in second.reply.body
    assert second.reply.meta.fallback == "static"
    assert second.elapsed == 0.0
    assert b"busy" in streamed.reply.body


def test_a_fallback_can_be_forbidden_per_call():
    """`fallback=None` raises the real error."""
    bench = Bench(profile={"retry": {"attempts": 1}, "fallback": [{"kind": "static", "text": "busy"}]})
    bench.server.script(status(503, BUSY))
    result = bench.start(fallback=None)
    bench.run()

    assert isinstance(result.error, OverloadedError)


def test_a_callable_fallback_sees_the_error():
    """The user's function gets the request's data and the error."""
    bench = Bench(profile={"retry": {"attempts": 1}})
    bench.server.script(status(503, BUSY))
    seen = []
    result = bench.start(fallback=lambda data, error: seen.append((data["model"], error.kind)) or "sorry")
    bench.run()

    assert seen == [("m", "overloaded")]
    assert b"sorry" in result.reply.body
    assert result.reply.meta.fallback == "callable"


def test_without_a_fallback_a_call_waits_for_the_probe():
    """The built-in profile refuses nothing that can still be served: an open circuit is waited out."""
    bench = Bench(pool={"breaker": {"failures": 1}}, profile={"retry": {"attempts": 1}})
    bench.server.script(status(500, error_body("boom")))
    bench.start()
    bench.run()

    assert bench.station.breaker.state == "open"

    second = bench.start()
    bench.run()

    assert second.ok
    assert 0.2 <= second.elapsed <= 2.0


def test_the_classic_circuit_fails_at_once():
    """Three refusals open it for ten seconds; meanwhile nothing is sent and callers are told when to come back."""
    bench = Bench(
        pool={
            "breaker": {
                "failures": 3,
                "counts": ["failures", "rate_limited", "overloaded", "timeout"],
                "open_for": 10.0,
            },
            "concurrency": {"kind": "off"},
        },
        profile={"retry": {"attempts": 1}},
    )
    bench.server.script(*[status(429, error_body("slow down"), retry_after="1")] * 3)
    for n in range(3):
        bench.start(f"c{n}")
    bench.run()
    blocked = bench.start()
    bench.run()

    assert isinstance(blocked.error, CircuitOpenError)
    assert pytest.approx(blocked.error.retry_after, abs=0.01) == 10.0
    assert len(bench.server.requests) == 3

    later = bench.at(bench.world.now + 10.1)
    bench.run()

    assert later.ok
    assert [each.new for each in bench.events if type(each).__name__ == "BreakerChanged"][:2] == ["open", "half_open"]


def test_a_full_queue_says_so():
    """No waiting allowed: the second call is told, the first is served."""
    bench = Bench(pool={"queue": {"size": 0}, "concurrency": {"kind": "fixed", "limit": 1}})
    first, second = bench.start(), bench.start()
    bench.run()

    assert first.ok
    assert isinstance(second.error, QueueFullError)
    assert bench.idle() == IDLE


def test_max_wait_bounds_the_queue():
    """`queue.max_wait` ends waiting long before the deadline."""
    bench = Bench(
        pool={"concurrency": {"kind": "fixed", "limit": 1}}, profile={"queue": {"max_wait": 2.0}, "deadline": 60.0}
    )
    bench.server.script(answer(10.0))
    bench.start()
    second = bench.start()
    bench.run()

    assert isinstance(second.error, QueueTimeoutError)
    assert pytest.approx(2.0) == second.elapsed


def test_a_call_that_may_not_wait_is_served_when_a_slot_is_free():
    """`queue.max_wait: 0` forbids waiting, not being served at once."""
    bench = Bench(
        pool={"concurrency": {"kind": "fixed", "limit": 1}}, profile={"queue": {"max_wait": 0.0}, "deadline": 60.0}
    )
    first, second = bench.start(), bench.start()
    bench.run()

    assert first.ok
    assert isinstance(second.error, QueueTimeoutError)
    assert second.elapsed == 0.0


def test_urgent_calls_are_next():
    """One slot, a hundred low calls waiting, one high call: it is the next one sent."""
    bench = Bench(pool={"concurrency": {"kind": "fixed", "limit": 1}})
    for n in range(100):
        bench.start(f"low {n}", priority="low")
    bench.at(0.05, "urgent", priority="high")
    bench.run()

    assert b"urgent" in bench.server.requests[1][1].body


def test_a_backing_off_call_holds_no_slot():
    """While one call backs off, another uses the only slot."""
    bench = Bench(pool={"concurrency": {"kind": "fixed", "limit": 1}})
    bench.server.script(*[status(503, error_body("down"))] * 3)
    first = bench.start("a")
    second = bench.at(0.01, "b")
    bench.run()

    assert first.ok
    assert second.ok
    assert second.elapsed < 2.0


def test_a_refused_call_goes_to_the_other_replica_at_once():
    """A refusal speaks for one endpoint only."""
    bench = Bench(hosts=("a", "b"))
    bench.server.defaults["a"] = status(503, BUSY, retry_after="30")
    results = [bench.start(f"c{n}") for n in range(10)]
    bench.run()

    assert all(each.ok for each in results)
    assert max(each.elapsed for each in results) < 5.0


def test_loading_is_waited_out_and_opens_no_circuit():
    """503 while the model loads is a cool-down, not a failure."""
    bench = Bench()
    loading = error_body("Loading model", 503, "unavailable_error")
    bench.server.script(status(503, loading), status(503, loading))
    result = bench.start()
    bench.run()

    assert result.ok
    assert bench.station.breaker.state == "closed"
    assert any(type(each).__name__ == "CoolDownStarted" for each in bench.events)


def test_a_closed_pool_fails_what_waits():
    """Nobody is left hanging when the pool closes."""
    bench = Bench(pool={"concurrency": {"kind": "fixed", "limit": 1}})
    bench.start()
    second = bench.start()
    bench.world.at(0.05, bench.pool.close)
    bench.run()

    assert isinstance(second.error, RuntimeError)
    assert bench.idle() == IDLE


def test_server_headers_hold_the_next_calls_back():
    """FC-BK-14: the server has two left until its reset in 6 s; at most two more are sent before it."""
    bench = Bench(
        pool={
            "endpoints": [
                {"name": "a", "base_url": "http://a/v1", "limits": {"requests": {"rate": "600/min"}}},
            ]
        }
    )
    left = {
        "x_ratelimit_limit_requests": "600",
        "x_ratelimit_remaining_requests": "2",
        "x_ratelimit_reset_requests": "6s",
    }
    bench.server.script(status(200, completion(), **left))
    bench.start("first")
    bench.run()
    told = bench.world.now
    for number in range(10):
        bench.start(f"c{number}")
    bench.run()
    early = [at for at in bench.server.times()[1:] if at < told + 5.9]

    assert all(each.ok for each in bench.results)
    assert len(early) <= 2


def test_a_call_larger_than_its_bucket_goes_into_debt():
    """FC-BK-01: a full bucket of 100 lets 200 go; the next call waits for the debt to be worked off."""
    tokens = {"rate": "100/min"}
    bench = Bench(pool={"endpoints": [{"name": "a", "base_url": "http://a/v1", "limits": {"tokens": tokens}}]})
    bench.server.script(status(200, completion(tokens=197)))
    large = bench.start("x" * 400, body={"max_tokens": 95})
    small = bench.at(0.01, "y", body={"max_tokens": 10}, deadline=300.0)
    bench.run()

    assert large.ok
    assert small.ok
    assert small.elapsed > 60.0


def test_tokens_are_settled_by_usage():
    """FC-BK-06: what was reserved in full is corrected by what the server counted."""
    bench = Bench(
        pool={
            "endpoints": [
                {
                    "name": "a",
                    "base_url": "http://a/v1",
                    "limits": {"tokens": {"rate": "10000/min"}, "pessimistic": True},
                }
            ]
        }
    )
    bench.server.script(answer(0.1, "t"))
    bench.start("x" * 200, body={"max_tokens": 1000})
    bench.run()
    bucket = bench.station.meter("m").members[0].bucket

    assert bucket.level(bench.world.now) >= 10_000 - 8 - 1
