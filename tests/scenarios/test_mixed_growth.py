"""A few urgent calls keep places free, and must not keep batch work from what the server can do."""

from __future__ import annotations

from random import Random

import pytest
from llm_client.drivers.virtual import World
from tests.virtual import Bench, SlotServer

UNBOUNDED = 10**9


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("urgent", [0.5, 3.0])
def test_batch_work_finds_new_capacity_beside_a_few_urgent_calls(urgent, stream):
    """8 slots of 0.8 s become 32 at 30 s; batch work waits for all of them, one urgent call in a hundred or six.

    Once the less urgent were held to what windows had shown in flight, a share that so never grew: 14 answers per
    second of 40, for as long as one looked.
    """
    world = World()
    server = SlotServer(world, 8, UNBOUNDED, 0.8)
    bench = Bench(world=world, server=lambda _: server)
    answered = []
    for rate, priority, deadline in ((60.0, "low", 12.0), (urgent, "high", 4.0)):
        rng, at = Random(1), 0.0
        while (at := at + rng.expovariate(rate)) < 60.0:
            answered.append(bench.at(at, stream=stream, priority=priority, deadline=deadline))
    world.run(30.0)
    server.resize(32)
    world.run(60.0)

    in_time = [each.ended for each in answered if each.over and each.ok]
    assert sum(20.0 <= each < 30.0 for each in in_time) >= 95
    assert sum(50.0 <= each < 60.0 for each in in_time) >= 0.9 * 400  # streams of one class alone: 370 to 400
