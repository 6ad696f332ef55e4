"""The right to have one attempt in flight at one endpoint; settled exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llm_client.core.breaker import Pass
from llm_client.core.bucket import BucketSet, Reservation
from llm_client.core.concurrency import Slot
from llm_client.core.retry_after import RateWindow
from llm_client.core.station import Station
from llm_client.model import Outcome, Usage

if TYPE_CHECKING:
    from llm_client.core.gate import Gate


class Permit:
    """What a granted ticket holds: a place under the limit, a pass of the circuit, reserved tokens.

    Guarded by the gate that made it; every method may be called from any thread, and after the first
    `settle` or `drop` all are without effect.
    """

    __slots__ = (
        "accepted",
        "endpoint",
        "gate",
        "lease",
        "meter",
        "open",
        "owner",
        "prompt",
        "reservation",
        "sent_at",
        "slot",
        "station",
        "tokens",
        "windows",
    )

    def __init__(
        self,
        gate: Gate,
        station: Station,
        slot: Slot,
        lease: Pass,
        *,
        meter: BucketSet | None,
        reservation: Reservation | None,
        now: float,
        prompt: float,
        tokens: float,
        owner: int | None,
    ) -> None:
        self.gate = gate
        self.station = station
        self.endpoint = station.name
        self.slot = slot
        self.lease = lease
        self.meter = meter
        self.reservation = reservation
        self.sent_at = now
        self.prompt = prompt
        self.tokens = tokens
        self.owner = owner
        self.open = True
        self.accepted = False
        self.windows: tuple[RateWindow, ...] = ()  # what the answer's headers said is left; set before `settle`

    def first(self, now: float) -> None:
        """Book the first content: the server accepted the call."""
        self.gate.first(self, now)

    def alive(self, now: float) -> None:
        """Note that bytes arrive: an endpoint that talks is not dead."""
        self.station.breaker.alive(now)

    def settle(self, outcome: Outcome, now: float, usage: Usage | None = None) -> None:
        """Give everything back and teach the endpoint's state what happened."""
        self.gate.settle(self, outcome, now, usage)

    def drop(self, now: float) -> None:
        """Give everything back without a lesson: cancelled, or never sent."""
        self.gate.drop(self, now)

    def lose(self) -> None:
        """Give up from a finalizer: takes no lock, the next operation of the gate settles it."""
        self.gate.lose(self)
