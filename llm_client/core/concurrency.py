"""How many calls may be in flight at one endpoint: the protocol, the fixed form and the absent one.

A limit decides by counting; it never waits. `may_send` is a question, `sent` takes the place, and exactly one of
`done`, `refused`, `failed` and `dropped` gives it back: a second settlement of the same slot does nothing.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from math import inf
from typing import Protocol

from llm_client.errors import ConfigError


class Slot:
    """One call in flight, as the limit saw it leave.

    Attributes:
        sent_at: monotonic seconds.
        level: calls in flight, this one included, when it was sent.
        epoch: the overshoot epoch of the limit it was sent in.
        stream: whether a first content is expected before the end.
        prompt: estimated prompt tokens.
        held: sent while growth was frozen, so it only replaced an answered call.
        probe: the one call above the known ceiling.
        refusals: refusals the limit had counted when it was sent.
        seen: its first content arrived, `first_after` seconds after it was sent.
        open: not settled yet.
        wait: seconds that it waited in the server, as far as known; this and the following are set with its sample.
        delay: seconds until its first content, or until the whole answer.
        output: tokens of its answer; 0.0 when unknown.
        streamed: judged by its first content.
        lost: given up unanswered, so it waited at least this long.
    """

    __slots__ = (
        "delay",
        "epoch",
        "first_after",
        "held",
        "level",
        "lost",
        "open",
        "output",
        "probe",
        "prompt",
        "refusals",
        "seen",
        "sent_at",
        "stream",
        "streamed",
        "wait",
    )
    delay: float
    lost: bool
    output: float
    streamed: bool
    wait: float

    def __init__(self, sent_at: float, level: int, stream: bool, prompt: float, epoch: int = 0) -> None:
        """Take a place; the adaptive limit fills in the rest."""
        self.sent_at = sent_at
        self.level = level
        self.stream = stream
        self.prompt = prompt
        self.epoch = epoch
        self.refusals = 0
        self.held = self.probe = self.seen = False
        self.first_after = 0.0
        self.open = True


class Limit(Protocol):
    """How many calls one endpoint gets at a time. Guarded by its owner; not thread-safe by itself.

    Attributes:
        limit: calls in flight, fractional; `inf` when there is no limit.
        inflight: calls sent and not settled.
    """

    limit: float
    inflight: int

    @property
    def searching(self) -> bool:
        """Whether it still grows in search of what the endpoint takes, so that it tells nothing of its capacity."""
        ...

    def clear_at(self) -> float:
        """Tell when the less urgent may take one more place while the more urgent are about.

        Monotonic seconds, past for now, inf for the next answer.
        """
        ...

    def may_send(self, now: float) -> float:
        """Tell when one more call may go: 0.0 now, `t > now` ask again at t, inf at the next event. Changes nothing."""
        ...

    def press(self, now: float, backlog: float) -> float:
        """Say that a call waits and nothing is free; the limit may grow. Answers as `may_send`.

        Args:
            now: monotonic seconds.
            backlog: calls waiting for this endpoint, a share where several serve them.
        """
        ...

    def sent(self, now: float, *, stream: bool, prompt: float = 0.0) -> Slot:
        """Book a call that leaves now; `prompt` is its estimated prompt tokens."""
        ...

    def first(self, slot: Slot, now: float) -> None:
        """Note the first content of a stream."""
        ...

    def done(self, slot: Slot, now: float, *, prompt_tokens: float | None, output_tokens: float | None) -> None:
        """Settle a call that was answered to the end of its body; tokens as the server counted them, if it did."""
        ...

    def refused(self, slot: Slot, now: float, retry_after: float | None) -> None:
        """Settle a call that the server declined before any work."""
        ...

    def failed(self, slot: Slot, now: float) -> None:
        """Settle a call that was sent and got neither an answer nor a refusal."""
        ...

    def dropped(self, slot: Slot, now: float) -> None:
        """Settle a call that was cancelled or never sent."""
        ...

    def recovered(self, now: float) -> None:
        """Start slowly again: the breaker closed."""
        ...


class NoLimit:
    """No limit of ours, only the count; in the endpoint's scope a Retry-After still silences the endpoint."""

    __slots__ = ("_endpoint_scope", "_pause", "inflight", "limit", "refusals")

    searching = False

    def __init__(self, *, retry_after_scope: str = "call") -> None:
        """Start with nothing in flight."""
        self._endpoint_scope = endpoint_scope(retry_after_scope)
        self._pause = 0.0
        self.limit = inf
        self.inflight = 0
        self.refusals = 0

    def may_send(self, now: float) -> float:
        """Let everything pass that no Retry-After holds back."""
        return self._pause if now < self._pause else 0.0

    def clear_at(self) -> float:
        """Keep nothing clear: nothing is sought."""
        return 0.0

    def press(self, now: float, backlog: float) -> float:  # noqa: ARG002 - there is nothing to grow
        """Answer as `may_send`."""
        return self.may_send(now)

    def sent(self, now: float, *, stream: bool, prompt: float = 0.0) -> Slot:
        """Count one more."""
        self.inflight += 1
        return Slot(now, self.inflight, stream, prompt)

    def first(self, slot: Slot, now: float) -> None:
        """Learn nothing."""

    def done(self, slot: Slot, now: float, *, prompt_tokens: float | None, output_tokens: float | None) -> None:  # noqa: ARG002 - nothing is learned
        """Count one less."""
        self._settle(slot)

    def refused(self, slot: Slot, now: float, retry_after: float | None) -> None:
        """Count one less; in the endpoint's scope be silent until Retry-After."""
        if not self._settle(slot):
            return
        self.refusals += 1
        if self._endpoint_scope and retry_after is not None:
            self._pause = max(self._pause, now + retry_after)

    def failed(self, slot: Slot, now: float) -> None:  # noqa: ARG002 - nothing is learned
        """Count one less."""
        self._settle(slot)

    def dropped(self, slot: Slot, now: float) -> None:  # noqa: ARG002 - nothing is learned
        """Count one less."""
        self._settle(slot)

    def recovered(self, now: float) -> None:
        """Keep going: there is no limit to restart."""

    def _settle(self, slot: Slot) -> bool:
        was_open, slot.open = slot.open, False
        self.inflight -= was_open
        return was_open


class FixedLimit(NoLimit):
    """A semaphore that counts rejections and keeps a refused place closed until its Retry-After.

    A refusal says that the fixed number is too high just now. Its place stays taken until the server's own time, so
    the calls in flight are those the server has room for, and a server that refuses everything is left alone after
    `limit` refusals. Without a time the place stays closed 0.5 s, doubling with each refusal in a row up to 20 s.

    Attributes:
        rejections: calls turned away by us because the limit was full.
        refusals: calls the server declined.
    """

    __slots__ = ("_closed", "_row", "rejections")

    def __init__(self, limit: int, *, retry_after_scope: str = "call") -> None:
        """Take the number of places.

        Raises:
            ConfigError: `limit` is not an integer of at least 1.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            msg = f"concurrency.limit: a fixed limit is an integer of at least 1, got {limit!r}"
            raise ConfigError(msg)
        super().__init__(retry_after_scope=retry_after_scope)
        self.limit = float(limit)
        self.rejections = 0
        self._closed: list[float] = []  # when refused places open again, in order
        self._row = 0  # refusals in a row that named no time

    def may_send(self, now: float) -> float:
        """Let one pass while a place is free."""
        if now < self._pause:
            return self._pause
        gone = bisect_right(self._closed, now)
        if self.inflight + len(self._closed) - gone < self.limit:
            return 0.0
        return self._closed[gone] if gone < len(self._closed) else inf

    def sent(self, now: float, *, stream: bool, prompt: float = 0.0) -> Slot:
        """Take a place."""
        if self._closed:
            del self._closed[: bisect_right(self._closed, now)]
        return super().sent(now, stream=stream, prompt=prompt)

    def done(self, slot: Slot, now: float, *, prompt_tokens: float | None, output_tokens: float | None) -> None:
        """Give the place back."""
        super().done(slot, now, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        self._row = 0

    def refused(self, slot: Slot, now: float, retry_after: float | None) -> None:
        """Keep the place closed until Retry-After."""
        if not slot.open:
            return
        super().refused(slot, now, retry_after)
        wait = retry_after or 0.0
        if retry_after is None:
            wait = min(_BLIND_CAP, _BLIND_BASE * 2.0 ** min(self._row, 16))
            self._row += 1
        insort(self._closed, now + wait)

    def recovered(self, now: float) -> None:  # noqa: ARG002 - places do not depend on the time
        """Open the closed places: the server is back."""
        self._closed.clear()
        self._row = 0

    def rejected(self) -> None:
        """Count a call that was turned away because no place was free."""
        self.rejections += 1


_BLIND_BASE = 0.5  # seconds; the backoff base of a refused call is the same, so places and calls come back together
_BLIND_CAP = 20.0  # seconds; the backoff cap


def endpoint_scope(scope: str) -> bool:
    """Read `retry_after_scope`: `call` holds back the refused call, `endpoint` every call.

    Raises:
        ConfigError: it is neither.
    """
    if scope not in {"call", "endpoint"}:
        msg = f"concurrency.retry_after_scope: expected call or endpoint, got {scope!r}"
        raise ConfigError(msg)
    return scope == "endpoint"
