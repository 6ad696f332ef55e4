"""The second limit: tokens of the calls in flight at one endpoint."""

from __future__ import annotations

import json

from tests.virtual import IDLE, Bench, Server, answer

WORDS = "w " * 40


class Counting(Server):
    """Counts how many calls, and how many `max_tokens` of theirs, it has at once."""

    def __init__(self, world):
        super().__init__(world, answer(1.0))
        self.tokens = self.most = self.now_in = self.most_in = 0

    def receive(self, exchange):
        size = json.loads(exchange.request.body)["max_tokens"]
        self.tokens, self.now_in = self.tokens + size, self.now_in + 1
        self.most, self.most_in = max(self.most, self.tokens), max(self.most_in, self.now_in)
        self.world.at(self.world.now + 1.0, self._gone, size)
        super().receive(exchange)

    def _gone(self, size):
        self.tokens, self.now_in = self.tokens - size, self.now_in - 1


def bench(tokens, **more):
    return Bench(pool={"concurrency": {"kind": "fixed", "limit": 50, "tokens": tokens, **more}}, server=Counting)


def test_tokens_in_flight_stay_below_the_bound():
    """Forty calls of 200 tokens under 1,000: four at a time with their prompts, never five, though fifty may go."""
    made = bench(1000)
    for _ in range(40):
        made.start(WORDS, body={"max_tokens": 200})
    made.run()

    assert all(each.ok for each in made.results)
    assert made.server.most <= 1000
    assert made.server.most_in >= 4
    assert made.idle() == IDLE
    assert made.station.tokens == 0.0


def test_a_call_above_the_bound_goes_alone_and_is_not_overtaken():
    """It waits until nothing is in flight; those behind it wait for it, or it would wait for ever."""
    made = bench(1000)
    before = [made.start(WORDS, body={"max_tokens": 200}) for _ in range(3)]
    large = made.start(200 * WORDS, body={"max_tokens": 200})
    after = [made.start(WORDS, body={"max_tokens": 200}) for _ in range(3)]
    made.run()

    assert all(each.ok for each in [*before, large, *after])
    assert max(each.ended for each in before) <= large.ended - 1.0
    assert min(each.ended for each in after) >= large.ended + 1.0


def test_a_cancelled_call_gives_its_tokens_back():
    """What waits behind it goes."""
    made = bench(300)
    first = made.start(WORDS, body={"max_tokens": 200})
    second = made.start(WORDS, body={"max_tokens": 200})
    made.world.run(0.5)
    first.process.cancel(KeyboardInterrupt())
    made.run()

    assert second.ok
    assert second.ended < 1.9
    assert made.station.tokens == 0.0
