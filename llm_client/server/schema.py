"""Request bodies: the fields this server reads, typed; all others are let through, as real servers do."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_MAX_TOKENS = 1 << 24


def _integral(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


# To JSON 5.0 is a whole number too; the bounds come first, or the document would not tell them.
_WHOLE = BeforeValidator(_integral)
Count = Annotated[int, Field(ge=1, le=_MAX_TOKENS), _WHOLE]
Natural = Annotated[int, Field(ge=0, le=_MAX_TOKENS), _WHOLE]
Few = Annotated[int, Field(ge=0, le=20), _WHOLE]
Priority = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31), _WHOLE]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, lt=1 << 40), _WHOLE]], Field(min_length=1)]
Texts = str | Annotated[list[str], Field(min_length=1, max_length=2048)]
Prompts = Texts | TokenIds | Annotated[list[TokenIds], Field(min_length=1, max_length=2048)]


class Body(BaseModel):
    """What all bodies share."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str = ""
    priority: Priority | None = None


class StreamOptions(BaseModel):
    """What a stream carries beside the text."""

    model_config = ConfigDict(extra="allow", strict=True)

    include_usage: bool = False


class Generation(Body):
    """What chat and completions share."""

    max_tokens: Count | None = None
    min_tokens: Natural = 0
    ignore_eos: bool = False
    n: Annotated[int, Field(ge=1, le=128), _WHOLE] | None = 1
    stream: bool | None = False
    stream_options: StreamOptions | None = None


class InferRequest(Body):
    """`/infer`: the plain form."""

    prompt: str
    max_tokens: Count | None = None


class Message(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None


class Function(BaseModel):
    """What a tool is called and what it takes."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str
    parameters: dict[str, Any] | None = None


class Tool(BaseModel):
    """One tool of a chat."""

    model_config = ConfigDict(extra="allow", strict=True)

    type: Literal["function"] = "function"
    function: Function


class ChatRequest(Generation):
    """`/v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Count | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: Few | None = None


class CompletionRequest(Generation):
    """`/v1/completions`."""

    prompt: Prompts
    echo: bool | None = False
    logprobs: Few | None = None


class ResponsesRequest(Body):
    """`/v1/responses`."""

    input: str | Annotated[list[dict[str, Any]], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    ignore_eos: bool = False
    stream: bool | None = False
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    text: dict[str, Any] | None = None


class EmbeddingRequest(Body):
    """`/v1/embeddings`."""

    input: Prompts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1, le=4096), _WHOLE] | None = None


class RerankRequest(Body):
    """`/v1/rerank`."""

    query: str
    documents: Annotated[list[str | dict[str, Any]], Field(min_length=1, max_length=2048)]
    top_n: Natural | None = None
    return_documents: bool | None = True


class ScoreRequest(Body):
    """`/v1/score`."""

    text_1: Texts
    text_2: Texts
