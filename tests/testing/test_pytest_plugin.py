"""The fixtures users get: run by a pytest of its own, as in a user's project."""

import os
import subprocess
import sys
from pathlib import Path

FILE = """
import httpx
import pytest


def _chat(server, **options):
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
    return httpx.post(f"{server.base_url}/chat/completions", json=body, **options)


def test_answers_and_remembers(llm_server):
    response = _chat(llm_server, headers={"x-llm-client-attempt": "1"})
    assert response.json()["choices"][0]["message"]["content"].startswith("2cf24dba")
    (request,) = llm_server.requests
    assert (request.outcome, request.attempt, request.status) == ("answered", "1", 200)
    assert llm_server.stats()["answered"] == 1
    llm_server.reset()
    assert llm_server.requests == []


def test_faults_come_and_go(llm_server):
    llm_server.faults(status=503, times=1, headers={"retry-after": "2"})
    number = llm_server.faults(status=500, path="/chat/completions")
    assert _chat(llm_server).headers["retry-after"] == "2"
    assert _chat(llm_server).status_code == 500
    llm_server.clear_faults(number)
    assert _chat(llm_server).status_code == 200
    llm_server.faults(status=500)
    llm_server.clear_faults()
    assert _chat(llm_server).status_code == 200
    assert [request.outcome for request in llm_server.requests] == ["failed", "failed", "answered", "answered"]


def test_wrong_fault_names_the_word(llm_server):
    with pytest.raises(ValueError, match="sttus"):
        llm_server.faults(sttus=503)


@pytest.mark.llm_server(api_keys=("secret",), dialect="vllm")
def test_settings_come_from_the_marker(llm_server):
    assert _chat(llm_server).json() == {"error": "Unauthorized"}


def test_more_than_one(start_llm_server):
    one, other = start_llm_server(), start_llm_server(loading=60.0)
    assert (_chat(one).status_code, _chat(other).status_code) == (200, 503)


@pytest.mark.llm_server(queue=1)
def test_inside_the_test(llm_server_app):
    import asyncio

    async def scenario():
        transport = httpx.ASGITransport(app=llm_server_app.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            llm_server_app.faults(status=500, times=1)
            first = await client.post("/infer", json={"prompt": "hello", "max_tokens": 1})
            second = await client.post("/infer", json={"prompt": "hello", "max_tokens": 1})
            llm_server_app.faults(reset=0)
            with pytest.raises(ConnectionResetError):
                await client.post("/infer", json={"prompt": "hello"})
            return first.status_code, second.json()

    assert asyncio.run(scenario()) == (500, {"result": "2cf24dba"})
    assert llm_server_app.stats()["failed"] == 2
"""


def _pytest(folder):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "llm_client.testing.pytest_plugin", "-p", "no:cacheprovider"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )


def test_plugin_works_in_a_project_of_its_own(tmp_path):
    """Strict about markers and warnings, as ours is."""
    (tmp_path / "test_user.py").write_text(FILE)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    done = _pytest(tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_missing_extra_is_told_with_its_remedy(tmp_path):
    """A project without the server's packages learns which command installs them."""
    (tmp_path / "conftest.py").write_text("import sys\nsys.modules['uvicorn'] = None\n")
    (tmp_path / "test_user.py").write_text("def test_it(llm_server): pass\n")
    done = _pytest(tmp_path)

    assert done.returncode == 1
    assert "pip install 'resilient-llm-client[server]'" in done.stdout
