"""The latency form: a target for whole answers, and a limit that keeps their mean below it.

Coarse beside the adaptive limit, since an answer's latency is mostly its length. It suits work of one size, such as
embeddings, or a service that promises a response time.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

from llm_client.core.concurrency import FixedLimit, Slot
from llm_client.errors import ConfigError

Pressure = Literal["low", "watch", "refuse"]

START = 4.0  # calls in flight, as the adaptive limit
WARM = 10  # answers before the mean is believed
CUT = 0.5  # smallest factor of one decrease


class LatencyWindow:
    """The mean latency of the last answers against a target.

    Attributes:
        target: seconds that are load 1.0.
        watch: load from which on the limit stops growing and producers should slow down.
        refuse: load from which on the limit shrinks and new work should be refused.
    """

    __slots__ = ("_latencies", "_sum", "refuse", "target", "watch")

    def __init__(self, *, target: float = 2.0, window: int = 100, watch: float = 1.0, refuse: float = 1.5) -> None:
        """Take the target in seconds, the window in answers, and the two loads.

        Raises:
            ConfigError: a number is out of range or the loads are not in order.
        """
        if not target > 0.0:
            raise ConfigError(f"latency.target: expected seconds above 0, got {target!r}")
        if window < 1:
            raise ConfigError(f"latency.window: expected at least 1 answer, got {window!r}")
        if not 0.0 < watch <= refuse:
            raise ConfigError(f"latency.watch: expected 0 < watch <= refuse, got watch {watch!r}, refuse {refuse!r}")
        self._latencies: deque[float] = deque(maxlen=window)
        self._sum = 0.0
        self.target = target
        self.watch = watch
        self.refuse = refuse

    def __len__(self) -> int:
        """Count the answers seen, at most the window."""
        return len(self._latencies)

    def note(self, latency: float) -> None:
        """Take the latency of one answer, in seconds."""
        kept = self._latencies
        if len(kept) == kept.maxlen:
            self._sum -= kept[0]
        kept.append(latency)
        self._sum += latency

    def clear(self) -> None:
        """Forget all answers."""
        self._latencies.clear()
        self._sum = 0.0

    @property
    def size(self) -> int:
        """The window, in answers."""
        return self._latencies.maxlen or 0

    @property
    def load(self) -> float:
        """Mean latency over target; 0.0 before the first answer."""
        return self._sum / len(self._latencies) / self.target if self._latencies else 0.0

    @property
    def pressure(self) -> Pressure:
        """What a producer should do: nothing, slow down, or stop."""
        load = self.load
        return "low" if load <= self.watch else "watch" if load <= self.refuse else "refuse"


class LatencyLimit(FixedLimit):
    """Grows by one call per round while answers are fast, holds above `watch`, shrinks above `refuse`; at least 1.

    A refused call keeps its place closed until its Retry-After, as with the fixed limit.
    """

    __slots__ = ("_epoch", "_limited_at", "_max", "_window")

    def __init__(
        self,
        *,
        target: float = 2.0,
        window: int = 100,
        watch: float = 1.0,
        refuse: float = 1.5,
        maximum: int = 1024,
        retry_after_scope: str = "call",
    ) -> None:
        """Take the target in seconds, the window in answers, two loads, and the largest limit in calls.

        Raises:
            ConfigError: a number is out of range.
        """
        super().__init__(maximum, retry_after_scope=retry_after_scope)
        self._max = self.limit
        self.limit = min(START, self._max)
        self._window = LatencyWindow(target=target, window=window, watch=watch, refuse=refuse)
        self._limited_at = float("-inf")  # when a call last waited for this limit
        self._epoch = 0

    @property
    def pressure(self) -> Pressure:
        """What a producer should do: nothing, slow down, or stop."""
        return self._window.pressure

    def press(self, now: float, backlog: float) -> float:
        """Remember that a call waits, so that the next fast answer may raise the limit. Answers as `may_send`."""
        wait = super().press(now, backlog)
        if wait > 0.0:
            self._limited_at = now
        return wait

    def sent(self, now: float, *, stream: bool, prompt: float = 0.0) -> Slot:
        """Take a place."""
        slot = super().sent(now, stream=stream, prompt=prompt)
        slot.epoch = self._epoch
        return slot

    def done(self, slot: Slot, now: float, *, prompt_tokens: float | None, output_tokens: float | None) -> None:
        """Give the place back and move the limit, by answers that were sent under it."""
        if not slot.open:
            return
        super().done(slot, now, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        if slot.epoch != self._epoch:
            return
        window = self._window
        window.note(now - slot.sent_at)
        if window.load <= window.watch:
            if self._limited_at >= slot.sent_at:
                self.limit = min(self._max, self.limit + 1.0 / self.limit)
        elif window.load > window.refuse and len(window) >= min(WARM, window.size):
            # Little's law, as if all of the latency were waiting; the floor of one step guards against that.
            self.limit = max(1.0, self.limit * max(CUT, window.watch / window.load))
            self._restart()

    def recovered(self, now: float) -> None:
        """Start again from a quarter of the old limit."""
        super().recovered(now)
        self.limit = max(1.0, self.limit / 4.0)
        self._restart()

    def _restart(self) -> None:
        self._epoch += 1
        self._window.clear()
