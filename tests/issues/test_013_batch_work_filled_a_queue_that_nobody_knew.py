"""The ramp of a new limit filled a strange server's queue with batch work, and urgent calls stood behind it for seconds.

At ten times the capacity with one call in five urgent, sixteen to twenty batch calls were under way before the first
answer came: each round of silence let four more go, whoever they were. Now the less urgent get what answers and time
have proven, while more urgent calls are about; nobody else is held back.
"""

from __future__ import annotations

from llm_client.drivers.virtual import World
from tests.virtual import Bench, SlotServer


def sent_before_the_first_answer(*, urgent):
    world = World()
    server = SlotServer(world, 8, 16, 2.0)
    bench = Bench(world=world, server=lambda _: server)
    for _ in range(urgent):
        bench.at(0.0, priority="high")
    for _ in range(40):
        bench.at(0.01, priority="low")
    world.run(1.5)
    return server.busy + len(server.line)


def test_batch_work_waits_for_proof_while_urgent_calls_are_about():
    """Four calls and what a second and a half adds, not the thirty that silence would let go."""
    assert sent_before_the_first_answer(urgent=2) <= 6


def test_batch_work_alone_is_not_held_back():
    """A ramp as ever: all eight places are found before the first answer."""
    assert sent_before_the_first_answer(urgent=0) >= 12


def test_one_urgent_call_is_no_traffic():
    """A warm-up call held 2,000 others back for ten seconds: a tenth of their time."""
    assert sent_before_the_first_answer(urgent=1) >= 12
