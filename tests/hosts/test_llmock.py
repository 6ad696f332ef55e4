"""Our client before llmock, a mock server that breaks as told and judges what it sees of a client.

Its verdict sees the wire only, so a cut stream counts as accepted unless it is sent again, which after content must
never happen; and its `no_backoff` is met by full jitter by chance. Of its findings, those three are ours to avoid that
the wire can show. Streams are judged by what our client raised.
"""

import asyncio
import json
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from llm_client import APIStatusError, AsyncClient, Client, LLMClientError, StreamInterruptedError

pytestmark = pytest.mark.hosts

COMMAND = Path(__file__).parents[2] / ".envs" / "hosts-llmock" / "bin" / "llmock"
NEVER = {"retry_after_ignored", "retried_non_retryable", "retry_storm"}
BOUNDS = {"timeouts": {"first_token": 1.0, "progress": 0.5}}
QUICK = {**BOUNDS, "retry": {"backoff": {"kind": "constant", "base": 0.05}}}
VARIANTS = pytest.mark.parametrize(
    ("colour", "stream"), [("sync", False), ("sync", True), ("async", False), ("async", True)]
)
# Where waiting takes a second: both colours, both forms, not all four pairs.
DIAGONAL = pytest.mark.parametrize(("colour", "stream"), [("sync", False), ("async", True)])
COLOURS = pytest.mark.parametrize("colour", ["sync", "async"])


class Mock:
    """One llmock process."""

    def __init__(self, log, *options):
        if not COMMAND.exists():
            pytest.fail("llmock: run tests/hosts/setup.sh first")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        with log.open("wb") as out:
            command = [COMMAND, "serve", "--port", str(port), "--log-level", "warning", *options]
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        end = time.monotonic() + 30.0
        while not self._up():
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)

    def _up(self):
        try:
            return self.ask("GET", "requests") is not None
        except OSError:
            return False

    def ask(self, method, path, body=None):
        """Speak to its admin routes."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_llmock/{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=5.0) as answer:
            return json.load(answer)

    def script(self, *behaviours):
        """Forget what was, and break so."""
        self.ask("POST", "reset")
        if behaviours:
            self.ask("POST", "scenario", {"behaviors": behaviours})

    def judged(self):
        """Return how many requests it saw, once none of its findings is one that we must never cause."""
        found = self.ask("GET", "verdict")
        assert [each for each in found["findings"] if each["code"] in NEVER] == []
        return found["attempts"]

    def stop(self):
        """End it."""
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def mock(tmp_path_factory):
    """One that has no quota."""
    server = Mock(tmp_path_factory.mktemp("llmock") / "log", "--stream-chunk-delay-ms", "5")
    yield server
    server.stop()


@pytest.fixture
def metered(tmp_path):
    """One that gives sixty requests at once, and then one a second."""
    server = Mock(tmp_path / "log", "--rpm", "60")
    yield server
    server.stop()


def ask(mock, colour, *, stream=False, calls=1, deadline=30.0, profile=QUICK):
    """Make some calls at once with one client; return the text or the error of each."""
    settings = {"base_url": f"{mock.url}/v1", "api_key": "sk-a", "profile": profile}
    asks = [
        {"model": "m", "messages": [{"role": "user", "content": f"say {n}"}], "stream": stream, "deadline": deadline}
        for n in range(calls)
    ]
    if colour == "async":
        return asyncio.run(_ask_async(settings, asks))
    answers = []
    with Client(**settings) as client:
        for each in asks:
            try:
                made = client.chat.completions.create(**each)
                answers.append("".join(chunk.text for chunk in made) if stream else made.text)
            except LLMClientError as error:
                answers.append(error)
    return answers


async def _ask_async(settings, asks):
    async with AsyncClient(**settings) as client:

        async def one(each):
            made = await client.chat.completions.create(**each)
            return "".join([chunk.text async for chunk in made]) if each["stream"] else made.text

        return await asyncio.gather(*map(one, asks), return_exceptions=True)


@DIAGONAL
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_a_passing_failure_is_outlasted(mock, colour, stream, status):
    """Then an answer, at the second request."""
    mock.script({"type": "fail", "status": status})
    (text,) = ask(mock, colour, stream=stream)

    assert isinstance(text, str)
    assert text
    assert mock.judged() == 2


@DIAGONAL
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_waited_out(mock, colour, stream, status):
    """Not a moment less."""
    mock.script({"type": "fail", "status": status, "retry_after": 0.3})
    (text,) = ask(mock, colour, stream=stream)

    assert isinstance(text, str)
    assert mock.judged() == 2


@VARIANTS
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_a_hopeless_failure_is_one_request(mock, colour, stream, status):
    """And an error with its status. A 409 is one of them here, though some clients send it again."""
    mock.script({"type": "fail", "status": status, "times": None})
    (error,) = ask(mock, colour, stream=stream)

    assert isinstance(error, APIStatusError)
    assert error.status_code == status
    assert mock.judged() == 1


@DIAGONAL
@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_outage_is_no_storm(mock, colour, stream, status):
    """It lasts longer than the call has time, with the built-in back-off."""
    mock.script({"type": "fail", "status": status, "times": None})
    (error,) = ask(mock, colour, stream=stream, deadline=1.0, profile=BOUNDS)

    assert isinstance(error, LLMClientError)
    assert mock.judged() <= 10


@VARIANTS
def test_a_slow_answer_is_waited_for(mock, colour, stream):
    """Within the bounds that the profile sets."""
    mock.script({"type": "delay", "seconds": 0.3})
    (text,) = ask(mock, colour, stream=stream)

    assert isinstance(text, str)
    assert mock.judged() == 1


@COLOURS
@pytest.mark.parametrize("kind", ["disconnect", "truncate", "stall", "malformed"])
def test_a_stream_that_breaks_after_content_is_raised_and_not_sent_again(mock, colour, kind):
    """With the kind of break, and the text so far."""
    mock.script({"type": "stream_fault", "kind": kind, "after_chunks": 3, "stall_seconds": 2.0})
    (error,) = ask(mock, colour, stream=True)

    assert isinstance(error, StreamInterruptedError)
    assert error.partial
    assert mock.judged() == 1


@COLOURS
@pytest.mark.parametrize("kind", ["disconnect", "truncate", "stall", "malformed"])
@pytest.mark.parametrize("after", [0, 1])
def test_a_stream_that_breaks_before_content_is_sent_again(mock, colour, kind, after):
    """The caller sees the answer only."""
    mock.script({"type": "stream_fault", "kind": kind, "after_chunks": after, "stall_seconds": 2.0})
    (text,) = ask(mock, colour, stream=True)

    assert isinstance(text, str)
    assert text
    assert mock.judged() == 2


@COLOURS
def test_a_first_token_that_is_late_is_asked_for_again(mock, colour):
    """Later than the profile allows."""
    mock.script({"type": "slow_first_token", "seconds": 2.0})
    (text,) = ask(mock, colour, stream=True)

    assert isinstance(text, str)
    assert mock.judged() == 2


@COLOURS
def test_a_quota_is_kept_to(metered, colour):
    """Sixty calls use it up, the next two wait as long as they are told."""
    answers = ask(metered, colour, calls=62)

    assert all(isinstance(text, str) for text in answers)
    assert metered.judged() <= 70
