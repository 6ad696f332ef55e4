"""A thousand calls were once given up on the word of one answer.

The line is shortened to what endpoints can do before the deadlines. What they can do was read off a limit that had
just begun to search, and off the first answer of a probe: a server with 64 slots seemed to do eight calls a second,
so calls with thirty seconds to go were refused that took eight seconds. Found over sockets, with a circuit that had
opened before the load came.
"""

from __future__ import annotations

import pytest
from tests.virtual import Bench, SlotServer, error_body, status


@pytest.mark.parametrize("broken", [False, True])
def test_a_burst_that_can_be_served_is_served(broken):
    """1,000 calls at 64 slots of half a second, 30 s each: none is given up, with a fresh pool or an open circuit."""
    bench = Bench(
        pool={"breaker": {"failures": 3, "open_for": 2.0}},
        profile={"retry": {"attempts": 1}, "deadline": 30.0},
        server=lambda world: SlotServer(world, 64, 2000, 0.5),
    )
    if broken:
        receive = bench.server.receive
        bench.server.receive = lambda exchange: status(500, error_body("boom"))(bench.server, exchange)
        for _ in range(3):
            bench.start()
        bench.world.run(0.5)
        bench.server.receive = receive
    calls = [bench.start(f"c{number}") for number in range(1000)]
    bench.run()

    assert [str(each.error) for each in calls if not each.ok] == []
