"""Request bodies: the fields this server reads, typed; all others are let through, as real servers do."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_MAX_TOKENS = 1 << 24

Count = Annotated[int, Field(ge=1, le=_MAX_TOKENS)]
Priority = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]


class Body(BaseModel):
    """What all bodies share."""

    model_config = ConfigDict(extra="allow")

    model: str = ""
    priority: Priority | None = None


class InferRequest(Body):
    """`/infer`: the plain form."""

    prompt: str
    max_tokens: Count | None = None


class StreamOptions(BaseModel):
    """What a stream carries beside the text."""

    model_config = ConfigDict(extra="allow")

    include_usage: bool = False


class Message(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | list[dict[str, Any]] | None = None


class ChatRequest(Body):
    """`/v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    min_tokens: Annotated[int, Field(ge=0, le=_MAX_TOKENS)] = 0
    ignore_eos: bool = False
    n: Annotated[int, Field(ge=1, le=128)] = 1
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
