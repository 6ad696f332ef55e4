"""Field reports about retries, and about what stands in shared names; ids are in the docstrings."""

from __future__ import annotations

import json
import pickle
import random
import socket
import threading
import time
from collections import Counter

import pytest
from llm_client import AuthenticationError, Client, DeadlineExceededError
from llm_client.profiles.load import parse
from tests.virtual import IDLE, Bench, answer, completion, silence, status


def test_fc_rt_03_the_deadline_bounds_attempts_and_waits_together():
    """FC-RT-03: a time-out per attempt and two retries once took three times as long; the error names the budget."""
    bench = Bench(profile={"timeouts": {"attempt": 1.0}, "retry": {"attempts": 3}, "deadline": 1.5})
    bench.server.default = silence
    result = bench.start()
    bench.run()

    assert isinstance(result.error, DeadlineExceededError)
    assert result.elapsed == pytest.approx(1.5, abs=0.2)
    assert len(bench.server.requests) <= 2
    assert "deadline of 1.5 s" in str(result.error)
    assert bench.idle() == IDLE


def test_fc_rt_05_a_time_out_of_one_attempt_is_no_budget_of_all():
    """FC-RT-05: three plain 503 after 2.6 s each, and an answer: attempts 3 and 4 are not cut off at 5 s."""
    bench = Bench(profile={"timeouts": {"attempt": 5.0}, "retry": {"attempts": 4}, "deadline": 60.0})
    bench.server.script(*[status(503, b"", after=2.6)] * 3, answer(2.6))
    result = bench.start()
    bench.run()

    assert result.ok
    assert len(bench.server.requests) == 4
    assert 10.4 <= result.elapsed <= 10.4 + 0.5 + 1.0 + 2.0 + 0.1


class Impatient:
    """A server that closes a connection which was idle for so many seconds, at once, whatever comes then."""

    def __init__(self, idle):
        self.idle = idle
        self.executed = Counter()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        body = completion()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        connection.settimeout(self.idle)
        data = b""
        with connection:
            while True:
                try:
                    part = connection.recv(65536)
                except OSError:
                    return
                if not part:
                    return
                data += part
                if data.endswith(b"}"):
                    self.executed[json.loads(data.partition(b"\r\n\r\n")[2])["messages"][0]["content"]] += 1
                    data = b""
                    connection.sendall(head + body)

    def close(self):
        self._listener.close()


def test_fc_rt_11_a_connection_that_is_closed_under_a_request_is_no_failure():
    """FC-RT-11: calls as far apart as the server's idle time: all succeed, each is done once, and none costs an attempt."""
    server, rng = Impatient(0.1), random.Random(11)
    with Client(base_url=server.base_url) as client:
        done = []
        for number in range(60):
            messages = [{"role": "user", "content": f"q{number}"}]
            done.append(client.chat.completions.create(model="m", messages=messages, max_tokens=2))
            time.sleep(rng.uniform(0.095, 0.105))
    server.close()

    assert server.executed == {f"q{number}": 1 for number in range(60)}
    assert {len(each.meta.attempts) for each in done} == {1}


def test_fc_se_09_no_key_stands_in_a_shared_name(caplog):
    """FC-SE-09: two profiles, one server, two keys: buckets are named by account, are not shared, and hold no key."""
    keys = ("sk-first-0123456789", "sk-second-0123456789")
    limits = {"requests": {"rate": "1/m", "burst": 1}}
    file = {
        "version": 1,
        "pool": {
            "endpoints": [
                {"name": name, "base_url": "http://127.0.0.1:9/v1", "api_key": key, "limits": limits}
                for name, key in zip(("mine", "yours"), keys, strict=True)
            ]
        },
        "profiles": {"a": {"endpoints": ["mine"]}, "b": {"endpoints": ["yours"]}},
    }
    bench = Bench(file=parse(json.dumps(file)), hosts=("127.0.0.1:9",))
    bench.server.default = status(401, json.dumps({"error": {"message": f"bad key {keys[0]}"}}).encode())
    results = [bench.start(profile=name) for name in ("a", "b")]
    bench.run()

    assert [type(each.error) for each in results] == [AuthenticationError, AuthenticationError]
    assert len(bench.server.requests) == 2  # one's bucket being empty kept nobody else from sending

    stations = bench.pool.endpoints
    shared = [repr(member) for station in stations for member in station.meter(None).members]
    told = [*shared, repr(stations), repr(bench.events), caplog.text, repr(pickle.dumps([r.error for r in results]))]

    assert [station.account for station in stations] == ["mine", "yours"]
    assert not [text for text in told for key in keys if key in text]


def test_fc_se_09_two_endpoints_share_a_bucket_when_told_to():
    """FC-SE-09: one account for both, and the second call waits for the first one's token."""
    file = {
        "version": 1,
        "pool": {
            "endpoints": [
                {"name": name, "base_url": "http://a/v1", "api_key": f"sk-{name}", "account": "one"} for name in "xy"
            ],
            "limits": {"accounts": {"one": {"requests": {"rate": "1/s", "burst": 1}}}},
        },
        "profiles": {"a": {"endpoints": ["x"]}, "b": {"endpoints": ["y"]}},
    }
    bench = Bench(file=parse(json.dumps(file)))
    first, second = (bench.start(profile=name) for name in ("a", "b"))
    bench.run()

    assert (first.ok, second.ok) == (True, True)
    assert bench.server.times()[1] - bench.server.times()[0] == pytest.approx(1.0, abs=0.1)
