"""The front door: who goes to the engine now, who waits, who is told to come back, and when."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict

from .engine import Engine
from .job import CLASSES, ClientGoneError, Job, Phase, Refusal
from .ledger import Ledger
from .limits import LatencyShedder, ceiling, shed
from .queue import BoundedQueue
from .settings import Settings

_DRAINING = "The server is shutting down. Send the request elsewhere."
_LOBBY = 10_000  # requests that may stand outside a full queue under `delay`


class Door:
    """Admission for one engine. Belongs to one event loop.

    Args:
        settings: bounds and policies.
        engine: what does the work.
        ledger: where peaks are noted.
        shedder: turns classes away by latency; None never does.
    """

    def __init__(self, settings: Settings, engine: Engine, ledger: Ledger, shedder: LatencyShedder | None) -> None:
        self.settings = settings
        self.engine = engine
        self.ledger = ledger
        self.shedder = shedder
        self.queue: BoundedQueue[Job] = BoundedQueue(settings.bound)
        self.live: set[Job] = set()
        self.draining = False
        self.loading_until = 0.0
        self._lobby: OrderedDict[Job, asyncio.TimerHandle] = OrderedDict()
        self._expiry: asyncio.TimerHandle | None = None
        self._pumping = False
        engine.on_free = self.pump

    @property
    def size_or_minus_one(self) -> int:
        """The bound of the queue for a gauge."""
        return -1 if self.queue.size is None else self.queue.size

    @property
    def loading(self) -> bool:
        """Whether the model is still being loaded."""
        return asyncio.get_running_loop().time() < self.loading_until

    @property
    def ready(self) -> bool:
        """Whether new work is welcome, busy or not."""
        return not self.draining and not self.loading

    @property
    def waiting(self) -> int:
        """How many wait, in the queue or outside it."""
        return len(self.queue) + len(self._lobby)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return self.waiting == 0 and self.engine.load().running == 0

    def load(self) -> float:
        """Waiting and running over what fits; above 1 only without a bound."""
        size = self.queue.size
        room = self.engine.slots + (self.engine.slots if size is None else size)
        return (len(self.queue) + self.engine.load().running) / room

    def drain_time(self) -> float:
        """Seconds until one more that stands at the end of the queue would be started."""
        return (self.waiting + 1) * self.engine.expected() / self.engine.slots

    def wait_until_ready(self) -> float:
        """Seconds until new work is welcome again, as far as known."""
        if self.loading:
            return self.loading_until - asyncio.get_running_loop().time()
        return self.drain_time()

    def by_class(self) -> dict[str, int]:
        """How many wait, by class; those outside a full queue apart."""
        return {**dict(zip(CLASSES, self.queue.by_class(), strict=True)), "outside": len(self._lobby)}

    def report(self) -> dict[str, float]:
        """What a load balancer wants to know."""
        load = self.engine.load()
        return {
            "kv_cache_utilization": round(load.kv_usage, 4),
            "num_requests_waiting": self.waiting,
            "num_requests_running": load.running,
        }

    def enter(self, job: Job) -> None:
        """Start it, queue it, let it stand outside, or raise a `Refusal`."""
        loop = asyncio.get_running_loop()
        now = job.arrived = loop.time()
        if self.draining:
            raise self._refuse("draining", _DRAINING, 503)
        if self.loading:
            wait = self.loading_until - now
            raise Refusal(
                "model_loading", f"Loading model. Ready in about {wait:.0f} seconds.", status=503,
                kind="unavailable_error", wait=wait,
            )  # fmt: skip
        if job.deadline <= now:
            raise self._timeout("its deadline had passed when it arrived")
        self._shed(job.rank, now)
        if not self.waiting and self.engine.free(job):
            self._start(job)
            return
        if self.queue.full:
            self._overflow(job, loop)
            return
        self._push(job, now)

    def abandon(self, job: Job) -> None:
        """The client has gone: free its place in queue or engine at once."""
        self._stop(job, ClientGoneError())

    def _stop(self, job: Job, error: Exception) -> None:
        phase = job.phase
        job.fail(error, asyncio.get_running_loop().time())
        if phase is Phase.RUNNING:
            self.engine.cancel(job)
        elif phase is Phase.QUEUED:
            self._leave_lobby(job)
            self.queue.remove(job)
            self.pump()

    def pump(self) -> None:
        """Give free slots to those who wait. Idempotent."""
        if self._pumping:
            return
        self._pumping = True
        try:
            now = asyncio.get_running_loop().time()
            for job in self.queue.expired(now):
                job.fail(self._timeout(f"it waited {now - job.arrived:.1f} seconds in the queue"), now)
            self._invite(now)
            while (head := self.queue.peek()) is not None and self.engine.free(head):
                self.queue.pop()
                self._start(head)
                self._invite(now)
            self._arm()
        finally:
            self._pumping = False

    def drain(self) -> None:
        """Welcome no new work; what is queued or running goes on."""
        self.draining = True

    def evict(self) -> None:
        """Refuse what waits and stop what runs."""
        refusal = self._refuse("draining", _DRAINING, 503)
        for job in list(self.live):
            self._stop(job, refusal)

    def done(self, job: Job) -> None:
        """Its request is over, however it ended."""
        self.live.discard(job)

    # How a job moves.

    def _shed(self, rank: int, now: float) -> None:
        load = self.load()
        top = ceiling(rank, self.settings.thresholds)
        if load >= top:
            raise shed(rank, f"the load is {load:.2f}, above {top:g}", self.drain_time())
        if self.shedder is not None:
            self.shedder.admit(rank, now)

    def _start(self, job: Job) -> None:
        self.ledger.executed += 1
        self.engine.start(job)
        self.ledger.occupancy(self.engine.load().running, len(self.queue))

    def _push(self, job: Job, now: float) -> None:
        job.phase = Phase.QUEUED
        expires = min(job.deadline, job.arrived + (self.settings.queue_timeout or math.inf))
        self.queue.push(job, rank=job.rank, tie=job.tie, expires=max(expires, now))
        self.ledger.occupancy(self.engine.load().running, len(self.queue))
        self._arm()

    def _overflow(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        victim = self.queue.displace(job.rank)
        if victim is not None:
            victim.fail(self.full("was pushed out by more urgent work", "displaced"), loop.time())
            self._push(job, loop.time())
        elif self.settings.overflow == "delay" and len(self._lobby) < _LOBBY:
            job.phase = Phase.QUEUED
            wait = min(self.settings.max_delay, job.deadline - loop.time())
            self._lobby[job] = loop.call_later(wait, self._give_up, job)
        else:
            raise self.full("could not be queued")

    def _invite(self, now: float) -> None:
        while self._lobby and not self.queue.full:
            job, timer = self._lobby.popitem(last=False)
            timer.cancel()
            self._push(job, now)

    def _give_up(self, job: Job) -> None:
        if self._leave_lobby(job):
            now = asyncio.get_running_loop().time()
            job.fail(self.full(f"waited {now - job.arrived:.1f} seconds outside the queue"), now)

    def _leave_lobby(self, job: Job) -> bool:
        timer = self._lobby.pop(job, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def _arm(self) -> None:
        due = self.queue.next_expiry()
        if self._expiry is not None:
            if self._expiry.when() == due:
                return
            self._expiry.cancel()
            self._expiry = None
        if due < math.inf:
            self._expiry = asyncio.get_running_loop().call_at(due, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        self.pump()

    # What a refusal says.

    def full(self, what: str, code: str = "queue_full") -> Refusal:
        """The refusal of a full queue."""
        size = "unbounded" if self.queue.size is None else self.queue.size
        return self._refuse(code, f"The queue is full ({size} waiting): this request {what}.", None)

    def _timeout(self, why: str) -> Refusal:
        text = f"Waiting timeout reached: this request was never started because {why}."
        return self._refuse("queue_timeout", text, 504)

    def _refuse(self, code: str, message: str, status: int | None) -> Refusal:
        wait = self.drain_time()
        return Refusal(code, f"{message} Try again in {max(1, math.ceil(wait))} seconds.", status=status, wait=wait)
