"""The drop-in classes: a transport of the caller's own HTTP library whose requests go through a handler of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from llm_client.errors import LLMClientError
from llm_client.transport.family import Family


class Pieces(Protocol):
    """A live body in a thread."""

    def next_bytes(self) -> bytes | None:
        """Return the next bytes, None at the end."""
        ...

    def close(self) -> None:
        """Give up the rest."""
        ...


class AsyncPieces(Protocol):
    """A live body on an event loop."""

    async def next_bytes(self) -> bytes | None:
        """Return the next bytes, None at the end."""
        ...

    async def aclose(self) -> None:
        """Give up the rest."""
        ...


@dataclass(frozen=True, slots=True)
class Answered:
    """A response in no library's words. `body` is whole, or `pieces` has the rest."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""
    pieces: Any = None


def sync_transport(family: Family, handle: Callable[[Any], Answered]) -> Any:
    """Make a transport for threads; `handle` gets the library's request."""
    http = family.http

    class Stream(http.SyncByteStream):  # type: ignore[name-defined,misc]  # the library is chosen at run time
        def __init__(self, pieces: Pieces) -> None:
            self._pieces = pieces

        def __iter__(self) -> Iterator[bytes]:
            try:
                while (data := self._pieces.next_bytes()) is not None:
                    yield data
            except LLMClientError as error:
                raise http.ReadError(error.message) from error

        def close(self) -> None:
            self._pieces.close()

    class Transport(http.BaseTransport):  # type: ignore[name-defined,misc]  # as above
        def handle_request(self, request: Any) -> Any:
            answer = handle(request)
            content = {"content": answer.body} if answer.pieces is None else {"stream": Stream(answer.pieces)}
            return http.Response(answer.status, headers=answer.headers, request=request, **content)

    return Transport()


def async_transport(family: Family, handle: Callable[[Any], Awaitable[Answered]]) -> Any:
    """Make a transport for event loops; `handle` gets the library's request."""
    http = family.http

    class Stream(http.AsyncByteStream):  # type: ignore[name-defined,misc]  # the library is chosen at run time
        def __init__(self, pieces: AsyncPieces) -> None:
            self._pieces = pieces

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                while (data := await self._pieces.next_bytes()) is not None:
                    yield data
            except LLMClientError as error:
                raise http.ReadError(error.message) from error

        async def aclose(self) -> None:
            await self._pieces.aclose()

    class Transport(http.AsyncBaseTransport):  # type: ignore[name-defined,misc]  # as above
        async def handle_async_request(self, request: Any) -> Any:
            answer = await handle(request)
            content = {"content": answer.body} if answer.pieces is None else {"stream": Stream(answer.pieces)}
            return http.Response(answer.status, headers=answer.headers, request=request, **content)

    return Transport()
