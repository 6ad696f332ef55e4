"""The books: every request that arrived ends as exactly one of answered, refused, abandoned or failed."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Result = Literal["answered", "refused", "abandoned", "failed"]
_RECENT = 256  # answers the page's percentiles are taken over
RESULTS: tuple[Result, ...] = ("answered", "refused", "abandoned", "failed")


@dataclass(slots=True, eq=False, kw_only=True)
class Record:
    """One request, as far as the server saw it. Holds no content and no secret.

    Attributes:
        arrived: seconds since the Unix epoch.
        body: hash of the request body, the same for the same bytes.
        attempt: what `x-llm-client-attempt` said.
        outcome: one of `RESULTS`; None while it is open.
        reason: why it was refused or failed.
        status: the HTTP status sent; 0 when none was.
    """

    number: int
    path: str
    arrived: float
    body: str = ""
    attempt: str | None = None
    idempotency_key: str | None = None
    priority: str = "normal"
    stream: bool = False
    model: str = ""
    outcome: Result | None = None
    reason: str | None = None
    status: int = 0
    queued: float = 0.0
    service: float = 0.0
    tokens: int = 0

    def as_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


class Ledger:
    """Counts everything, remembers the last few.

    Args:
        remember: how many records to keep.
    """

    def __init__(self, remember: int) -> None:
        self.arrived = 0
        self.results: dict[Result, int] = dict.fromkeys(RESULTS, 0)
        self.reasons: Counter[str] = Counter()
        self.client_disconnected = 0
        self.executed = 0
        self.executing_peak = 0
        self.queued_peak = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.records: deque[Record] = deque(maxlen=remember)
        self.latencies: deque[tuple[float, float]] = deque(maxlen=_RECENT)  # to first token, to the end
        self.in_flight = 0  # arrived, and no result yet
        self.on_quiet: Callable[[], None] = lambda: None  # called when the last open one gets its result

    def open(self, path: str, wall: float) -> Record:
        """Note an arrival."""
        self.arrived += 1
        self.in_flight += 1
        record = Record(number=self.arrived, path=path, arrived=wall)
        self.records.append(record)
        return record

    def close(self, record: Record, outcome: Result, reason: str | None = None) -> bool:
        """Note the one result of a request; False when it already has one."""
        if record.outcome is not None:
            return False
        record.outcome = outcome
        record.reason = reason
        self.results[outcome] += 1
        if reason is not None:
            self.reasons[reason] += 1
        if outcome == "abandoned":
            self.client_disconnected += 1
        self.in_flight -= 1
        if self.in_flight == 0:
            self.on_quiet()
        return True

    def occupancy(self, executing: int, queued: int) -> None:
        """Keep the peaks."""
        self.executing_peak = max(self.executing_peak, executing)
        self.queued_peak = max(self.queued_peak, queued)

    def as_dict(self) -> dict[str, Any]:
        """The counters, ready for JSON."""
        return {
            "arrived": self.arrived,
            **{str(name): count for name, count in self.results.items()},
            "in_flight": self.in_flight,
            "reasons": dict(self.reasons),
            "client_disconnected": self.client_disconnected,
            "executed": self.executed,
            "executing_peak": self.executing_peak,
            "queued_peak": self.queued_peak,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        }

    def reset(self) -> None:
        """Forget all but what is still open, so that a test may count from here."""
        still_open = [record for record in self.records if record.outcome is None]
        self.records.clear()
        self.records.extend(still_open)
        self.arrived = self.in_flight
        self.results = dict.fromkeys(RESULTS, 0)
        self.reasons.clear()
        self.client_disconnected = self.executed = self.executing_peak = self.queued_peak = 0
        self.prompt_tokens = self.completion_tokens = 0
