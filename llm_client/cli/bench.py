"""`llm-client bench`: the built-in profile against clients that know the server, a perfect scheduler, and peers."""

from __future__ import annotations

import argparse
from statistics import median

from llm_client.cli import bench_overload
from llm_client.cli.bench_burst import SHAPES, Run, Shape, rounds, spread
from llm_client.errors import ConfigError


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmarks."""
    kinds = parser.add_subparsers(dest="kind", metavar="BENCHMARK", required=True)
    burst = kinds.add_parser("burst", help="all calls at once, nothing told about capacity")
    burst.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of {', '.join(SHAPES)} (all)")
    burst.add_argument("--rounds", type=int, default=5, help="rounds, the median counts (5)")
    burst.add_argument("--stream", action="store_true", help="stream the answers")
    burst.add_argument("--client", default="llm_client", help="whose ratio is judged: llm_client or openai+llm_client")
    burst.add_argument("--against", action="append", default=[], help="further clients, such as openai; repeatable")
    burst.add_argument("--line", type=float, help="judge by this ratio instead of the shape's own")
    burst.set_defaults(go=_bursts)
    loads = ", ".join(bench_overload.LOADS)
    overload = kinds.add_parser("overload", help="load over time against a perfect scheduler on the same arrivals")
    overload.add_argument("loads", nargs="*", metavar="LOAD", help=f"of {loads} (all); those of several words quoted")
    overload.add_argument("--reps", type=int, default=3, help="repetitions, pooled (3)")
    overload.add_argument("--duration", type=float, help="seconds of arrivals instead of 60")
    overload.add_argument("--stream", action="store_true", help="stream the answers")
    overload.add_argument("--client", default="llm_client", help="whose measures are judged")
    overload.add_argument("--against", action="append", default=[], help="further clients, such as openai; repeatable")
    overload.set_defaults(go=_overloads)


def run(options: argparse.Namespace) -> int:
    """Run the chosen benchmark; 1 when a line was crossed."""
    done: int = options.go(options)
    return done


def _bursts(options: argparse.Namespace) -> int:
    unknown = [name for name in options.shapes if name not in SHAPES]
    if unknown:
        raise ConfigError(f"no burst is called {', '.join(unknown)}; there are {', '.join(SHAPES)}")
    oracle = "openai+oracle" if options.client.startswith("openai") else "oracle"
    clients = [options.client, oracle, *options.against]
    crossed = False
    for name in options.shapes or SHAPES:
        shape = SHAPES[name]
        done = list(rounds(shape, clients, options.rounds, stream=options.stream))
        crossed |= _report(shape, clients, oracle, done, options)
    return 1 if crossed else 0


def _report(shape: Shape, clients: list[str], oracle: str, done: list[list[Run]], options: argparse.Namespace) -> bool:
    queue = "unbounded" if shape.queue is None else shape.queue
    print(
        f"burst {shape.name}{' streamed' if options.stream else ''}: {shape.calls} calls, {shape.slots} slots of "
        f"{shape.seconds:g} s, queue {queue}, Retry-After {shape.retry_after}, ideal {shape.ideal:g} s"
    )
    heads = f"{'makespan / ideal':>24} {'/ oracle':>24} {'sends':>7} {'early':>6} {'cpu ms':>7}"
    print(f"  {'client':<20} {'answered':>9} {heads}")
    crossed = False
    for client in clients:
        mine = [next(each for each in round_ if each.client == client) for round_ in done]
        told = [next(each for each in round_ if each.client == oracle) for round_ in done]
        ratios = [each.makespan / best.makespan for each, best in zip(mine, told, strict=True)]
        answered = min(each.answered for each in mine)
        sends = max(each.sends / max(1, each.answered) for each in mine)
        early = sum(each.early for each in mine)
        cpu = median(each.cpu for each in mine) / shape.calls * 1000
        print(
            f"  {client:<20} {answered:>9} {spread([each.makespan / shape.ideal for each in mine]):>24} "
            f"{spread(ratios):>24} {sends:>7.3f} {early:>6} {cpu:>7.2f}"
        )
        if client == options.client:
            line = options.line or shape.line
            crossed = median(ratios) > line or answered < shape.calls or early > 0
            print(f"  {'':<20} the line is {line:g} x the oracle: {'CROSSED' if crossed else 'held'}", flush=True)
    return crossed


def _overloads(options: argparse.Namespace) -> int:
    names = options.loads or list(bench_overload.LOADS)
    unknown = [name for name in names if name not in bench_overload.LOADS]
    if unknown:
        raise ConfigError(f"no load is called {', '.join(unknown)}; there are {', '.join(bench_overload.LOADS)}")
    failed = False
    for name in names:
        load = bench_overload.adapted(bench_overload.LOADS[name], duration=options.duration, stream=options.stream)
        clients = [options.client, *options.against]
        runs = [run for done in bench_overload.repetitions(load, clients, options.reps) for run in done]
        print(f"overload {name}{', streamed' if options.stream else ''}: {options.reps} repetitions", flush=True)
        for client in clients:
            measures = bench_overload.judge(load, [run for run in runs if run.client == client])
            print(f"  {client:<20} " + "  ".join(f"{key} {value:.3f}" for key, value in measures.items()), flush=True)
            if client == options.client:
                problems = bench_overload.crossed(load, measures)
                print(f"  {'':<20} {'CROSSED: ' + '; '.join(problems) if problems else 'all lines held'}", flush=True)
                failed |= bool(problems)
    return 1 if failed else 0
