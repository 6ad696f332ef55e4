"""Field types that bend where servers differ, without a Python call on values that are as they should be."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

__all__ = ["NULL_AS_NEW", "OR_NONE", "OR_TEXT", "FinishReason", "Ints", "Listed", "MaybeFloat", "MaybeInt", "MaybeStr"]

Item = TypeVar("Item")


class _OrNone:
    """Read a value that does not fit its field as None."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_default_schema(handler(source), default=None, on_error="default")


class _NullAs:
    """Read null as what `make` returns; anything else has to fit."""

    def __init__(self, make: Any = None) -> None:
        self.make = make

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        make = self.make or source
        null = core_schema.no_info_after_validator_function(lambda _: make(), core_schema.none_schema())
        return core_schema.union_schema([handler(source), null], mode="left_to_right")


class _OrText:
    """Let text pass where something else belongs."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.union_schema([handler(source), core_schema.str_schema()], mode="left_to_right")


OR_NONE: Final = _OrNone()
OR_TEXT: Final = _OrText()
NULL_AS_NEW: Final = _NullAs()

MaybeInt = Annotated[int | None, OR_NONE]
MaybeFloat = Annotated[float | None, OR_NONE]
MaybeStr = Annotated[str | None, OR_NONE]
Ints = Annotated[list[int] | None, OR_NONE]
# "" means null on the servers that send it; every other word passes through as it is.
FinishReason = Annotated[Annotated[str, Field(min_length=1)] | None, OR_NONE]
# A list that may come as null, but not as something else: a half-read answer would pass for a short one.
Listed = Annotated[list[Item], _NullAs(list)]
