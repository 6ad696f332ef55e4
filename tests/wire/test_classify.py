"""Error answers, faults and odd successes: the rows of the decision table and what follows them."""

import json
from time import process_time

import pytest
from llm_client.flow.effects import FaultKind
from llm_client.model import Headers, Kind, RetryHint
from llm_client.wire import PEEKED, ROUTES, route_of
from llm_client.wire.classify import of_fault, of_frame, of_response
from llm_client.wire.failure import to_error


def answer(status, body=b"", headers=(), *, route="chat", **options):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return of_response(status, Headers(headers), data, route=route, wall=0.0, **options)


def said(message, **more):
    return {"error": {"message": message, **more}}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Kind.BAD_REQUEST), (401, Kind.AUTH), (402, Kind.QUOTA_EXHAUSTED), (403, Kind.PERMISSION),
        (404, Kind.NOT_FOUND), (405, Kind.BAD_REQUEST), (408, Kind.TIMEOUT), (409, Kind.BAD_REQUEST),
        (410, Kind.NOT_FOUND), (413, Kind.BAD_REQUEST), (415, Kind.BAD_REQUEST), (418, Kind.BAD_REQUEST),
        (422, Kind.BAD_REQUEST), (424, Kind.SERVER_ERROR), (425, Kind.UNAVAILABLE), (429, Kind.RATE_LIMITED),
        (431, Kind.BAD_REQUEST), (451, Kind.PERMISSION), (498, Kind.OVERLOADED), (499, Kind.UNAVAILABLE),
        (500, Kind.SERVER_ERROR), (501, Kind.BAD_REQUEST), (502, Kind.UNAVAILABLE), (503, Kind.UNAVAILABLE),
        (504, Kind.TIMEOUT), (505, Kind.PROTOCOL), (507, Kind.BAD_REQUEST), (520, Kind.SERVER_ERROR),
        (521, Kind.UNAVAILABLE), (524, Kind.TIMEOUT), (525, Kind.PROTOCOL), (529, Kind.OVERLOADED),
        (530, Kind.UNAVAILABLE), (599, Kind.SERVER_ERROR), (202, Kind.PROTOCOL), (301, Kind.PROTOCOL),
        (303, Kind.TIMEOUT), (307, Kind.PROTOCOL), (304, Kind.PROTOCOL),
    ],
)  # fmt: skip
def test_a_bare_status_has_a_kind(status, kind):
    """Without words the number decides."""
    assert kind == answer(status).kind


RETRYABLE = {Kind.RATE_LIMITED, Kind.OVERLOADED, Kind.UNAVAILABLE, Kind.SERVER_ERROR}


@pytest.mark.parametrize("status", [*range(400, 600)])
def test_flags_agree_with_the_kind(status):
    """What blames the request is permanent and never retried; overload and limits never open a breaker."""
    outcome = answer(status)

    assert outcome.retryable == (outcome.kind in RETRYABLE or (outcome.kind is Kind.TIMEOUT))
    assert not (outcome.permanent and outcome.retryable)
    assert not (outcome.overload and outcome.breaker)
    assert outcome.refusal == (outcome.kind in {Kind.RATE_LIMITED, Kind.OVERLOADED})
    assert outcome.breaker == (
        outcome.kind in {Kind.SERVER_ERROR, Kind.PROTOCOL, Kind.UNAVAILABLE, Kind.TIMEOUT} and status not in {408, 425}
    )


@pytest.mark.parametrize("status", [400, 429, 500, 503, 507])
@pytest.mark.parametrize(
    ("body", "headers", "kind"),
    [
        (said("m", code="content_filter"), {}, Kind.CONTENT_FILTER),
        (said("flagged", metadata={"reasons": ["violence"]}), {}, Kind.CONTENT_FILTER),
        (said("m", code="insufficient_quota"), {}, Kind.QUOTA_EXHAUSTED),
        (said("You have Insufficient  Balance"), {}, Kind.QUOTA_EXHAUSTED),
        (said("Request too large. Limit 10, Requested 11"), {}, Kind.BAD_REQUEST),
        (said("Using priority is disabled for this server"), {}, Kind.BAD_REQUEST),
        (said("API key not valid."), {}, Kind.AUTH),
        (said("Client disconnected"), {}, Kind.UNAVAILABLE),
        (said("m"), {"x-llm-d-request-dropped-reason": "rejected-context-cancelled"}, Kind.UNAVAILABLE),
        (said("m"), {"x-llm-d-request-dropped-reason": "evicted-priority"}, Kind.OVERLOADED),
        (said("m"), {"X-Envoy-Overloaded": "true"}, Kind.OVERLOADED),
        (said("m"), {"x-error-model-replica-inflight-exceeded": "true"}, Kind.OVERLOADED),
        ({"message": "m", "type": "Overloaded"}, {}, Kind.OVERLOADED),
        ({"errors": [{"message": "m", "code": 3040}]}, {}, Kind.OVERLOADED),
        ({"errors": [{"message": "m", "code": 3036}]}, {}, Kind.QUOTA_EXHAUSTED),
        (said("server busy,\n please  try again"), {}, Kind.OVERLOADED),
        (said("m", type="all_deployments_in_cooldown"), {}, Kind.UNAVAILABLE),
        (said("Model is loading"), {}, Kind.UNAVAILABLE),
        (said("Request running timeout reached."), {}, Kind.TIMEOUT),
    ],
)
def test_words_and_headers_beat_the_status(status, body, headers, kind):
    """Operators choose statuses and gateways rewrite them; what is said stays."""
    assert kind == answer(status, body, headers).kind


@pytest.mark.parametrize(
    ("kind", "phrases"),
    [
        (
            Kind.QUOTA_EXHAUSTED,
            [
                "insufficient balance", "insufficient credits", "exceeded your current quota",
                "exceeded your current token quota", "credit balance is too low", "specified API usage limits",
                "monthly spend limit", "usage limit reached", "reached your usage limit", "budget has been exceeded",
                "daily free allocation", "too many tokens per day", "monthly included credits",
                "account org/x is suspended",
            ],
        ),
        (
            Kind.CONTEXT_LENGTH,
            [
                "maximum context length", "longer than the model's context", "longer than the model\u2019s context",
                "exceeds the available context size", "smaller than the model context length", "prompt is too long",
                "input token count (109) exceeds", "`inputs` tokens + `max_new_tokens` must be",
                "litellm.ContextWindowExceededError",
            ],
        ),
        (
            Kind.OVERLOADED,
            [
                "overloaded", "server busy", "currently busy", "too busy", "queue full", "queue is full",
                "maximum pending requests", "maximum queue size", "backpressure", "backlog limit",
                "reset reason: overflow", "capacity exceeded", "capacity temporarily exceeded", "no capacity available",
                "at capacity", "aborted by a higher priority", "waiting timeout reached", "memory pressure",
                "system saturated", "rejected by flow control", "evicted by flow control",
                "total request limit reached", "no slot available", "high traffic", "failed to find target endpoint",
            ],
        ),
        (
            Kind.UNAVAILABLE,
            [
                "currently loading", "loading model", "model is loading", "currently scaling", "model is cold",
                "not ready", "client disconnected", "request canceled", "request cancelled",
            ],
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("status", [400, 500])
def test_every_phrase_is_known(status, kind, phrases):
    """In any case and spacing, in a message or in plain text, whatever the status."""
    for phrase in phrases:
        loud = phrase.upper().replace(" ", "  ")
        assert kind == answer(status, said(f"So: {phrase}.")).kind, phrase
        assert kind == answer(status, f"So: {loud}\n".encode()).kind, phrase


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (500, said("m", type="exceed_context_size_error"), Kind.CONTEXT_LENGTH),
        (400, said("maximum context length is 10"), Kind.CONTEXT_LENGTH),
        (429, said("maximum context length is 10"), Kind.RATE_LIMITED),
        (400, said("Unknown model: x"), Kind.NOT_FOUND),
        (403, said("Unknown model: x"), Kind.PERMISSION),
        (429, said("You exceeded your current quota"), Kind.QUOTA_EXHAUSTED),
        (429, said("You exceeded your current quota", details=[{"retryDelay": "36s"}]), Kind.RATE_LIMITED),
        (
            429,
            said("x", details=[{"retryDelay": "9s"}, {"violations": [{"quotaId": "RequestsPerDay-Free"}]}]),
            Kind.QUOTA_EXHAUSTED,
        ),
        (429, said("see https://aka.ms/oai/quotaincrease"), Kind.RATE_LIMITED),
        (429, said("Request too large. Limit 30,000, Requested 4,000"), Kind.RATE_LIMITED),
        (413, said("Request too large. Limit 30,000, Requested 342,389"), Kind.BAD_REQUEST),
        (412, said("Account x is suspended"), Kind.QUOTA_EXHAUSTED),
        (412, said("LoRA failed"), Kind.BAD_REQUEST),
        (409, {"error_code": 10402, "text": "m"}, Kind.BAD_REQUEST),
    ],
)
def test_a_row_looks_at_more_than_words_where_it_must(status, body, kind):
    """The exceptions within the table."""
    assert kind == answer(status, body).kind


def test_warm_up_is_a_refusal_and_no_failure():
    """Nothing was done, nothing is broken, and a time may be named."""
    outcome = answer(503, {"error": "Model m is currently loading", "estimated_time": 20.0})

    assert (outcome.kind, outcome.loading, outcome.refusal, outcome.breaker) == (Kind.UNAVAILABLE, True, True, False)
    assert outcome.hint == RetryHint(seconds=20.0, directive=False, source="body estimated_time")


def test_a_closed_request_opens_the_breaker_unless_somebody_cancelled():
    """499 with the word is a hop that went away; without it the gateway gave up on the server."""
    assert not answer(499, said("operation was cancelled")).breaker
    assert answer(499).breaker


@pytest.mark.parametrize(
    ("status", "body", "advice", "retryable"),
    [
        (500, said("m"), "false", False),
        (409, said("m"), "true", True),
        (400, said("m"), " TRUE ", True),
        (429, said("m", code="insufficient_quota"), "true", False),
        (400, said("prompt is too long"), "true", False),
        (500, said("m"), "maybe", True),
    ],
)
def test_x_should_retry_rules_except_over_money_and_size(status, body, advice, retryable):
    """The server knows best, but not whether credit will come back."""
    assert retryable == answer(status, body, {"x-should-retry": advice}).retryable


@pytest.mark.parametrize(
    ("headers", "body", "cap", "retryable", "seconds"),
    [
        ({"retry-after": "120"}, said("m"), 120.0, True, 120.0),
        ({"retry-after": "121"}, said("m"), 120.0, False, 121.0),
        ({"retry-after": "121", "x-should-retry": "true"}, said("m"), 120.0, False, 121.0),
        ({"retry-after": "121"}, said("m"), 300.0, True, 121.0),
        ({"retry-after": "75"}, said("m"), 60.0, False, 75.0),
        ({}, said("try again in 5m"), 120.0, True, 120.0),
        ({}, said("try again in 100s"), 60.0, True, 60.0),
    ],
)
def test_a_directive_above_the_cap_ends_the_call_and_advice_is_clamped(headers, body, cap, retryable, seconds):
    """Days are never slept, and never undercut either."""
    outcome = answer(429, body, headers, cap=cap)

    assert (retryable, seconds) == (outcome.retryable, outcome.hint.seconds)


@pytest.mark.parametrize(
    ("status", "headers", "account", "elsewhere"),
    [
        (429, {"x-ratelimit-remaining-requests": "0"}, True, False),
        (429, {"anthropic-ratelimit-requests-limit": "5"}, True, False),
        (429, {"RateLimit-Reset": "5"}, True, False),
        (429, {"x-envoy-ratelimited": "true"}, False, True),
        (429, {}, False, True),
        (503, {"x-ratelimit-remaining-requests": "0"}, False, True),
        (401, {}, False, False),
        (402, {}, False, False),
    ],
)
def test_quota_headers_make_a_limit_the_accounts(status, headers, account, elsewhere):
    """Another replica with the same key would refuse as well."""
    outcome = answer(status, b"", headers)

    assert (account, elsewhere) == (outcome.account, outcome.elsewhere)


def test_an_answer_keeps_what_support_asks_for():
    """Message, code, type, param and the request's id."""
    outcome = answer(400, said("m", code="c", type="t", param="p"), {"apim-request-id": "a-1"})

    assert (outcome.message, outcome.code, outcome.type, outcome.param) == ("m", "c", "t", "p")
    assert (outcome.status, outcome.request_id) == (400, "a-1")
    assert answer(500, {"error": {"message": "m"}, "request_id": "r"}).request_id == "r"


def test_amazons_error_type_header_is_the_type_where_the_body_has_none():
    """Its bodies hold a message only."""
    assert (
        answer(429, {"message": "m"}, {"x-amzn-ErrorType": "ThrottlingException:http://x"}).type
        == "ThrottlingException"
    )


@pytest.mark.parametrize(
    "unit",
    [
        ",", " ", "request too large ", "request too large limit: 1 ", "account ", "quotaid:", "<title", "<title>",
        "'input", "try again in ", "input token count (1", "sk-", '{"error":', "[", '\\"', "retry in 1 ",
    ],
)  # fmt: skip
def test_no_body_makes_the_patterns_slow(unit):
    """64 kB of the worst text for each pattern cost milliseconds, not minutes."""
    body = (unit * (65_536 // len(unit))).encode()
    started = process_time()
    for _ in range(3):
        to_error(answer(429, body), body=body)

    assert process_time() - started < 3


# Errors inside a success.


@pytest.mark.parametrize(
    ("frame", "kind", "status"),
    [
        ({"error": {"message": "m", "code": 504}}, Kind.TIMEOUT, 504),
        ({"error": {"message": "m", "code": "503"}}, Kind.UNAVAILABLE, 503),
        ({"error": {"message": "m", "code": 402}}, Kind.QUOTA_EXHAUSTED, 402),
        ({"error": {"message": "m", "http_status_code": 422}}, Kind.SERVER_ERROR, 500),
        ({"error": {"message": "Model is overloaded", "http_status_code": 422}}, Kind.OVERLOADED, 500),
        ({"error": {"message": "m", "type": "InternalServerError", "code": 503}}, Kind.UNAVAILABLE, 503),
        ({"error": {"message": "m", "code": "rate_limit_exceeded", "type": "tokens"}}, Kind.RATE_LIMITED, 200),
        ({"error": {"message": "m", "type": "too_many_requests_error"}}, Kind.RATE_LIMITED, 200),
        ({"error": {"message": "m", "type": "invalid_request_error"}}, Kind.SERVER_ERROR, 200),
        ({"error_code": 10401, "text": "m"}, Kind.UNAVAILABLE, 503),
        ("Overloaded", Kind.OVERLOADED, 200),
        ("upstream timed out", Kind.SERVER_ERROR, 200),
        (None, Kind.SERVER_ERROR, 200),
    ],
)
def test_an_error_inside_a_success_is_read_by_the_same_table(frame, kind, status):
    """Its own number stands for the status; without one a limit is a limit and the rest a fault."""
    outcome = of_frame(frame, Headers(), wall=0.0)

    assert (kind, status) == (outcome.kind, outcome.status)


@pytest.mark.parametrize(
    ("route", "body", "kind"),
    [
        ("embeddings", {"data": [], "model": "m"}, None),
        ("embeddings", {"error": {"code": 503, "message": "m"}}, Kind.UNAVAILABLE),
        ("embeddings", {"id": "x"}, Kind.PROTOCOL),
        ("embeddings", b"", Kind.PROTOCOL),
        ("rerank", {"results": []}, None),
        ("rerank", [{"index": 0, "score": 1.0}, {"index": 1, "score": 0.5}], None),
        ("score", {"data": []}, None),
        ("tokenize", {"count": 1, "tokens": [1]}, None),
        ("detokenize", {"prompt": "x"}, None),
        ("models", {"data": []}, None),
        ("models", b"<html>", Kind.PROTOCOL),
        ("transcriptions", b"plain text", None),
        ("other", b"", None),
        ("other", b"<html>", None),
        ("other", b"{", None),
    ],
)
def test_a_success_must_have_the_shape_of_its_route(route, body, kind):
    """Known routes promise something; unknown ones pass untouched."""
    outcome = answer(200, body, route=route)

    assert (kind, kind is None) == (outcome.kind, outcome.ok)


def test_a_success_cut_by_the_network_is_interrupted():
    """On every route, unless what came is whole."""
    assert answer(200, b'{"data": [', route="embeddings", truncated=True).kind is Kind.STREAM_INTERRUPTED
    assert answer(200, b"abc", route="other", truncated=True).kind is Kind.STREAM_INTERRUPTED
    assert answer(200, b"", route="embeddings", truncated=True).kind is Kind.STREAM_INTERRUPTED
    assert answer(200, b'{"data": []}', route="embeddings", truncated=True).ok


# The network.


@pytest.mark.parametrize("fault", list(FaultKind))
def test_every_fault_has_an_outcome(fault):
    """A kind, a sentence, and never a retry once something was delivered."""
    outcome = of_fault(fault)

    assert outcome.kind is not None
    assert outcome.message
    assert outcome.status is None
    assert not of_fault(fault, delivered=True).retryable


@pytest.mark.parametrize(
    ("fault", "kind", "sent", "retryable", "breaker"),
    [
        ("connect_refused", Kind.UNAVAILABLE, False, True, True),
        ("dns_error", Kind.UNAVAILABLE, False, True, True),
        ("connect_timeout", Kind.TIMEOUT, False, True, True),
        ("tls_error", Kind.PROTOCOL, False, False, True),
        ("read_timeout", Kind.TIMEOUT, True, True, True),
        ("reset", Kind.UNAVAILABLE, True, True, False),
        ("stale", Kind.UNAVAILABLE, True, True, False),
        ("h2_goaway", Kind.UNAVAILABLE, True, True, False),
        ("h2_refused_stream", Kind.OVERLOADED, True, True, False),
        ("client_deadline", Kind.DEADLINE, True, False, False),
        ("decode_error", Kind.PROTOCOL, True, False, True),
        ("redirect", Kind.PROTOCOL, True, False, False),
        ("something new", Kind.UNAVAILABLE, True, True, True),
    ],
)
def test_a_fault_before_the_answer(fault, kind, sent, retryable, breaker):
    """What certainly was not sent, what may be repeated, and what speaks against the endpoint."""
    outcome = of_fault(fault)

    assert (kind, sent, retryable, breaker) == (outcome.kind, outcome.sent, outcome.retryable, outcome.breaker)


def test_a_closed_connection_may_be_replaced_at_once():
    """The server had announced or begun to close it, so it is no evidence against the endpoint."""
    assert [of_fault(kind).stale for kind in ("stale", "h2_goaway", "reset")] == [True, True, False]


def test_a_second_reset_in_a_row_is_evidence():
    """The first may be chance."""
    assert [of_fault("reset").breaker, of_fault("reset", again=True).breaker] == [False, True]


@pytest.mark.parametrize("fault", ["reset", "eof_abrupt", "h2_goaway", "write_error", "other"])
def test_a_fault_inside_the_body_is_a_cut_answer(fault):
    """Whatever broke it."""
    outcome = of_fault(fault, body_started=True)

    assert (outcome.kind, outcome.retryable, outcome.breaker) == (Kind.STREAM_INTERRUPTED, True, True)


# Routes.


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/chat/completions", "chat"), ("chat/completions", "chat"), ("/v1/completions", "completions"),
        ("/v1/responses/", "responses"), ("/openai/deployments/m/embeddings?api-version=1", "embeddings"),
        ("/v1/models", "models"), ("/v1/rerank", "rerank"), ("/v1/audio/transcriptions", "transcriptions"),
        ("/tokenize", "tokenize"), ("/health", "other"), ("/v1/models/m", "other"), ("", "other"),
    ],
)  # fmt: skip
def test_a_path_names_its_route(path, route):
    """By its end, so that any base URL will do."""
    assert route == route_of(path)


def test_what_is_peeked_is_a_route():
    """Only answers that stream are read ahead."""
    assert set(ROUTES.values()) > PEEKED
