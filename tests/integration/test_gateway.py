"""nginx between the client and the server: its own refusals are HTML, and are understood all the same."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from llm_client import AsyncClient, InternalServerError, LLMClientError, StreamInterruptedError
from tests.integration.gateways import listening
from tests.integration.replicas import free_ports
from tests.integration.shared import idle, message

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/bin")
CONFIG = Path(__file__).with_name("gateway.conf")

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


@pytest.fixture
def gateway(llm_server, tmp_path):
    """The address of nginx, in front of a reference server."""
    (port,) = free_ports(1)
    text = CONFIG.read_text().replace("UPSTREAM", llm_server.url.removeprefix("http://"))
    config = tmp_path / "nginx.conf"
    config.write_text(text.replace("LISTEN", f"127.0.0.1:{port}"))
    command = [NGINX, "-p", str(tmp_path), "-c", str(config), "-e", "stderr"]
    with listening(command, [port], tmp_path):
        yield f"http://127.0.0.1:{port}"


async def many(client, count, **options):
    """Make calls at once; return what became of them, and every attempt of theirs."""

    async def one(number):
        try:
            done = await client.chat.completions.create(model="m", messages=message(number), max_tokens=4, **options)
        except LLMClientError as error:
            return type(error).__name__, error.attempts
        return "ok", done.meta.attempts

    results = await asyncio.gather(*(one(number) for number in range(count)))
    return Counter(name for name, _ in results), [each for _, attempts in results for each in attempts]


@pytest.mark.llm_server(workers=16, seconds=0.05)
async def test_a_gateway_that_limits_the_rate_is_obeyed(gateway):
    """429 with an HTML page and Retry-After: every call is answered, and none comes back too early."""
    async with AsyncClient(base_url=f"{gateway}/often/v1") as client:
        outcomes, attempts = await many(client, 25)
        refused = [each for each in attempts if each.refusal]

        assert {"ok": 25} == outcomes
        assert refused
        assert {("rate_limited", 429, 1.0)} == {(each.kind, each.status, each.retry_after) for each in refused}
        assert {"closed"} == {each.breaker.state for each in client.pool.endpoints}
        assert idle(client.pool)


@pytest.mark.llm_server(workers=16, seconds=0.3)
async def test_a_gateway_that_limits_connections_teaches_the_limit(gateway):
    """429 without a time: the calls that are under way go on, the others wait at home."""
    async with AsyncClient(base_url=f"{gateway}/many/v1") as client:
        outcomes, attempts = await many(client, 16)

        assert {"ok": 16} == outcomes
        assert sum(each.refusal for each in attempts) <= 16
        assert idle(client.pool)


@pytest.mark.llm_server(workers=16, seconds=3.0)
@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [("slow", 504, "timeout"), ("nobody", 502, "unavailable"), ("unavailable", 503, "unavailable")],
)
async def test_a_gateways_page_becomes_an_error(gateway, path, status, kind):
    """Its status decides the kind; the page itself is no message for people."""
    async with AsyncClient(base_url=f"{gateway}/{path}/v1", profile={"retry": {"attempts": 1}}) as client:
        holders = []
        if path == "unavailable":
            holders = [
                asyncio.ensure_future(client.chat.completions.create(model="m", messages=message(n))) for n in range(2)
            ]
            await asyncio.sleep(0.5)
        with pytest.raises(LLMClientError) as caught:
            await client.chat.completions.create(model="m", messages=message(9))
        await asyncio.gather(*holders)
        error = caught.value

        assert (status, kind) == (error.attempts[-1].status, error.kind)
        assert "<" not in str(error)
        assert idle(client.pool)


@pytest.mark.llm_server(workers=4, seconds=0.2)
async def test_nobody_behind_the_gateway_falls_back_to_another(gateway, llm_server):
    """502 from one address: the calls go to the other, and the first one's circuit opens."""
    endpoints = [{"name": "dead", "base_url": f"{gateway}/nobody/v1"}, {"name": "live", "base_url": f"{gateway}/v1"}]
    async with AsyncClient(pool={"endpoints": endpoints}) as client:
        outcomes = Counter()
        for _ in range(5):
            found, _ = await many(client, 4)
            outcomes += found

        assert {"ok": 20} == outcomes
        assert len(llm_server.requests) == 20


@pytest.mark.llm_server(workers=4, seconds=0.4)
async def test_streams_come_through_in_pieces(gateway):
    """And a stream that is cut behind the gateway is an error with what was delivered."""
    async with AsyncClient(base_url=f"{gateway}/v1") as client:
        async with await client.chat.completions.create(model="m", messages=message(), stream=True) as chunks:
            times = [time.monotonic() async for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]

        assert len(times) > 3
        assert times[-1] - times[0] > 0.1


@pytest.mark.llm_server(workers=4, seconds=0.4)
async def test_a_stream_cut_behind_the_gateway(gateway, llm_server):
    """What was delivered is there; nothing is sent again."""
    llm_server.faults(cut=3, times=1)
    async with AsyncClient(base_url=f"{gateway}/v1") as client:
        chunks = await client.chat.completions.create(model="m", messages=message(), stream=True)
        with pytest.raises(StreamInterruptedError) as caught:
            await chunks.get_final_completion()

        assert caught.value.partial
        assert len(llm_server.requests) == 1
        assert idle(client.pool)


@pytest.mark.llm_server(workers=4, seconds=0.1)
async def test_a_page_with_status_500_is_retried(gateway, llm_server):
    """A body that is neither JSON nor short."""
    llm_server.faults(status=500, body="<html>" + "x" * 100_000, content_type="text/html", times=1)
    async with AsyncClient(base_url=f"{gateway}/v1") as client:
        done = await client.chat.completions.create(model="m", messages=message())

        assert [500, 200] == [each.status for each in done.meta.attempts]

    llm_server.faults(status=500, body="<html>" + "x" * 100_000, content_type="text/html")
    async with AsyncClient(base_url=f"{gateway}/v1", profile={"retry": {"attempts": 1}}) as client:
        with pytest.raises(InternalServerError) as caught:
            await client.chat.completions.create(model="m", messages=message())

        assert len(str(caught.value)) <= 500
