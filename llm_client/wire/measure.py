"""How large a call is before anyone counted tokens: bytes of text, token numbers, parts that are neither."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from llm_client.model import Size
from llm_client.wire.body import SCALARS, absent, plain

__all__ = ["max_output", "measure"]

# Where a prompt stands in the bodies of the routes. The remaining fields steer the server and cost nothing.
_PROMPT_FIELDS: Final = frozenset({
    "messages",
    "prompt",
    "input",
    "instructions",
    "tools",
    "functions",
    "query",
    "queries",
    "documents",
    "items",
    "text_1",
    "text_2",
    "data_1",
    "data_2",
    "content",
    "suffix",
})  # fmt: skip
_SCHEMAS: Final = frozenset({"tools", "functions"})
_OUTPUT_FIELDS: Final = ("max_completion_tokens", "max_tokens", "max_output_tokens")
# Parts whose bytes are not text, by what they carry; a data URL of an image is not a million tokens.
_MEDIA: Final = frozenset(
    {
        "image_url",
        "input_image",
        "image",
        "image_embeds",
        "computer_screenshot",
        "input_audio",
        "audio_url",
        "video_url",
        "video",
        "file",
        "input_file",
    }
)


class _Scale:
    __slots__ = ("media", "text", "tokens")

    def __init__(self) -> None:
        self.text = 0
        self.tokens = 0
        self.media = 0

    def weigh(self, value: Any) -> None:
        kind = type(value)
        if kind is str:
            self.text += len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
        elif kind is dict:
            if value.get("type") in _MEDIA:
                self.media += 1
                return
            for item in value.values():
                self.weigh(item)
        elif kind is list:
            if value and type(value[0]) is int:
                self.tokens += len(value)
                return
            for item in value:
                self.weigh(item)
        elif kind not in SCALARS and not absent(value):
            self.weigh(plain(value))


def measure(params: Mapping[str, Any]) -> Size:
    """Weigh the prompt of any route's arguments or body."""
    scale = _Scale()
    for name, value in params.items():
        if name in _PROMPT_FIELDS and value:
            if name in _SCHEMAS:
                _weigh_schema(value, scale)
            else:
                scale.weigh(value)
    return Size(text=scale.text, media=scale.media, tokens=scale.tokens)


def _weigh_schema(value: Any, scale: _Scale) -> None:
    """Weigh a JSON Schema, whose keys reach the model as well."""
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            scale.weigh(key)
            _weigh_schema(item, scale)
    elif kind is list:
        for item in value:
            _weigh_schema(item, scale)
    elif kind is str:
        scale.weigh(value)
    elif kind not in SCALARS and not absent(value):
        _weigh_schema(plain(value), scale)


def max_output(params: Mapping[str, Any]) -> int | None:
    """Return the most tokens the call may produce, over all of its choices and prompts; None when unbounded."""
    for name in _OUTPUT_FIELDS:
        bound = _count(params.get(name))
        if bound is not None:
            copies = max(1, _count(params.get("n")) or 1, _count(params.get("best_of")) or 1)
            return bound * copies * _prompts(params.get("prompt"))
    return None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _prompts(prompt: Any) -> int:
    if not isinstance(prompt, list | tuple) or not prompt or isinstance(prompt[0], int):
        return 1
    return len(prompt)
