"""Run a user's function that may hang: on a thread of its own, and no longer than a call has time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent import futures
from contextvars import copy_context
from math import inf
from threading import TIMEOUT_MAX, Thread
from typing import Any

from llm_client.flow.faults import Fault, FaultKind


def call_within(seconds: float, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return what the function gives, or raise what it raises.

    A thread cannot be stopped: one that hangs is left behind, and does not keep the interpreter from exiting.

    Raises:
        Fault: of kind DEADLINE, it gave nothing in time.
    """
    future = _start(function, args)
    futures.wait([future], min(max(seconds, 0.0), TIMEOUT_MAX))
    if not future.done():
        raise _late()
    return future.result()


async def acall_within(seconds: float, function: Callable[..., Any], args: tuple[Any, ...], turn: asyncio.Lock) -> Any:
    """Do the same on an event loop, which a sync function does not hold up.

    Args:
        seconds: at most so long.
        function: sync or async.
        args: its arguments.
        turn: held while a sync function runs, so that of many calls only one fetches a token that the others find.
    """
    scope = asyncio.timeout(None if seconds == inf else seconds)
    try:
        async with scope:
            if inspect.iscoroutinefunction(function):
                return await function(*args)
            async with turn:
                result = await asyncio.wrap_future(_start(function, args))
            return await result if inspect.isawaitable(result) else result
    except TimeoutError:
        if scope.expired():
            raise _late() from None
        raise


def _late() -> Fault:
    return Fault(FaultKind.DEADLINE, "a function of the user's gave nothing in time", sent=False)


def _start(function: Callable[..., Any], args: tuple[Any, ...]) -> futures.Future[Any]:
    future: futures.Future[Any] = futures.Future()
    future.set_running_or_notify_cancel()  # whoever stops waiting does not cancel it
    context = copy_context()

    def work() -> None:
        try:
            result = context.run(function, *args)
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)
        else:
            future.set_result(result)

    Thread(target=work, name="llm-client-function", daemon=True).start()
    return future
