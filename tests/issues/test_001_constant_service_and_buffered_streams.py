"""The adaptive limit once fell to one call on an idle server, where its signal told nothing of the queue.

Two shapes did it. A server that takes the same time for every answer, however long: output tokens explained nothing,
the whole answer time passed for queueing, and the limit was cut until calls went one at a time, eleven times slower
than the server could. And a proxy that buffers streams, so that the first content comes with the last: its delay
passed for queueing as well, thirteen times too slow. Found by playing both against the whole stack.
"""

from __future__ import annotations

import pytest
from llm_client.testing.simulation import Kind, Scenario, simulate
from tests.virtual import Bench, SlotServer, answer


@pytest.mark.parametrize("seconds", [0.2, 2.0])
def test_a_constant_service_time_is_no_queueing(seconds):
    """Token counts vary, answer times do not: the burst takes about the ideal time."""
    report = simulate(Scenario(burst=200, settings={"seconds": seconds}, kinds=[Kind(deadline=None)]))

    assert report.answered == 200
    assert report.makespan <= 1.15 * 25 * seconds


class Buffered(SlotServer):
    """Sends a stream in one piece when it is complete, as a buffering proxy does."""

    def _start(self, exchange):
        self.busy += 1
        self.world.at(self.world.now + self.seconds, self._finish, exchange)

    def _finish(self, exchange):
        self.busy -= 1
        while self.line and self.busy < self.slots:
            self._start(self.line.popleft())
        answer(0.001)(self, exchange)


def test_a_buffered_stream_is_no_queueing():
    """First content and end come together: the burst takes about the ideal time."""
    bench = Bench(server=lambda world: Buffered(world, 8, 8, 0.2, 1.0))
    for number in range(200):
        bench.start(f"c{number}", stream=True)
    bench.run()

    assert all(each.ok for each in bench.results)
    assert max(each.ended for each in bench.results) <= 1.15 * 25 * 0.2
