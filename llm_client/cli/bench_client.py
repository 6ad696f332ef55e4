"""One client of a benchmark, in a process of its own: `python -m llm_client.cli.bench_client SPEC` prints JSON.

SPEC is a JSON object: `url`, `client` (a name of `CLIENTS`), `calls`, `stream`, `limit` for the oracle.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol


class Ask(Protocol):
    """Makes one call; priority (`high`, `low`) and deadline (seconds) reach the clients that know such things."""

    def __call__(  # noqa: D102 - said above
        self, number: int, priority: str | None = None, deadline: float | None = None
    ) -> Awaitable[None]: ...


def _messages(number: int) -> Any:
    """A body of its own for every call, so that an early repetition can be told from another call."""
    return [{"role": "user", "content": f"Call number {number}: say something."}]


async def _ours(spec: dict[str, Any], pool: dict[str, Any] | None = None) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    from llm_client import AsyncClient

    client = AsyncClient(base_url=spec["url"] + "/v1", pool=pool)

    async def ask(number: int, priority: str | None = None, deadline: float | None = None) -> None:
        own: Any = {} if priority is None else {"priority": priority}
        if deadline is not None:
            own["deadline"] = deadline
        if spec["stream"]:
            stream = await client.chat.completions.create(
                model="reference", messages=_messages(number), max_tokens=4, stream=True, **own
            )
            async for _ in stream:
                pass
            return
        await client.chat.completions.create(model="reference", messages=_messages(number), max_tokens=4, **own)

    return ask, client.close


async def _oracle(spec: dict[str, Any]) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    """Our own client, told a good limit: what the engine, the network and the event loop leave of the ideal."""
    return await _ours(spec, {"concurrency": {"kind": "fixed", "limit": spec["limit"]}})


async def _openai(
    spec: dict[str, Any], http_client: Any = None, retries: int = 2
) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    import openai  # type: ignore[import-not-found,unused-ignore]  # only where a benchmark is run against it

    client = openai.AsyncOpenAI(
        base_url=spec["url"] + "/v1", api_key="none", max_retries=retries, http_client=http_client
    )

    async def ask(number: int, priority: str | None = None, deadline: float | None = None) -> None:  # noqa: ARG001 - this client knows neither
        messages = _messages(number)
        if spec["stream"]:
            async for _ in await client.chat.completions.create(
                model="reference", messages=messages, max_tokens=4, stream=True
            ):
                pass
            return
        await client.chat.completions.create(model="reference", messages=messages, max_tokens=4)

    return ask, client.close


async def _dropin(
    spec: dict[str, Any], pool: dict[str, Any] | None = None
) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    import openai  # type: ignore[import-not-found,unused-ignore]  # as above

    from llm_client import Pool, http_client

    family: Any = "httpx2" if int(openai.__version__.split(".", 1)[0]) >= 3 else "httpx"
    shared = Pool(base_url=spec["url"] + "/v1", pool=pool)
    ask, close = await _openai(spec, http_client(shared, family=family, asynchronous=True))

    async def both() -> None:
        await close()
        await shared.aclose()

    return ask, both


async def _dropin_oracle(spec: dict[str, Any]) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    return await _dropin(spec, {"concurrency": {"kind": "fixed", "limit": spec["limit"]}})


async def _persistent(spec: dict[str, Any]) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    return await _openai(spec, retries=10)


CLIENTS: dict[str, Callable[[dict[str, Any]], Awaitable[tuple[Ask, Callable[[], Awaitable[None]]]]]] = {
    "llm_client": _ours,
    "oracle": _oracle,
    "openai": _openai,
    "openai retries=10": _persistent,
    "openai+llm_client": _dropin,
    "openai+oracle": _dropin_oracle,
}


async def burst(spec: dict[str, Any]) -> dict[str, Any]:
    """Start all calls at once; count answers and errors, and take the time until the last."""
    ask, close = await CLIENTS[spec["client"]](spec)
    errors: dict[str, int] = {}

    async def one(number: int) -> bool:
        try:
            await ask(number)
        except Exception as error:  # noqa: BLE001 - a benchmark counts what callers would see
            errors[type(error).__name__] = errors.get(type(error).__name__, 0) + 1
            return False
        return True

    cpu = cpu_seconds()
    start = time.monotonic()
    done = await asyncio.gather(*(one(number) for number in range(spec["calls"])))
    makespan = time.monotonic() - start
    used = cpu_seconds() - cpu
    await close()
    return {"answered": sum(done), "errors": errors, "makespan": makespan, "cpu": used}


def cpu_seconds() -> float:
    """Processor time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    print(json.dumps(asyncio.run(burst(json.loads(sys.argv[1])))))
