"""What a chat call may say: messages, tools and the fields of the body, under OpenAI's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Required, TypedDict

from llm_client.wire.base import CallOptions
from llm_client.wire.chat_answers import ChatCompletionMessage
from llm_client.wire.extras import ChatTemplateFields, ServerFields

__all__ = [
    "AssistantMessageParam",
    "ChatCall",
    "ChatFields",
    "ChatParams",
    "ContentPartParam",
    "FunctionToolParam",
    "MessageParam",
    "ReasoningEffort",
    "ResponseFormatParam",
    "ToolParam",
]

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
ImageDetail = Literal["auto", "low", "high"]
AudioFormat = Literal["wav", "mp3"]


class TextPartParam(TypedDict, total=False):
    """A part of text."""

    type: Required[Literal["text"]]
    text: Required[str]
    prompt_cache_breakpoint: Mapping[str, Any]


class ImageURL(TypedDict, total=False):
    """Where an image is: a URL, or `data:image/png;base64,...`."""

    url: Required[str]
    detail: ImageDetail | str


class ImagePartParam(TypedDict, total=False):
    """An image."""

    type: Required[Literal["image_url"]]
    image_url: Required[ImageURL]
    uuid: str | None
    prompt_cache_breakpoint: Mapping[str, Any]


class InputAudio(TypedDict, total=False):
    """Sound as base64."""

    data: Required[str]
    format: Required[AudioFormat | str]


class AudioPartParam(TypedDict, total=False):
    """Sound."""

    type: Required[Literal["input_audio"]]
    input_audio: Required[InputAudio]
    prompt_cache_breakpoint: Mapping[str, Any]


class MediaURL(TypedDict):
    """Where sound or film is."""

    url: str


class AudioURLPartParam(TypedDict, total=False):
    """Sound by URL (vLLM, SGLang)."""

    type: Required[Literal["audio_url"]]
    audio_url: Required[MediaURL]


class VideoPartParam(TypedDict, total=False):
    """Film by URL (vLLM, SGLang)."""

    type: Required[Literal["video_url"]]
    video_url: Required[MediaURL]


class FileData(TypedDict, total=False):
    """A file by id, or its bytes as base64."""

    file_id: str
    file_data: str
    filename: str


class FilePartParam(TypedDict, total=False):
    """A file."""

    type: Required[Literal["file"]]
    file: Required[FileData]
    prompt_cache_breakpoint: Mapping[str, Any]


class RefusalPartParam(TypedDict):
    """What the model would not do."""

    type: Literal["refusal"]
    refusal: str


ContentPartParam = TextPartParam | ImagePartParam | AudioPartParam | AudioURLPartParam | VideoPartParam | FilePartParam


class InstructionMessageParam(TypedDict, total=False):
    """What the application tells the model."""

    role: Required[Literal["system", "developer"]]
    content: Required[str | Iterable[TextPartParam]]
    name: str


class UserMessageParam(TypedDict, total=False):
    """What the user says or shows."""

    role: Required[Literal["user"]]
    content: Required[str | Iterable[ContentPartParam]]
    name: str


class FunctionCallParam(TypedDict):
    """A function the model called; `arguments` is JSON text."""

    name: str
    arguments: str


class FunctionToolCallParam(TypedDict):
    """A tool call of an earlier answer."""

    id: str
    type: Literal["function"]
    function: FunctionCallParam


class CustomCall(TypedDict):
    """The input of a custom tool."""

    name: str
    input: str


class CustomToolCallParam(TypedDict):
    """A call of a custom tool of an earlier answer."""

    id: str
    type: Literal["custom"]
    custom: CustomCall


class AssistantMessageParam(TypedDict, total=False):
    """What the model said before."""

    role: Required[Literal["assistant"]]
    content: str | Iterable[TextPartParam | RefusalPartParam] | None
    name: str
    refusal: str | None
    tool_calls: Iterable[FunctionToolCallParam | CustomToolCallParam]
    function_call: FunctionCallParam | None
    audio: Mapping[str, str] | None
    reasoning: str | None
    reasoning_content: str | None


class ToolMessageParam(TypedDict):
    """What a tool answered."""

    role: Literal["tool"]
    content: str | Iterable[TextPartParam]
    tool_call_id: str


class FunctionMessageParam(TypedDict):
    """What a function answered (the older form)."""

    role: Literal["function"]
    name: str
    content: str | None


MessageParam = (
    InstructionMessageParam
    | UserMessageParam
    | AssistantMessageParam
    | ToolMessageParam
    | FunctionMessageParam
    | ChatCompletionMessage
)


class FunctionDefinition(TypedDict, total=False):
    """What the model may call; `parameters` is a JSON Schema."""

    name: Required[str]
    description: str
    parameters: Mapping[str, Any]
    strict: bool | None


class FunctionToolParam(TypedDict):
    """A function as a tool."""

    type: Literal["function"]
    function: FunctionDefinition


class CustomDefinition(TypedDict, total=False):
    """A tool that takes free text."""

    name: Required[str]
    description: str
    format: Mapping[str, Any]


class CustomToolParam(TypedDict):
    """A custom tool."""

    type: Literal["custom"]
    custom: CustomDefinition


ToolParam = FunctionToolParam | CustomToolParam


class ToolName(TypedDict):
    """The name of a tool."""

    name: str


class FunctionChoiceParam(TypedDict):
    """The model must call this function."""

    type: Literal["function"]
    function: ToolName


class CustomChoiceParam(TypedDict):
    """The model must call this custom tool."""

    type: Literal["custom"]
    custom: ToolName


class AllowedTools(TypedDict):
    """A part of the tools."""

    mode: Literal["auto", "required"]
    tools: Iterable[Mapping[str, Any]]


class AllowedToolsChoiceParam(TypedDict):
    """The model may call only these."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ToolChoiceParam = (
    Literal["none", "auto", "required"] | FunctionChoiceParam | CustomChoiceParam | AllowedToolsChoiceParam
)


class JSONSchema(TypedDict, total=False):
    """A named JSON Schema."""

    name: Required[str]
    description: str
    schema: Mapping[str, Any]
    strict: bool | None


class JSONSchemaFormat(TypedDict):
    """The answer is JSON of this schema."""

    type: Literal["json_schema"]
    json_schema: JSONSchema


class PlainFormat(TypedDict):
    """The answer is text, or any JSON object."""

    type: Literal["text", "json_object"]


class StructuralTagFormat(TypedDict, total=False):
    """Parts of the answer follow schemas (vLLM, SGLang)."""

    type: Required[Literal["structural_tag"]]
    structures: Sequence[Mapping[str, Any]]
    triggers: Sequence[str]
    format: Mapping[str, Any]


FormatParam = JSONSchemaFormat | PlainFormat | StructuralTagFormat
# A pydantic model or a dataclass is turned into its strict JSON Schema; the answer then has `.parsed`.
ResponseFormatParam = FormatParam | type[Any]


class StreamOptions(TypedDict, total=False):
    """What a stream carries besides text."""

    include_usage: bool
    include_obfuscation: bool
    continuous_usage_stats: bool


class Prediction(TypedDict):
    """Text the answer will mostly repeat."""

    type: Literal["content"]
    content: str | Iterable[TextPartParam]


class AudioOutput(TypedDict):
    """How a spoken answer sounds."""

    format: Literal["wav", "aac", "mp3", "flac", "opus", "pcm16"]
    voice: str | Mapping[str, str]


class ChatFields(ServerFields, ChatTemplateFields, total=False):
    """The body without `stream` and `response_format`, which decide what type of answer comes back.

    `model` may be left out where the profile names one.
    """

    messages: Required[Iterable[MessageParam]]
    model: str
    audio: AudioOutput | None
    frequency_penalty: float | None
    function_call: Literal["none", "auto"] | ToolName
    functions: Iterable[FunctionDefinition]
    logit_bias: Mapping[str, float] | None
    logprobs: bool | None
    max_completion_tokens: int | None
    max_tokens: int | None
    metadata: Mapping[str, str] | None
    modalities: Iterable[Literal["text", "audio"]] | None
    moderation: Mapping[str, Any] | None
    n: int | None
    parallel_tool_calls: bool
    prediction: Prediction | None
    presence_penalty: float | None
    prompt_cache_key: str | None
    prompt_cache_options: Mapping[str, Any]
    prompt_cache_retention: Literal["in_memory", "24h"] | None
    reasoning_effort: ReasoningEffort | str | float | None
    safety_identifier: str | None
    seed: int | None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None
    stop: str | Sequence[str] | None
    store: bool | None
    stream_options: StreamOptions | None
    temperature: float | None
    tool_choice: ToolChoiceParam
    tools: Iterable[ToolParam]
    top_logprobs: int | None
    top_p: float | None
    user: str
    verbosity: Literal["low", "medium", "high"] | None
    web_search_options: Mapping[str, Any]


class ChatParams(ChatFields, total=False):
    """The whole body of a chat call."""

    response_format: ResponseFormatParam
    stream: bool | None


class ChatCall(ChatFields, CallOptions, total=False):
    """The keyword arguments of `chat.completions.create`, for `Unpack`; `stream` and `response_format` stand beside."""
