"""Begin a broken stream anew, where its reader can take back what it was given."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

from llm_client.client.stream import A, AsyncStream, C, Stream
from llm_client.errors import LLMClientError, StreamInterruptedError


@dataclass(frozen=True, slots=True)
class StreamRestarted:
    """The chunks that follow are of a new answer: what came before is void.

    Attributes:
        number: 1 for the first restart.
        error: what broke the stream before; `error.partial` is the text that is void now.
    """

    number: int
    error: StreamInterruptedError


def restarting(make: Callable[[], Stream[C, A]], *, restarts: int = 1) -> Iterator[C | StreamRestarted]:
    """Iterate over a stream's chunks, and over those of another one when it breaks after its first content.

    Args:
        make: makes the call, anew each time: with a deadline, a place in the queue and retries of its own.
        restarts: at most so many.

    Raises:
        StreamInterruptedError: the last stream broke too, or no further one could be had; then that is the cause.
    """
    stream, number = make(), 0
    while True:
        with stream:
            try:
                yield from stream
            except StreamInterruptedError as error:
                if number >= restarts:
                    raise
                broken = error
            else:
                return
        try:
            stream = make()
        except LLMClientError as error:
            raise broken from error
        number += 1
        yield StreamRestarted(number, broken)


async def arestarting(
    make: Callable[[], Awaitable[AsyncStream[C, A]]], *, restarts: int = 1
) -> AsyncIterator[C | StreamRestarted]:
    """Do the same for an async client.

    Args:
        make: as above, to be awaited.
        restarts: at most so many.

    Raises:
        StreamInterruptedError: as above.
    """
    stream, number = await make(), 0
    while True:
        async with stream:
            try:
                async for chunk in stream:
                    yield chunk
            except StreamInterruptedError as error:
                if number >= restarts:
                    raise
                broken = error
            else:
                return
        try:
            stream = await make()
        except LLMClientError as error:
            raise broken from error
        number += 1
        yield StreamRestarted(number, broken)


__all__ = ["StreamRestarted", "arestarting", "restarting"]
