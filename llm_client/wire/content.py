"""Message content, which servers send as text, as null or as a list of parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema, to_json

__all__ = ["Arguments", "Content", "JoinedText", "part_text", "parts_of", "thinking_of"]

_THINKING: Final = frozenset({"thinking", "reasoning"})


class JoinedText(str):
    """The text of a content that came as parts; `parts` keeps them as they were sent, and dumps show them."""

    __slots__ = ("parts",)

    parts: list[Any]

    def __new__(cls, parts: list[Any]) -> Self:
        """Join the text parts."""
        made = super().__new__(cls, "".join(part_text(part) for part in parts))
        made.parts = parts
        return made

    def __getnewargs__(self) -> tuple[Any]:
        """Pickle and copy by the parts."""
        return (self.parts,)


def part_text(part: Any) -> str:
    """Return the visible text of one part; "" for images, sound and thinking."""
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type") not in _THINKING:
        text = part.get("text")
        if isinstance(text, str):
            return text
    return ""


def parts_of(content: str | None) -> list[Any]:
    """Return content as parts, whichever way it was sent."""
    if isinstance(content, JoinedText):
        return content.parts
    return [{"type": "text", "text": content}] if content else []


def thinking_of(content: str | None) -> str | None:
    """Return the thinking that came as parts of the content (Mistral's form), or None."""
    if not isinstance(content, JoinedText):
        return None
    found: list[str] = []
    for part in content.parts:
        if isinstance(part, Mapping) and part.get("type") in _THINKING:
            inner = part.get("thinking") or part.get("text") or part.get("reasoning")
            if isinstance(inner, str):
                found.append(inner)
            elif isinstance(inner, list):
                found.extend(part_text(item) for item in inner)
    return "".join(found) or None


def _read(value: Any) -> str | None:
    if isinstance(value, list | tuple):
        return JoinedText(list(value))
    if isinstance(value, Mapping):
        return JoinedText([value])
    return None


def _show(value: Any) -> Any:
    return value.parts if type(value) is JoinedText else value


class _Text:
    """Text, null, or whatever the function makes of anything else; the function runs only then."""

    def __init__(self, otherwise: Any) -> None:
        self.otherwise = otherwise

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.union_schema(
            [handler(source), core_schema.no_info_plain_validator_function(self.otherwise)],
            mode="left_to_right",
            serialization=core_schema.plain_serializer_function_ser_schema(_show),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, {"type": "null"}]}


def _arguments(value: Any) -> str | None:
    # Arguments are JSON text; some servers send the object itself.
    return to_json(value).decode() if isinstance(value, dict | list) else None


Content = Annotated[str | None, _Text(_read)]
Arguments = Annotated[str | None, _Text(_arguments)]
