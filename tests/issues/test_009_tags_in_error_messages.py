"""HAProxy's pages stood in error messages with their tags.

Only the title of a page was read, and HAProxy's pages have none; nor has a page that was cut before it, and a page inside
a JSON message was not looked at. Now every page gives its title, or else its text. What a page counts as is
decided by its status and by the page as it stood, as before.
"""

import json
import time

import pytest
from llm_client.model import Headers, Kind
from llm_client.wire.classify import of_frame, of_response
from llm_client.wire.failure import to_error
from llm_client.wire.page import readable

NGINX = """<html>\r
<head><title>503 Service Temporarily Unavailable</title></head>\r
<body>\r
<center><h1>503 Service Temporarily Unavailable</h1></center>\r
<hr><center>nginx/1.22.1</center>\r
</body>\r
</html>\r
<!-- a padding to disable MSIE and Chrome friendly error page -->\r
"""
HAPROXY_503 = """<html><body><h1>503 Service Unavailable</h1>
No server is available to handle this request.
</body></html>
"""
HAPROXY_504 = """<html><body><h1>504 Gateway Time-out</h1>
The server didn't respond in time.
</body></html>
"""
HAPROXY_429 = """<html><body><h1>429 Too Many Requests</h1>
You have sent too many requests in a given amount of time.
</body></html>
"""
APACHE = """<!DOCTYPE HTML PUBLIC "-//IETF//DTD HTML 2.0//EN">
<html><head>
<title>503 Service Unavailable</title>
</head><body>
<h1>Service Unavailable</h1>
<p>The server is temporarily unable to service your
request due to maintenance downtime or capacity
problems. Please try again later.</p>
<hr>
<address>Apache/2.4.57 (Debian) Server at llm.example Port 80</address>
</body></html>
"""
CLOUDFLARE = """<!DOCTYPE html>
<!--[if lt IE 7]> <html class="no-js ie6 oldie" lang="en-US"> <![endif]-->
<!--[if gt IE 8]><!--> <html class="no-js" lang="en-US"> <!--<![endif]-->
<head>
<title>llm.example | 522: Connection timed out</title>
<meta charset="UTF-8" />
<script>if (1 < 2) { document.write("<p>busy</p>"); }</script>
</head><body><svg><title>Logo</title></svg><h1>Connection timed out</h1></body></html>
"""
GOOGLE = """
<html><head>
<meta http-equiv="content-type" content="text/html;charset=utf-8">
<title>502 Server Error</title>
</head>
<body text=#000000 bgcolor=#ffffff>
<h1>Error: Server Error</h1>
<h2>The server encountered a temporary error and could not complete your request.<p>Please try again in 30 seconds.</h2>
<h2></h2>
</body></html>
"""
LOADING = """<head><meta http-equiv="refresh" content="5"></head><body>The model is loading. Please wait.</body>"""

PAGES = [
    pytest.param(503, NGINX, "503 Service Temporarily Unavailable", Kind.UNAVAILABLE, id="nginx"),
    pytest.param(
        503,
        HAPROXY_503,
        "503 Service Unavailable No server is available to handle this request.",
        Kind.UNAVAILABLE,
        id="haproxy-503",
    ),
    pytest.param(
        504, HAPROXY_504, "504 Gateway Time-out The server didn't respond in time.", Kind.TIMEOUT, id="haproxy-504"
    ),
    pytest.param(
        429,
        HAPROXY_429,
        "429 Too Many Requests You have sent too many requests in a given amount of time.",
        Kind.RATE_LIMITED,
        id="haproxy-429",
    ),
    pytest.param(503, APACHE, "503 Service Unavailable", Kind.UNAVAILABLE, id="apache"),
    pytest.param(522, CLOUDFLARE, "llm.example | 522: Connection timed out", None, id="cloudflare"),
    pytest.param(502, GOOGLE, "502 Server Error", Kind.UNAVAILABLE, id="google"),
    pytest.param(503, LOADING, "The model is loading. Please wait.", None, id="llama.cpp"),
    pytest.param(503, "no healthy upstream", "no healthy upstream", Kind.UNAVAILABLE, id="envoy"),
    pytest.param(504, "upstream request timeout", "upstream request timeout", Kind.TIMEOUT, id="envoy-504"),
    pytest.param(502, "<html></html>", "", Kind.UNAVAILABLE, id="empty"),
    pytest.param(502, NGINX[:47], "503 Service Temporarily Un", Kind.UNAVAILABLE, id="cut in its title"),
    pytest.param(504, HAPROXY_504[:42], "504 Gateway Time-out", Kind.TIMEOUT, id="cut in a tag"),
]


def error_of(status, body):
    """Return the outcome of an answer, and the error made from it."""
    outcome = of_response(status, Headers([("content-type", "text/html")]), body.encode(), route="chat", wall=0.0)
    return outcome, to_error(outcome, body=body.encode())


@pytest.mark.parametrize(("status", "page", "words", "kind"), PAGES)
def test_a_page_becomes_its_words(status, page, words, kind):
    """Its title, or else its text, and never a tag; the kind is that of the status, and the page is kept as the body."""
    outcome, error = error_of(status, page)

    assert words == outcome.message
    assert words in str(error)
    assert "<" not in str(error)
    assert page.strip() == error.body
    if kind is not None:
        assert kind is outcome.kind


@pytest.mark.parametrize(("status", "page", "words", "kind"), PAGES)
def test_a_page_that_somebody_passes_on(status, page, words, kind):
    """LiteLLM and others put the page they were given behind a few words of their own, into JSON or into a frame."""
    said = f"litellm.APIError: OpenAIException - {page.strip()}"
    _, error = error_of(status, json.dumps({"error": {"message": said}}))
    frame = of_frame({"error": {"message": said, "code": status}}, Headers([]), wall=0.0)

    assert f"OpenAIException - {words}".strip() in str(error)
    assert "<" not in str(error)
    assert f"litellm.APIError: OpenAIException - {words}".strip() == frame.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a < b and c > d", "a < b and c > d"),
        ("<unk> is not a token of this model", "<unk> is not a token of this model"),
        ("<html><p title='a > b'>5 &lt; 6, <b>b</b>old<br/>&amp; a < b</p>", "5 < 6, bold & a < b"),
        ("<html><title> </title><style>p { }</style><h1>Down</h1>", "Down"),
        ("<html>\u0130\u0130<TITLE lang=tr>Hata</TITLE>", "Hata"),
        ("<html><a title='x>Down</a>", "Down"),
        ("<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>", "SlowDown"),
        ("<Error><Code>SlowDown</Code></Error>", "SlowDown"),
    ],
)
def test_what_is_markup_and_what_is_not(text, words):
    """A sign in a sentence is none; attributes, scripts and references are read as browsers read them."""
    assert words == readable(text)


@pytest.mark.parametrize(
    "unit", ["<", "<a ", "<a '", "<a '\"", "<title>", "<script>", "<script", "</title", "<!--", "<b>", "<a><'", "&lt"]
)
@pytest.mark.parametrize(("before", "after"), [("<html>", ""), ("", ">"), ("", "'>"), ("x ", "<html>")])
def test_no_page_is_slow_to_read(unit, before, after):
    """The longest text that is looked at takes milliseconds, however it was made."""
    start = time.perf_counter()
    readable((before + unit * 16_384)[: 16_384 - len(after)] + after)

    assert time.perf_counter() - start < 0.5
