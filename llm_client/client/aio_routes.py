"""The routes of the client for event loops: one small class each, in openai-python's shape."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, cast, overload

from llm_client.client.raw import RawResponse
from llm_client.client.stream import AsyncStream

if TYPE_CHECKING:
    from llm_client.client.resources import Asked
    from llm_client.client.settings import Settings
    from llm_client.wire.base import CallOptions
    from llm_client.wire.chat_answers import ChatCompletion, ChatCompletionChunk
    from llm_client.wire.chat_params import ChatCall
    from llm_client.wire.completions import Completion, CompletionCall
    from llm_client.wire.embeddings import CreateEmbeddingResponse, EmbeddingCall
    from llm_client.wire.models import Model, ModelList
    from llm_client.wire.responses import Response, ResponseEvent, ResponsesCall
    from llm_client.wire.transcriptions import Transcription, TranscriptionCall

A = TypeVar("A")


class AsyncRoute:
    """What the routes share: they carry out what was asked for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def _send(self, asked: Asked[Any, Any], *, raw: bool = False) -> Any:
        pool = self._settings.pool
        reply = await pool.arun(asked.call, self._settings.plan)
        if asked.call.stream:
            return AsyncStream(reply, pool.works.async_driver(), asked.chunk, asked.final)
        return RawResponse(reply, asked.read) if raw else asked.read(reply)


class AsyncRaw(Generic[A]):
    """`with_raw_response`: the same call, its answer unread."""

    def __init__(self, send: Callable[[dict[str, Any]], Awaitable[RawResponse[A]]]) -> None:
        self._send = send

    async def create(self, **arguments: Any) -> RawResponse[A]:
        """Carry the call out; takes the arguments of the plain `create`, `stream` excepted."""
        if arguments.get("stream"):
            raise TypeError("with_raw_response: a stream has no whole body; use create(stream=True) and its meta")
        return await self._send(arguments)


class AsyncCompletions(AsyncRoute):
    """`client.chat.completions`."""

    @overload
    async def create(
        self, *, stream: Literal[False] | None = None, **arguments: Unpack[ChatCall]
    ) -> ChatCompletion[Any]: ...

    @overload
    async def create(
        self, *, stream: Literal[True], **arguments: Unpack[ChatCall]
    ) -> AsyncStream[ChatCompletionChunk, ChatCompletion[Any]]: ...

    async def create(
        self, *, stream: bool | None = None, **arguments: Any
    ) -> ChatCompletion[Any] | AsyncStream[ChatCompletionChunk, ChatCompletion[Any]]:
        """Ask for a chat completion.

        Takes OpenAI's arguments, the sampling extras of vLLM and SGLang, and per call `priority`, `deadline`
        (seconds; `timeout` is its alias), `fallback`, `tenant`, `extra_body`, `extra_headers`, `extra_query`.

        Raises:
            LLMClientError: see `llm_client.errors`.
            TypeError: an unknown argument.
        """
        from llm_client.client.resources import ask_chat  # noqa: PLC0415 - a light import

        if stream is not None:
            arguments["stream"] = stream
        done: ChatCompletion[Any] | AsyncStream[ChatCompletionChunk, ChatCompletion[Any]]
        done = await self._send(ask_chat(self._settings, arguments))
        return done

    @property
    def with_raw_response(self) -> AsyncRaw[ChatCompletion[Any]]:
        """The same call with the answer unread."""
        from llm_client.client.resources import ask_chat  # noqa: PLC0415 - a light import

        return AsyncRaw(lambda arguments: self._send(ask_chat(self._settings, arguments), raw=True))


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

    async def create(
        self, *, stream: bool | None = None, **arguments: Any
    ) -> Completion | AsyncStream[Completion, Completion]:
        """Ask for a completion of a bare prompt. Raises as `chat.completions.create`."""
        from llm_client.client.resources import ask_completion  # noqa: PLC0415 - a light import

        if stream is not None:
            arguments["stream"] = stream
        done: Completion | AsyncStream[Completion, Completion] = await self._send(
            ask_completion(self._settings, arguments)
        )
        return done


class AsyncResponses(AsyncRoute):
    """`client.responses`."""

    @overload
    async def create(
        self, *, stream: Literal[False] | None = None, **arguments: Unpack[ResponsesCall]
    ) -> Response[Any]: ...

    @overload
    async def create(
        self, *, stream: Literal[True], **arguments: Unpack[ResponsesCall]
    ) -> AsyncStream[ResponseEvent, Response[Any]]: ...

    async def create(
        self, *, stream: bool | None = None, **arguments: Any
    ) -> Response[Any] | AsyncStream[ResponseEvent, Response[Any]]:
        """Ask for a response. Raises as `chat.completions.create`."""
        from llm_client.client.resources import ask_response  # noqa: PLC0415 - a light import

        if stream is not None:
            arguments["stream"] = stream
        done: Response[Any] | AsyncStream[ResponseEvent, Response[Any]] = await self._send(
            ask_response(self._settings, arguments)
        )
        return done


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
