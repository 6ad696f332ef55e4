"""What a streamed call returns: an iterator over typed chunks that settles its slot however it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar

from llm_client.model import Meta

if TYPE_CHECKING:
    from llm_client.drivers.aio import AsyncDriver
    from llm_client.drivers.sync import SyncDriver
    from llm_client.flow.run import Reply
    from llm_client.wire.base import Answer, WireModel
    from llm_client.wire.stream import Chunk, StreamReader

C = TypeVar("C", bound="WireModel")
A = TypeVar("A", bound="Answer")


def _text_of(chunk: Any) -> str:
    """Return the visible text that a chunk adds; an event that repeats a whole text adds none."""
    added: str = chunk.text_delta if hasattr(chunk, "text_delta") else getattr(chunk, "text", "")
    return added


class _Stream(Generic[C, A]):
    """What both colours share."""

    def __init__(
        self, reply: Reply, chunk: Callable[[dict[str, Any]], C], final: Callable[[dict[str, Any]], A]
    ) -> None:
        self._reply = reply
        self._chunk = chunk
        self._final = final
        self._reader: StreamReader | None = reply.delivery.reader if reply.delivery is not None else None
        self._early: deque[Chunk] = deque()
        self._closed = False
        self._cut = False
        if reply.delivery is None:
            from llm_client.wire.stream import StreamReader  # noqa: PLC0415 - a light import

            reader = StreamReader(
                reply.run.call.route,
                content_type=reply.headers.get("content-type", ""),
                headers=reply.headers,
                wall=reply.run.services.clock.wall(),
            )
            self._early.extend(reader.feed(reply.body))
            reader.end()
            self._early.extend(reader.late)
            self._reader = reader

    @property
    def meta(self) -> Meta:
        """How the answer comes about, so far."""
        return self._reply.meta

    @property
    def text(self) -> str:
        """The text that has arrived so far; with every chunk read, the whole of it."""
        return "" if self._reader is None else self._reader.text

    def _shut(self) -> None:
        """Note that nobody reads on, and whether that cut the answer short."""
        delivery = self._reply.delivery
        self._cut = delivery is not None and delivery.open and not delivery.ended
        self._closed = True

    def _check_whole(self) -> None:
        """Refuse to put together what was closed half-way or broke: it would look like a whole answer."""
        delivery = self._reply.delivery
        if self._closed and delivery is not None and delivery.error is not None:
            raise delivery.error
        if self._cut:
            raise RuntimeError("the stream was closed before its end; .text has what had arrived")

    def _assembled(self) -> A:
        if self._reader is None:
            raise RuntimeError("this stream has no chunks to put together")
        return self._final(self._reader.assemble()).with_meta(self.meta)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream holds a connection and cannot be pickled; pickle what get_final_completion() returns")

    def __repr__(self) -> str:
        """Tell how far it is, and nothing of what it says."""
        return f"<{type(self).__name__} {'closed' if self._closed else 'open'}, {len(self.text)} characters>"


class Stream(_Stream[C, A]):
    """Chunks of one streamed answer, in a thread.

    Use it as a context manager, or read it to the end: leaving it early without either gives the slot back
    only when the object is collected.
    """

    def __init__(
        self,
        reply: Reply,
        driver: SyncDriver,
        chunk: Callable[[dict[str, Any]], C],
        final: Callable[[dict[str, Any]], A],
    ) -> None:
        from llm_client.drivers.sync import SyncBody  # noqa: PLC0415 - a light import

        super().__init__(reply, chunk, final)
        self._body = SyncBody(reply.delivery, driver) if reply.delivery is not None else None

    def __iter__(self) -> Iterator[C]:
        return self

    def __next__(self) -> C:
        """Return the next chunk; after `close` there is none.

        Raises:
            StreamInterruptedError: the stream broke; `.partial` has the text so far.
            LLMClientError: the server said in the stream what it could not do.
        """
        if self._closed:
            raise StopIteration
        if self._early:
            return self._chunk(self._early.popleft().data)
        if self._body is None:
            raise StopIteration
        return self._chunk(next(self._body).data)

    @property
    def text_stream(self) -> Iterator[str]:
        """Iterate over the pieces of text alone."""
        for chunk in self:
            if piece := _text_of(chunk):
                yield piece

    def get_final_completion(self) -> A:
        """Read to the end and return the whole answer, as a call without streaming would have.

        Raises:
            RuntimeError: the stream was closed before its end.
            LLMClientError: as reading.
        """
        self._check_whole()
        for _ in self:
            pass
        return self._assembled()

    def close(self) -> None:
        """Give up the rest; idempotent."""
        if self._closed:
            return
        self._shut()
        if self._body is not None:
            self._body.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncStream(_Stream[C, A]):
    """Chunks of one streamed answer, on an event loop.

    Use it as a context manager, or read it to the end: leaving it early without either gives the slot back
    only when the object is collected.
    """

    def __init__(
        self,
        reply: Reply,
        driver: AsyncDriver,
        chunk: Callable[[dict[str, Any]], C],
        final: Callable[[dict[str, Any]], A],
    ) -> None:
        from llm_client.drivers.aio import AsyncBody  # noqa: PLC0415 - a light import

        super().__init__(reply, chunk, final)
        self._body = AsyncBody(reply.delivery, driver) if reply.delivery is not None else None

    def __aiter__(self) -> AsyncIterator[C]:
        return self

    async def __anext__(self) -> C:
        """Return the next chunk; after `close` there is none. Raises as `Stream.__next__`."""
        if self._closed:
            raise StopAsyncIteration
        if self._early:
            return self._chunk(self._early.popleft().data)
        if self._body is None:
            raise StopAsyncIteration
        return self._chunk((await self._body.__anext__()).data)

    @property
    def text_stream(self) -> AsyncIterator[str]:
        """Iterate over the pieces of text alone."""
        return self._texts()

    async def _texts(self) -> AsyncIterator[str]:
        async for chunk in self:
            if piece := _text_of(chunk):
                yield piece

    async def get_final_completion(self) -> A:
        """Read to the end and return the whole answer, as a call without streaming would have.

        Raises:
            RuntimeError: the stream was closed before its end.
            LLMClientError: as reading.
        """
        self._check_whole()
        async for _ in self:
            pass
        return self._assembled()

    async def close(self) -> None:
        """Give up the rest; idempotent."""
        if self._closed:
            return
        self._shut()
        if self._body is not None:
            await self._body.aclose()

    aclose = close

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
