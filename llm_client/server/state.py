"""What all requests of one server share, put together in one place."""

from __future__ import annotations

from dataclasses import dataclass

from .admission import Door
from .engine import Engine, WorkerPool
from .ledger import Ledger
from .metrics import Metrics
from .settings import Settings


@dataclass(slots=True, kw_only=True)
class State:
    """The parts of one server."""

    settings: Settings
    engine: Engine
    ledger: Ledger
    door: Door
    metrics: Metrics


def build(settings: Settings) -> State:
    """Make the parts and connect them."""
    engine = WorkerPool(settings.workers, settings.seconds)
    ledger = Ledger(settings.request_log)
    door = Door(settings, engine, ledger)
    return State(settings=settings, engine=engine, ledger=ledger, door=door, metrics=Metrics(ledger, door))
