"""Draws acts for a terminal: a table from the server's books, a line per call over time."""

from __future__ import annotations

from collections.abc import Iterator

from llm_client.cli.exercise import Act, Story

WIDTH = 60
LEGEND = "  . waiting at the caller   = at the server   x refused   * answered   ! gave up with an error"


def table(act: Act) -> list[str]:
    """The act in numbers, the server's own first."""
    stats, shape = act.stats, act.shape
    calls = len(act.stories)
    rows = [
        (
            "calls made",
            f"{calls}" + (f" ({shape.calls} at once, then one now and then)" if calls > shape.calls else ""),
        ),
        ("requests on the wire", f"{stats['arrived']}"),
        ("answered by the server", f"{stats['answered']}"),
        ("refused by the server", f"{stats['refused']}"),
        (f"answered of the first {shape.calls}", f"{act.answered}"),
        ("time for those", f"{act.makespan:.2f} s (ideal {shape.ideal:.2f} s, {act.makespan / shape.ideal:.2f} x)"),
    ]
    errors: dict[str, int] = {}
    for story in act.stories:
        if story.outcome != "ok":
            errors[story.outcome] = errors.get(story.outcome, 0) + 1
    if errors:
        rows.append(("told to callers", ", ".join(f"{number} x {kind}" for kind, number in sorted(errors.items()))))
    if act.transitions:
        steps = [act.transitions[0][1], *(f"{new} at {at:.1f} s" for at, _, new in act.transitions)]
        rows.append(("the circuit", " -> ".join(steps)))
    if act.resumed:
        rows.append(("answered after it closed", f"{act.resumed}"))
    return [f"  {name:<26} {value}" for name, value in rows]


def timeline(act: Act) -> Iterator[str]:
    """One line per call, from left to right in time."""
    end = max([story.ended for story in act.stories] or [1.0])
    scale = end / WIDTH
    shown = act.stories[:40]
    for number, story in enumerate(shown):
        yield f"  {number + 1:>3} {_line(story, scale)} {'' if story.outcome == 'ok' else story.outcome}".rstrip()
    if len(act.stories) > len(shown):
        yield f"      ... and {len(act.stories) - len(shown)} more"
    yield f"      0 s{'':<{WIDTH - 12}}{end:>7.1f} s"


def _line(story: Story, scale: float) -> str:
    cells = [" "] * (WIDTH + 1)
    for place in range(_cell(story.began, scale), _cell(story.ended, scale)):
        cells[place] = "."
    for began, ended, refused in story.sends:
        for place in range(_cell(began, scale), _cell(ended, scale) + 1):
            cells[place] = "="
        if refused:
            cells[_cell(ended, scale)] = "x"
    last = _cell(story.ended, scale)
    if story.outcome == "ok":
        cells[last] = "*"
    elif cells[last] != "x":
        cells[last] = "!"
    return "".join(cells)


def _cell(at: float, scale: float) -> int:
    return min(WIDTH, int(at / scale))
