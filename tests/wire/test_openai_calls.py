"""Our request bodies against those of the official SDK, recorded by tests/hosts/record_openai_calls.py."""

from __future__ import annotations

import base64
import email
import email.policy
import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from llm_client.model import UNSET
from llm_client.wire import chat, completions, embeddings, responses, transcriptions
from llm_client.wire.base import split_options
from llm_client.wire.body import dump

CASES = Path(__file__).parent.parent / "cases"
DOCUMENT = json.loads((CASES / "openai_calls.json").read_text())
BUILD = {
    "chat.completions.create": chat.build_body,
    "chat.completions.parse": chat.build_body,
    "completions.create": completions.build_body,
    "embeddings.create": embeddings.build_body,
    "responses.create": responses.build_body,
    "responses.parse": responses.build_body,
}


def load_shapes() -> Any:
    spec = spec_from_file_location("recorded_shapes", CASES / "shapes.py")
    module = module_from_spec(spec)
    sys.modules["recorded_shapes"] = module
    spec.loader.exec_module(module)
    return module


SHAPES = load_shapes()


def ours(value: Any) -> Any:
    """Put our objects where the file has placeholders."""
    if isinstance(value, list):
        return [ours(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$class" in value:
        return getattr(SHAPES, value["$class"])
    if "$message" in value:
        return chat.ChatCompletionMessage.from_dict(value["$message"])
    if "$omit" in value:
        return UNSET
    if "$file" in value:
        name, content, *media = value["$file"]
        return (name, content.encode(), *media)
    return {key: ours(item) for key, item in value.items()}


def form_fields(media: str, body: bytes) -> list[list[str]]:
    """Decode a form as the recorder does."""
    form = email.message_from_bytes(f"content-type: {media}\r\n\r\n".encode() + body, policy=email.policy.HTTP)
    parts = []
    for part in form.iter_parts():
        name, content = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
        if part.get_filename():
            parts.append([name, part.get_filename(), part.get_content_type(), base64.b64encode(content).decode()])
        else:
            parts.append([name, content.decode()])
    return sorted(parts)


JSON_CALLS = [call for call in DOCUMENT["calls"] if call["method"] in BUILD]
FORM_CALLS = [call for call in DOCUMENT["calls"] if call["method"] not in BUILD]


@pytest.mark.parametrize("call", JSON_CALLS, ids=lambda call: call["id"])
def test_our_body_equals_the_official_one_field_by_field(call):
    """Same arguments, same JSON."""
    options, fields = split_options(ours(call["arguments"]))

    body = BUILD[call["method"]](fields, options.get("extra_body"))

    assert call["body"] == json.loads(dump(body))


@pytest.mark.parametrize("call", FORM_CALLS, ids=lambda call: call["id"])
def test_our_form_equals_the_official_one_field_by_field(call):
    """Same arguments, same fields and file; a media type nobody named may be guessed another way."""
    fields, upload = transcriptions.build_form(ours(call["arguments"]))

    media, body = transcriptions.encode_form(fields, upload, boundary="b0undary")

    expected = [part if len(part) == 2 else [*part[:2], part[2].replace("x-", ""), part[3]] for part in call["body"]]
    assert expected == form_fields(media, body)


def test_the_file_holds_enough_calls_of_the_named_release():
    """At least twenty, of the release the names above come from."""
    assert DOCUMENT["sdk"] == "openai 3.57.0"
    assert len(JSON_CALLS) >= 30
