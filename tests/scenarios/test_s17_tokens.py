"""Token limits: what was reserved too much comes back, and nobody passes for free (S17, S18)."""

from __future__ import annotations

import random

import pytest
from llm_client.core.cost import Estimator
from llm_client.wire.measure import measure
from tests.scenarios.kit import seeds
from tests.virtual import Bench, completion, status


def usage(prompt, output, *, told=True):
    """An answer that says what it cost, or does not."""
    body = completion("hello", output).replace(b'"prompt_tokens": 3', b'"prompt_tokens": %d' % prompt)
    body = body.replace(b'"total_tokens": %d' % (3 + output), b'"total_tokens": %d' % (prompt + output))
    return status(200, body if told else body.replace(b'"usage"', b'"unused"'), after=1.0)


def served(seed, *, told):
    """Ten minutes of more calls than a limit of 60,000 tokens a minute allows; return (second, tokens) of each."""
    pool = {
        "limits": {"total": {"tokens": {"rate": "60000/min", "burst": 6000}, "pessimistic": not told}},
        "queue": {"size": 100_000},
        "concurrency": {"kind": "off"},
    }
    bench = Bench(seed=seed, pool=pool, profile={"deadline": None})
    rng = random.Random(seed)
    spent = []

    def handle(server, exchange):
        output = min(4096, max(1, round(200 * rng.lognormvariate(-0.245, 0.7))))
        spent.append((server.world.now, 50 + output))
        usage(50, output, told=told)(server, exchange)

    bench.server.default = handle
    at = 0.0
    while at < 600.0:
        at += rng.expovariate(5.0)
        bench.at(at, "x" * 200, body={"max_tokens": 4096})
    bench.world.run(600.0)
    return spent


@pytest.mark.parametrize("seed", seeds([1], [2, 3, 4, 5]))
def test_s17_a_limit_is_used_up_and_never_passed(seed):
    """Bounds of 4096 tokens, answers of 200: 90-100 % of the limit is used, and no minute exceeds it."""
    spent = served(seed, told=True)
    used = sum(tokens for _, tokens in spent) / (60_000 * 10)
    print("used", used)

    # The ten minutes begin with a full burst.
    assert 0.90 <= used <= 1.0 + 6000 / 600_000
    worst = max(sum(tokens for at, tokens in spent if start <= at < start + 60.0) for start in range(541))
    print("worst minute", worst)

    # What a call costs beyond its estimate is known a second later, and paid for then.
    assert worst <= (60_000 + 6000) * 1.01


def test_s17_without_settlement_hardly_anything_is_used():
    """The sanity of the harness: bounds reserved in full and never settled leave the limit idle."""
    spent = served(1, told=False)

    assert sum(tokens for _, tokens in spent) / 600_000 < 0.15


def test_s18_concurrent_calls_are_admitted_within_the_limit():
    """Five calls at once against 100 tokens a minute: what is admitted was there."""
    bench = Bench(
        pool={"limits": {"total": {"tokens": {"rate": "100/min", "burst": 100}, "pessimistic": True}}},
        profile={"deadline": "30s"},
    )
    size = measure(bench.call("x" * 40).data)
    cost = Estimator(pessimistic=True).estimate("m", size, max_tokens=40).total
    for _ in range(5):
        bench.start("x" * 40, body={"max_tokens": 40})

    assert 40 < cost <= 100
    assert len(bench.server.requests) == 100 // cost

    bench.run(29.0)

    # Answers of 8 tokens give back what they did not use, and the limit refills by 1.67 a second.
    assert sum(each.ok for each in bench.results) * 8 <= 100 + 100 * 29 / 60
