"""Run the smoke tests of each pinned environment inside it."""

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.hosts

ROOT = Path(__file__).parents[2]
HOSTS = {
    "new": [
        "smoke_openai.py",
        "smoke_readme.py",
        "smoke_frameworks.py",
        "smoke_migration.py",
        "smoke_langchain.py",
        "smoke_litellm.py",
        "smoke_pydantic_ai.py",
        "smoke_bounds.py",
    ],
    "mid": ["smoke_instructor.py", "smoke_frameworks.py"],
    "old": ["smoke_openai.py", "smoke_llama_index.py", "smoke_frameworks.py"],
    "lowest": ["smoke_bounds.py", "smoke_lowest.py"],
}


@pytest.mark.parametrize(("environment", "file"), [(name, file) for name, files in HOSTS.items() for file in files])
def test_a_foreign_sdk_is_protected(environment, file):
    """Every test of the file passes there, and none is skipped."""
    python = ROOT / ".envs" / f"hosts-{environment}" / "bin" / "python"
    if not python.exists():
        pytest.fail(f"{environment}: run tests/hosts/setup.sh first")
    command = [python, "-m", "pytest", f"tests/hosts/{file}", "-q", "-m", "hosts", "-p", "no:cacheprovider"]
    # Warnings of foreign code are not ours to fail on, and these environments have no plugin for workers.
    done = subprocess.run(
        [*command, "-o", "filterwarnings=default", "-o", "addopts=--import-mode=importlib"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


def test_the_bodies_that_the_official_sdk_sends_are_those_recorded():
    """`tests/wire/test_openai_calls.py` compares ours with the recording; so the recording has to hold."""
    command = [ROOT / ".envs" / "hosts-new" / "bin" / "python", "tests/hosts/record_openai_calls.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
