"""Two flows side by side on an event loop: the first answer is taken, the other flow is ended at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from llm_client.flow.effects import Race

Task = asyncio.Future[Any]


async def run_race(race: Race, run: Callable[[Any], Awaitable[Any]]) -> Any:
    """Carry a race out; when it returns or raises, nothing of the loser is left.

    Args:
        race: see there.
        run: drives a flow to its end.
    """
    tasks: list[Task] = [asyncio.ensure_future(run(race.first))]
    taken: Task | None = None
    try:
        taken = await _contest(race, run, tasks)
        return taken.result()
    finally:
        await _end(race, tasks, taken)


async def _contest(race: Race, run: Callable[[Any], Awaitable[Any]], tasks: list[Task]) -> Task:
    """Return the task whose result, or exception, is the race's."""
    first = tasks[0]
    ended, pending = await asyncio.wait(tasks, timeout=race.after)
    if not ended:
        flow = race.second()
        if flow is not None:
            tasks.append(asyncio.ensure_future(run(flow)))
        pending = set(tasks)
    while pending:
        ended, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task in ended and (task is first if _failed(task) else race.wins(task.result())):
                return task
    return first


async def _end(race: Race, tasks: list[Task], taken: Task | None) -> None:
    losers = [task for task in tasks if task is not taken]
    for task in losers:
        task.cancel()
    try:
        if losers:
            await asyncio.wait(losers)
    except asyncio.CancelledError:
        losers = tasks  # nobody will read the winner's answer either
        raise
    finally:
        for task in losers:
            _discard(task, race)


def _discard(task: Task, race: Race) -> None:
    if not task.done():
        task.add_done_callback(lambda late: _discard(late, race))
    elif not _failed(task):
        exchange = race.discard(task.result())
        if exchange is not None:
            exchange.abandon()


def _failed(task: Task) -> bool:
    return task.cancelled() or task.exception() is not None
