"""The transcription route: sound uploaded as a form, text back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import IO, Annotated, Any, Final, Literal, Required, TypedDict

from pydantic import Field

from llm_client.errors import InvalidResponseError
from llm_client.wire.base import Answer, CallOptions, WireModel
from llm_client.wire.body import Route, absent
from llm_client.wire.tolerant import OR_NONE, MaybeFloat, MaybeInt, MaybeStr
from llm_client.wire.unicode import clean

__all__ = [
    "ROUTE",
    "FileTypes",
    "Transcription",
    "TranscriptionCall",
    "TranscriptionEvent",
    "TranscriptionParams",
    "TranscriptionSegment",
    "TranscriptionWord",
    "build_form",
    "encode_form",
    "parse_transcription",
]

Content = bytes | IO[bytes] | PathLike[str]
FileTypes = Content | tuple[str | None, Content] | tuple[str | None, Content, str | None]


class TranscriptionParams(TypedDict, total=False):
    """The fields of the form; `model` may be left out where the profile names one."""

    file: Required[FileTypes]
    model: str
    chunking_strategy: Literal["auto"] | Mapping[str, Any] | None
    include: Sequence[str]
    keywords: Sequence[str]
    known_speaker_names: Sequence[str]
    known_speaker_references: Sequence[str]
    language: str
    languages: Sequence[str]
    prompt: str
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt", "diarized_json"]
    stream: bool | None
    temperature: float
    timestamp_granularities: Sequence[Literal["word", "segment"]]
    # Of vLLM.
    top_p: float | None
    top_k: int | None
    min_p: float | None
    seed: int | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    max_completion_tokens: int | None
    to_language: str | None
    stream_include_usage: bool | None


class TranscriptionCall(TranscriptionParams, CallOptions, total=False):
    """The keyword arguments of `audio.transcriptions.create`, for `Unpack`."""


_FIELDS: Final = frozenset(TranscriptionParams.__annotations__)
ROUTE: Final = Route(call="audio.transcriptions.create", fields=_FIELDS - {"file"})


def build_form(
    params: TranscriptionParams, extra_body: Mapping[str, Any] | None = None
) -> tuple[list[tuple[str, str]], tuple[str, bytes, str]]:
    """Make the fields of the form, and the file's name, bytes and media type.

    Lists become repeated fields named `field[]`, as OpenAI and vLLM read them.

    Args:
        params: the arguments; `file` is bytes, or a tuple of name, bytes and perhaps media type. Handles and
            paths have to be read by the caller, since reading blocks.
        extra_body: further fields.

    Raises:
        TypeError: an unknown or missing field, a field given twice, or a file that is not bytes yet.
    """
    fields: dict[str, Any] = dict(params)
    if "file" not in fields:
        raise TypeError("audio.transcriptions.create needs the argument 'file'")
    upload = _upload(fields.pop("file"))
    body = ROUTE.build(fields, extra_body)
    return [pair for name, value in body.items() for pair in _pairs(name, value)], upload


def _upload(file: Any) -> tuple[str, bytes, str]:
    name, content, media = "upload", file, None
    if isinstance(file, tuple):
        name, content = file[0] or name, file[1]
        media = file[2] if len(file) > 2 else None
    if not isinstance(content, bytes | bytearray | memoryview):
        raise TypeError(
            f"file: expected bytes or (name, bytes), got {type(content).__name__}: read it first, "
            "so that the upload can be sent again when an attempt fails"
        )
    return name, bytes(content), media or _media_type(name)


_MEDIA_TYPES: Final = {
    "flac": "audio/flac",
    "m4a": "audio/mp4",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "mpeg": "video/mpeg",
    "mpga": "audio/mpeg",
    "oga": "audio/ogg",
    "ogg": "audio/ogg",
    "wav": "audio/wav",
    "webm": "video/webm",
}


def _media_type(name: str) -> str:
    return _MEDIA_TYPES.get(name.rpartition(".")[2].lower(), "application/octet-stream")


def _pairs(name: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, list):
        return [pair for item in value for pair in _pairs(f"{name}[]", item)]
    if isinstance(value, dict):
        return [pair for key, item in value.items() for pair in _pairs(f"{name}[{key}]", item)]
    if isinstance(value, bool):
        return [(name, "true" if value else "false")]
    return [(name, "" if value is None else str(value))]


def encode_form(
    fields: Sequence[tuple[str, str]], upload: tuple[str, bytes, str], *, boundary: str
) -> tuple[str, bytes]:
    """Encode a form (RFC 7578), the file last.

    Args:
        fields: names and values.
        upload: the file's name, bytes and media type.
        boundary: random text that occurs in no part.

    Returns:
        the content type and the body.
    """
    head = f"--{boundary}\r\nContent-Disposition: form-data; name="
    lines = [f'{head}"{_quoted(name)}"\r\n\r\n{clean(value)}\r\n' for name, value in fields]
    name, content, media = upload
    lines.append(f'{head}"file"; filename="{_quoted(name)}"\r\nContent-Type: {_header(media)}\r\n\r\n')
    body = b"".join([*(line.encode() for line in lines), content, f"\r\n--{boundary}--\r\n".encode()])
    return f"multipart/form-data; boundary={boundary}", body


def _quoted(name: str) -> str:
    # The HTML standard escapes these three in names, and nothing else.
    return clean(name).replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _header(value: str) -> str:
    return "".join(value.split("\r")).replace("\n", "")


class TranscriptionSegment(WireModel):
    """A stretch of speech; times in seconds."""

    id: Any = None
    start: MaybeFloat = None
    end: MaybeFloat = None
    text: str = ""
    speaker: MaybeStr = None


class TranscriptionWord(WireModel):
    """A word; times in seconds."""

    word: str = ""
    start: MaybeFloat = None
    end: MaybeFloat = None


class TranscriptionUsage(WireModel):
    """What it cost, in tokens or in seconds of sound."""

    type: MaybeStr = None
    seconds: MaybeFloat = None
    input_tokens: MaybeInt = None
    output_tokens: MaybeInt = None
    total_tokens: MaybeInt = None


class Transcription(Answer):
    """What was said; plain, `srt` and `vtt` answers are all in `text`."""

    text: str = ""
    language: MaybeStr = None
    duration: MaybeFloat = None
    segments: Annotated[list[TranscriptionSegment] | None, OR_NONE] = None
    words: Annotated[list[TranscriptionWord] | None, OR_NONE] = None
    logprobs: Any = None
    usage: Annotated[TranscriptionUsage | None, OR_NONE] = None


class TranscriptionEvent(WireModel):
    """One event of a transcription stream: OpenAI's `transcript.text.delta` and its kin, or vLLM's chunks."""

    type: str = ""
    delta: MaybeStr = None
    text: MaybeStr = None
    choices: list[dict[str, Any]] = Field(default_factory=list)
    usage: Annotated[TranscriptionUsage | None, OR_NONE] = None

    @property
    def text_delta(self) -> str:
        """The text this event adds."""
        if self.delta is not None:
            return self.delta
        found = (choice.get("delta") for choice in self.choices)
        return "".join(delta.get("content") or "" for delta in found if isinstance(delta, dict))


def parse_transcription(
    body: bytes, *, response_format: str | None = None, status_code: int = 200, content_type: str = ""
) -> Transcription:
    """Read an answer in the format that was asked for.

    Raises:
        InvalidResponseError: JSON was asked for and something else came, or a web page came.
    """
    if absent(response_format) or response_format in {None, "json", "verbose_json", "diarized_json"}:
        return Transcription.from_bytes(body, status_code=status_code, content_type=content_type)
    text = body.decode("utf-8", "replace").removeprefix("\ufeff")
    if "html" in content_type.lower() or text.lstrip()[:9].lower() in {"<!doctype", "<html>"}:
        raise InvalidResponseError(
            f"status {status_code} ({content_type or 'a web page'}), but no transcription; is base_url right?",
            status_code=status_code,
            body=text[: 64 * 1024],
        )
    return Transcription(text=text)
