"""A reference server as a child process, for commands that need one."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from types import TracebackType
from typing import Any, Self


class ReferenceServer:
    """Starts `python -m llm_client.server` on a free loopback port and ends it with the block.

    Args:
        options: command-line words of the server.

    Raises:
        RuntimeError: it did not come up; the message has its last words.
    """

    def __init__(self, *options: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "llm_client.server", "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = ""

    def __enter__(self) -> Self:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line.startswith("listening on "):
            self._process.kill()
            _, said = self._process.communicate()
            raise RuntimeError(f"the reference server did not start: {said.strip()[-500:] or 'it said nothing'}")
        self.url = line.split()[-1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def stats(self, *, log: int = 0) -> dict[str, Any]:
        """Read the server's own books, and the last `log` requests."""
        with urllib.request.urlopen(f"{self.url}/stats?log={log}", timeout=10) as answer:  # noqa: S310 - our own loopback server
            books: dict[str, Any] = json.load(answer)
            return books
