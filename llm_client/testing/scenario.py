"""What is played: a modelled server, the kinds of calls that come, and what changes on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from llm_client.errors import ConfigError
from llm_client.testing.servers import BatchServer, BucketServer, SlotsServer

SERVERS: Mapping[str, type[SlotsServer]] = {"slots": SlotsServer, "batch": BatchServer, "bucket": BucketServer}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of call in a load.

    Attributes:
        share: of all calls; shares need not add up to one.
        deadline: seconds; None takes the profile's.
        prompt, output: mean tokens; `sigma` spreads them log-normally.
        begin, end: seconds between which such calls arrive.
        max_tokens: the bound that the caller sends, if any.
    """

    priority: str = "normal"
    share: float = 1.0
    deadline: float | None = 30.0
    stream: bool = False
    prompt: float = 500.0
    output: float = 200.0
    sigma: float = 0.7
    profile: str = "default"
    begin: float = 0.0
    end: float = inf
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A server, a load, and what changes on the way.

    Attributes:
        server: `slots`, `batch` or `bucket`, with its settings beside.
        rate: calls per second of the kinds that arrive at the start, Poisson; 0 for a burst. Kinds that come later
            add to it, and kinds that end take from it, by their shares.
        load: instead of `rate`, as a multiple of a batch server's capacity.
        burst: calls at once at the start.
        seconds: how long calls arrive.
        kinds: of calls.
        clients: independent pools that share the load.
        changes: (second, setting of the server, value), such as (300.0, "slots", 16).

    Raises:
        ConfigError: no such server, nothing arrives at the start, or a number that makes no sense.
    """

    server: str = "slots"
    settings: Mapping[str, Any] = field(default_factory=dict)
    rate: float = 0.0
    load: float = 0.0
    burst: int = 0
    seconds: float = 60.0
    kinds: Sequence[Kind] = (Kind(),)
    clients: int = 1
    changes: Sequence[tuple[float, str, Any]] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        if self.server not in SERVERS:
            raise ConfigError(f"server: expected {', '.join(SERVERS)}, got {self.server!r}")
        for name in ("rate", "load", "burst", "seconds"):
            if not 0 <= getattr(self, name) < inf:
                raise ConfigError(f"{name}: expected a finite number of at least 0, got {getattr(self, name)!r}")
        if self.clients < 1:
            raise ConfigError(f"clients: expected at least 1, got {self.clients!r}")
        if not self.rate and not self.load and not self.burst:
            raise ConfigError("nothing arrives: give rate, load or burst")
        if self.load and self.server != "batch":
            raise ConfigError("load: only a batch server knows its capacity; give a rate")
        if not sum(kind.share for kind in self.kinds if kind.begin <= 0.0 < kind.end) > 0.0:
            raise ConfigError("kinds: at least one with a share must arrive from the start, for the rate is theirs")
