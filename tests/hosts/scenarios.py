"""What every foreign SDK has to survive once our HTTP client is under it; each is run by each `smoke_*.py`."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from llm_client import Pool
from tests.hosts import fakes

QUICK = """
version: 1
pool:
  breaker: {{open_for: {{base: 30s, cap: 30s}}}}
  endpoints:
    - {{name: fake, base_url: "{url}", api_key: none}}
profiles:
  default:
    deadline: 30s
    queue: {{max_wait: {max_wait}}}
    retry: {{attempts: 3, backoff: {{kind: full_jitter, base: 10ms, cap: 50ms}}}}
"""


@dataclass(frozen=True)
class Host:
    """A foreign SDK on our HTTP client: one prompt in, the text out; streamed, where it can."""

    ask: Callable[[str], Awaitable[str]]
    stream: Callable[[str], Awaitable[str]] | None = None


Make = Callable[[Pool, str], Host]


@contextlib.asynccontextmanager
async def protected(
    make: Make, server: fakes.Server, folder: Path, *, max_wait: str = "deadline"
) -> AsyncIterator[Host]:
    """Put a host on a pool of three quick attempts in front of a scripted server."""
    profiles = folder / "profiles.yaml"
    profiles.write_text(QUICK.format(url=server.url, max_wait=max_wait))
    async with Pool.load(profiles) as pool:
        yield make(pool, server.url)


async def a_chat(make: Make, folder: Path) -> None:
    """One call, one request, the right answer."""
    with fakes.Server() as server:
        async with protected(make, server, folder) as host:
            text = await host.ask("apples")

    assert text == fakes.said("apples")
    assert len(server.seen) == 1


async def a_stream(make: Make, folder: Path) -> None:
    """The chunks arrive whole and in order."""
    with fakes.Server() as server:
        async with protected(make, server, folder) as host:
            text = await host.stream("apples and pears")

    assert text == fakes.said("apples and pears")
    assert [seen.body["stream"] for seen in server.seen] == [True]


async def a_storm_of_refusals(make: Make, folder: Path) -> None:
    """20 calls at once to a server that takes two and says 429 to the rest: all are answered."""
    prompts = [f"fruit-{number}" for number in range(20)]
    with fakes.Server(slots=2, seconds=0.05) as server:
        async with protected(make, server, folder) as host:
            texts = await asyncio.gather(*map(host.ask, prompts))

    assert texts == [fakes.said(prompt) for prompt in prompts]
    assert server.refusals > 0
    only_our_attempts(server)


async def one_attempt_for_one_of_ours(make: Make, folder: Path) -> None:
    """A server that always fails sees our three attempts, and none of the SDK's own."""
    with fakes.Server(lambda _seen, _number: fakes.refused(500, "broken")) as server:
        async with protected(make, server, folder) as host:
            with pytest.raises(Exception, match=r"scripted broken|Internal|500"):
                await host.ask("apples")

    assert len(server.seen) == 3
    only_our_attempts(server)


async def a_refusal_inside_a_200(make: Make, folder: Path) -> None:
    """A stream that says 200 and then 503 before any content is asked for again; the SDK sees one good stream."""
    with fakes.Server(lambda _seen, number: fakes.refused_inside() if number == 0 else None) as server:
        async with protected(make, server, folder) as host:
            text = await host.stream("apples")

    assert text == fakes.said("apples")
    assert len(server.seen) == 2
    only_our_attempts(server)


def only_our_attempts(server: fakes.Server) -> None:
    """Each prompt's requests are numbered 1, 2, 3 ... by us, and all are the SDK's first try."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for seen in server.seen:
        numbers[seen.prompt].append(int(seen.headers["x-llm-client-attempt"]))

        assert seen.headers.get("x-stainless-retry-count", "0") == "0"
    for attempts in numbers.values():
        assert attempts == list(range(1, len(attempts) + 1))


ASKED = [a_chat, a_storm_of_refusals, one_attempt_for_one_of_ours]
STREAMED = [a_stream, a_refusal_inside_a_200]


def cases(**hosts: Make) -> list:
    """Pair each host with each scenario, by name."""
    return [
        pytest.param(scenario, make, id=f"{name}-{scenario.__name__}")
        for name, make in hosts.items()
        for scenario in (*ASKED, *STREAMED)
    ]
