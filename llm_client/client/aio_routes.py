"""The routes of the client for event loops: one small class each, in openai-python's shape."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast, overload

from llm_client.client.raw import RawResponse, unstreamed
from llm_client.client.stream import AsyncStream

if TYPE_CHECKING:
    from llm_client.client.resources import Asked
    from llm_client.client.settings import Settings
    from llm_client.wire.base import CallOptions
    from llm_client.wire.chat_answers import ChatCompletion, ChatCompletionChunk
    from llm_client.wire.chat_params import ChatCall, FormatParam
    from llm_client.wire.completions import Completion, CompletionCall
    from llm_client.wire.embeddings import CreateEmbeddingResponse, EmbeddingCall
    from llm_client.wire.models import Model, ModelList
    from llm_client.wire.responses import Response, ResponseEvent, ResponsesCall
    from llm_client.wire.transcriptions import Transcription, TranscriptionCall

T = TypeVar("T")


class AsyncRoute:
    """What the routes share: they carry out what was asked for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def _send(self, asked: Asked[Any, Any], *, raw: bool = False) -> Any:
        works = self._settings.pool.works
        reply = await works.arun(asked.call, self._settings.plan)
        if asked.call.stream:
            return AsyncStream(reply, works.async_driver(), asked.chunk, asked.final)
        return RawResponse(reply, asked.read) if raw else asked.read(reply)


class AsyncCompletions(AsyncRoute):
    """`client.chat.completions`."""

    @overload
    async def create(
        self, *, response_format: type[T], stream: Literal[False] | None = None, **arguments: Unpack[ChatCall]
    ) -> ChatCompletion[T]: ...

    @overload
    async def create(
        self, *, response_format: type[T], stream: Literal[True], **arguments: Unpack[ChatCall]
    ) -> AsyncStream[ChatCompletionChunk, ChatCompletion[T]]: ...

    @overload
    async def create(
        self,
        *,
        response_format: FormatParam | None = None,
        stream: Literal[False] | None = None,
        **arguments: Unpack[ChatCall],
    ) -> ChatCompletion: ...

    @overload
    async def create(
        self, *, response_format: FormatParam | None = None, stream: Literal[True], **arguments: Unpack[ChatCall]
    ) -> AsyncStream[ChatCompletionChunk, ChatCompletion]: ...

    @overload
    async def create(
        self, *, response_format: FormatParam | None = None, stream: bool, **arguments: Unpack[ChatCall]
    ) -> ChatCompletion | AsyncStream[ChatCompletionChunk, ChatCompletion]: ...

    async def create(self, **arguments: Any) -> Any:
        """Ask for a chat completion.

        Takes OpenAI's arguments, the sampling extras of vLLM and SGLang, and per call `priority`, `deadline`
        (seconds; `timeout` is its alias), `fallback`, `tenant`, `extra_body`, `extra_headers`, `extra_query`.
        A class as `response_format` is asked for as strict JSON Schema; the answer then has `parsed`.

        Raises:
            LLMClientError: see `llm_client.errors`.
            TypeError: an unknown argument.
        """
        from llm_client.client.resources import ask_chat  # noqa: PLC0415 - a light import

        return await self._send(ask_chat(self._settings, arguments))

    @property
    def with_raw_response(self) -> AsyncRawCompletions:
        """The same call with the answer unread."""
        return AsyncRawCompletions(self._settings)


class AsyncRawCompletions(AsyncRoute):
    """`client.chat.completions.with_raw_response`."""

    @overload
    async def create(
        self, *, response_format: type[T], stream: Literal[False] | None = None, **arguments: Unpack[ChatCall]
    ) -> RawResponse[ChatCompletion[T]]: ...

    @overload
    async def create(
        self,
        *,
        response_format: FormatParam | None = None,
        stream: Literal[False] | None = None,
        **arguments: Unpack[ChatCall],
    ) -> RawResponse[ChatCompletion]: ...

    async def create(self, **arguments: Any) -> Any:
        """Ask for a chat completion, and leave the answer unread. Raises as the plain `create`."""
        from llm_client.client.resources import ask_chat  # noqa: PLC0415 - a light import

        return await self._send(ask_chat(self._settings, unstreamed(arguments)), raw=True)


class AsyncChat:
    """`client.chat`."""

    def __init__(self, settings: Settings) -> None:
        self.completions = AsyncCompletions(settings)


class AsyncTextCompletions(AsyncRoute):
    """`client.completions`."""

    @overload
    async def create(
        self, *, stream: Literal[False] | None = None, **arguments: Unpack[CompletionCall]
    ) -> Completion: ...

    @overload
    async def create(
        self, *, stream: Literal[True], **arguments: Unpack[CompletionCall]
    ) -> AsyncStream[Completion, Completion]: ...

    @overload
    async def create(
        self, *, stream: bool, **arguments: Unpack[CompletionCall]
    ) -> Completion | AsyncStream[Completion, Completion]: ...

    async def create(self, **arguments: Any) -> Any:
        """Ask for a completion of a bare prompt. Raises as `chat.completions.create`."""
        from llm_client.client.resources import ask_completion  # noqa: PLC0415 - a light import

        return await self._send(ask_completion(self._settings, arguments))

    @property
    def with_raw_response(self) -> AsyncRawTextCompletions:
        """The same call with the answer unread."""
        return AsyncRawTextCompletions(self._settings)


class AsyncRawTextCompletions(AsyncRoute):
    """`client.completions.with_raw_response`."""

    async def create(
        self, *, stream: Literal[False] | None = None, **arguments: Unpack[CompletionCall]
    ) -> RawResponse[Completion]:
        """Ask for a completion, and leave the answer unread. Raises as the plain `create`."""
        from llm_client.client.resources import ask_completion  # noqa: PLC0415 - a light import

        asked = ask_completion(self._settings, unstreamed({**arguments, "stream": stream}))
        return cast("RawResponse[Completion]", await self._send(asked, raw=True))


class AsyncResponses(AsyncRoute):
    """`client.responses`."""

    @overload
    async def create(
        self, *, text_format: type[T], stream: Literal[False] | None = None, **arguments: Unpack[ResponsesCall]
    ) -> Response[T]: ...

    @overload
    async def create(
        self, *, text_format: type[T], stream: Literal[True], **arguments: Unpack[ResponsesCall]
    ) -> AsyncStream[ResponseEvent, Response[T]]: ...

    @overload
    async def create(self, *, stream: Literal[False] | None = None, **arguments: Unpack[ResponsesCall]) -> Response: ...

    @overload
    async def create(
        self, *, stream: Literal[True], **arguments: Unpack[ResponsesCall]
    ) -> AsyncStream[ResponseEvent, Response]: ...

    @overload
    async def create(
        self, *, stream: bool, **arguments: Unpack[ResponsesCall]
    ) -> Response | AsyncStream[ResponseEvent, Response]: ...

    async def create(self, **arguments: Any) -> Any:
        """Ask for a response; a class as `text_format` is parsed into. Raises as `chat.completions.create`."""
        from llm_client.client.resources import ask_response  # noqa: PLC0415 - a light import

        return await self._send(ask_response(self._settings, arguments))

    @property
    def with_raw_response(self) -> AsyncRawResponses:
        """The same call with the answer unread."""
        return AsyncRawResponses(self._settings)


class AsyncRawResponses(AsyncRoute):
    """`client.responses.with_raw_response`."""

    @overload
    async def create(
        self, *, text_format: type[T], stream: Literal[False] | None = None, **arguments: Unpack[ResponsesCall]
    ) -> RawResponse[Response[T]]: ...

    @overload
    async def create(
        self, *, stream: Literal[False] | None = None, **arguments: Unpack[ResponsesCall]
    ) -> RawResponse[Response]: ...

    async def create(self, **arguments: Any) -> Any:
        """Ask for a response, and leave the answer unread. Raises as the plain `create`."""
        from llm_client.client.resources import ask_response  # noqa: PLC0415 - a light import

        return await self._send(ask_response(self._settings, unstreamed(arguments)), raw=True)


class AsyncEmbeddings(AsyncRoute):
    """`client.embeddings`."""

    async def create(self, **arguments: Unpack[EmbeddingCall]) -> CreateEmbeddingResponse:
        """Embed texts or token lists; more than one call may carry are sent as several.

        Raises as `chat.completions.create`.
        """
        from llm_client.client.resources import ask_embeddings  # noqa: PLC0415 - a light import
        from llm_client.wire.embeddings import join  # noqa: PLC0415 - as above

        asked = ask_embeddings(self._settings, arguments)
        return join(await asyncio.gather(*(self._send(each) for each in asked)))


class AsyncModels(AsyncRoute):
    """`client.models`."""

    async def list(self, **options: Unpack[CallOptions]) -> ModelList:
        """List the models that a server of the pool serves."""
        from llm_client.client.resources import ask_models  # noqa: PLC0415 - a light import

        return cast("ModelList", await self._send(ask_models(self._settings, options)))

    async def retrieve(self, model: str, **options: Unpack[CallOptions]) -> Model:
        """Ask about one model."""
        from llm_client.client.resources import ask_model  # noqa: PLC0415 - a light import

        return cast("Model", await self._send(ask_model(self._settings, model, options)))


class AsyncTranscriptions(AsyncRoute):
    """`client.audio.transcriptions`."""

    async def create(self, **arguments: Unpack[TranscriptionCall]) -> Transcription:
        """Have sound written down; `file` is bytes, or a tuple of name and bytes. One attempt body, sent as a form."""
        from llm_client.client.resources import ask_transcription  # noqa: PLC0415 - a light import

        return cast("Transcription", await self._send(ask_transcription(self._settings, arguments)))


class AsyncAudio:
    """`client.audio`."""

    def __init__(self, settings: Settings) -> None:
        self.transcriptions = AsyncTranscriptions(settings)
