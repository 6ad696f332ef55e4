"""Field reports about streams, retries and secrets, through both clients over sockets; ids are in the docstrings."""

from __future__ import annotations

import asyncio
import json
import logging
import time

import pytest
from llm_client import (
    APIConnectionError,
    APITimeoutError,
    AsyncClient,
    Client,
    ConflictError,
    InternalServerError,
    LLMClientError,
    QuotaExceededError,
    RateLimitError,
    StreamInterruptedError,
)
from tests.client.kit import DONE, FINISH, GOOD, MESSAGES, call, refused, streamed, token
from tests.integration.shared import idle
from tests.transport.conftest import Tls
from tests.transport.rawserver import FIN, HANG, LAST, RESET, STREAM, RawServer, answer, event, head

COLOURS = pytest.mark.parametrize("colour", ["sync", "async"])
ASK = {"model": "m", "messages": MESSAGES, "stream": True}
QUICK = {"retry": {"attempts": 3, "backoff": {"kind": "constant", "base": 0.001}}}
NO_BREAKER = {"breaker": "off"}


class Read:
    """How reading one stream went: texts with their times, the error, and whether everything came back."""

    def __init__(self, colour, server, *, ask=None, **settings):
        self.texts, self.times, self.error, self.stream = [], [], None, None
        self.began = time.monotonic()
        settings.setdefault("base_url", server.url("/v1"))
        ask = {**ASK, **(ask or {})}
        if colour == "sync":
            with Client(**settings) as client:
                self._sync(client, ask)
                self.idle = idle(client.pool)
        else:
            asyncio.run(self._async(settings, ask))

    def _note(self, each):
        self.texts.append(each.text)
        self.times.append(time.monotonic())

    def _sync(self, client, ask):
        try:
            self.stream = client.chat.completions.create(**ask)
            for each in self.stream:
                self._note(each)
        except LLMClientError as error:
            self.error = error
        self.ended = time.monotonic()

    async def _async(self, settings, ask):
        async with AsyncClient(**settings) as client:
            try:
                self.stream = await client.chat.completions.create(**ask)
                async for each in self.stream:
                    self._note(each)
            except LLMClientError as error:
                self.error = error
            self.ended = time.monotonic()
            self.idle = idle(client.pool)

    @property
    def text(self):
        return "".join(self.texts)


# -- streams


@COLOURS
def test_fc_st_01_a_stream_that_goes_silent_is_given_up_after_the_progress_bound(colour):
    """FC-ST-01: 1.0-1.3 s after the third token, with the partial text; the server sees it, the slot is free."""
    with RawServer([STREAM, token("a"), token("b"), token("c"), HANG]) as server:
        read = Read(colour, server, profile={"timeouts": {"progress": 1.0}})

        assert isinstance(read.error, StreamInterruptedError)
        assert read.error.kind == "timeout"
        assert 0.99 <= read.ended - read.times[2] <= 1.3
        assert read.error.partial == read.text == "abc"
        assert server.requests[0].gone.wait(0.5)
        assert server.requests[0].disconnected - read.ended < 0.5
        assert read.idle
        assert len(server.requests) == 1


@COLOURS
def test_fc_st_03_a_slow_stream_outlives_the_bound_of_plain_calls(colour):
    """FC-ST-03: a token every 40 ms for longer than a plain attempt may take, and than the first token may take."""
    pieces = [step for number in range(20) for step in (0.04, token(str(number)))]
    profile = {"timeouts": {"attempt": 0.3, "progress": 0.6, "first_token": 0.6}, "deadline": "off"}
    with RawServer([STREAM, *pieces, FINISH, DONE, LAST]) as server:
        read = Read(colour, server, profile=profile)

        assert read.error is None
        assert read.text == "".join(map(str, range(20)))
        assert read.times[-1] - read.began > 0.6


@COLOURS
def test_fc_st_03_the_first_token_has_a_bound_of_its_own(colour):
    """FC-ST-03, variant: nothing for longer than that, although the head came at once."""
    profile = {"timeouts": {"attempt": "off", "progress": 5.0, "first_token": 0.3}, "retry": {"attempts": 1}}
    with RawServer([STREAM, HANG]) as server:
        read = Read(colour, server, profile=profile)

        assert type(read.error) is APITimeoutError
        assert 0.29 <= read.ended - read.began <= 1.0
        assert read.idle


@COLOURS
@pytest.mark.parametrize("end", ["chunked", "fin"])
def test_fc_st_04_a_clean_close_in_the_middle_is_no_end(colour, end):
    """FC-ST-04: the partial text is on the error, no finish reason is made up, and it does not count as success."""
    events = [token("The "), token("answer "), token("is")]
    if end == "chunked":
        script = [STREAM, *events, LAST]
    else:
        plain = [part.split(b"\r\n", 1)[1][:-2] for part in events]
        script = [head(content_type="text/event-stream", connection="close"), *plain, FIN]
    with RawServer(script) as server:
        read = Read(colour, server)

        assert isinstance(read.error, StreamInterruptedError)
        assert read.error.partial == "The answer is"
        assert [each.kind for each in read.error.attempts] == ["stream_interrupted"]
        assert read.stream._reader.finish_reason is None
        with pytest.raises(StreamInterruptedError):
            _final(read.stream)
        assert read.idle
        assert len(server.requests) == 1


def _final(stream):
    made = stream.get_final_completion()
    return asyncio.run(made) if asyncio.iscoroutine(made) else made


@COLOURS
def test_fc_st_06_the_end_marker_ends_it(colour):
    """FC-ST-06: 100 ms after [DONE] at the latest, though the server keeps the connection open."""
    with RawServer([STREAM, token("a"), token("b"), FINISH, DONE, HANG]) as server:
        read = Read(colour, server)

        assert read.error is None
        assert read.text == "ab"
        assert read.ended - read.times[1] < 0.1
        assert read.idle


@COLOURS
def test_fc_st_13_after_content_nothing_is_sent_again(colour):
    """FC-ST-13: no second request, no fallback, and no text twice."""
    words = ["The", " answer", " is", " for"]
    with RawServer([STREAM, *map(token, words), RESET], streamed("The answer is forty-two.")) as server:
        profile = {**QUICK, "fallback": [{"kind": "static", "text": "sorry"}]}
        read = Read(colour, server, profile=profile)

        assert isinstance(read.error, StreamInterruptedError)
        assert read.text == read.error.partial == "The answer is for"
        time.sleep(0.05)
        assert len(server.requests) == 1


# -- retries

ONCE = (400, 401, 403, 404, 405, 413, 422)
AGAIN = (408, 425, 429, 500, 502, 503, 504, 529)


@COLOURS
@pytest.mark.parametrize("status", ONCE)
def test_fc_rt_13_a_hopeless_status_is_one_request(colour, status):
    """FC-RT-13, first group."""
    with RawServer(refused(status), GOOD) as server:
        with pytest.raises(LLMClientError) as caught:
            call(colour, server, profile=QUICK)

        assert caught.value.status_code == status
        assert len(server.requests) == 1


@COLOURS
@pytest.mark.parametrize("status", AGAIN)
def test_fc_rt_13_a_passing_status_is_tried_again(colour, status):
    """FC-RT-13, second group."""
    with RawServer(refused(status), GOOD) as server:
        assert call(colour, server, profile=QUICK).text == "hello"
        assert len(server.requests) == 2


@COLOURS
def test_fc_rt_13_a_conflict_is_tried_again_when_the_server_says_so(colour):
    """FC-RT-13: inference servers mean a state by a bare 409, which no repetition changes; the hint decides."""
    with RawServer(refused(409, x_should_retry="true"), GOOD) as server:
        assert call(colour, server, profile=QUICK).text == "hello"
        assert len(server.requests) == 2
    with RawServer(refused(409), GOOD) as server:
        with pytest.raises(ConflictError):
            call(colour, server, profile=QUICK)
        assert len(server.requests) == 1


@COLOURS
def test_fc_rt_13_a_server_may_forbid_it(colour):
    """FC-RT-13: `x-should-retry: false` is obeyed."""
    with RawServer(refused(503, x_should_retry="false"), GOOD) as server:
        with pytest.raises(InternalServerError):
            call(colour, server, profile=QUICK)

        assert len(server.requests) == 1


QUOTA = {
    "message": "You exceeded your current quota",
    "type": "insufficient_quota",
    "param": None,
    "code": "insufficient_quota",
}


@COLOURS
@pytest.mark.parametrize("inband", [False, True])
def test_fc_rt_01_an_empty_wallet_is_one_request(colour, inband):
    """FC-RT-01: as a 429 and as an event of a stream; at once, a class of its own, and a fallback may answer."""
    if inband:
        script = [STREAM, event({"error": QUOTA}), DONE, LAST]
    else:
        script = [answer(429, json.dumps({"error": QUOTA}).encode(), content_type="application/json")]
    arguments = {"stream": True} if inband else {}
    with RawServer(script) as server:
        began = time.monotonic()
        with pytest.raises(QuotaExceededError) as caught:
            call(colour, server, profile={"retry": {"attempts": 5}}, arguments=arguments)

        assert time.monotonic() - began < 0.5
        assert type(caught.value) is not RateLimitError
        assert len(server.requests) == 1
        fallback = {"fallback": [{"kind": "static", "text": "sorry"}]}
        done = call(colour, server, profile=fallback, arguments=arguments)
        assert done.meta.fallback == "static"


@COLOURS
def test_fc_rt_01_a_plain_429_is_tried_again(colour):
    """FC-RT-01: which is what `rate_limit_exceeded` is for."""
    with RawServer(refused(429, "slow down", "rate_limit_exceeded"), GOOD) as server:
        assert call(colour, server, profile=QUICK).text == "hello"
        assert len(server.requests) == 2


def _one_call(mode, server):
    if mode == "embeddings":
        with Client(base_url=server.url("/v1"), profile=QUICK) as client:
            return client.embeddings.create(model="m", input=["a"])
    stream = {"stream": True} if mode == "stream" else {}
    return call("async" if mode == "async" else "sync", server, profile=QUICK, arguments=stream)


@pytest.mark.parametrize("mode", ["sync", "async", "stream", "embeddings"])
def test_fc_rt_02_attempts_do_not_multiply(mode):
    """FC-RT-02: three attempts are three requests in every mode, and the error counts as the server does."""
    with RawServer(refused(500)) as server:
        with pytest.raises(InternalServerError) as caught:
            _one_call(mode, server)

        assert len(server.requests) == 3
        assert len(caught.value.attempts) == 3
        assert len({seen.headers["idempotency-key"] for seen in server.requests}) == 1


@COLOURS
def test_fc_rt_08_the_error_is_the_servers(colour):
    """FC-RT-08: type, status and id of the last attempt; earlier ones are attached; no wrapper of a library."""
    scripts = [refused(500, f"boom {number}", x_request_id=f"r{number}") for number in (1, 2, 3)]
    with RawServer(*scripts) as server, pytest.raises(LLMClientError) as caught:
        call(colour, server, profile=QUICK)
    error = caught.value

    assert type(error) is InternalServerError
    assert (error.status_code, error.request_id, len(error.attempts)) == (500, "r3", 3)
    assert [(each.status, each.request_id) for each in error.attempts] == [(500, "r1"), (500, "r2"), (500, "r3")]
    seen, link = set(), error
    while link is not None and link not in seen:
        seen.add(link)
        link = link.__cause__ or link.__context__
    assert not any("tenacity" in type(each).__module__ for each in seen)


@COLOURS
def test_fc_rt_10_a_request_that_may_have_been_carried_out_is_recognisable_when_sent_again(colour):
    """FC-RT-10, allowed: one Idempotency-Key a call, another for another call, the same bytes."""
    with RawServer([FIN], GOOD, GOOD) as server:
        assert call(colour, server, profile=QUICK).text == "hello"
        assert call(colour, server, profile=QUICK).text == "hello"
        first, second, other = server.requests

        assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
        assert first.headers["idempotency-key"] != other.headers["idempotency-key"]
        assert first.body == second.body


@COLOURS
def test_fc_rt_10_forbidden_it_is_one_request(colour):
    """FC-RT-10, forbidden: the error says that the outcome is unknown."""
    with RawServer([FIN], GOOD) as server:
        with pytest.raises(APIConnectionError) as caught:
            call(colour, server, profile={"retry": {**QUICK["retry"], "unknown_outcome": False}})

        assert "outcome unknown" in " ".join([str(caught.value), *caught.value.__notes__])
        assert len(server.requests) == 1


@COLOURS
def test_fc_ra_14_what_the_server_said_is_on_the_error(colour):
    """FC-RA-14: wait, id, status and headers, in any case of their letters."""
    script = [answer(429, b"{}", RETRY_AFTER="17", x_request_id="abc")]
    with RawServer(script) as server, pytest.raises(RateLimitError) as caught:
        call(colour, server, max_retries=0)
    error = caught.value

    assert (error.retry_after, error.request_id, error.status_code) == (17.0, "abc", 429)
    assert error.headers["retry-after"] == error.headers["Retry-After"] == "17"


# -- secrets


class Everything(logging.Handler):
    """Keeps what each record says in any way."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.said = []

    def emit(self, record):
        self.format(record)
        self.said.append(repr(record.__dict__) + record.getMessage() + str(record.exc_text))


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """Certificates, made once."""
    return Tls(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def everything():
    """The root logger at DEBUG, and every other one that exists."""
    handler, root = Everything(), logging.getLogger()
    names = ("llm_client", "httpx", "httpcore", "httpcore.connection", "httpcore.http11", "asyncio")
    loggers = [root, *map(logging.getLogger, names)]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.DEBUG)
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    for each, level in zip(loggers, levels, strict=True):
        each.setLevel(level)


@COLOURS
@pytest.mark.parametrize(("auth", "family"), [("bearer", "httpx"), ("api-key", "httpx"), ("api-key", "httpx2")])
def test_fc_se_01_no_secret_is_logged(colour, auth, family, everything):
    """FC-SE-01: success, retry, 401, time-out and stream, with every logger at DEBUG, the HTTP library's too."""
    scripts = (GOOD, refused(500), GOOD, refused(401, "bad key sk-canary-123"), [HANG], streamed("a"))
    with RawServer(*scripts) as server:
        endpoint = {
            "base_url": server.url("/v1"),
            "api_key": "sk-canary-123",
            "auth": auth,
            "headers": {"x-secret": "canary-header"},
            "query": {"sig": "canary-query"},
        }
        settings = {"base_url": None, "pool": {"endpoints": [endpoint], "http": {"family": family}, **NO_BREAKER}}
        quick = {**QUICK, "timeouts": {"attempt": 0.2}}
        own = {"arguments": {"extra_headers": {"x-own": "canary-own"}}}
        call(colour, server, **settings, **own)
        call(colour, server, **settings, profile=quick, **own)
        for attempts in (3, 1):
            with pytest.raises(LLMClientError) as caught:
                call(colour, server, **settings, profile={**quick, "retry": {"attempts": attempts}})
            assert "canary" not in f"{caught.value}{caught.value!r}{caught.value.__notes__}"
        read = Read(colour, server, **settings)

        assert read.text == "a"
        assert len(server.requests) == 6
        assert all(seen.headers["x-secret"] == "canary-header" for seen in server.requests)
    assert everything.said
    assert not [said for said in everything.said if "canary" in said]


@COLOURS
@pytest.mark.parametrize("status", [302, 307, 308])
@pytest.mark.parametrize("form", ["http://127.0.0.1:{port}/x", "//127.0.0.1:{port}/x"])
def test_fc_se_05_another_origin_gets_no_key(colour, status, form):
    """FC-SE-05: it is not even connected to; the error names the target."""
    with RawServer(GOOD) as other, RawServer([answer(status, Location=form.format(port=other.port))]) as server:
        with pytest.raises(LLMClientError) as caught:
            call(colour, server, api_key="sk-canary", default_headers={"x-secret": "canary"}, profile=QUICK)

        assert other.connections == 0
        assert len(server.requests) == 1
        assert caught.value.kind == "protocol"
        assert "redirect" in str(caught.value)
        assert "canary" not in str(caught.value)


@COLOURS
def test_fc_se_05_a_post_never_becomes_a_get(colour):
    """FC-SE-05: 302 to itself is refused, 307 and 308 to itself are followed with method, body and key."""
    with RawServer([answer(302, Location="/v1/there")], GOOD) as server:
        with pytest.raises(LLMClientError):
            call(colour, server, profile=QUICK)
        assert [seen.method for seen in server.requests] == ["POST"]
    for status in (307, 308):
        with RawServer([answer(status, Location="/v1/there")], GOOD) as server:
            assert call(colour, server, api_key="sk-a").text == "hello"
            first, second = server.requests
            assert (second.method, second.target, second.body) == ("POST", "/v1/there", first.body)
            assert second.headers["authorization"] == "Bearer sk-a"


@COLOURS
@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "/v1/again"])
def test_fc_se_06_other_schemes_and_loops_end_in_a_typed_error(colour, location):
    """FC-SE-06: a loop after three hops; other schemes at once."""
    with RawServer([answer(307, Location=location)]) as server:
        with pytest.raises(LLMClientError) as caught:
            call(colour, server, profile=QUICK)

        assert caught.value.kind == "protocol"
        assert len(server.requests) == (4 if location == "/v1/again" else 1)


@COLOURS
def test_fc_se_06_https_is_not_left_for_http(colour, tls):
    """FC-SE-06: same host, other scheme; nothing is sent in clear."""
    with RawServer(GOOD) as plain:
        script = [answer(308, Location=f"http://127.0.0.1:{plain.port}/x")]
        with RawServer(script, tls=tls.server) as server, pytest.raises(LLMClientError) as caught:
            call(colour, server, pool={"http": {"ca_file": str(tls.ca_file)}}, profile=QUICK)

        assert caught.value.kind == "protocol"
        assert plain.connections == 0
