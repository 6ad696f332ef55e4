"""What a profile comes down to for one call: the settings that the flows read, resolved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from llm_client.core.pressure import PressureRule
from llm_client.core.retry import RetryPolicy
from llm_client.flow.answers import Answers
from llm_client.model import Priority
from llm_client.wire.dialects import Dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Time-outs inside the deadline, in seconds; inf is off.

    Attributes:
        attempt: one whole plain answer.
        first_token: a stream, from send to its first content.
        progress: a stream, between two pieces of content.
        liveness: a stream, between two bytes of any kind.
    """

    connect: float = 5.0
    attempt: float = inf
    first_token: float = 120.0
    progress: float = 300.0
    liveness: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Hedge:
    """When a second request may go out beside the first.

    Attributes:
        after: seconds without content; None for the 95th percentile of what was seen.
        budget: hedges as a share of calls.
        priority: the least urgent class that may hedge.
        max_prompt: in tokens.
    """

    after: float | None = None
    budget: float = 0.05
    priority: Priority = Priority.HIGH
    max_prompt: int = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticStep:
    """Answer with a fixed text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallableStep:
    """Ask the user's function; it gets the request's data and the error, and returns a text or a body."""

    function: Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherStep:
    """Run the same call under another plan, for another model, or both.

    Attributes:
        rename, drop, set: what becomes of the body's fields, in this order.
    """

    plan: Plan
    model: str | None = None
    kind: str = "profile"
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: frozenset[str] = frozenset()
    set: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedStep:
    """Give the answer that the same request got before."""

    answers: Answers


Step = StaticStep | CallableStep | OtherStep | CachedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one kind of work is carried out.

    Attributes:
        name: the profile's name.
        deadline: seconds for the whole call; inf is none.
        max_wait: seconds in the queue; inf is as long as the deadline allows.
        circuit_wait: seconds to wait for an open circuit; 0 fails at once.
        fallback_on: kinds of failure that the chain answers.
        pressure: refuse new calls under high pressure; None never does.
        strict_end: a stream without finish reason is an error even after its end marker.
        measure_first_token: have the server stream plain calls too, where that makes no difference to the caller.
    """

    name: str
    retry: RetryPolicy
    priority: Priority = Priority.NORMAL
    deadline: float = 600.0
    deadline_covers: str = "end"
    bounds: Bounds = field(default_factory=Bounds)
    max_wait: float = inf
    circuit_wait: float = inf
    allowed: tuple[str, ...] | None = None
    model: str | None = None
    fallback: Sequence[Step] = ()
    fallback_on: frozenset[str] = frozenset()
    strict_end: bool = False
    pressure: PressureRule | None = None
    measure_first_token: bool = False
    hedge: Hedge | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where an endpoint is and how to speak to it.

    Attributes:
        headers: sent with every request, authorisation included; never logged.
        token: asked for a bearer token before each request, and once more after a 401.
        models: name the caller says -> name the server knows.
        max_context: tokens of prompt and answer together; None when not known.
        group: the name under which it was found, if it is one of several servers of that name.
    """

    name: str
    base_url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    token: Callable[..., Any] | None = None
    models: Mapping[str, str] | None = None
    dialect: Dialect
    forward_priority: bool = False
    max_context: int | None = None
    group: str = ""
