"""What a responses call may say, under OpenAI's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Required, TypedDict

from llm_client.wire.base import CallOptions
from llm_client.wire.chat_params import ReasoningEffort
from llm_client.wire.responses_answers import OutputItem

__all__ = ["InputItemParam", "ResponseFields", "ResponseTextParam", "ResponsesCall", "ResponsesParams", "ToolParam"]


class InputTextParam(TypedDict, total=False):
    """A part of text."""

    type: Required[Literal["input_text"]]
    text: Required[str]


class InputImageParam(TypedDict, total=False):
    """An image by URL, `data:` URL or file id."""

    type: Required[Literal["input_image"]]
    detail: Literal["low", "high", "auto", "original"]
    image_url: str | None
    file_id: str | None


class InputFileParam(TypedDict, total=False):
    """A file by id, URL, or bytes as base64."""

    type: Required[Literal["input_file"]]
    file_id: str | None
    file_data: str
    file_url: str
    filename: str


class InputAudioParam(TypedDict):
    """Sound."""

    type: Literal["input_audio"]
    input_audio: Mapping[str, str]


InputPartParam = InputTextParam | InputImageParam | InputFileParam | InputAudioParam


class InputMessageParam(TypedDict, total=False):
    """A turn of the conversation."""

    role: Required[Literal["user", "assistant", "system", "developer"]]
    content: Required[str | Iterable[InputPartParam] | Iterable[Mapping[str, Any]]]
    type: Literal["message"]
    phase: Literal["commentary", "final_answer"] | None


class FunctionCallItemParam(TypedDict, total=False):
    """A function call of an earlier answer."""

    type: Required[Literal["function_call"]]
    call_id: Required[str]
    name: Required[str]
    arguments: Required[str]
    id: str
    status: Literal["in_progress", "completed", "incomplete"]


class FunctionCallOutputParam(TypedDict, total=False):
    """What the function answered."""

    type: Required[Literal["function_call_output"]]
    call_id: Required[str]
    output: Required[str | Iterable[InputPartParam]]
    id: str | None
    status: Literal["in_progress", "completed", "incomplete"] | None


class ItemReferenceParam(TypedDict, total=False):
    """An item the server keeps."""

    id: Required[str]
    type: Literal["item_reference"] | None


# The list of item kinds grows with every built-in tool; those without a name here go as a mapping.
InputItemParam = (
    InputMessageParam
    | FunctionCallItemParam
    | FunctionCallOutputParam
    | ItemReferenceParam
    | OutputItem
    | Mapping[str, Any]
)


class FunctionToolParam(TypedDict, total=False):
    """A function the model may call; `parameters` is a JSON Schema."""

    type: Required[Literal["function"]]
    name: Required[str]
    parameters: Required[Mapping[str, Any] | None]
    strict: Required[bool | None]
    description: str | None


ToolParam = FunctionToolParam | Mapping[str, Any]


class ReasoningParam(TypedDict, total=False):
    """How much to think, and what to show of it."""

    effort: ReasoningEffort | str | None
    summary: Literal["auto", "concise", "detailed"] | None
    generate_summary: Literal["auto", "concise", "detailed"] | None


class ResponseTextParam(TypedDict, total=False):
    """The form of the text."""

    format: Mapping[str, Any]
    verbosity: Literal["low", "medium", "high"] | None


class ResponseStreamOptions(TypedDict, total=False):
    """What a stream carries besides text."""

    include_obfuscation: bool


class ResponseFields(TypedDict, total=False):
    """The body without `stream` and `text_format`, which decide what type of answer comes back."""

    input: str | Iterable[InputItemParam]
    model: str
    access_programs: Mapping[str, Any]
    background: bool | None
    background_options: Mapping[str, Any]
    context_management: Iterable[Mapping[str, Any]] | None
    conversation: str | Mapping[str, Any] | None
    image: Mapping[str, Any]
    include: Sequence[str] | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: Mapping[str, str] | None
    moderation: Mapping[str, Any] | None
    parallel_tool_calls: bool | None
    previous_response_id: str | None
    prompt: Mapping[str, Any] | None
    prompt_cache_key: str | None
    prompt_cache_options: Mapping[str, Any]
    prompt_cache_retention: Literal["in_memory", "24h"] | None
    reasoning: ReasoningParam | None
    safety_identifier: str | None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None
    store: bool | None
    stream_options: ResponseStreamOptions | None
    temperature: float | None
    text: ResponseTextParam
    tool_choice: Literal["none", "auto", "required"] | Mapping[str, Any]
    tools: Iterable[ToolParam]
    top_logprobs: int | None
    top_p: float | None
    truncation: Literal["auto", "disabled"] | None
    user: str
    # Of vLLM and SGLang.
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    seed: int | None
    stop: str | Sequence[str] | None
    ignore_eos: bool | None
    skip_special_tokens: bool | None
    include_stop_str_in_output: bool | None
    logit_bias: Mapping[str, float] | None
    structured_outputs: Mapping[str, Any] | None
    chat_template_kwargs: Mapping[str, Any] | None
    mm_processor_kwargs: Mapping[str, Any] | None
    cache_salt: str | None
    request_id: str | None
    previous_input_messages: Iterable[Mapping[str, Any]] | None
    enable_response_messages: bool | None


class ResponsesParams(ResponseFields, total=False):
    """The whole call: the body, and the class to parse the text into."""

    stream: bool | None
    text_format: type[Any]


class ResponsesCall(ResponseFields, CallOptions, total=False):
    """The keyword arguments of `responses.create`, for `Unpack`; `stream` and `text_format` stand beside."""
