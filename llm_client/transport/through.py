"""Awaiting the HTTP library without giving up the floor where it only offers it.

The library takes uncontended locks by a pause of one turn of the loop. Each such pause is a place where a cancellation
can strike between two steps that belong together: a connection that was made and is not yet in use, or one that is
being given back, is then lost to its pool for ever. (That is httpcore issue 1093, seen up to 1.0.9.) So pauses are
answered at once; only waiting for the network waits. It also saves three turns of the loop per request.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Through(Generic[T]):
    """`await Through(coroutine)` is `await coroutine` without its pauses."""

    __slots__ = ("_work",)

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        """Take over a coroutine that has not begun."""
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        """Run until something real is waited for; exceptions thrown in then reach the coroutine."""
        work = self._work
        thrown: BaseException | None = None
        value: Any = None
        while True:
            try:
                awaited = work.send(value) if thrown is None else work.throw(thrown)
            except StopIteration as end:
                result: T = end.value
                return result
            value = thrown = None
            if awaited is None:
                continue
            try:
                value = yield awaited
            except BaseException as error:  # noqa: BLE001 - passed on to the coroutine
                thrown = error
