"""Record what the official openai SDK sends for the calls of `tests/cases/openai_calls.json`.

Run it in an environment of its own that holds nothing but the SDK:

    python -m venv /tmp/openai && /tmp/openai/bin/pip install openai==3.57.0
    /tmp/openai/bin/python tests/hosts/record_openai_calls.py          # rewrites the bodies
    /tmp/openai/bin/python tests/hosts/record_openai_calls.py --check  # says whether they still hold

The arguments in the file are the source; only `body` and `sdk` are written. Values with a `$` key stand for
what JSON cannot say: `$class` a class of `shapes.py`, `$message` an answer's message object, `$omit` the
sentinel for "not given", `$file` an upload.
"""

from __future__ import annotations

import argparse
import base64
import email
import email.policy
import importlib.metadata
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

CASES = Path(__file__).parent.parent / "cases"
CALLS = CASES / "openai_calls.json"

USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
ANSWERS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": None, "refusal": "no"}, "finish_reason": "stop"}
        ],
        "usage": USAGE,
    },
    "/v1/completions": {"id": "c", "object": "text_completion", "created": 0, "model": "m", "choices": []},
    "/v1/embeddings": {"object": "list", "model": "m", "data": [{"index": 0, "embedding": [0.0]}], "usage": USAGE},
    "/v1/responses": {"id": "r", "object": "response", "created_at": 0, "model": "m", "output": []},
    "/v1/audio/transcriptions": {"text": ""},
}


def load_shapes() -> Any:
    """Import `shapes.py` by its path, since tests are no package."""
    spec = spec_from_file_location("shapes", CASES / "shapes.py")
    if spec is None or spec.loader is None:
        raise ImportError("shapes.py")
    module = module_from_spec(spec)
    sys.modules["shapes"] = module
    spec.loader.exec_module(module)
    return module


class Recorder(BaseHTTPRequestHandler):
    """Keeps the last body and answers just enough."""

    protocol_version = "HTTP/1.1"
    seen: bytes = b""
    media: str = ""

    def do_POST(self) -> None:
        Recorder.seen = self.rfile.read(int(self.headers["content-length"]))
        Recorder.media = self.headers["content-type"]
        stream = b'"stream":true' in Recorder.seen
        body = b"data: [DONE]\n\n" if stream else json.dumps(ANSWERS[self.path]).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if stream else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def sent() -> Any:
    """Decode what the recorder saw: JSON, or the fields of a form."""
    if Recorder.media.startswith("application/json"):
        return json.loads(Recorder.seen)
    head = f"content-type: {Recorder.media}\r\n\r\n".encode()
    form = email.message_from_bytes(head + Recorder.seen, policy=email.policy.HTTP)
    parts = []
    for part in form.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if part.get_filename():
            parts.append([name, part.get_filename(), part.get_content_type(), base64.b64encode(content).decode()])
        else:
            parts.append([name, content.decode()])
    return sorted(parts)


def main() -> int:
    """Make every call against a recording server."""
    import openai
    from openai.types.chat import ChatCompletionMessage

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare and write nothing")
    check = parser.parse_args().check

    shapes = load_shapes()

    def real(value: Any) -> Any:
        if isinstance(value, list):
            return [real(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$class" in value:
            return getattr(shapes, value["$class"])
        if "$message" in value:
            return ChatCompletionMessage.model_validate(value["$message"])
        if "$omit" in value:
            return openai.omit
        if "$file" in value:
            name, content, *media = value["$file"]
            return (name, content.encode(), *media)
        return {key: real(item) for key, item in value.items()}

    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = openai.OpenAI(api_key="k", base_url=f"http://127.0.0.1:{server.server_port}/v1", max_retries=0)
    document = json.loads(CALLS.read_text())
    before = json.dumps(document)
    try:
        for call in document["calls"]:
            method: Any = client
            for step in call["method"].split("."):
                method = getattr(method, step)
            made = method(**real(call["arguments"]))
            if call["arguments"].get("stream"):
                made.close()
            call["body"] = sent()
    finally:
        client.close()
        server.shutdown()
        server.server_close()
    document["sdk"] = f"openai {importlib.metadata.version('openai')}"
    if check:
        same = json.dumps(document) == before
        print("the recorded bodies hold" if same else "the recorded bodies differ: record them again")
        return 0 if same else 1
    CALLS.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(document['calls'])} calls recorded with {document['sdk']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
