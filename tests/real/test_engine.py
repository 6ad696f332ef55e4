"""The engine itself, seen by a plain HTTP client: the facts that the other tests here rest on."""

import time

import httpx
import pytest

pytestmark = pytest.mark.real

BODY = {"model": "smollm2", "messages": [{"role": "user", "content": "Count to ten."}], "max_tokens": 8}
ENDLESS = {**BODY, "max_tokens": 1500, "ignore_eos": True, "stream": True}


def test_it_loads_then_answers(new_llama):
    """The port says 503 "Loading model" before it says 200."""
    engine = new_llama()
    engine.start(wait=False)
    engine.wait_loading()
    early = httpx.post(f"{engine.base_url}/chat/completions", json=BODY)
    engine.wait_ready()
    answer = httpx.post(f"{engine.base_url}/chat/completions", json=BODY, timeout=30)

    assert early.status_code == 503
    assert early.json()["error"]["message"] == "Loading model"
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"]


def test_a_closed_stream_frees_its_slot(new_llama):
    """/slots and /metrics show a request while it runs, and no more once its client has gone."""
    engine = new_llama(slots=2)
    engine.start()
    with httpx.stream("POST", f"{engine.base_url}/chat/completions", json=ENDLESS, timeout=30) as answer:
        next(answer.iter_lines())
        engine.wait_busy(1)

        assert engine.metrics()["requests_processing"] == 1
    engine.wait_busy(0)


def test_sigkill_cuts_and_a_restart_serves_on_the_same_port(new_llama):
    """A stream is cut in its middle, connects are refused, then the same base URL works again."""
    engine = new_llama()
    engine.start()
    with httpx.stream("POST", f"{engine.base_url}/chat/completions", json=ENDLESS, timeout=30) as answer:
        lines = answer.iter_lines()
        next(lines)
        engine.kill()
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
            list(lines)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{engine.base_url}/models")
    engine.start()

    assert httpx.post(f"{engine.base_url}/chat/completions", json=BODY, timeout=30).status_code == 200


def test_sigstop_is_silence_and_sigcont_ends_it(new_llama):
    """A stopped process neither answers nor closes."""
    engine = new_llama()
    engine.start()
    engine.pause()
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"{engine.base_url}/models", timeout=0.5)
    engine.resume()

    assert httpx.get(f"{engine.base_url}/models", timeout=5).status_code == 200


def test_a_kept_alive_connection_is_closed_behind_a_stream(llama):
    """The stale keep-alive race is there: a plain client that streams back to back runs into it."""
    body = {**BODY, "max_tokens": 2, "stream": True}
    raced = 0
    end = time.monotonic() + 60
    with httpx.Client(timeout=30) as client:
        while not raced and time.monotonic() < end:
            try:
                with client.stream("POST", f"{llama.base_url}/chat/completions", json=body) as answer:
                    answer.read()
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                raced += 1

    assert raced, "no race in 60 s: the test of the client's answer to it would prove nothing"
