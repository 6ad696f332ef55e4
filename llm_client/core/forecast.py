"""How soon an endpoint answers at best: what tells a call that can still be in time from one that cannot."""

from __future__ import annotations

from collections import deque

# Fewer answers say too little to refuse a call on their word.
ENOUGH = 8
RECENT = 100
# ... and of these the last ones alone, if they came sooner: a server that recovers must not be judged by its worst.
LATEST = 16
# Answers among which nine in ten are sooner than what a call must be given, not to be sent in vain.
SAFE = 32
# The quarter of answers that came soonest: a forecast that refuses calls must err on the hopeful side.
HOPEFUL = 0.25


class Forecast:
    """Recent answer times of one endpoint. Guarded by its owner.

    An answer time contains the server's own queueing and depends on the output's length: its lower quartile is
    nearly free of the first, and a call that will write less than the usual is foreseen to take less in
    proportion.
    """

    __slots__ = ("_best", "_seconds", "_stale", "_tokens", "_usual")

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=RECENT)
        self._tokens: deque[float] = deque(maxlen=RECENT)
        self._best = 0.0
        self._usual = 0.0
        self._stale = 0

    def note(self, seconds: float, output_tokens: float | None) -> None:
        """Take in the answer time of a call that went well."""
        self._seconds.append(seconds)
        self._tokens.append(output_tokens or 0.0)
        self._stale += 1

    @property
    def mean(self) -> float:
        """Mean answer time of the latest calls; 0.0 while too little is known."""
        if len(self._seconds) < ENOUGH:
            return 0.0
        latest = list(self._seconds)[-LATEST:]
        return sum(latest) / len(latest)

    @property
    def safe(self) -> float:
        """Answer time that nine in ten of the latest calls kept; 0.0 while too little is known."""
        if len(self._seconds) < ENOUGH:
            return 0.0
        latest = sorted(list(self._seconds)[-SAFE:])
        return latest[int(0.9 * len(latest))]

    def seconds(self, output_tokens: float) -> float:
        """Return seconds from send to the end of such an answer, hopefully; 0.0 while nothing is known."""
        count = len(self._seconds)
        if count < ENOUGH:
            return 0.0
        if self._stale * 8 >= count:  # sorting a hundred numbers per answer is not worth the last one
            self._stale = 0
            answers = list(self._seconds)
            self._best = min(_hopeful(answers), _hopeful(answers[-LATEST:]))
            self._usual = sorted(self._tokens)[count // 2]
        if self._usual > 0.0 and output_tokens < self._usual:
            return self._best * output_tokens / self._usual
        return self._best


def _hopeful(answers: list[float]) -> float:
    return sorted(answers)[int(len(answers) * HOPEFUL)]
