"""FC-PK-01: this environment has the lowest versions that are declared, and the reference server runs on them."""

import json
import re
import subprocess
import sys
import tomllib
import urllib.request
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.hosts

ROOT = Path(__file__).parents[2]
SERVE = """
import runpy, sys, warnings
warnings.filterwarnings("error", category=DeprecationWarning, module="llm_client")
sys.argv[1:] = ["--port", "0", "--seconds", "0.05"]
runpy.run_module("llm_client.server", run_name="__main__")
"""


def bounds() -> dict[str, str]:
    """What pyproject.toml allows at least, by distribution, for base and extras (but not dev)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name in extras if name != "dev" for line in extras[name])]
    pairs = (line.partition(">=") for line in lines)
    return {name: bound for name, operator, bound in pairs if operator}


@pytest.mark.parametrize(("name", "bound"), bounds().items())
def test_the_lowest_versions_are_what_is_declared(name, bound):
    """A bound that is changed in pyproject.toml has to be tried here."""
    here = metadata.version(name)

    assert re.sub(r"(\.0)+$", "", here) == re.sub(r"(\.0)+$", "", bound)


def test_the_reference_server_answers():
    """FastAPI, uvicorn and prometheus-client of years ago carry it."""
    question = {"model": "m", "messages": [{"role": "user", "content": "apples"}]}
    with subprocess.Popen(
        [sys.executable, "-c", SERVE], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            url = server.stdout.readline().removeprefix("listening on ").strip()
            headers = {"content-type": "application/json"}
            body = json.dumps(question).encode()
            request = urllib.request.Request(f"{url}/v1/chat/completions", body, headers)
            answer = json.load(urllib.request.urlopen(request, timeout=20))
            metrics = urllib.request.urlopen(f"{url}/metrics", timeout=20).read().decode()
        finally:
            server.terminate()

    assert answer["choices"][0]["message"]["content"]
    assert "# TYPE" in metrics


def test_the_command_line_is_there():
    """`llm-client --help`, on the oldest rich."""
    command = Path(sys.executable).with_name("llm-client")

    assert subprocess.run([command, "--help"], cwd=ROOT, capture_output=True, timeout=60, check=False).returncode == 0
