"""Draws acts of the exercise over time: queue, refusals and the circuit, in one HTML file without outside assets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Self

from llm_client.cli.exercise import Act
from llm_client.cli.reference import ReferenceServer
from llm_client.cli.timeline import table

WIDTH, HEIGHT, LEFT, BOTTOM = 860, 150, 46, 22
STYLE = (
    "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:920px;margin:2rem auto;padding:0 1rem}"
    "pre{background:#f4f4f4;padding:.6rem;overflow:auto}text{font-size:11px;fill:#444}</style>"
)
LEGEND = (
    "<p>Blue: calls in the server's queue. Grey: requests at work. Red: refusals so far. "
    "The band below: the client's circuit (green closed, red open, orange half open).</p>"
)
STATES = {"closed": "#2e7d32", "open": "#c62828", "half_open": "#ef6c00"}


@dataclass(frozen=True, slots=True)
class Sample:
    """The server's books at one moment; seconds since the act began."""

    at: float
    queued: int
    executing: int
    refused: int


class Sampler:
    """Reads the server's books in a thread of its own while an act is played."""

    def __init__(self, server: ReferenceServer, every: float) -> None:
        self.samples: list[Sample] = []
        self._server = server
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join(10)

    def _watch(self) -> None:
        began = time.monotonic()
        while True:
            at = time.monotonic() - began
            stats = self._server.stats()
            self.samples.append(Sample(at, stats["queued"], stats["executing"], stats["refused"]))
            if self._over.wait(self._every):
                return


def page(acts: Sequence[tuple[Act, Sequence[Sample]]]) -> str:
    """Return the HTML of all acts."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>llm-client demo</title>",
        STYLE,
        "<h1>What back-pressure does</h1>",
        LEGEND,
    ]
    for number, (act, samples) in enumerate(acts, 1):
        parts.append(f"<h2>Act {number}: {escape(act.title)}</h2>")
        parts.append(_chart(act, samples, number))
        parts.append(f"<pre>{escape(chr(10).join(table(act)))}</pre>")
    return "\n".join([*parts, "</html>"])


def _chart(act: Act, samples: Sequence[Sample], number: int) -> str:
    end = max([sample.at for sample in samples] + [story.ended for story in act.stories] + [0.1])
    top = max([max(s.queued, s.executing, s.refused) for s in samples] + [1])

    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT - 10) * at / end

    def y(value: float) -> float:
        return 8 + (HEIGHT - BOTTOM - 8) * (1 - value / top)

    lines = []
    for name, colour in (("executing", "#9e9e9e"), ("queued", "#1565c0"), ("refused", "#c62828")):
        points = " ".join(f"{x(s.at):.1f},{y(getattr(s, name)):.1f}" for s in samples)
        lines.append(f"<polyline fill='none' stroke='{colour}' stroke-width='2' points='{points}'/>")
    label = f"queue, work, refusals and circuit of act {number}"
    return "\n".join(
        [
            f"<svg viewBox='0 0 {WIDTH} {HEIGHT + 20}' role='img' aria-label='{label}'>",
            f"<line x1='{LEFT}' y1='{y(0):.1f}' x2='{WIDTH - 10}' y2='{y(0):.1f}' stroke='#bbb'/>",
            f"<text x='4' y='16'>{top}</text><text x='4' y='{y(0):.1f}'>0</text>",
            *lines,
            *_circuit(act, x, end),
            f"<text x='{LEFT}' y='{HEIGHT + 16}'>0 s</text>",
            f"<text x='{WIDTH - 60}' y='{HEIGHT + 16}'>{end:.1f} s</text>",
            "</svg>",
        ]
    )


def _circuit(act: Act, place: Callable[[float], float], end: float) -> list[str]:
    """Draw the band of the circuit's states."""
    changes = [(0.0, "closed"), *((at, new) for at, _, new in act.transitions), (end, "")]
    band = []
    for (begin, state), (until, _) in pairwise(changes):
        left, width = place(begin), max(0.5, place(until) - place(begin))
        band.append(
            f"<rect x='{left:.1f}' y='{HEIGHT - 12}' width='{width:.1f}' height='10' "
            f"fill='{STATES.get(state, '#777')}'><title>{state} from {begin:.1f} s</title></rect>"
        )
    return band
