"""A headless Chromium spoken to over its debugging pipe, with the standard library only."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find() -> str | None:
    """Where a Chromium is installed, if any."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page.

    Args:
        program: the browser.
        folder: for its profile.
    """

    def __init__(self, program: str, folder: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]

        def connect() -> None:
            # The browser reads commands from descriptor 3 and writes answers to 4; neither may overwrite the other.
            spare = os.dup(to_write), os.dup(to_read)
            os.dup2(spare[1], 3)
            os.dup2(spare[0], 4)

        self._process = subprocess.Popen(
            [program, *options, "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(3, 4),
            preexec_fn=connect,  # noqa: PLW1509 - no threads run yet that hold locks it needs
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command; its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 60
        while True:
            answer = self._receive(end)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise RuntimeError("the browser ended")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def open(self, url: str) -> None:
        """Go there."""
        self.send("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """What an expression in the page gives."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def until(self, expression: str, limit: float = 20.0) -> Any:
        """Wait until an expression is true."""
        end = time.monotonic() + limit
        while not (value := self.value(expression)):
            if time.monotonic() > end:
                raise AssertionError(f"never true: {expression}")
            time.sleep(0.05)
        return value

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if text and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **extra)

    def problems(self) -> list[str]:
        """What the page complained about: errors, exceptions, blocked or foreign requests."""
        out = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
                out.append(params["entry"]["text"])
            elif event.get("method") == "Runtime.exceptionThrown":
                out.append(str(params["exceptionDetails"]["text"]))
        return out

    def requested(self) -> set[str]:
        """The addresses the page asked for."""
        sent = (event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent")
        return {params["request"]["url"] for params in sent}
