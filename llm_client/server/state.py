"""What all requests of one server share, put together in one place."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path

from .admission import Door
from .engine import Engine, WorkerPool
from .faults import Faults, Rule, script
from .gpu import Gpu
from .intake import Keys
from .ledger import Ledger
from .limits import LatencyShedder, RateLimits
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
    limits: RateLimits
    keys: Keys
    faults: Faults
    script: list[Rule]
    begun: bool = False

    def begin(self) -> None:
        """The event loop runs: the model starts to load, the script of faults starts to play. Counts once."""
        if self.begun:
            return
        self.begun = True
        now = asyncio.get_running_loop().time()
        self.door.loading_until = now + self.settings.loading
        for rule in self.script:
            self.faults.add(rule, now)


def build(settings: Settings) -> State:
    """Make the parts and connect them."""
    preset = settings.preset
    engine: Engine
    if preset is None:
        engine = WorkerPool(settings.workers, settings.seconds, burn=settings.burn)
    else:
        engine = Gpu(preset, settings.speed)
    faults = Faults(random.Random(settings.seed), by_header=settings.fault_header)
    engine.pace = lambda: faults.slowdown(asyncio.get_running_loop().time())
    ledger = Ledger(settings.request_log)
    shedder = None if settings.target_latency is None else LatencyShedder(settings.target_latency)
    door = Door(settings, engine, ledger, shedder)
    return State(
        settings=settings,
        engine=engine,
        ledger=ledger,
        door=door,
        metrics=Metrics(ledger, door),
        limits=RateLimits(
            key_requests=settings.key_requests,
            key_tokens=settings.key_tokens,
            service_requests=settings.service_requests,
            service_tokens=settings.service_tokens,
        ),
        keys=Keys(settings.api_keys),
        faults=faults,
        script=[] if settings.faults is None else script(Path(settings.faults)),
    )
