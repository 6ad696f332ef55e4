"""Calls with thirty seconds to go were once given up as hopeless while a replica restarted.

A line that serves its newest first gives up its oldest when more calls come than go. Two of four replicas were out,
one restarting and one whose circuit had yet to probe: for a moment more came than went, and every call that had
waited a quarter of its deadline was refused, though the replica was back seconds later and the whole line would have
been served in two. Rates that were measured without an endpoint foretell nothing while it is about to return.
Found by the rolling restart in virtual time, with one seed of three.
"""

from __future__ import annotations

from llm_client.drivers.virtual import World
from tests.compose.test_fleet import Fleet
from tests.virtual import Bench, FaultKind, SlotServer, fault


class Away(SlotServer):
    """Fails between two instants."""

    def __init__(self, world, begin, end):
        super().__init__(world, 4, 100, 1.0)
        self.begin, self.end = begin, end

    def receive(self, exchange):
        if self.begin <= self.world.now < self.end:
            fault(FaultKind.CONNECT_REFUSED, after=0.001, sent=False)(self, exchange)
        else:
            super().receive(exchange)


def test_nobody_is_given_up_while_a_replica_is_away_for_a_moment():
    """Seven calls a second for two replicas that do four each, one of them out for 15 s: all answers come in time."""
    world = World()
    fleet = Fleet(world, {"a": SlotServer(world, 4, 100, 1.0), "b": Away(world, 20.0, 35.0)})
    bench = Bench(hosts=("a", "b"), world=world, server=lambda _: fleet, profile={"deadline": 30.0})
    results = [bench.at(n / 7.0) for n in range(7 * 60)]
    bench.run()

    assert [str(each.error) for each in results if not each.ok] == []
