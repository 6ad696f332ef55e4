"""What answers when the call itself cannot: kept answers, other models, and what a chain never does."""

from __future__ import annotations

import json

import pytest
from llm_client import BadRequestError, ConfigError, InternalServerError, RateLimitError, StreamInterruptedError
from llm_client.profiles.load import parse
from tests.virtual import DONE, IDLE, Bench, FaultKind, answer, completion, delta, error_body, sse, status

DOWN = status(503, error_body("down for maintenance"))
BROKEN = status(500, error_body("boom"))
TOO_LONG = status(
    400, error_body("maximum context length exceeded", "context_length_exceeded", "invalid_request_error")
)
ONCE = {"attempts": 1}


def hosts(bench):
    return [request.url.split("/")[2] for _, request in bench.server.requests]


def sent(bench, index=-1):
    return json.loads(bench.server.requests[index][1].body)


def test_a_kept_answer_stands_in():
    """The same request got an answer before; it says that it is a kept one."""
    bench = Bench(profile={"retry": ONCE, "fallback": [{"kind": "cached"}]})
    bench.server.script(answer(0.1, "fresh"), BROKEN)
    first = bench.start("hi", body={"user": "u1"})
    bench.run()
    second = bench.start("hi", body={"user": "u2", "metadata": {"trace": "x"}})
    bench.run()

    assert first.reply.body == second.reply.body
    assert (first.reply.meta.fallback, second.reply.meta.fallback) == (None, "cached")
    assert ("x-llm-client-fallback", "cached") in second.reply.headers.pairs


@pytest.mark.parametrize(
    "change",
    [{"text": "hi!"}, {"body": {"temperature": 0.5}}, {"model": "other"}, {"stream": True}, {"tenant": "b"}],
    ids=lambda change: next(iter(change)),
)
def test_another_request_gets_no_kept_answer(change):
    """Exact match: the text, a parameter, the model, streaming or not, and whose request it is."""
    bench = Bench(profile={"retry": ONCE, "fallback": [{"kind": "cached"}]})
    bench.server.script(answer(0.1), BROKEN)
    bench.start()
    bench.run()
    result = bench.start(**change)
    bench.run()

    assert isinstance(result.error, InternalServerError)
    assert any("cached skipped" in note for note in result.error.__notes__)


def test_a_kept_stream_is_played_again_whole():
    """The bytes of a stream that ended well, in the order in which they came."""
    bench = Bench(profile={"retry": ONCE, "fallback": [{"kind": "cached"}]})
    bench.server.script(sse((0.1, delta("one ")), (0.2, delta("two")), (0.3, delta(finish="stop") + DONE)), BROKEN)
    first = bench.start(stream=True)
    bench.run()
    second = bench.start(stream=True)
    bench.run()

    assert first.text == "one two"
    assert delta("one ") + delta("two") + delta(finish="stop") + DONE == second.reply.body
    assert second.reply.meta.fallback == "cached"


def test_a_cut_stream_is_not_kept():
    """Half an answer is none."""
    bench = Bench(profile={"retry": ONCE, "fallback": [{"kind": "cached"}]})
    bench.server.script(cut("one "), BROKEN)
    bench.start(stream=True)
    bench.run()
    second = bench.start(stream=True)
    bench.run()

    assert isinstance(second.error, InternalServerError)


def test_kept_answers_are_bounded_in_number_and_age():
    """The oldest unused goes first, and none is older than its time."""
    cached = {"kind": "cached", "max_entries": 2, "ttl": 100.0}
    bench = Bench(profile={"retry": ONCE, "fallback": [cached]})
    for text in ("a", "b", "c"):
        bench.start(text)
        bench.run()
    bench.server.default = BROKEN
    results = {text: bench.start(text) for text in ("a", "b", "c")}
    bench.run()

    assert {text: result.ok for text, result in results.items()} == {"a": False, "b": True, "c": True}

    bench.world.run(bench.world.now + 101.0)
    late = bench.start("c")
    bench.run()

    assert not late.ok


def test_a_substitute_is_not_kept_as_the_answer():
    """What the chain made must not become what the model said."""
    chain = [{"kind": "cached"}, {"kind": "static", "text": "busy"}]
    bench = Bench(profile={"retry": ONCE, "fallback": chain})
    bench.server.default = BROKEN
    first, second = bench.start(), bench.start()
    bench.run()

    assert [each.reply.meta.fallback for each in (first, second)] == ["static", "static"]


MODEL = {
    "kind": "model",
    "model": "small",
    "rename": {"max_completion_tokens": "max_tokens"},
    "drop": ["reasoning_effort", "tools"],
    "set": {"temperature": 0.2, "chat_template_kwargs": {"enable_thinking": False}},
}


@pytest.mark.parametrize("stream", [False, True])
def test_another_model_gets_what_it_takes(stream):
    """Names it has, no fields it lacks, values it needs; the rest as the caller wrote it."""
    bench = Bench(profile={"retry": ONCE, "fallback": [MODEL]})
    bench.server.script(BROKEN, answer(0.1, "from small"))
    body = {"max_completion_tokens": 7, "reasoning_effort": "high", "tools": [{}], "seed": 5}
    result = bench.start(stream=stream, body=body)
    bench.run()
    text = result.text if stream else json.loads(result.reply.body)["choices"][0]["message"]["content"]
    asked = sent(bench)

    assert text == "from small"
    assert result.reply.meta.fallback == "model"
    assert {
        "model": "small",
        "max_tokens": 7,
        "seed": 5,
        "temperature": 0.2,
        **({"stream": True} if stream else {}),
        "chat_template_kwargs": {"enable_thinking": False},
        "messages": [{"role": "user", "content": "hi"}],
    } == asked
    assert [each.number for each in result.reply.meta.attempts] == [1, 2]
    assert bench.idle() == IDLE


def test_what_a_model_takes_is_read_from_a_file():
    """YAML's texts become JSON's values where they can."""
    chain = "[{kind: model, model: s, set: {n: 1, on: true, x: null, name: plain, list: [1, two]}}]"
    link = parse(f"profiles: {{default: {{fallback: {chain}}}}}").profiles["default"].fallback[0]

    assert dict(link.set) == {"n": 1, "on": True, "name": "plain", "list": (1, "two")}


@pytest.mark.parametrize("key", ["rename: {model: m}", "drop: [stream]", "set: {model: m}", "rename: {a: model}"])
def test_a_model_fallback_changes_neither_model_nor_streaming(key):
    """Those are the caller's, or the link's own."""
    with pytest.raises(ConfigError, match="is not for a fallback to change"):
        parse(f"profiles: {{default: {{fallback: [{{kind: model, model: s, {key}}}]}}}}")


@pytest.mark.parametrize("kind", ["static", "model", "callable"])
def test_a_stream_falls_back_before_its_first_content(kind):
    """A role chunk, then an error frame: nothing was delivered, so the chain answers."""
    link = {
        "static": {"kind": "static", "text": "instead"},
        "model": {"kind": "model", "model": "small"},
        "callable": {"kind": "callable", "target": lambda data, error: "instead"},
    }[kind]
    bench = Bench(profile={"retry": ONCE, "fallback": [link]})
    frame = {"error": {"message": "boom", "type": "server_error", "code": 500}}
    bench.server.script(
        sse((0.1, delta(role=True)), (0.2, b"data: " + json.dumps(frame).encode() + b"\n\n")), answer(0.1, "instead")
    )
    result = bench.start(stream=True)
    bench.run()

    assert result.ok
    assert kind == result.reply.meta.fallback
    assert b"instead" in result.reply.body or result.text == "instead"


def cut(*texts):
    """Deliver some text, then break the connection."""

    def handle(server, exchange):
        world = server.world
        sse(*[(0.1 * (n + 1), delta(text)) for n, text in enumerate(texts)], end=False)(server, exchange)
        world.at(world.now + 0.1 * len(texts) + 0.05, lambda: exchange.fail(FaultKind.RESET))

    return handle


def test_what_was_delivered_is_never_begun_again():
    """Five tokens, then a reset: an error with those five, no second request, whatever chain there is (FC-ST-13)."""
    bench = Bench(profile={"retry": {"attempts": 3}, "fallback": [{"kind": "static", "text": "other"}]})
    bench.server.script(cut("The", " answer", " is", " for", "t"), answer(0.1, "The answer is forty-two."))
    result = bench.start(stream=True)
    bench.run()

    assert isinstance(result.error, StreamInterruptedError)
    assert "The answer is fort" == result.error.partial == result.text
    assert len(bench.server.requests) == 1


TWO = [
    {"name": "a", "base_url": "http://a", "models": ["m"]},
    {"name": "b", "base_url": "http://b", "models": ["big"]},
]


def test_a_prompt_too_long_goes_to_a_larger_window_and_harms_nobody():
    """One request to the first; its circuit counts nothing, and the next short prompt goes there (FC-BR-08)."""
    profile = {"fallback": [{"kind": "model", "model": "big"}], "fallback_on": ["context_length"]}
    bench = Bench(pool={"endpoints": TWO}, profile=profile)
    bench.server.script(TOO_LONG)
    long = bench.start("x" * 5000)
    bench.run()
    short = bench.start("hi")
    bench.run()

    assert (long.ok, long.reply.meta.fallback) == (True, "model")
    assert short.reply.meta.fallback is None
    assert hosts(bench) == ["a", "b", "a"]
    assert (bench.station.breaker.state, bench.station.breaker.failures) == ("closed", 0)


def test_a_model_too_small_is_skipped_and_the_error_says_so():
    """A prompt of 10,000 tokens, a window of 8192: no request there, and the first model's own error (FC-BR-14)."""
    endpoints = [TWO[0], {**TWO[1], "max_context": 8192}]
    profile = {"retry": ONCE, "fallback": [{"kind": "model", "model": "big"}]}
    bench = Bench(pool={"endpoints": endpoints}, profile=profile)
    bench.server.defaults["a"] = status(429, error_body("slow down", "rate_limit_exceeded"))
    result = bench.start("four" * 10_000)
    bench.run()
    notes = " ".join(result.error.__notes__)

    assert isinstance(result.error, RateLimitError)
    assert {"a"} == set(hosts(bench))
    assert "fallback model 'big' skipped" in notes
    assert "max_context is 8192" in notes


def test_a_call_goes_where_it_fits():
    """Of two endpoints for one model, only the one with room for prompt and answer; a short call to either."""
    endpoints = [{"name": "a", "base_url": "http://a", "max_context": 1000}, {"name": "b", "base_url": "http://b"}]
    bench = Bench(pool={"endpoints": endpoints})
    for n in range(20):
        bench.at(n * 1.0, "word" * 2000)
        bench.at(n * 1.0 + 0.5, "hi", body={"max_tokens": 5000})
    bench.run()

    assert {"b"} == set(hosts(bench))

    for n in range(20):
        bench.at(bench.world.now + n * 1.0, "hi")
    bench.run()

    assert {"a", "b"} == set(hosts(bench))


def test_when_it_fits_nowhere_the_server_says_so():
    """We guess, it counts: its own 400 is the better error."""
    bench = Bench(pool={"endpoints": [{"name": "a", "base_url": "http://a", "max_context": 100}]})
    bench.server.default = TOO_LONG
    result = bench.start("word" * 2000)
    bench.run()

    assert isinstance(result.error, BadRequestError)
    assert len(bench.server.requests) == 1


ROUND = """
pool:
  endpoints: [{name: a, base_url: 'http://a'}, {name: b, base_url: 'http://b'}]
profiles:
  default: {retry: {attempts: 2}, endpoints: [a], fallback: [{kind: profile, profile: second}]}
  second: {endpoints: [b], retry: {attempts: 2}, fallback: [%s]}
"""


def test_a_circle_of_fallbacks_is_refused():
    """A to B to A would go round for ever (FC-BR-13)."""
    with pytest.raises(ConfigError, match="leads back to itself: default -> second -> default"):
        parse(ROUND % "{kind: profile, profile: default}")


def test_each_endpoint_is_tried_once_per_call():
    """Two attempts each and no more, although both always fail: a chain is not followed from its own links."""
    bench = Bench(file=parse(ROUND % "{kind: static, text: never}"))
    bench.server.default = DOWN
    result = bench.start()
    bench.run()

    assert isinstance(result.error, InternalServerError)
    assert result.error.endpoint == "a"
    assert hosts(bench) == ["a", "a", "b", "b"]
    assert len(result.error.attempts) == 4


@pytest.mark.parametrize(("refusals", "count"), [(0, 1), (1, 2), (3, 4)])
def test_each_endpoint_is_refused_so_often_and_no_more(refusals, count):
    """An overload costs no attempt, so `refusals` bounds it; the chain is gone through once all the same (FC-BR-13)."""
    retry = f"retry: {{attempts: 2, refusals: {refusals}}}"
    bench = Bench(file=parse((ROUND % "{kind: static, text: never}").replace("retry: {attempts: 2}", retry)))
    bench.server.default = status(503, error_body("the queue is full", "queue_full", "overloaded"))
    result = bench.start()
    bench.run()

    assert result.error.kind == "overloaded"
    assert hosts(bench) == ["a"] * count + ["b"] * count


def test_the_first_error_is_raised_when_nobody_answers():
    """It hides nothing: what the chain tried stands in its notes."""
    chain = [{"kind": "cached"}, {"kind": "model", "model": "small"}]
    bench = Bench(profile={"retry": ONCE, "fallback": chain})
    bench.server.script(status(500, error_body("the first")), status(500, error_body("the second")))
    result = bench.start()
    bench.run()

    assert "the first" in str(result.error)
    assert "cached skipped" in result.error.__notes__[-2]
    assert "the second" in result.error.__notes__[-1]


def test_an_answer_of_another_route_is_kept_too():
    """Embeddings, rankings, scores: whatever has a body that we can read."""
    bench = Bench(profile={"retry": ONCE, "fallback": [{"kind": "cached"}]})
    body = b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1]}],"model":"m"}'
    bench.server.script(status(200, body), BROKEN)
    first = bench.start(route="embeddings")
    bench.run()
    second = bench.start(route="embeddings")
    bench.run()

    assert first.reply.body == second.reply.body == body
    assert completion() != body
