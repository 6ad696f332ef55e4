"""The whole corpus through the whole stack: gate, flows, delivery, errors; every body cut anew in five ways.

The JSON is read, so a new case is one more row.
"""

from __future__ import annotations

import pytest
from llm_client.flow.faults import FaultKind
from llm_client.model import Headers
from llm_client.wire import route_of
from llm_client.wire.stream import StreamReader
from tests.virtual import Bench
from tests.wire.harness import load, recut, script, verdict

CASES = load()
CUTS = [None, 1, 2, 3, 7]


class Seen(Bench):
    """A bench whose clock shows the case's date, and which remembers what the gate was told last."""

    def __init__(self, case):
        super().__init__(profile={"retry": {"attempts": 1}})
        self.world.wall = lambda: case.wall
        self.outcome = None
        settle = self.pool.gate.settle

        def told(permit, outcome, now, usage):
            self.outcome = outcome
            settle(permit, outcome, now, usage)

        self.pool.gate.settle = told


def serve(case, chunks):
    """Answer as the case says: what it sends, and how the connection ends."""

    def handle(server, exchange):
        world = server.world
        if case.status is not None:
            world.at(world.now, exchange.respond, case.status, Headers(case.headers))
            for chunk in chunks:
                if chunk:
                    world.at(world.now, exchange.push, chunk)
        if case.transport is None:
            world.at(world.now, exchange.end)
        else:
            sent = case.transport not in {"connect_refused", "dns_error", "tls_error", "connect_timeout"}
            world.at(world.now, lambda: exchange.fail(FaultKind(case.transport), sent=sent))

    return handle


def carry_out(case, chunks):
    """Run one call of the case's kind."""
    bench = Seen(case)
    bench.server.script(serve(case, chunks))
    result = bench.start(stream=case.stream, route=route_of(case.path), fallback=None)
    bench.run()
    return bench, result


def text_of(case, result):
    """Return the text that the caller got: whole, streamed or partial."""
    if result.error is not None:
        return getattr(result.error, "partial", "") or None
    reply = result.reply
    if reply.delivery is not None:
        return result.text
    reader = StreamReader(route_of(case.path), headers=reply.headers, wall=case.wall)
    reader.feed(reply.body)
    reader.end()
    return reader.text


@pytest.mark.parametrize("raw", CASES, ids=[case["id"] for case in CASES])
def test_case(raw):
    """Outcome, kind, wait, breaker and overload marks, text: the same however the body is cut."""
    case, expect = script(raw), raw["expect"]
    streamed = case.status == 200 and len(b"".join(case.chunks)) < 20_000
    for cut in CUTS if streamed else [None]:
        bench, result = carry_out(case, recut(case.chunks, cut))
        outcome = bench.outcome

        assert expect["outcome"] == verdict(outcome), f"cut {cut}"
        assert expect["error_kind"] == (None if outcome.ok else str(outcome.kind)), f"cut {cut}"
        assert bool(expect.get("breaker")) == outcome.breaker
        assert bool(expect.get("overload")) == outcome.overload
        assert expect["retry_after_s"] == (None if outcome.hint is None else pytest.approx(outcome.hint.seconds))
        if route_of(case.path) in {"chat", "completions", "responses"}:
            assert expect["text"] == text_of(case, result), f"cut {cut}"
        if expect["outcome"] == "ok":
            assert result.ok
        else:
            assert outcome.kind in {result.error.kind, "deadline"}
            assert result.error.retry_after == (None if outcome.hint is None else outcome.hint.seconds)
        assert sum(bench.idle().values()) == 0
