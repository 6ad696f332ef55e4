"""Records of what happened to a call; logging and metrics are listeners of these.

Events carry names, numbers and kinds, never bodies, headers or prompts. `at` is monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from llm_client.model import Kind, Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events."""

    at: float
    call: str = ""
    profile: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted(Event):
    """A call entered the stack."""

    route: str
    model: str | None
    priority: Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class CallQueued(Event):
    """No endpoint was free at once."""

    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallGranted(Event):
    """A ticket became a permit."""

    endpoint: str
    waited: float
    cause: str
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted(Event):
    """A request is about to go out. `number` counts from 1."""

    endpoint: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstContent(Event):
    """The first content of an answer arrived."""

    endpoint: str
    elapsed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFinished(Event):
    """An attempt was settled. `kind` is None on success, `cancelled` when we gave up."""

    endpoint: str
    number: int
    elapsed: float
    kind: Kind | None
    status: int | None
    refusal: bool
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled(Event):
    """Another attempt will follow after `delay` seconds."""

    endpoint: str
    kind: Kind
    delay: float
    refusal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerChanged(Event):
    """A circuit changed state. `until` is when an open circuit may be probed."""

    endpoint: str
    old: str
    new: str
    until: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoolDownStarted(Event):
    """An endpoint asked for silence until `until`."""

    endpoint: str
    until: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChanged(Event):
    """A concurrency limit moved."""

    endpoint: str
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackUsed(Event):
    """The caller got a substitute."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished(Event):
    """A call left the stack or its body ended. `outcome` is `ok`, `fallback`, `cancelled` or an error kind."""

    outcome: str
    elapsed: float
    attempts: int
    refusals: int
    endpoint: str | None
    waited: float
    extra: dict[str, Any] = field(default_factory=dict)


Listener = Callable[[Event], None]
