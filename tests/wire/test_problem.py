"""Error bodies of every shape."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_client.wire.problem import MAX_TEXT, decode_json, is_problem, problem_of, read_problem


def read(body):
    return read_problem(body if isinstance(body, bytes) else json.dumps(body).encode())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "m", "code": 503}}, "m"),
        ({"error": "m"}, "m"),
        ({"error": "m", "error_type": "overloaded"}, "m"),
        ({"object": "error", "message": "m", "type": "t"}, "m"),
        ({"message": "m"}, "m"),
        ({"detail": "m"}, "m"),
        ({"detail": [{"msg": "x"}]}, '[{"msg":"x"}]'),
        ({"message": {"detail": 1}}, '{"detail":1}'),
        ({"type": "error", "error": {"type": "t", "message": "m"}}, "m"),
        ([{"error": {"message": "m", "status": "UNAVAILABLE"}}], "m"),
        ({"errors": [{"message": "m", "code": 3040}], "success": False}, "m"),
        ({"error_code": 10402, "text": "m"}, "m"),
        ({"statusCode": 429, "message": "m"}, "m"),
        ({"status": 429, "title": "m"}, "m"),
        ({"fault": {"code": 900803, "message": "m", "description": "d"}}, "m"),
        ({"error": {"message": json.dumps({"error": {"message": "m"}})}}, "m"),
        ({"error": {"message": json.dumps({"message": json.dumps({"error": "m"})})}}, "m"),
        ({"error": None, "message": "m"}, "m"),
        ({"error": {}, "message": "m"}, "m"),
        ({"error": "", "message": "m"}, "m"),
        ({"error": True, "message": "m"}, "m"),
        ({"error": {"code": "x"}, "message": "m"}, "m"),
        (b"\xef\xbb\xbf  " + b'{"error":"m"}', "m"),
        (b"<html><head><TITLE lang=en>502\n Bad</TITLE></head>", "502 Bad"),
        (b"<html>no title", "no title"),
        (b"  m\n", "m"),
        (b'{"error": {"message": "cut', '{"error": {"message": "cut'),
        (b"[1, 2]", "[1,2]"),
        (b"{}", ""),
    ],
)
def test_the_message_is_found_in_every_shape(body, message):
    """JSON objects, arrays, JSON in JSON, pages and plain text."""
    assert message == read(body).message


@pytest.mark.parametrize("body", [b"", b" \r\n", b"\xef\xbb\xbf"])
def test_an_empty_body_is_no_problem_text(body):
    """Nothing was said."""
    assert read_problem(body) is None


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ({"error": {"code": 503}}, 503),
        ({"error": {"code": "429"}}, 429),
        ({"error": {"message": "m", "http_status_code": 422}}, 500),
        ({"error": {"message": "m", "http_status_code": 429}}, 429),
        ({"status": 429, "title": "t"}, 429),
        ({"statusCode": 502}, 502),
        ({"error_code": 10402}, 504),
        ({"error_code": 10400}, 404),
        ({"error_code": 10401}, 503),
        ({"error": {"code": "1300"}}, None),
        ({"errors": [{"code": 3040}]}, None),
        ({"fault": {"code": 900803}}, None),
        ({"error": {"code": 10402}}, None),
        ({"error": {"code": 399}}, None),
        ({"error": {"code": True}}, None),
        ({"error": {"code": "\u0665\u0660\u0663"}}, None),
        ({"error": {"code": 503.0}}, None),
        ({"error": {"code": 10**5000}}, None),
    ],
)
def test_a_code_is_a_status_only_from_400_to_599(body, number):
    """Private numbering is no HTTP status; LMDeploy's is translated, TGI's 422 means a fault."""
    assert number == problem_of(body).number


def test_code_type_and_param_are_cleaned():
    """LiteLLM writes the string "None" for null."""
    problem = problem_of({"error": {"message": "None", "type": "None", "param": "", "code": "500"}})

    assert (problem.message, problem.type, problem.param, problem.code) == ("None", None, None, "500")


def test_words_come_from_everywhere_an_error_names_its_cause():
    """Codes, types, statuses, details and inner errors, all lower-case."""
    problem = problem_of({
        "type": "error",
        "error": {
            "type": "Rate_Limit_Error",
            "details": {"error_code": "enforced_spend_limit_reached"},
            "innererror": {"code": "ResponsibleAIPolicyViolation"},
            "status": "RESOURCE_EXHAUSTED",
        },
    })  # fmt: skip

    assert problem.words >= {
        "rate_limit_error",
        "enforced_spend_limit_reached",
        "responsibleaipolicyviolation",
        "resource_exhausted",
    }


def test_what_a_model_wrote_is_not_searched():
    """A chunk with error and choices: only the error's words count."""
    problem = problem_of({"error": {"message": "m"}, "choices": [{"delta": {"content": "server busy"}}]})

    assert "busy" not in problem.text
    assert "busy" not in read({"error": {"message": "m"}, "choices": [{"text": "server busy"}]}).text
    assert "busy" in read({"error": {"message": "m", "reason": "server busy"}}).text


def test_what_a_validation_error_repeats_of_the_request_is_not_searched():
    """FastAPI and vLLM echo the input; a prompt about overload is no overload."""
    body = {"detail": [{"msg": "Field required", "input": {"messages": "the server is overloaded"}}]}
    nested = {"error": {"message": "1 validation error: {'msg': 'bad', 'input': {'content': 'server busy'}}"}}

    assert "overloaded" not in read(body).text
    assert "field required" in read(body).text
    assert "busy" not in read(nested).text


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"error": None, "choices": [{}]}, False),
        ({"error": {}, "choices": [{}]}, False),
        ({"error": ""}, False),
        ({"error": "x", "choices": [{}]}, True),
        ({"error": {"code": 502}, "choices": []}, True),
        ({"object": "error", "message": "m"}, True),
        ({"type": "error", "message": "m"}, True),
        ({"error_code": 10402, "text": "m"}, True),
        ({"errors": [{"message": "m"}]}, True),
        ({"status": 429, "title": "t"}, True),
        ({"message": "hello"}, False),
        ({"choices": [{"content_filter_results": {"error": {"code": "x"}}}]}, False),
        ({"id": "x", "status": "IN_QUEUE"}, False),
        ({"message": {"content": "Hi"}, "done": False}, False),
    ],
)
def test_an_error_inside_a_success_is_told_from_an_answer(data, expected):
    """The key alone is no error, and choices are an answer unless an error stands beside them."""
    assert expected == is_problem(data)


def test_a_huge_body_is_kept_to_a_bound():
    """A page of megabytes is read at its head."""
    problem = read_problem(b"<html>" + b"x " * 1_000_000)

    assert len(problem.message) <= MAX_TEXT
    assert len(problem.text) <= 2 * MAX_TEXT + 1


def test_lone_surrogates_and_deep_nesting_raise_only_value_errors():
    """The slow parser is a fallback, not a hole."""
    assert decode_json('"\\ud83d"') == "\ud83d"
    for bad in ("[" * 100_000, '{"a":' * 100_000, "{", '"\\ud8'):
        with pytest.raises(ValueError):
            decode_json(bad)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from([
            "error", "errors", "fault", "message", "detail", "text", "title", "code", "type", "param", "status",
            "error_code", "http_status_code", "details", "metadata", "innererror", "choices", "reasons", "headers",
        ]),
        inner,
        max_size=5,
    ),
    max_leaves=25,
)  # fmt: skip


@settings(deadline=None)
@given(JSON)
def test_no_json_breaks_the_reader(data):
    """Any types in any place: a problem with text fields of the right types."""
    problem = problem_of(data)

    assert isinstance(problem.message, str)
    assert problem.number is None or 400 <= problem.number <= 599
    if isinstance(data, dict):
        assert is_problem(data) in {True, False}


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=200), JSON.map(lambda data: json.dumps(data).encode()), st.text().map(str.encode)))
def test_no_bytes_break_the_reader(body):
    """Any bytes at all: a problem, or none when they are blank."""
    problem = read_problem(body)

    assert problem is None or isinstance(problem.message, str)
