"""The client for event loops, in openai-python's shape."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack, cast

from llm_client.client.aio_routes import (
    AsyncAudio,
    AsyncChat,
    AsyncEmbeddings,
    AsyncModels,
    AsyncResponses,
    AsyncRoute,
    AsyncTextCompletions,
)
from llm_client.client.settings import Key, Settings, settings
from llm_client.compose.pool import Pool
from llm_client.model import UNSET, Unset

if TYPE_CHECKING:
    from llm_client.client.resources import Health
    from llm_client.core.pressure import Pressure
    from llm_client.wire.base import CallOptions
    from llm_client.wire.ranking import RerankCall, RerankResponse, ScoreCall, ScoreResponse
    from llm_client.wire.tokenize import DetokenizeCall, DetokenizeResponse, TokenizeCall, TokenizeResponse


class AsyncClient:
    """Calls OpenAI-compatible servers from event loops, with back-pressure from the producer's side.

    Args:
        pool: a `Pool` to share, or a mapping of pool settings that differ from the built-in ones.
        profile: the name of one of the pool's profiles, or a mapping of settings that differ.
        base_url: the server, when no pool is given; OPENAI_BASE_URL otherwise.
        api_key: its key, or a function (sync or async) that is asked for a token before each request, and once more
            after a 401; OPENAI_API_KEY otherwise.
        timeout: openai-python's word for the deadline: seconds for the whole call, or an `httpx.Timeout`.
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
        api_key: Key = None,
        timeout: Any = UNSET,
        max_retries: Any = UNSET,
        default_headers: Mapping[str, Any] | None = None,
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
                threads=False,
            )
        )

    def _bind(self, view: Settings) -> None:
        # Loaded now rather than by the first call: a fork in the middle of an import leaves its lock held for ever.
        import_module("llm_client.client.resources")
        import_module("llm_client.transport.aio")
        import_module("llm_client.transport.family").load(view.pool.file.pool.http.family)
        self._settings = view
        self._route = AsyncRoute(view)
        self.chat = AsyncChat(view)
        self.completions = AsyncTextCompletions(view)
        self.responses = AsyncResponses(view)
        self.embeddings = AsyncEmbeddings(view)
        self.models = AsyncModels(view)
        self.audio = AsyncAudio(view)

    @property
    def pool(self) -> Pool:
        """The pool this client uses."""
        return self._settings.pool

    def pressure(self) -> Pressure:
        """Tell how full the pool is, before a call is made: `low`, `medium` (slow down) or `high`."""
        from llm_client.core.pressure import DEPTH  # noqa: PLC0415 - a light import

        return self.pool.gate.pressure(self._settings.plan.pressure or DEPTH)

    def with_options(
        self,
        *,
        profile: str | Unset = UNSET,
        timeout: Any = UNSET,
        max_retries: int | Unset = UNSET,
        default_headers: Mapping[str, Any] | Unset = UNSET,
        default_query: Mapping[str, Any] | Unset = UNSET,
        api_key: str | Unset = UNSET,
        organization: str | Unset = UNSET,
        project: str | Unset = UNSET,
        **unknown: Any,
    ) -> Self:
        """Return a client on the same pool with something changed; closing it leaves the pool open.

        Headers and query parameters are added to those that are there. An `api_key` replaces the endpoints' own.

        Raises:
            ConfigError, TypeError: as the constructor.
        """
        other = object.__new__(type(self))
        other._bind(
            self._settings.changed(
                profile=profile,
                timeout=timeout,
                max_retries=max_retries,
                default_headers=default_headers,
                default_query=default_query,
                api_key=api_key,
                organization=organization,
                project=project,
                **unknown,
            )
        )
        return other

    copy = with_options

    async def rerank(self, **arguments: Unpack[RerankCall]) -> RerankResponse:
        """Rank documents by their relevance to a query. Raises as `chat.completions.create`."""
        from llm_client.client.resources import ask_rerank  # noqa: PLC0415 - a light import

        return cast("RerankResponse", await self._route._send(ask_rerank(self._settings, arguments)))  # noqa: SLF001 - one room

    async def score(self, **arguments: Unpack[ScoreCall]) -> ScoreResponse:
        """Score pairs of texts (vLLM). Raises as `chat.completions.create`."""
        from llm_client.client.resources import ask_score  # noqa: PLC0415 - a light import

        return cast("ScoreResponse", await self._route._send(ask_score(self._settings, arguments)))  # noqa: SLF001 - one room

    async def tokenize(self, **arguments: Unpack[TokenizeCall]) -> TokenizeResponse:
        """Turn a prompt or a conversation into token numbers (vLLM, llama.cpp). Raises as `chat.completions.create`."""
        from llm_client.client.resources import ask_tokenize  # noqa: PLC0415 - a light import

        return cast("TokenizeResponse", await self._route._send(ask_tokenize(self._settings, arguments)))  # noqa: SLF001 - one room

    async def detokenize(self, **arguments: Unpack[DetokenizeCall]) -> DetokenizeResponse:
        """Turn token numbers into text. Raises as `chat.completions.create`."""
        from llm_client.client.resources import ask_detokenize  # noqa: PLC0415 - a light import

        return cast("DetokenizeResponse", await self._route._send(ask_detokenize(self._settings, arguments)))  # noqa: SLF001 - one room

    async def health(self, **options: Unpack[CallOptions]) -> Health:
        """Ask whether a server of the pool is well. Raises what the server's health route says otherwise."""
        from llm_client.client.resources import ask_health  # noqa: PLC0415 - a light import

        return cast("Health", await self._route._send(ask_health(self._settings, options)))  # noqa: SLF001 - one room

    async def close(self) -> None:
        """Close the pool, if this client made it. Idempotent."""
        if self._settings.owned:
            await self._settings.pool.aclose()

    aclose = close

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an AsyncClient holds connections and secrets and cannot be pickled; make one in each process")
