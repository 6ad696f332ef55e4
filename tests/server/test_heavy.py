"""Minutes long, run by hand: thousands of connections, ten minutes of coming and going, a fuzzer on the document.

    python -m pytest tests/server/test_heavy.py -m heavy -s -o faulthandler_timeout=0

The fuzzer lives in an environment of its own: `python -m venv .envs/schemathesis` and
`.envs/schemathesis/bin/pip install schemathesis`.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

HERE = Path(__file__).parent
FUZZER = HERE.parents[1] / ".envs" / "schemathesis" / "bin" / "st"


@contextlib.contextmanager
def _server(*options):
    process = subprocess.Popen(
        [sys.executable, "-m", "llm_client.server", "--port", "0", *options], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().split()[-1]
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def _get(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def _load(url, *options):
    command = [sys.executable, str(HERE / "load.py"), url, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _finish(process, limit):
    out, _ = process.communicate(timeout=limit)
    return json.loads(out)


def _megabytes(process):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) / 1024


def _balanced(url):
    books = json.loads(_get(f"{url}/stats"))
    metrics = dict(line.rsplit(" ", 1) for line in _get(f"{url}/metrics").splitlines() if line[0] != "#")
    results = {key: float(value) for key, value in metrics.items() if key.startswith("llm_server_requests_total")}
    assert books["in_flight"] == 0
    assert float(metrics["llm_server_arrived_total"]) == books["arrived"] == sum(results.values())
    return books


def test_two_thousand_streams_and_five_thousand_waiting_are_all_answered():
    """All at once, on a bare socket each, without a loss."""
    seconds = os.environ.get("LLM_SERVER_LOAD_SECONDS", "60")  # longer than it takes to connect them all
    options = ("--workers", "2000", "--queue", "5000", "--seconds", seconds, "--read-timeout", "60")
    with _server(*options) as (process, url):
        report = _finish(_load(url, "--streams", "2000", "--queued", "5000", "--tokens", "20"), 1500)
        books = _balanced(url)
        print(report, f"{_megabytes(process):.0f} MB", books)

    assert report["outcomes"] == {"200": 7000}
    assert (books["arrived"], books["answered"]) == (7000, 7000)
    assert books["executing_peak"] == 2000
    assert books["queued_peak"] <= 5000


def test_memory_is_flat_over_ten_minutes_of_coming_and_going():
    """Within 20 MB of the first minute, every request accounted for; one client process is killed and restarted."""
    minutes = float(os.environ.get("LLM_SERVER_SOAK_MINUTES", "10"))
    with _server("--workers", "50", "--queue", "50", "--seconds", "1.0") as (process, url):
        began = time.monotonic()
        end = began + 60 * minutes
        steady = _load(url, "--seconds", str(60 * minutes), "--rate", "30")
        sizes = []
        while time.monotonic() < end:
            # A second client is killed in the middle of its streams, again and again.
            victim = _load(url, "--seconds", "60", "--rate", "15")
            time.sleep(15)
            victim.kill()
            victim.communicate()
            sizes.append((time.monotonic() - began, _megabytes(process)))
        report = _finish(steady, 120)
        time.sleep(1)
        books = _balanced(url)
        print(report, books, [(round(at), round(size)) for at, size in sizes])

    after = [size for at, size in sizes if at > 60]
    assert max(after) - min(after) < 20
    assert set(report["outcomes"]) <= {"200", "429", "left"}
    assert books["abandoned"] > 0


def test_fuzzer_finds_no_server_error():
    """Nothing the document allows, and nothing it forbids, makes a 5xx or an answer that is not documented."""
    if not FUZZER.exists():
        pytest.fail("see the head of this file for how to install it")
    checks = (
        "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
        "negative_data_rejection,unsupported_method,missing_required_header"
    )
    with _server("--seconds", "0", "--workers", "16") as (_, url):
        done = subprocess.run(
            [FUZZER, "run", f"{url}/openapi.json", "--max-examples", "60", "--checks", checks, "--no-color",
             "--request-timeout", "30", "--seed", "1"],
            capture_output=True, text=True, timeout=1500, check=False,
        )  # fmt: skip
        print(done.stdout[-2000:])

    assert done.returncode == 0, done.stdout
