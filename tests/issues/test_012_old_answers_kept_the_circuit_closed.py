"""A server went out of service: it answered whatever was new with a plain 503 and finished what it had.

Every answer to an old call ended the row of failures, and streams that still delivered were taken for life, so the
circuit stayed closed for as long as those lasted, and calls were spent on it: 20 requests in an outage of four seconds
where 12 are the line, and 4 % of all calls failed. Now a streak is read in the order of sending.
"""

from __future__ import annotations

import pytest
from tests.virtual import Bench, SlotServer, status


class Leaving(SlotServer):
    """Fails what is new for four seconds, and finishes what it has."""

    def __init__(self, world):
        super().__init__(world, 8, 16, 1.6)
        self.failed = []

    def _arrive(self, exchange):
        if 3.0 <= self.world.now < 7.0:
            self.failed.append(self.world.now)
            status(503, b"upstream connect error", after=0.002)(self, exchange)
        else:
            super()._arrive(exchange)


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_fails_all_that_is_new_is_left_alone(stream):
    """Five calls and a few probes find out, and nobody's call is lost."""
    bench = Bench(server=Leaving)
    calls = [bench.at(0.25 * n, f"c{n}", stream=stream, deadline=30.0) for n in range(40)]
    bench.world.run(60.0, done=lambda: all(each.over for each in calls))

    assert 5 <= len(bench.server.failed) <= 12
    assert [str(each.error) for each in calls if not each.ok] == []
