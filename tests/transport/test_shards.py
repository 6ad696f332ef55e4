"""Several small clients in the place of a large one."""

import itertools
import time

import pytest
from llm_client.flow.faults import Fault
from llm_client.transport.shards import SIZE, Shards
from tests.transport.kit import busy, pools, post
from tests.transport.rawserver import HANG, STREAM, RawServer, answer, event


def made(size, keep=5.0):
    """Shards of numbered clients."""
    return Shards(itertools.count().__next__, size=size, keep=keep)


def test_the_first_client_with_room_is_taken():
    """So that few are busy, and their connections are used again."""
    shards = made(2)
    taken = [shards.take(0.0) for _ in range(5)]
    assert [shard.client for shard in taken] == [0, 0, 1, 1, 2]
    shards.give(taken[0])
    shards.give(taken[3])

    assert [shards.take(0.0).client for _ in range(3)] == [0, 1, 2]
    assert list(shards) == [0, 1, 2]


def test_what_a_rush_needed_is_retired_later():
    """Not while it is busy, not at once, and never the last."""
    shards = made(1)
    taken = [shards.take(0.0) for _ in range(4)]
    for shard in (taken[0], taken[1], taken[3]):
        shards.give(shard)

    assert shards.retire(5.0) == []
    assert shards.retire(5.1) == [3]
    shards.give(taken[2])
    assert shards.retire(9.0) == [2, 1]
    assert shards.retire(99.0) == []
    assert list(shards) == [0]


def test_no_pool_grows_large(kit):
    """Forty answers at once are three pools; when the rush is over, two are closed, and their connections with them."""
    with RawServer(*([[STREAM, event("a"), HANG]] * 40), [answer()]) as server:
        transport = kit.make(keepalive=0.02)
        exchanges = [kit.send(transport, post(server.url())) for _ in range(40)]
        assert len(pools(transport)) == 3
        assert max(len(pool.connections) for pool in pools(transport)) == SIZE
        for exchange in exchanges:
            kit.close(exchange)
        for shards in kit.shards(transport):
            shards._keep = 0.02  # a second more, as a rule
        time.sleep(0.04)
        kit.fetch(transport, server.url())
        kit.tick(0.005)

        assert len(pools(transport)) == 1
        assert busy(transport) == []
        server.wait(lambda: server.open == 1)


def test_every_place_is_given_back(kit):
    """After answers, faults and drops alike."""
    with RawServer([answer()], [HANG], [STREAM, event("a"), HANG], [answer()]) as server:
        transport = kit.make()
        kit.fetch(transport, server.url())
        with pytest.raises(Fault):
            kit.send(transport, post(server.url()), within=0.2)
        kit.read(kit.send(transport, post(server.url())))
        kit.tick(0.005)
        kit.fetch(transport, server.url())

        assert [shard.active for shards in kit.shards(transport) for shard in shards._shards] == [0]
