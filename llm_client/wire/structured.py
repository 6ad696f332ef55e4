"""Structured output: a class in, its strict JSON Schema out to the server, an instance back.

The schema is the one openai-python sends for the same class, so that a server with a schema cache sees one
schema and not two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import is_typeddict

from llm_client.errors import ContentFilterError, LengthFinishReasonError, OutputParseError
from llm_client.wire.chat_answers import ChatCompletion, Choice
from llm_client.wire.chat_params import FunctionDefinition, FunctionToolParam

if TYPE_CHECKING:
    # Chat alone does not pay for the types of responses.
    from llm_client.wire.responses_answers import Response

__all__ = [
    "format_param",
    "function_tool",
    "parse_chat",
    "parse_response",
    "parse_text",
    "strict_schema",
    "text_format_param",
]

T = TypeVar("T")
# Classes are sometimes made per call; a bounded cache keeps neither them nor their schemas for ever.
_CACHED: Final = 128


def format_param(shape: type[Any]) -> dict[str, Any]:
    """Return the `response_format` of chat for a pydantic model, a dataclass or a TypedDict.

    Raises:
        TypeError: another kind of class.
    """
    return {
        "type": "json_schema",
        "json_schema": {"name": shape.__name__, "schema": _schema(cast("Hashable", shape)), "strict": True},
    }


def text_format_param(shape: type[Any]) -> dict[str, Any]:
    """Return the same as `text.format` of the responses route."""
    return {"type": "json_schema", "name": shape.__name__, "schema": _schema(cast("Hashable", shape)), "strict": True}


def function_tool(
    model: type[BaseModel], *, name: str | None = None, description: str | None = None
) -> FunctionToolParam:
    """Make a tool whose arguments are the fields of a pydantic model.

    Args:
        model: what the arguments look like.
        name: the tool's name; the class's by default.
        description: what it does; the class's docstring by default.
    """
    function = FunctionDefinition(name=name or model.__name__, strict=True, parameters=_schema(model))
    description = model.__doc__ if description is None else description
    if description is not None:
        function["description"] = description
    return {"type": "function", "function": function}


# mypy does not take a class object for Hashable, hence the casts at the callers.
@lru_cache(maxsize=_CACHED)
def _adapter(shape: Hashable) -> TypeAdapter[Any]:
    if not isinstance(shape, type):
        raise TypeError(f"expected a class to parse into, got {shape!r}")
    if issubclass(shape, BaseModel) or dataclasses.is_dataclass(shape) or is_typeddict(shape):
        try:
            return TypeAdapter(shape)
        except PydanticUserError as error:
            raise TypeError(f"{shape.__name__} cannot be parsed into: {error.message}") from error
    raise TypeError(f"expected a pydantic model, a dataclass or a TypedDict to parse into, got {shape.__name__}")


@lru_cache(maxsize=_CACHED)
def _schema(shape: Hashable) -> dict[str, Any]:
    return strict_schema(_adapter(shape).json_schema())


def strict_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Make a JSON Schema strict, in place: no other properties, every property required.

    Nullable properties stay nullable, null defaults go, and a reference with siblings is written out, because
    strict mode allows neither. Where a model contains itself the reference stays and its siblings go.
    """
    return _strict(schema, schema, ())


def _strict(node: dict[str, Any], root: dict[str, Any], above: tuple[int, ...]) -> dict[str, Any]:
    above = (*above, id(node))
    if node.get("type") == "object":
        node.setdefault("additionalProperties", False)
    if isinstance(node.get("properties"), dict):
        node["required"] = list(node["properties"])
    for part in _parts(node):
        _strict(part, root, above)
    if len(node.get("allOf") or ()) == 1:
        node.update(node.pop("allOf")[0])
    if "default" in node and node["default"] is None:
        del node["default"]
    if "$ref" in node and len(node) > 1:
        _write_out(node, root, above)
    return node


def _write_out(node: dict[str, Any], root: dict[str, Any], above: tuple[int, ...]) -> None:
    reference = node.pop("$ref")
    target = _resolve(reference, root)
    if id(target) in above:
        node.clear()
        node["$ref"] = reference
        return
    # Siblings describe this use and win over what the reference says.
    node.update({**target, **node})
    _strict(node, root, (*above, id(target)))


def _parts(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    # Definitions first: what is written out later has to be strict by then.
    for name in ("$defs", "definitions", "properties"):
        yield from (node.get(name) or {}).values()
    if isinstance(node.get("items"), dict):
        yield node["items"]
    for name in ("anyOf", "allOf"):
        yield from node.get(name) or ()


def _resolve(reference: str, root: Mapping[str, Any]) -> dict[str, Any]:
    if not reference.startswith("#/"):
        raise ValueError(f"{reference!r}: only references inside the schema can be made strict")
    node: Any = root
    for step in reference.removeprefix("#/").split("/"):
        node = node[step]
    return cast("dict[str, Any]", node)


def parse_text(text: str, shape: type[T], *, finish_reason: str | None = None, usage: object = None) -> T:
    """Parse a model's text into an instance of the class it was asked for.

    Text that was cut at the token limit but is whole JSON all the same is taken: some models end with blanks
    up to the limit.

    Raises:
        LengthFinishReasonError: it was cut, and does not parse.
        OutputParseError: it does not parse. In both, `raw_content` has the text and the cause says why.
    """
    try:
        parsed: T = _adapter(cast("Hashable", shape)).validate_json(text)
    except ValidationError as error:
        raise _unparsed(text, shape, error, finish_reason, usage) from error
    return parsed


def parse_chat(completion: ChatCompletion[Any], shape: type[T]) -> ChatCompletion[T]:
    """Fill in `message.parsed` of every choice, in place; a refusal or a tool call leaves it None.

    Raises:
        ContentFilterError: the answer was withheld.
        OutputParseError: a choice does not parse; see `parse_text`.
    """
    for choice in completion.choices:
        message = choice.message
        if choice.finish == "content_filter":
            raise _withheld(shape)
        if _has_text(choice):
            message._parsed = parse_text(  # noqa: SLF001 - the parser is the one writer of this field
                message.text, shape, finish_reason=choice.finish_reason, usage=completion.usage
            )
    return cast("ChatCompletion[T]", completion)


def _has_text(choice: Choice[Any]) -> bool:
    message = choice.message
    return not message.refusal and (bool(message.content) or not (message.tool_calls or message.function_call))


def parse_response(response: Response[Any], shape: type[T]) -> Response[T]:
    """Fill in `parsed` of every final text of a response, in place.

    Raises:
        ContentFilterError: the answer was withheld.
        OutputParseError: a text does not parse; see `parse_text`.
    """
    reason = response.finish_reason
    if reason == "content_filter":
        raise _withheld(shape)
    for item in response.output:
        if item.type != "message" or item.phase not in {None, "final_answer"}:
            continue
        for part in item.content or ():
            if part.type == "output_text":
                part._parsed = parse_text(  # noqa: SLF001 - the parser is the one writer of this field
                    part.text or "", shape, finish_reason=reason, usage=response.usage
                )
    if reason == "length" and response.output_parsed is None:
        raise _unparsed(response.output_text, shape, None, reason, response.usage)
    return cast("Response[T]", response)


def _withheld(shape: type[Any]) -> ContentFilterError:
    return ContentFilterError(
        f"the server's content filter withheld the answer, so there is no {shape.__name__} to parse", status_code=200
    )


def _unparsed(
    text: str, shape: type[Any], error: ValidationError | None, finish_reason: str | None, usage: object
) -> OutputParseError:
    kind: type[OutputParseError] = OutputParseError
    if finish_reason == "length":
        kind = LengthFinishReasonError
        why = f"cut at the token limit after {len(text)} characters: allow more tokens"
    elif not text.strip():
        why = f"{len(text)} characters of white space: ask again, or give the model fewer tokens to ramble in"
    elif text.lstrip().startswith("```"):
        why = "wrapped in a Markdown fence: ask for bare JSON, or have the server enforce the schema"
    else:
        why = _first(error)
    return kind(
        f"the model's text is not a {shape.__name__}: {why}. The text is in raw_content"[:500],
        raw_content=text,
        finish_reason=finish_reason,
        usage=usage,
        status_code=200,
    )


def _first(error: ValidationError | None) -> str:
    if error is None:
        return "there is none"
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(step) for step in found["loc"])
    return f"{place}: {found['msg']}" if place else str(found["msg"])
