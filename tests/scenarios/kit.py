"""What the scenarios measure, and the figures that they print on request."""

from __future__ import annotations

from llm_client.testing.simulation import Kind, Scenario, quantile, simulate

SLOTS = 32


def batch(load, seconds, *, stream, clients=4, **more):
    """An open loop against continuous batching with 32 slots."""
    kinds = more.pop("kinds", (Kind(stream=stream),))
    return Scenario(server="batch", load=load, seconds=seconds, kinds=kinds, clients=clients, **more)


def play(name, scenario, *, seed=1, **more):
    """Simulate, and print what came of it: `pytest -rP` shows it."""
    report = simulate(scenario, seed=seed, **more)
    print(name, f"seed {seed}:", *report.table(), sep="\n  ")
    return report


def capacity(report):
    """Calls per second of a full batch, at the mean lengths of the kinds that were there from the start."""
    kinds = [kind for kind in report.scenario.kinds if kind.begin == 0.0]
    total = sum(kind.share for kind in kinds)
    return report.server.capacity(
        sum(kind.share * kind.prompt for kind in kinds) / total,
        sum(kind.share * kind.output for kind in kinds) / total,
    )


def goodput(report, begin, end):
    """Share of the capacity that was answered in time between two seconds."""
    return report.goodput(begin, end) / capacity(report)


def amplification(report):
    """Requests on the wire per call that was sent at all."""
    return report.server.books.arrived / max(1, sum(each.sends > 0 for each in report.outcomes))


def firsts(report, begin):
    """Median and 95th percentile of seconds from a request's arrival at the server to its first token."""
    ordered = sorted(seconds for at, seconds in report.server.books.firsts if at >= begin)
    return quantile(ordered, 0.5), quantile(ordered, 0.95)


def limits(report, begin, end, share):
    """Return a quantile of the limit, summed over the clients, between two seconds."""
    return quantile(sorted(each.limit for each in report.moments if begin <= each.at < end), share)


def feasible(report, outcome):
    """Tell whether a full batch could answer it before its deadline if it began at once."""
    server = report.server
    seconds = outcome.prompt / server.prefill + outcome.output * (server.step + server.per_job * server.slots)
    return seconds <= outcome.kind.deadline


def seeds(few, many):
    """Parameters: a few seeds always, the others when time is no matter."""
    import pytest

    marks = [pytest.param(seed, id=f"seed{seed}") for seed in few]
    return marks + [pytest.param(seed, id=f"seed{seed}", marks=pytest.mark.heavy) for seed in many]
