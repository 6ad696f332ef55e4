"""Curves of a simulation as one SVG, alone or in a page that needs nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil

from llm_client.testing.simulation import Report

WIDTH, HEIGHT, LEFT, GAP = 760, 150, 60, 50
# Seconds over which goodput is averaged.
WINDOW = 10.0
# No wider than the picture has points to show.
MOST_POINTS = 600

STYLE = """<style>
text { font: 12px sans-serif; fill: #444 }
path { fill: none; stroke-width: 1.5 }
.a { stroke: #1f5fa8 }
.b { stroke: #c0662b }
.axis { stroke: #999; stroke-width: 1 }
</style>"""

Curve = Sequence[tuple[float, float]]


def page(report: Report, title: str, *, html: bool) -> str:
    """Draw limit, waiting calls and goodput over time; `html` puts the table beneath."""
    end = max(1.0, report.seconds)
    panels: list[tuple[str, list[Curve]]] = [
        ("calls that may be in flight, and that are", [_limits(report), _inflight(report)]),
        ("calls waiting at home", [[(each.at, float(each.waiting)) for each in report.moments]]),
        (f"answers in time per second, mean of {WINDOW:g} s", [_goodput(report)]),
    ]
    height = len(panels) * (HEIGHT + GAP) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + LEFT + 20} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        STYLE,
        f'<text x="{LEFT}" y="18" style="font-weight:bold">{escape(title)}</text>',
    ]
    for number, (name, curves) in enumerate(panels):
        parts += _panel(name, [_thin(curve) for curve in curves], 45 + number * (HEIGHT + GAP), end)
    svg = "\n".join([*parts, "</svg>"])
    if not html:
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{svg}\n'
    table = escape("\n".join(report.table()))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head>\n'
        f'<body style="max-width:60rem;margin:auto;background:#fff">\n{svg}\n<pre>{table}</pre>\n</body></html>\n'
    )


def _limits(report: Report) -> Curve:
    return [(each.at, each.limit) for each in report.moments]


def _inflight(report: Report) -> Curve:
    return [(each.at, float(each.inflight)) for each in report.moments]


def _goodput(report: Report) -> Curve:
    buckets = [0] * (ceil(report.seconds / WINDOW) + 1)
    for each in report.outcomes:
        if each.on_time:
            buckets[int(each.ended / WINDOW)] += 1
    full = int(report.seconds / WINDOW)
    if not full:
        return [(0.0, report.goodput()), (report.seconds, report.goodput())]
    return [((number + 0.5) * WINDOW, count / WINDOW) for number, count in enumerate(buckets[:full])]


def _thin(curve: Curve) -> Curve:
    step = max(1, ceil(len(curve) / MOST_POINTS))
    return curve[::step]


def _panel(name: str, curves: list[Curve], top: int, end: float) -> list[str]:
    finite = [value for curve in curves for _, value in curve if value < float("inf")]
    most = max([*finite, 1e-9]) * 1.05
    bottom = top + HEIGHT
    parts = [
        f'<text x="{LEFT}" y="{top - 6}">{escape(name)}</text>',
        f'<path class="axis" d="M{LEFT} {top}V{bottom}H{LEFT + WIDTH}"/>',
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{most:.3g}</text>',
        f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<text x="{LEFT + WIDTH}" y="{bottom + 14}" text-anchor="end">{end:.0f} s</text>',
    ]
    for style, curve in zip("ab", curves, strict=False):
        points = [
            f"{LEFT + WIDTH * min(1.0, at / end):.1f} {bottom - HEIGHT * min(1.0, value / most):.1f}"
            for at, value in curve
        ]
        if points:
            parts.append(f'<path class="{style}" d="M{"L".join(points)}"/>')
    return parts
