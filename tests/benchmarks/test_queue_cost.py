"""An operation on the queue costs with a million calls waiting hardly more than with a thousand."""

from __future__ import annotations

import pytest
from tests.benchmarks.queue_cost import LINE, MEASURED, Queue, measure


@pytest.mark.heavy
def test_a_million_waiting_calls_cost_no_more_than_three_times_a_thousand():
    """Enqueue, dequeue, displace, cancel in the middle, sweep: medians of ten interleaved rounds."""
    result = measure()

    assert set(MEASURED) == set(result)
    for name, (few, many) in result.items():
        assert many <= LINE * few, name


@pytest.mark.parametrize("name", MEASURED)
def test_the_measurement_leaves_the_queue_as_it_was(name):
    """Every operation is measured on a queue of the stated size, or the figures compare different things."""
    queue = Queue(300)
    for _ in range(3):
        assert MEASURED[name](queue) > 0.0
        assert queue.room.count == 300
