"""Who goes to the engine, who waits, who is told to come back; in virtual time, through the whole application."""

import asyncio

import pytest


def _statuses(answers):
    return sorted(answer.status for answer in answers)


def test_full_queue_refuses_at_once_and_says_when_to_come_back(inside, simulate):
    """Two workers and a queue of ten get twenty requests: twelve are served, eight refused."""

    async def scenario():
        server = inside(workers=2, queue=10, seconds=1.0)
        answers = await asyncio.gather(*(server.call(body={"prompt": str(n)}) for n in range(20)))
        return server, answers

    server, answers = simulate(scenario())
    refused = [answer for answer in answers if answer.status == 429]

    assert _statuses(answers) == [200] * 12 + [429] * 8
    assert {answer.data["error"]["code"] for answer in refused} == {"queue_full"}
    # Eleven before it, two at a time, a second each: five and a half.
    assert {(a.headers["retry-after"], a.headers["retry-after-ms"]) for a in refused} == {("6", "5500")}
    assert max(answer.took for answer in refused) == 0
    assert max(answer.took for answer in answers) == pytest.approx(6.0)
    assert server.ledger.results == {"answered": 12, "refused": 8, "abandoned": 0, "failed": 0}
    assert server.ledger.executing_peak == 2
    assert server.ledger.queued_peak == 10


@pytest.mark.parametrize(
    ("settings", "status", "hint"),
    [
        ({}, 429, "1"),
        ({"status": 503}, 503, "1"),
        ({"overflow": "drop"}, 429, None),
        ({"retry_after": "none"}, 429, None),
        ({"retry_after": 7.5}, 429, "8"),
        ({"retry_after": 0.0}, 429, "0"),
    ],
)
def test_refusal_follows_the_settings(inside, simulate, settings, status, hint):
    """Status by choice; the hint from the drain time, fixed, or absent."""

    async def scenario():
        server = inside(queue=0, **settings)
        first = asyncio.create_task(server.call(body={"prompt": "a"}))
        await asyncio.sleep(0.1)
        second = await server.call(body={"prompt": "b"})
        await first
        return second

    answer = simulate(scenario())

    assert answer.status == status
    assert answer.headers.get("retry-after") == hint


def test_hint_grows_with_the_queue(inside, simulate):
    """The more wait, the later another try makes sense."""

    async def hint(queue):
        server = inside(queue=queue)
        tasks = [asyncio.create_task(server.call(body={"prompt": "a"})) for _ in range(queue + 1)]
        await asyncio.sleep(0.01)
        answer = await server.call(body={"prompt": "b"})
        await asyncio.gather(*tasks)
        return int(answer.headers["retry-after"])

    assert [simulate(hint(size)) for size in (0, 2, 8)] == [1, 3, 9]


def test_urgent_work_overtakes_and_displaces(inside, simulate):
    """A critical request enters a full queue; the newest low one gives its place."""
    order = []

    async def one(server, name, priority):
        answer = await server.call(body={"prompt": name, "priority": priority})
        order.append((name, answer.status))
        return answer

    async def scenario():
        server = inside(queue=2)
        tasks = []
        for name, priority in (("running", 2), ("low old", 3), ("low new", 3), ("critical", 0), ("normal", 2)):
            tasks.append(asyncio.create_task(one(server, name, priority)))
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)

    simulate(scenario())

    assert order == [("low new", 429), ("low old", 429), ("running", 200), ("critical", 200), ("normal", 200)]


def test_priority_comes_by_word_and_by_header(inside, simulate):
    """Words, numbers, vLLM's header; anything else is a 400 that says what is allowed."""

    async def scenario():
        server = inside()
        for headers in (
            {"x-llm-client-priority": "LOW"},
            {"x-vllm-priority": "0"},
            {"x-llm-client-priority": "medium"},
        ):
            await server.call(body={"prompt": "a"}, headers=headers)
        bad = await server.call(body={"prompt": "a"}, headers={"x-llm-client-priority": "soon"})
        return [record.priority for record in server.ledger.records][:3], bad

    seen, bad = simulate(scenario())

    assert seen == ["low", "critical", "normal"]
    assert bad.status == 400
    assert "critical, high, normal, low" in bad.data["error"]["message"]


def test_delay_lets_requests_stand_outside_for_a_bounded_time(inside, simulate):
    """With `delay` the sixth enters when room is made, the last gives up after the bound."""

    async def scenario():
        server = inside(queue=1, overflow="delay", max_delay=1.5)
        return await asyncio.gather(*(server.call(body={"prompt": str(n)}) for n in range(5)))

    answers = simulate(scenario())

    # One runs, one waits, of three outside one gets in after a second; the others wait a second and a half.
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[3].took == pytest.approx(1.5)
    assert "outside the queue" in answers[3].data["error"]["message"]


def test_deadline_passes_in_the_queue_and_the_engine_never_sees_it(inside, simulate):
    """504 at the deadline, not later, and never executed."""

    async def scenario(headers):
        server = inside(seconds=3.0)
        first = asyncio.create_task(server.call(body={"prompt": "a"}))
        await asyncio.sleep(0.01)
        second = await server.call(body={"prompt": "b"}, headers=headers)
        await first
        return server, second

    for headers in ({"x-llm-client-deadline": "1"}, {"x-request-deadline-ms": "1000"}, {"x-llm-client-deadline": "1s"}):
        server, answer = simulate(scenario(headers))

        assert answer.status == 504
        assert answer.data["error"]["code"] == "queue_timeout"
        assert answer.took == pytest.approx(1.0)
        assert int(answer.headers["retry-after"]) >= 1
        assert server.ledger.executed == 1


def test_deadline_that_makes_no_sense_is_a_400(inside, simulate):
    """A header nobody can read must not be ignored silently."""

    async def scenario():
        return await inside().call(body={"prompt": "a"}, headers={"x-llm-client-deadline": "soon"})

    answer = simulate(scenario())

    assert answer.status == 400
    assert "deadline" in answer.data["error"]["message"]


def test_deadline_that_has_passed_is_refused_before_the_engine(inside, simulate):
    """An idle engine is no reason to work for nobody."""

    async def scenario():
        server = inside()
        answer = await server.call(body={"prompt": "a"}, headers={"x-llm-client-deadline": "0"})
        return server.ledger.executed, answer.status

    assert simulate(scenario()) == (0, 504)


def test_queue_timeout_of_the_server_bounds_the_wait(inside, simulate):
    """`queue_timeout` refuses whoever waited that long, whatever the client wanted."""

    async def scenario():
        server = inside(seconds=3.0, queue_timeout=0.5)
        return await asyncio.gather(*(server.call(body={"prompt": "a"}) for _ in range(2)))

    answers = simulate(scenario())

    assert [(answer.status, answer.took) for answer in answers] == [(200, 3.0), (504, 0.5)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("place", ["queued", "before the first token", "after three tokens"])
def test_client_that_leaves_frees_its_place_at_once(inside, simulate, stream, place):
    """Queued or running, streaming or not: within the same instant."""

    async def scenario():
        server = inside(seconds=10.0)
        leave_after, blocker = 0.2, None
        if place == "queued":
            blocker = asyncio.create_task(server.call(body={"prompt": "a"}))
            await asyncio.sleep(0)
        if place == "after three tokens":
            leave_after = 3.5
        began = asyncio.get_running_loop().time()
        gone = await server.chat(stream=stream, max_tokens=10, leave_after=leave_after)
        took = asyncio.get_running_loop().time() - began
        state = (server.door.engine.load().running, server.door.waiting, server.ledger.client_disconnected)
        if blocker is not None:
            await blocker
        return took, leave_after, state, gone

    took, leave_after, state, gone = simulate(scenario())

    assert took == pytest.approx(leave_after)
    assert state == ((1 if place == "queued" else 0), 0, 1)
    assert not gone.complete


def test_slot_of_one_that_left_goes_to_the_next(inside, simulate):
    """At the moment the client leaves, not when its work would have ended."""

    async def scenario():
        server = inside(seconds=10.0)
        gone, next_one = await asyncio.gather(
            server.call(body={"prompt": "a"}, leave_after=0.2), server.call(body={"prompt": "b"})
        )
        return gone.complete, next_one.took

    assert simulate(scenario()) == (False, pytest.approx(10.2))


def test_hint_is_at_least_a_second(inside, simulate):
    """Zero would invite the next refusal."""

    async def scenario():
        return await inside(seconds=0.0).chat(headers={"x-llm-fault": "overload"})

    assert simulate(scenario()).headers["retry-after"] == "1"


def test_slot_is_free_before_the_answer_is_sent(inside, simulate):
    """Who reads an answer and asks again at once finds the slot free, even without a queue."""

    async def scenario():
        server = inside(queue=0)
        return [(await server.call(body={"prompt": str(n)})).status for n in range(20)]

    assert simulate(scenario()) == [200] * 20


def test_thresholds_shed_low_work_first(inside, simulate):
    """At half load low work is turned away, at seven tenths normal, at nine tenths high, critical never."""

    async def scenario(busy):
        server = inside(workers=10, queue=0, thresholds=(0.9, 0.7, 0.5))
        tasks = [asyncio.create_task(server.call(body={"prompt": "x", "priority": 0})) for _ in range(busy)]
        await asyncio.sleep(0.01)
        out = []
        for priority in (0, 1, 2, 3):
            answer = await server.call(body={"prompt": "p", "priority": priority}, leave_after=0.0)
            out.append(answer.data["error"]["code"] if answer.status else "admitted")
        await asyncio.gather(*tasks)
        return out

    shed = "load_shed"
    assert simulate(scenario(4)) == ["admitted"] * 4
    assert simulate(scenario(5)) == ["admitted", "admitted", "admitted", shed]
    assert simulate(scenario(7)) == ["admitted", "admitted", shed, shed]
    assert simulate(scenario(9)) == ["admitted", shed, shed, shed]


def test_slow_answers_shed_low_work_until_it_is_fast_again(inside, simulate):
    """By latency against the target, and back by itself."""

    async def scenario():
        server = inside(queue=50, target_latency=2.0, seconds=1.0)
        await asyncio.gather(*(server.call(body={"prompt": str(n)}) for n in range(5)))
        slow = await server.call(body={"prompt": "x", "priority": 3})
        urgent = await server.call(body={"prompt": "x", "priority": 0})
        await asyncio.sleep(6)
        later = await server.call(body={"prompt": "x", "priority": 3})
        return slow, urgent.status, later.status

    slow, urgent, later = simulate(scenario())

    assert slow.data["error"]["code"] == "load_shed"
    assert "overloaded" in slow.data["error"]["message"]
    assert (urgent, later) == (200, 200)


def test_rate_limit_of_a_key_is_told_in_headers(inside, simulate):
    """Ten a second: the eleventh waits a tenth, and all answers say what is left."""

    async def scenario():
        from llm_client.server.limits import Rate

        server = inside(workers=50, seconds=0.0, key_requests=Rate(10, 1), key_tokens=Rate(6000, 60))
        key = {"authorization": "Bearer a"}
        answers = [await server.call(body={"prompt": "x", "max_tokens": 5}, headers=key) for _ in range(11)]
        other = await server.call(body={"prompt": "x"}, headers={"authorization": "Bearer b"})
        return answers, other

    answers, other = simulate(scenario())

    assert _statuses(answers) == [200] * 10 + [429]
    assert answers[0].headers["x-ratelimit-limit-requests"] == "10"
    assert answers[0].headers["x-ratelimit-remaining-requests"] == "9"
    assert answers[0].headers["x-ratelimit-remaining-tokens"] == "5994"
    assert answers[10].data["error"]["code"] == "rate_limit_exceeded"
    assert answers[10].headers["retry-after-ms"] == "100"
    assert answers[10].headers["x-ratelimit-remaining-requests"] == "0"
    assert other.status == 200


def test_refused_work_costs_no_tokens(inside, simulate):
    """A full queue gives the tokens of the bucket back."""

    async def scenario():
        from llm_client.server.limits import Rate

        server = inside(queue=0, key_tokens=Rate(100, 60))
        first = asyncio.create_task(server.call(body={"prompt": "x", "max_tokens": 9}))
        await asyncio.sleep(0.01)
        refused = await server.call(body={"prompt": "x", "max_tokens": 50})
        levels = server.state.limits.headers("addr-127.0.0.1", asyncio.get_running_loop().time())
        await first
        return refused.status, dict(levels)[b"x-ratelimit-remaining-tokens"]

    assert simulate(scenario()) == (429, b"90")


def test_loading_model_refuses_and_health_says_so(inside, simulate):
    """503 `model_loading` with the time left; live, not ready; then ready by itself."""

    async def scenario():
        server = inside(loading=2.0)
        chat = await server.chat()
        ready = await server.call("/health", method="GET")
        live = await server.call("/health/live", method="GET")
        await asyncio.sleep(2.1)
        later = await server.call("/health/ready", method="GET")
        return chat, ready, live, later, await server.chat()

    chat, ready, live, later, done = simulate(scenario())

    assert (chat.status, chat.data["error"]["code"], chat.headers["retry-after"]) == (503, "model_loading", "2")
    assert (ready.status, ready.data["status"], ready.headers["retry-after"]) == (503, "loading", "2")
    assert live.status == 200
    assert (later.status, done.status) == (200, 200)


def test_load_report_has_the_form_asked_for(inside, simulate):
    """The header vLLM sends to load balancers, as text and as JSON; nothing without the question."""

    async def scenario():
        server = inside(workers=4, queue=2)
        ask = {"endpoint-load-metrics-format": "TEXT"}
        text = await server.call(body={"prompt": "x"}, headers=ask)
        json_form = await server.call(body={"prompt": "x"}, headers={"endpoint-load-metrics-format": "json"})
        other = await server.call(body={"prompt": "x"}, headers={"endpoint-load-metrics-format": "BIN"})
        return text.headers, json_form.headers, other.headers

    text, json_form, other = simulate(scenario())

    expected = "TEXT named_metrics.kv_cache_utilization=0, named_metrics.num_requests_waiting=0, "
    assert text["endpoint-load-metrics"].startswith(expected)
    assert json_form["endpoint-load-metrics"].startswith('JSON {"named_metrics": {"kv_cache_utilization": 0')
    assert "endpoint-load-metrics" not in other


def test_times_in_queue_and_engine_are_told(inside, simulate):
    """Milliseconds, as TGI tells them."""

    async def scenario():
        server = inside(seconds=1.0)
        answers = await asyncio.gather(*(server.call(body={"prompt": "x"}) for _ in range(2)))
        return [(answer.headers["x-queue-time"], answer.headers["x-inference-time"]) for answer in answers]

    assert simulate(scenario()) == [("0", "1000"), ("1000", "1000")]


def test_requests_in_progress_are_bounded(inside, simulate):
    """Beyond `max_concurrency` even the queue is not asked."""

    async def scenario():
        server = inside(max_concurrency=2, queue=None)
        return await asyncio.gather(*(server.call(body={"prompt": "x"}) for _ in range(4)))

    answers = simulate(scenario())

    assert _statuses(answers) == [200, 200, 503, 503]


def test_books_balance_whatever_happens(inside, simulate):
    """Arrived is answered and refused and abandoned and failed, also in the metrics."""

    async def scenario():
        server = inside(workers=2, queue=3, seconds=0.5)
        calls = [
            server.chat(f"p{n}", stream=n % 2 == 0, leave_after=(0.3 if n % 5 == 0 else None))
            if n % 7
            else server.chat("p", headers={"x-llm-fault": "status=500"})
            for n in range(40)
        ]
        await asyncio.gather(*calls)
        metrics = (await server.call("/metrics", method="GET")).body.decode()
        return server.ledger, metrics

    ledger, metrics = simulate(scenario())
    values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))

    assert ledger.arrived == sum(ledger.results.values()) == 40
    assert all(ledger.results.values())
    total = sum(float(value) for name, value in values.items() if name.startswith("llm_server_requests_total"))
    assert float(values["llm_server_arrived_total"]) == total
    assert values["llm_server_in_flight"] == "0.0"
