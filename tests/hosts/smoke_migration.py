"""Two lines change a script for openai-python into one for llm_client: both print the same."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.hosts

SCRIPT = Path(__file__).with_name("migration.py")


class _Faulty(BaseHTTPRequestHandler):
    """Answers "say 429" with a 429, and everything else well."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._json(200, {"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "x"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = body["messages"][-1]["content"]
        if prompt.startswith("say "):
            status = int(prompt.split()[1])
            error = {"message": f"told to say {status}", "type": "scripted", "param": "p", "code": f"code_{status}"}
            self._json(status, {"error": error})
        elif body.get("stream"):
            self._stream(prompt)
        else:
            message = {"role": "assistant", "content": f"You said {prompt}"}
            choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
            usage = {"prompt_tokens": 3, "completion_tokens": len(prompt), "total_tokens": 3 + len(prompt)}
            self._json(
                200,
                {
                    "id": "c",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "m",
                    "choices": [choice],
                    "usage": usage,
                },
            )

    def _json(self, status, data):
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("x-request-id", f"r-{status}")
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, prompt):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for piece, finish in (("You said ", None), (prompt, None), (None, "stop")):
            delta = {} if piece is None else {"content": piece}
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            chunk["choices"] = [{"index": 0, "delta": delta, "finish_reason": finish}]
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def log_message(self, *args):
        """Say nothing."""


def run(package, url):
    done = subprocess.run(
        [sys.executable, SCRIPT, package, url], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_script_prints_the_same_with_either_import():
    """Answers, a stream, tools, and five kinds of error with their attributes."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Faulty)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        theirs, ours = run("openai", url), run("llm_client", url)
    finally:
        server.shutdown()
        server.server_close()

    assert theirs == ours
    assert len(ours) == 11
    assert sum("Error" in line for line in ours) == 6
