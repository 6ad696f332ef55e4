"""The responses route: how its body is made, and every type a caller meets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from llm_client.wire.body import Route
from llm_client.wire.responses_answers import OutputItem, OutputPart, Response, ResponseEvent, ResponseUsage
from llm_client.wire.responses_params import (
    InputItemParam,
    ResponseFields,
    ResponsesCall,
    ResponsesParams,
    ResponseTextParam,
    ToolParam,
)
from llm_client.wire.structured import text_format_param

__all__ = [
    "ROUTE",
    "InputItemParam",
    "OutputItem",
    "OutputPart",
    "Response",
    "ResponseEvent",
    "ResponseFields",
    "ResponseTextParam",
    "ResponseUsage",
    "ResponsesCall",
    "ResponsesParams",
    "ToolParam",
    "build_body",
]

ROUTE: Final = Route(
    call="responses.create",
    fields=frozenset(ResponsesParams.__annotations__) - {"text_format"},
)


def build_body(params: ResponsesParams, extra_body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Make the body of a responses call; a class as `text_format` becomes `text.format`.

    Raises:
        TypeError: an unknown field, one given twice with different values, or both `text_format` and
            `text={"format": ...}`.
    """
    fields: dict[str, Any] = dict(params)
    shape = fields.pop("text_format", None)
    if not isinstance(shape, type):
        return ROUTE.build(fields, extra_body)
    text = dict(fields.get("text") or {})
    if "format" in text:
        raise TypeError("responses.create: text_format and text={'format': ...} say the same: give one of the two")
    fields["text"] = {**text, "format": text_format_param(shape)}
    return ROUTE.build(fields, extra_body)
