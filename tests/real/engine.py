"""Start, hurt and watch a real llama.cpp server from a test."""

import http.client
import json
import signal
import socket
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".envs" / "llama" / "bin" / "python"
ESTABLISHED = "01"
SERVE = Path(__file__).with_name("serve.py")


def free_port() -> int:
    """Ask the kernel for a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Llama:
    """One llama.cpp server process on a port that stays the same over restarts."""

    def __init__(self, log: Path, *, slots: int = 2) -> None:
        """Reserve a port; `start` starts the process, which writes its diagnostics to `log`."""
        self.slots = slots
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> None:
        """Start the process; with `wait`, return once the model is loaded."""
        if not PYTHON.exists():
            raise FileNotFoundError("the engine is not installed: run tests/real/setup.sh")
        command = [PYTHON, SERVE, "--port", str(self.port), "--slots", str(self.slots)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        if wait:
            self.wait_ready()

    def wait_ready(self, within: float = 30.0) -> None:
        """Return once /health says 200."""
        self._wait(lambda: self.health() == 200, within, "the engine did not become ready")

    def wait_loading(self, within: float = 10.0) -> None:
        """Return once the port answers 503, while the model is still being loaded."""
        self._wait(lambda: self.health() == 503, within, "the engine was not seen loading")

    def wait_busy(self, slots: int, within: float = 10.0) -> None:
        """Return once exactly this many slots compute."""
        self._wait(lambda: self.busy() == slots, within, f"the engine did not come to {slots} busy slots")

    def wait_hung_up(self, within: float = 2.0) -> None:
        """Return once no client holds a connection to the port."""
        self._wait(lambda: self.connections() == 0, within, "the engine's clients did not hang up")

    def kill(self) -> None:
        """SIGKILL: sockets are cut wherever they are."""
        process = self._running()
        process.kill()
        process.wait()
        if process.stdin:
            process.stdin.close()

    def pause(self) -> None:
        """SIGSTOP: connections are accepted by the kernel and never answered."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._running().send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Kill the process if it lives."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def health(self) -> int:
        """Return the status of /health, 0 when nobody answers."""
        try:
            return self._get("/health")[0]
        except OSError:
            return 0

    def slot_states(self) -> list[dict[str, object]]:
        """Read /slots."""
        return json.loads(self._get("/slots")[1])

    def busy(self) -> int:
        """Count the slots that compute now."""
        return sum(bool(slot["is_processing"]) for slot in self.slot_states())

    def connections(self) -> int:
        """Count the open connections to the port, as the kernel sees them from the client's end."""
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(row[2].endswith(f":{self.port:04X}") and row[3] == ESTABLISHED for row in rows)

    def metrics(self) -> dict[str, float]:
        """Read /metrics, by name without the `llamacpp:` prefix."""
        lines = self._get("/metrics")[1].decode().splitlines()
        pairs = (line.removeprefix("llamacpp:").split() for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the engine was not started")
        return self._process

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()

    def _wait(self, condition, within: float, complaint: str) -> None:
        end = time.monotonic() + within
        while not condition():
            if self._running().poll() is not None:
                raise RuntimeError(f"{complaint}: it exited; its last words:\n{self._last_words()}")
            if time.monotonic() > end:
                raise TimeoutError(f"{complaint} within {within} s; its last words:\n{self._last_words()}")
            time.sleep(0.02)

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]
