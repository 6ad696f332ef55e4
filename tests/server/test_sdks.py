"""The official openai SDK, LangChain and pydantic-ai run against the server unchanged, in their own environment."""

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / ".envs" / "hosts-new" / "bin" / "python"


@pytest.mark.hosts
def test_foreign_sdks_run_unchanged(serve):
    """Every kind of call they make, and the errors they raise."""
    if not PYTHON.exists():
        pytest.fail("run tests/hosts/setup.sh new first")
    server = serve(seconds=0.0, workers=8)
    done = subprocess.run(
        [PYTHON, str(HERE / "smoke_sdks.py"), f"{server.url}/v1"],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == "all well"
