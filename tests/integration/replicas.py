"""Reference servers as processes on ports of their own, so that one that is started again is found where it was."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request


def free_ports(count):
    """Return ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Replica:
    """One server process.

    Args:
        port: where it listens, each time it is started.
        options: further words of its command line.
    """

    def __init__(self, port, *options):
        self.port = port
        self.base_url = f"http://127.0.0.1:{port}/v1"
        self._command = [sys.executable, "-m", "llm_client.server", "--port", str(port), *options]
        self._process = None

    def start(self):
        """Start it; it may not listen yet."""
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        return self

    def ready(self):
        """Wait until it listens."""
        line = self._process.stdout.readline()
        if not line.startswith("listening on"):
            raise RuntimeError(f"the server on port {self.port} said {line!r}")
        return self

    def end(self, how=signal.SIGTERM, patience=20.0):
        """Send a signal and wait until the process is gone."""
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.wait(patience)
        self._process.stdout.close()
        self._process = None

    def kill(self):
        """End it without a word."""
        self.end(signal.SIGKILL)

    def stats(self, *, log=0):
        """Read its counters, and the last so many requests."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/stats?log={log}", timeout=10) as answer:
            return json.load(answer)

    def faults(self, **rule):
        """Add a rule to its faults."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/admin/faults",
            json.dumps(rule).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            answer.read()
