"""`llm-client demo`: one exercise, three clients, and whether the promise holds."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from llm_client.cli.exercise import Act, Shape, built_in, classic, naive
from llm_client.cli.reference import ReferenceServer
from llm_client.cli.report import Sample, Sampler, page
from llm_client.cli.timeline import LEGEND, table, timeline

# What the third act promises.
REQUESTS_PER_CALL = 1.2
TIMES_IDEAL = 1.2


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shape of the exercise."""
    parser.add_argument("--queue", type=int, default=10, help="places in the server's queue (10)")
    parser.add_argument("--workers", type=int, default=2, help="requests the server works on at once (2)")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds per request (1.0)")
    parser.add_argument("--calls", type=int, default=20, help="calls made at once (20)")
    parser.add_argument(
        "--fast", action="store_true", help="a tenth of the time; then only counts and transitions are judged"
    )
    parser.add_argument("--report", metavar="FILE", help="draw queue, refusals and circuit over time (HTML)")
    parser.add_argument("--no-timeline", action="store_true", help="tables only")


def run(options: argparse.Namespace) -> int:
    """Play the three acts; 0 when the promises hold."""
    scale = 0.1 if options.fast else 1.0
    shape = Shape(options.queue, options.workers, options.seconds * scale, options.calls)
    print(
        f"A server with {shape.workers} workers, {shape.seconds:g} s a request and {shape.queue} places to wait; "
        f"{shape.calls} calls at once. The ideal is {shape.ideal:g} s.\n"
    )
    words = ("--queue", str(shape.queue), "--workers", str(shape.workers), "--seconds", str(shape.seconds))
    broken: list[str] = []
    played: list[tuple[Act, Sequence[Sample]]] = []
    for number, play in enumerate((naive, classic, built_in), 1):
        with ReferenceServer(*words) as server, Sampler(server, max(0.02, shape.seconds / 10)) as sampler:
            if play is classic:
                act = asyncio.run(classic(shape, server, reset=10.0 * scale))
            else:
                act = asyncio.run(play(shape, server))
        played.append((act, sampler.samples))
        print(f"Act {number}: {act.title}")
        print("\n".join(table(act)))
        if not options.no_timeline:
            print("\n".join(timeline(act)))
            print(LEGEND)
        print(flush=True)
        broken += [f"act {number}: {promise}" for promise in _broken(play.__name__, act, fast=options.fast)]
    if options.report:
        Path(options.report).write_text(page(played), encoding="utf-8")
        print(f"Drawn in {options.report}")
    for line in broken:
        print(f"PROMISE BROKEN, {line}", file=sys.stderr)
    if not broken:
        print("Every promise held.")
    return 1 if broken else 0


def _broken(name: str, act: Act, *, fast: bool) -> Iterator[str]:
    """Name the promises that did not hold."""
    shape, stats = act.shape, act.stats
    if any(not story.outcome for story in act.stories):
        yield "a call ended without answer or error"
    if name == "classic":
        if shape.calls <= shape.queue + shape.workers + 2:
            return  # too few calls to be refused three times
        steps = [new for _, _, new in act.transitions]
        if "open" not in steps or steps[-2:] != ["half_open", "closed"]:
            yield f"the circuit should open, probe and close again; it went {' -> '.join(steps) or 'nowhere'}"
        if not act.resumed:
            yield "no call was answered after the circuit closed"
    if name == "built_in":
        if act.answered != shape.calls:
            yield f"{act.answered} of {shape.calls} calls answered"
        if stats["arrived"] > REQUESTS_PER_CALL * shape.calls:
            yield f"{stats['arrived']} requests for {shape.calls} calls"
        if not fast and act.makespan > TIMES_IDEAL * shape.ideal:
            yield f"{act.makespan:.2f} s is more than {TIMES_IDEAL:g} x the ideal {shape.ideal:g} s"
