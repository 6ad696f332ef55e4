"""The client for threads, in openai-python's shape."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, Unpack, overload

from llm_client.client.settings import Settings, settings
from llm_client.client.stream import Stream
from llm_client.compose.pool import Pool
from llm_client.model import UNSET

if TYPE_CHECKING:
    from llm_client.wire.chat_answers import ChatCompletion, ChatCompletionChunk
    from llm_client.wire.chat_params import ChatCall


class Completions:
    """`client.chat.completions`."""

    def __init__(self, view: Settings) -> None:
        self._settings = view

    @overload
    def create(self, *, stream: Literal[False] | None = None, **arguments: Unpack[ChatCall]) -> ChatCompletion[Any]: ...

    @overload
    def create(
        self, *, stream: Literal[True], **arguments: Unpack[ChatCall]
    ) -> Stream[ChatCompletionChunk, ChatCompletion[Any]]: ...

    def create(
        self, *, stream: bool | None = None, **arguments: Any
    ) -> ChatCompletion[Any] | Stream[ChatCompletionChunk, ChatCompletion[Any]]:
        """Ask for a chat completion.

        Takes OpenAI's arguments, the sampling extras of vLLM and SGLang, and per call `priority`, `deadline`
        (seconds; `timeout` is its alias), `fallback`, `tenant`, `extra_body`, `extra_headers`, `extra_query`.

        Raises:
            LLMClientError: see `llm_client.errors`.
            TypeError: an unknown argument.
        """
        from llm_client.client.resources import ask_chat  # noqa: PLC0415 - importing the package stays light

        if stream is not None:
            arguments["stream"] = stream
        asked = ask_chat(self._settings, arguments)
        pool = self._settings.pool
        reply = pool.run(asked.call, self._settings.plan)
        if asked.call.stream:
            return Stream(reply, pool.works.sync_driver(), asked.chunk, asked.final)
        return asked.read(reply)


class Chat:
    """`client.chat`."""

    def __init__(self, view: Settings) -> None:
        self.completions = Completions(view)


class Client:
    """Calls OpenAI-compatible servers from threads, with back-pressure from the producer's side.

    Args:
        pool: a `Pool` to share, or a mapping of pool settings that differ from the built-in ones.
        profile: the name of one of the pool's profiles, or a mapping of settings that differ.
        base_url: the server, when no pool is given; OPENAI_BASE_URL otherwise.
        api_key: its key; OPENAI_API_KEY otherwise.
        timeout: openai-python's word for the deadline: seconds for the whole call.
        max_retries: openai-python's word for further attempts.
        default_headers: sent with every call.
        default_query: sent with every call.
        organization: sent as `openai-organization`.
        project: sent as `openai-project`.

    Raises:
        ConfigError: the settings cannot work.
        TypeError: an unknown argument; the message says what to write instead.
    """

    def __init__(
        self,
        pool: Pool | Mapping[str, Any] | None = None,
        profile: str | Mapping[str, Any] = "default",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: Any = UNSET,
        max_retries: Any = UNSET,
        default_headers: Mapping[str, str] | None = None,
        default_query: Mapping[str, Any] | None = None,
        organization: str | None = None,
        project: str | None = None,
        **unknown: Any,
    ) -> None:
        self._bind(
            settings(
                pool,
                profile,
                base_url=base_url,
                api_key=api_key,
                timeout=timeout,
                max_retries=max_retries,
                default_headers=default_headers,
                default_query=default_query,
                organization=organization,
                project=project,
                unknown=unknown,
            )
        )

    def _bind(self, view: Settings) -> None:
        self._settings = view
        self.chat = Chat(view)

    @property
    def pool(self) -> Pool:
        """The pool this client uses."""
        return self._settings.pool

    def with_options(self, **options: Any) -> Self:
        """Return a client on the same pool with `profile`, `timeout`, `max_retries` or default headers changed."""
        other = object.__new__(type(self))
        other._bind(self._settings.changed(**options))
        return other

    def close(self) -> None:
        """Close the pool, if this client made it. Idempotent."""
        if self._settings.owned:
            self._settings.pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Client holds connections and secrets and cannot be pickled; make one in each process")
