"""Base URLs, headers and keys are right, or a mistake that is told at load."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.profiles import addresses
from llm_client.profiles.scalars import UnreadableError
from tests.profiles.helpers import changed, endpoint, endpoint_mistakes, mistakes, read, refused


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("http://h:1//", "http://h:1/v1"),
        ("http://h:1/v1", "http://h:1/v1"),
        ("http://h:1/v1/", "http://h:1/v1"),
        ("http://h:1//v1//", "http://h:1/v1"),
        ("http://h:1/inference/v1", "http://h:1/inference/v1"),
        ("http://h:1/openai/deployments/m", "http://h:1/openai/deployments/m"),
        ("http://h:1/v10", "http://h:1/v10"),
        ("https://h", "https://h/v1"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
        (" http://h \n", "http://h/v1"),
    ],
)
def test_a_base_url_is_normalised(written, made):
    """/v1 only where there is no path; never a doubled or trailing slash."""
    assert made == addresses.base_url(written)


def test_an_explicit_path_is_left_alone():
    """Also an empty one."""
    assert addresses.base_url("http://h:1/", as_is=True) == "http://h:1"
    assert endpoint("path: as_is").base_url == "http://h:1"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("localhost:8000", "expected a URL such as"),
        ("gpu-a", "expected a URL such as"),
        ("", "expected a URL such as"),
        ("ftp://h", "expected a URL such as"),
        ("http://", "expected a URL such as"),
        ("http:///v1", "expected a URL such as"),
        ("http://h:x", "not a URL"),
        ("http://h:99999", "not a URL"),
        ("http://[::1", "not a URL"),
        ("http://h/a b", "no blanks"),
        ("http://h/a\nb", "no blanks"),
        ("http://u:sk-canary@h", "end up in logs"),
        ("http://h/v1?api-version=1&k=sk-canary", "write parameters as query"),
        ("http://h/v1#x", "write parameters as query"),
        ("http://h/v1?", "write parameters as query"),
        ("http://h/v1/chat/completions", "leave /chat/completions out"),
        ("http://h/v1/models/", "leave /models out"),
        ("http://h/${A}", "still holds a reference"),
    ],
)
def test_a_wrong_base_url_is_refused(url, told):
    """With the remedy, and without quoting what may be a password."""
    with pytest.raises(UnreadableError, match=told) as caught:
        addresses.base_url(url)

    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("name", ["x y", "x:", "", "x\r\n", "é", "x-app "])
def test_a_header_s_name_is_a_token(name):
    """RFC 9110 section 5.6.2."""
    with pytest.raises(UnreadableError, match="not a header name"):
        addresses.header_name(name)


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "Connection", "TE"])
def test_a_header_that_frames_the_body_is_refused(name):
    """A fixed one breaks every request, or smuggles a second."""
    with pytest.raises(UnreadableError, match="leave it out"):
        addresses.header_name(name)


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\x00b", "é", "\U0001f600", "a\x7fb"])
def test_a_header_s_value_is_visible_ascii(value):
    """No line breaks, no control characters, nothing that servers read in different ways."""
    with pytest.raises(UnreadableError):
        addresses.header_value(value)


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126)))
def test_visible_ascii_passes_without_its_outer_blanks(value):
    """And unchanged otherwise."""
    if "${" not in value:
        assert value.strip() == addresses.header_value(value)


def test_headers_reach_the_endpoint():
    """Trimmed, in order, numbers as they were typed."""
    headers = endpoint("headers: {x-app: 'name ', X-Number: 007, x-date: 2024-02-01}").headers

    assert list(headers.items()) == [("x-app", "name"), ("X-Number", "007"), ("x-date", "2024-02-01")]


def test_a_header_s_value_is_a_text():
    """Lists and maps are not flattened by guess."""
    said = mistakes("pool: {http: {headers: {x-a: [sk-canary], x-b: {c: sk-canary}}}}")

    assert "pool.http.headers.x-a: expected a text" in said
    assert "canary" not in said


def test_headers_are_a_map():
    """A line of text is not taken apart; it may hold a key."""
    said = mistakes("pool: {http: {headers: 'authorization: Bearer sk-canary'}}")

    assert "pool.http.headers: expected a map of names to texts" in said
    assert "canary" not in said


def test_a_header_differs_from_another_by_more_than_case():
    """Two of one name would both be sent; a constructor's spelling replaces the file's."""
    from llm_client.profiles import merge

    file = read("pool: {http: {headers: {X-Team: red, x-app: web}}}")

    assert "the same header as X-Team" in mistakes("pool: {http: {headers: {X-Team: red, x-team: blue}}}")
    assert dict(merge(file, pool={"http": {"headers": {"x-team": "blue"}}}).pool.http.headers) == {
        "x-team": "blue",
        "x-app": "web",
    }


def test_null_takes_a_header_out():
    """As it takes any inherited entry out."""
    from llm_client.profiles import merge

    file = read("pool: {http: {headers: {x-team: red, x-app: web}}}")

    assert dict(merge(file, pool={"http": {"headers": {"x-team": None}}}).pool.http.headers) == {"x-app": "web"}


def test_a_python_header_is_checked_alike():
    """Constructors take the same road."""
    assert "line break" in refused(pool={"http": {"headers": {"x": "a\r\nX-Evil: 1"}}})
    assert "expected a text" in refused(pool={"http": {"headers": {"x": 5}}})
    assert dict(changed(pool={"http": {"headers": {"x": "a "}}}).pool.http.headers) == {"x": "a"}


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("auth: none, api_key: k", "api_key: has no effect while auth is none"),
        ("auth: api-key", "auth: needs an api_key to send"),
        ("auth: basic, api_key: sk-canary", "auth: expected one of bearer, api-key, none"),
        ("auth: sk-canary", "auth: expected one of bearer, api-key, none"),
        ("auth: {callable: 'os:getcwd'}, api_key: k", "api_key: has no effect while auth is callable"),
        ("api_key: k, headers: {Authorization: x}", "headers: authorization is also made from api_key"),
        ("auth: api-key, api_key: k, headers: {api-key: x}", "headers: api-key is also made from api_key"),
        ("auth: {callable: 'os:getcwd'}, headers: {authorization: x}", "authorization is also made from auth"),
        ("auth: {callable: 'os:no_such'}", "the module has no such function"),
        ("auth: {callable: 'no_such_module:f'}", "cannot import the module no_such_module"),
        ("auth: {callable: 'os.getcwd'}", "expected module:function"),
        ("auth: {callable: 'os:sep'}", "expected a function"),
    ],
)
def test_there_is_one_way_to_authenticate(keys, told):
    """Two would overwrite one another, none would be silent."""
    said = endpoint_mistakes(keys)

    assert told in said
    assert "canary" not in said


def test_ways_to_authenticate():
    """Bearer, api-key, none, and a function."""
    import os

    assert endpoint("api_key: k").auth == "bearer"
    assert endpoint("api_key: k, auth: api-key").auth == "api-key"
    assert endpoint("auth: none").api_key is None
    assert endpoint("auth: {callable: 'os:getcwd'}").token is os.getcwd
    assert endpoint("headers: {authorization: Basic x}").headers["authorization"] == "Basic x"


def test_an_endpoint_is_named_after_its_host():
    """Unless it is given a name."""
    first = endpoint("weight: 2")

    assert (first.name, first.account, first.weight) == ("h:1", "h:1", 2.0)
    assert ((second := endpoint("name: a, account: prod")).name, second.account) == ("a", "prod")
