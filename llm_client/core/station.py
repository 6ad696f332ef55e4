"""Everything decided per endpoint, in one place: limit, circuit, cool-down, buckets, penalty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log

from llm_client.core.breaker import Breaker
from llm_client.core.bucket import BucketSet
from llm_client.core.concurrency import Limit
from llm_client.core.cooldown import CoolDown
from llm_client.core.forecast import Forecast
from llm_client.core.rate import Rate
from llm_client.events import BreakerChanged

# Half-life of the failure share that repels traffic from a replica which fails fast: long enough to
# outlast its quick failures, short enough to forgive within seconds.
HALF_LIFE = 5.0
_DECAY = log(2.0) / HALF_LIFE
# A replica that fails always is chosen as if it had ten times its load.
PENALTY = 9.0
# Seconds for which a server's own load report is worth reading.
NEWS = 5.0
# Seconds over which answers are counted: what an endpoint does changes slowly, and pauses for as long as calls last.
SERVED = 30.0
# Seconds from the first probe to the second: by then an endpoint that is out of service has said so to the first.
PROBE_GAP = 0.25
# An endpoint that worked so many seconds ago may return any moment, and once it is back it takes as long as that
# until what it serves shows in the rates of the queue.
AWAY = 30.0


@dataclass(slots=True, kw_only=True)
class Station:
    """The state that the gate keeps for one endpoint. Guarded by the gate.

    Attributes:
        account: endpoints of one account share what a server says about its rate.
        models: names that this endpoint serves; None for every name.
        meter: the token buckets that a call for a given model must pass here; None without any.
        draining: no new work; what is under way ends.
        group: the name under which it was found, if it stands for one of several servers of that name.
        sick_until: its health route says that it does not work; an open circuit is not probed before then.
        report: the last load report that came with an answer, for reading.
        busy: requests that the report says it has, or the share of its cache in use.
        reported_at: when that was, monotonic seconds.
        served: answers per second.
        most_tokens: estimated tokens of the calls in flight never exceed these, but for a single call.
        tokens: what they are now.
        well_at: when an attempt last found it working, monotonic seconds.
        back_at: when its circuit last closed, monotonic seconds.
    """

    name: str
    limit: Limit
    breaker: Breaker
    cooldown: CoolDown
    weight: float = 1.0
    account: str = ""
    models: frozenset[str] | None = None
    meter: Callable[[str | None], BucketSet | None] | None = None
    draining: bool = False
    group: str = ""
    sick_until: float = -inf
    report: object = None
    busy: float = 0.0
    reported_at: float = -inf
    forecast: Forecast = field(default_factory=Forecast)
    served: Rate = field(default_factory=lambda: Rate(SERVED))
    outstanding: int = 0
    most_tokens: float = inf
    tokens: float = 0.0
    well_at: float = -inf
    back_at: float = -inf
    _failing: float = field(default=0.0)
    _seen: float = field(default=0.0)
    _at: float = field(default=-inf)

    def ready_at(self, now: float) -> float:
        """Return when circuit and cool-down let a call through; `<= now` means now, inf never."""
        at = max(self.breaker.ready_at(now), self.cooldown.ready_at(now), self.breaker.untold + PROBE_GAP)
        # Bad health holds the first probe back; it neither opens nor closes a circuit, for only calls know.
        return max(at, self.sick_until) if self.sick_until > now and self.breaker.state == "open" else at

    def unsettled(self, now: float) -> bool:
        """Tell whether it went away or came back lately, or its limit is not found yet: rates foretell nothing."""
        if self.limit.searching:
            return True
        return now - self.back_at < AWAY or (now - self.well_at < AWAY and self.breaker.ready_at(now) > now)

    def holds(self, tokens: float) -> bool:
        """Tell whether its key-value cache has room for so many more; one call alone always has."""
        return not self.outstanding or self.tokens + tokens <= self.most_tokens

    def capacity(self, now: float) -> float:
        """Calls per second that it can do: as many as it did, or more if its limit was not used; 0.0 while unknown."""
        mean = self.forecast.mean
        return max(self.served.per_second(now), self.limit.limit / mean) if mean > 0.0 else 0.0

    def serves(self, model: str | None) -> bool:
        """Tell whether calls for this model may come here."""
        return not self.draining and (self.models is None or model is None or model in self.models)

    def answers_to(self, names: tuple[str, ...] | None) -> bool:
        """Tell whether a profile that allows these names, or None for all, allows this endpoint."""
        return names is None or self.name in names or self.group in names

    def told(self, report: object, busy: float, now: float) -> None:
        """Keep a load report. A hint, so it may be told without the gate's lock."""
        self.report, self.busy, self.reported_at = report, busy, now

    def reported(self, now: float) -> float:
        """Return how busy it said it was, while that is news; 0.0 otherwise."""
        return self.busy if now - self.reported_at <= NEWS else 0.0

    def note(self, now: float, *, failed: bool) -> None:
        """Add one finished attempt to the failure share."""
        keep = exp(-_DECAY * (now - self._at)) if self._at != -inf else 0.0
        self._failing = self._failing * keep + failed
        self._seen = self._seen * keep + 1.0
        self._at = now
        if not failed:
            self.well_at = now

    def score(self, now: float) -> float:
        """Load as the router sees it: outstanding calls per weight, repelled by failures.

        Least outstanding alone is a black hole: a replica that fails in milliseconds always looks idle.
        """
        return (self.outstanding + 1) / self.weight * self.penalty(now)

    def penalty(self, now: float) -> float:
        """Return by how much recent failures make it look fuller: 1 for none, up to 10."""
        if not self._failing or not self._seen:
            return 1.0
        # One failure long ago is no reason: the share fades with the weight of what was seen.
        fade = exp(-_DECAY * (now - self._at))
        return 1.0 + PENALTY * (self._failing / self._seen) * fade

    def news(self, now: float) -> Sequence[BreakerChanged]:
        """Return what the circuit went through since the last call; a recovered endpoint starts slowly."""
        if not self.breaker.transitions:
            return ()
        events = []
        for old, new, until, reason in self.breaker.drain():
            if new == "closed" and old != "closed":
                self.limit.recovered(now)
                self.back_at = now
            events.append(BreakerChanged(at=now, endpoint=self.name, old=old, new=new, until=until, reason=reason))
        return events
