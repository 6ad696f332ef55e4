"""Run every example against the reference server: each must end by itself with status 0."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT = 60


def main() -> int:
    """Start the server, run the examples one after the other, and count those that fail."""
    examples = sorted((ROOT / "examples").glob("*.py"))
    if not examples:
        print("there are no examples")
        return 1
    command = [sys.executable, "-m", "llm_client.server", "--port", "0", "--seconds", "0.1", "--queue", "10"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().removeprefix("listening on ").strip()
            failures = [example.name for example in examples if not succeeds(example, url)]
        finally:
            server.terminate()
    if failures:
        print("failed:", ", ".join(failures))
    return bool(failures)


def succeeds(example: Path, url: str) -> bool:
    """Run one example as a user would, with the server in OPENAI_BASE_URL."""
    environment = {**os.environ, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none", "PYTHONPATH": str(ROOT)}
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, example],
            cwd=example.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        status, output = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        status, output = -1, f"it did not end within {error.timeout} s"
    print(f"{example.name}: {'ok' if status == 0 else f'status {status}'}, {time.monotonic() - start:.1f} s")
    if status:
        print(output)
    return status == 0


if __name__ == "__main__":
    raise SystemExit(main())
