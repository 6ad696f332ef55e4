"""The shapes of the engine model: throughput over the batch, first-token times under overload; and their pictures.

`python -m tests.server.shapes docs/explanation` runs the model in virtual time and draws what came out.
"""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

from llm_client.server.batching import PRESETS, Batch, Preset, Sequence

PROMPT = 300
ANSWERS = (40, 120)  # tokens, uniform


def throughput(preset: Preset, width: int, prompt: int = 200, output: int = 100) -> float:
    """Tokens a second of `width` sequences decoding together."""
    batch = Batch(preset)
    for _ in range(width):
        batch.admit(Sequence(prompt=prompt, output=output))
    seconds, tokens, decoding = 0.0, 0, False
    while (step := batch.plan()) is not None:
        batch.commit(step)
        if decoding and len(step.decoding) == width:
            seconds += step.seconds
            tokens += width
        decoding = len(step.decoding) == width  # from here on all prompts are computed
    return tokens / seconds


def capacity(preset: Preset) -> float:
    """Requests a second with all slots full, prompts included."""
    batch, rng = Batch(preset), random.Random(3)
    seconds, done = 0.0, 0
    while done < 4 * preset.slots:
        while batch.fits(PROMPT):
            batch.admit(Sequence(prompt=PROMPT, output=rng.randint(*ANSWERS)))
        step = batch.plan()
        assert step is not None
        batch.commit(step)
        seconds += step.seconds
        done += len(step.finished)
    return done / seconds


def first_tokens(preset: Preset, load: float, bound: int | None, seconds: float = 60.0) -> list[tuple[float, float]]:
    """(arrival, wait for the first token) of an open loop at `load` times the capacity, behind a bounded queue."""
    rng = random.Random(7)
    rate = load * capacity(preset)
    batch = Batch(preset)
    waiting: list[Sequence] = []
    arrivals: dict[Sequence, float] = {}
    out: list[tuple[float, float]] = []
    now, upcoming = 0.0, rng.expovariate(rate)
    while now < seconds:
        while upcoming <= now:
            sequence = Sequence(prompt=PROMPT, output=rng.randint(*ANSWERS))
            if bound is None or len(waiting) < bound:
                arrivals[sequence] = upcoming
                waiting.append(sequence)
            upcoming += rng.expovariate(rate)
        while waiting and batch.fits(waiting[0].prompt):
            batch.admit(waiting.pop(0))
        step = batch.plan()
        if step is None:
            now = upcoming
            continue
        now += step.seconds
        batch.commit(step)
        out.extend((arrivals[each], now - arrivals[each]) for each in step.decoding if each.produced == 1)
    return out


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return sorted(values)[int(0.95 * (len(values) - 1))]


_COLOURS = ("#1a5fb4", "#c64600", "#26a269", "#813d9c")
_WIDTH, _HEIGHT, _LEFT, _TOP = 640, 320, 60, 20


def _round_up(value: float) -> float:
    """The next number that four ticks divide well."""
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.6, 2, 4, 6, 8, 10) if step * power >= value)


def draw(title: str, across: str, up: str, lines: dict[str, list[tuple[float, float]]]) -> str:
    """A line chart as SVG; readable on light and dark, and aloud by its title."""
    right, bottom = _WIDTH - 150, _HEIGHT - 45
    most_x = max(x for line in lines.values() for x, _ in line)
    most_y = _round_up(max(y for line in lines.values() for _, y in line))

    def at(x: float, y: float) -> str:
        return f"{_LEFT + x / most_x * (right - _LEFT):.1f},{bottom - y / most_y * (bottom - _TOP):.1f}"

    style = 'role="img" font-family="system-ui, sans-serif" font-size="12" fill="#777"'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {style}><title>{title}</title>']
    for tick in range(5):
        x, y = most_x * tick / 4, most_y * tick / 4
        out.append(f'<path d="M{at(0, y)} L{at(most_x, y)}" stroke="#8884"/>')
        height = float(at(0, y).split(",")[1]) + 4
        out.append(f'<text x="{_LEFT - 6}" y="{height:.1f}" text-anchor="end">{y:g}</text>')
        out.append(f'<text x="{at(x, 0).split(",")[0]}" y="{bottom + 16}" text-anchor="middle">{x:g}</text>')
    out.append(f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{across}</text>')
    out.append(f'<text transform="translate(14 {(bottom + _TOP) / 2}) rotate(-90)" text-anchor="middle">{up}</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(at(x, y) for x, y in line)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{right + 10}" y="{_TOP + 18 * number + 10}" fill="{colour}">{name}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def pictures() -> dict[str, str]:
    """File names and what is in them."""
    widths = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256)
    rates = {
        name: [(float(w), throughput(preset, w, output=40)) for w in widths if w <= preset.slots]
        for name, preset in PRESETS.items()
    }
    preset = PRESETS["l40s-7b"]
    waits: dict[str, list[tuple[float, float]]] = {}
    for name, bound in (("no bound", None), ("queue of 40", 40)):
        runs = first_tokens(preset, 1.5, bound)
        seconds = range(3, 50, 3)
        windows = [(float(at), [wait for arrival, wait in runs if at - 3 <= arrival < at]) for at in seconds]
        waits[name] = [(at, p95(window)) for at, window in windows if window]
    return {
        "engine-throughput.svg": draw(
            "Throughput grows with the batch and saturates", "sequences in the batch", "tokens a second", rates
        ),
        "engine-overload.svg": draw(
            "First tokens at one and a half times the capacity", "arrival, seconds", "95 % of first tokens, s", waits
        ),
    }


if __name__ == "__main__":
    for file, svg in pictures().items():
        (Path(sys.argv[1]) / file).write_text(svg)
