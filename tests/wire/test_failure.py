"""From an outcome to the exception that the caller sees."""

import json
import pickle

import pytest
from llm_client import errors
from llm_client.model import AttemptRecord, Headers, Kind, Outcome, RetryHint
from llm_client.wire.classify import of_fault, of_response
from llm_client.wire.failure import MAX_MESSAGE, to_error


def answered(status, body=b"", headers=()):
    return of_response(status, Headers(headers), body, route="chat", wall=0.0)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, b"", errors.BadRequestError),
        (413, b"", errors.BadRequestError),
        (400, b"prompt is too long", errors.ContextLengthError),
        (400, b'{"error":{"code":"content_filter"}}', errors.ContentFilterError),
        (401, b"", errors.AuthenticationError),
        (402, b"", errors.QuotaExceededError),
        (403, b"", errors.PermissionDeniedError),
        (404, b"", errors.NotFoundError),
        (409, b"", errors.ConflictError),
        (422, b"", errors.UnprocessableEntityError),
        (422, b"budget has been exceeded", errors.QuotaExceededError),
        (429, b"", errors.RateLimitError),
        (429, b"insufficient credits", errors.QuotaExceededError),
        (429, b"queue full", errors.OverloadedError),
        (500, b"", errors.InternalServerError),
        (501, b"", errors.BadRequestError),
        (503, b"", errors.InternalServerError),
        (503, b"queue full", errors.OverloadedError),
        (504, b"", errors.InternalServerError),
        (408, b"", errors.APIStatusError),
        (505, b"", errors.InternalServerError),
        (301, b"", errors.InvalidResponseError),
        (200, b"<html>", errors.InvalidResponseError),
        (200, b'{"error":{"code":504}}', errors.InternalServerError),
        (200, b'{"error":{"code":429}}', errors.RateLimitError),
        (200, b'{"error":{"code":400}}', errors.BadRequestError),
        (200, b'{"choices":[', errors.StreamInterruptedError),
    ],
)
def test_the_class_follows_the_kind(status, body, expected):
    """One table from kinds to classes; the status only refines."""
    outcome = answered(status, body)
    error = to_error(outcome, body=body)

    assert expected is type(error)
    assert outcome.kind == error.kind
    if isinstance(error, errors.APIStatusError):
        assert outcome.status == error.status_code


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("connect_refused", errors.ConnectError),
        ("dns_error", errors.ConnectError),
        ("tls_error", errors.ConnectError),
        ("connect_timeout", errors.APITimeoutError),
        ("read_timeout", errors.APITimeoutError),
        ("reset", errors.APIConnectionError),
        ("h2_refused_stream", errors.APIConnectionError),
        ("decode_error", errors.InvalidResponseError),
        ("redirect", errors.InvalidResponseError),
        ("client_deadline", errors.DeadlineExceededError),
        ("other", errors.APIConnectionError),
    ],
)
def test_a_fault_becomes_a_connection_error(fault, expected):
    """No answer, certainly not sent, or too slow."""
    assert expected is type(to_error(of_fault(fault)))


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in {Kind.CONFIG, Kind.CANCELLED}])
@pytest.mark.parametrize("status", [None, 200, 429, 503])
@pytest.mark.parametrize("sent", [True, False])
def test_every_kind_makes_an_error_of_our_tree(kind, status, sent):
    """Whatever combination arises, and with a message that helps."""
    error = to_error(Outcome(kind=kind, status=status, sent=sent, message="m"), endpoint="gpu-a")

    assert isinstance(error, errors.LLMClientError)
    assert kind == error.kind
    assert "gpu-a" in str(error)


def test_the_error_carries_what_a_handler_needs():
    """Wait, id, headers, body, endpoint and story."""
    headers = Headers({"RETRY-AFTER": "17", "x-request-id": "abc"})
    body = json.dumps({"error": {"message": "m", "code": "c", "type": "t", "param": "p"}}).encode()
    story = (AttemptRecord(number=1, endpoint="gpu-a", started=0.0, elapsed=1.0),)
    error = to_error(answered(429, body, headers), body=body, headers=headers, endpoint="gpu-a", attempts=story)

    assert (error.retry_after, error.request_id, error.status_code) == (17.0, "abc", 429)
    assert (error.code, error.type, error.param, error.endpoint, error.attempts) == ("c", "t", "p", "gpu-a", story)
    assert error.headers["retry-after"] == "17"
    assert error.body == json.loads(body)
    assert "Try again in 17 s" in str(error)
    assert pickle.loads(pickle.dumps(error)).body is None


def test_after_content_the_stream_is_what_broke():
    """The partial text and the kind are on it, and the error it would have been is its cause."""
    outcome = Outcome(kind=Kind.OVERLOADED, status=503, message="queue full")
    error = to_error(outcome, partial="Hel", endpoint="gpu-a")

    assert type(error) is errors.StreamInterruptedError
    assert (error.partial, error.kind) == ("Hel", "overloaded")
    assert type(error.__cause__) is errors.OverloadedError
    assert type(to_error(of_fault("read_timeout"), delivered=True)) is errors.StreamInterruptedError


def test_a_cut_stream_keeps_its_text():
    """Also where nothing else went wrong."""
    error = to_error(of_fault("eof_abrupt", body_started=True), partial="Hel")

    assert (type(error), error.partial, error.__cause__) == (errors.StreamInterruptedError, "Hel", None)


def test_a_message_is_short_and_tells_what_to_do():
    """A page of 300 kB does not fill a log line."""
    body = b"<html>" + b"x y " * 75_000
    error = to_error(answered(502, body), body=body, endpoint="gpu-a")

    assert len(str(error)) <= MAX_MESSAGE
    assert len(str(to_error(answered(502, body), body=body, partial="x"))) <= MAX_MESSAGE
    assert len(error.body) <= 64 * 1024


def test_a_message_repeats_neither_the_prompt_nor_a_key():
    """Validation errors echo the input, and some servers show half of the key."""
    echo = b"{\"error\":{\"message\":\"1 validation error: {'msg': 'bad', 'input': 'my secret prompt'}\"}}"
    pydantic = b"bad value [type=str, input_value='my secret prompt', input_type=int]"
    key = b'{"error":{"message":"Incorrect API key provided: sk-abc***xyz0. Header: Bearer abcdef"}}'

    assert "secret" not in str(to_error(answered(400, echo)))
    assert "secret" not in str(to_error(answered(400, pydantic)))
    assert "abc" not in str(to_error(answered(401, key)))


@pytest.mark.parametrize(
    ("outcome", "shown"),
    [
        (Outcome(kind=Kind.RATE_LIMITED, status=429, hint=RetryHint(seconds=0.5, directive=True)), True),
        (
            Outcome(kind=Kind.QUOTA_EXHAUSTED, status=429, permanent=True, hint=RetryHint(seconds=5, directive=True)),
            False,
        ),
    ],
)
def test_a_wait_is_advised_only_where_it_helps(outcome, shown):
    """Money does not come back in five seconds."""
    assert shown == ("Try again in" in str(to_error(outcome)))
