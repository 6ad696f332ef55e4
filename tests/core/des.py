"""A discrete-event world for limits: servers, wires and client processes in virtual time.

World    heapq event loop; the wire takes 1-2.5 ms one way
Slots    S places of given service time and a FIFO queue; refuses beyond it
Batch    continuous batching: time per token grows with the batch
Bucket   a token bucket in front of unlimited places
Process  one client: local queue, one limit, one CPU core
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque

INF = math.inf


class World:
    """Virtual time."""

    def __init__(self, seed, way=(0.001, 0.0025)):
        self.now = 0.0
        self.rng = random.Random(seed)
        self.way = way
        self._heap = []
        self._count = 0

    def at(self, t, fn, *args):
        """Run `fn(*args)` at `t`, never in the past; equal times keep their order."""
        self._count += 1
        heapq.heappush(self._heap, (max(t, self.now), self._count, fn, args))

    def wire(self, fn, *args):
        """Run `fn` after one way through the network."""
        self.at(self.now + self.rng.uniform(*self.way), fn, *args)

    def run(self, until, stop=lambda: False):
        """Advance until a time, or a condition, or until nothing is left."""
        while self._heap and self._heap[0][0] <= until and not stop():
            self.now, _, fn, args = heapq.heappop(self._heap)
            fn(*args)


class Call:
    """What a user asked for; `work` is its service time on a Slots server."""

    __slots__ = ("arrived", "deadline", "output", "prompt", "sends", "work")

    def __init__(self, arrived, deadline, output, prompt, work):
        self.arrived, self.deadline, self.output, self.prompt, self.work = arrived, deadline, output, prompt, work
        self.sends = 0


class Send:
    """One request on the wire."""

    __slots__ = ("call", "ends", "process", "slot", "started", "state")

    def __init__(self, call, process, slot):
        self.call, self.process, self.slot = call, process, slot
        self.state = "wire"
        self.started = self.ends = None


class Slots:
    """A server with a fixed number of places and a bounded FIFO queue."""

    def __init__(self, world, slots, queue, retry_after=1.0, lag=0.0):
        self.world, self.slots, self.bound, self.retry_after, self.lag = world, slots, queue, retry_after, lag
        self.queue = deque()
        self.running = self.refusals = 0
        self.good = self.waste = 0.0  # tokens

    def arrive(self, send):
        if send.state == "gone":
            return
        if self.running < self.slots:
            self._start(send)
        elif len(self.queue) < self.bound:
            send.state = "queue"
            self.queue.append(send)
        else:
            self._refuse(send, self.retry_after)

    def cancel(self, send):
        if send.state == "queue":
            self.queue.remove(send)
        elif send.state == "run":
            self._abort(send)
            self._free()
        send.state = "gone"

    def first(self, call):
        """Return seconds from start to first content; a scenario may replace it."""
        return min(0.2 * call.work, 0.05)

    def resize(self, slots):
        self.slots = slots
        self.running += 1
        self._free()

    def capacity(self, works):
        """Return the makespan of these works, in order, on places that are never idle."""
        ends = [0.0] * self.slots
        for work in works:
            heapq.heapreplace(ends, ends[0] + work)
        return max(ends)

    def _refuse(self, send, retry_after):
        self.refusals += 1
        send.state = "refused"
        self.world.wire(send.process.on_refused, send, retry_after)

    def _start(self, send):
        self._advance()
        self.running += 1
        send.state = "run"
        send.started = self.world.now
        self._begin(send)

    def _free(self):
        self._advance()
        self.running -= 1
        while self.queue and self.running < self.slots:
            self._start(self.queue.popleft())

    def _finish(self, send):
        if send.state != "run":
            return
        send.state = "done"
        if self.lag:
            self.world.at(self.world.now + self.lag, self._free)
        else:
            self._free()
        self.world.wire(send.process.on_done, send)

    def _first(self, send):
        if send.state == "run":
            self.world.wire(send.process.on_first, send)

    def _advance(self):
        """Nothing depends on the batch here."""

    def _begin(self, send):
        now, work = self.world.now, send.call.work
        self.world.at(now + self.first(send.call), self._first, send)
        self.world.at(now + work, self._finish, send)

    def _abort(self, send):
        self.waste += send.call.output * (self.world.now - send.started) / send.call.work


class Batch(Slots):
    """Continuous batching: a running call gains one token every `base + per_call * batch` seconds."""

    def __init__(self, world, slots=32, queue=64, retry_after=1.0, *, base=0.020, per_call=0.0005, prefill=8000.0):
        super().__init__(world, slots, queue, retry_after)
        self.base, self.per_call, self.prefill = base, per_call, prefill
        self._tokens = self._last = 0.0  # tokens every running call has gained; when that was
        self._ends = []
        self._version = 0

    def rate(self, output, prompt):
        """Calls per second when full."""
        return self.slots / (prompt / self.prefill + output * (self.base + self.per_call * self.slots))

    def _advance(self):
        now = self.world.now
        if self.running:
            self._tokens += (now - self._last) / (self.base + self.per_call * self.running)
        self._last = now

    def _begin(self, send):
        send.ends = None
        self.world.at(self.world.now + send.call.prompt / self.prefill, self._decode, send)
        self._arm()

    def _decode(self, send):
        if send.state != "run":
            return
        self._advance()
        self._first(send)
        send.ends = self._tokens + send.call.output
        heapq.heappush(self._ends, (send.ends, id(send), send))
        self._arm()

    def _arm(self):
        self._version += 1
        while self._ends and self._ends[0][2].state != "run":
            heapq.heappop(self._ends)
        if self._ends:
            wait = (self._ends[0][0] - self._tokens) * (self.base + self.per_call * self.running)
            self.world.at(self.world.now + max(wait, 0.0), self._tick, self._version)

    def _tick(self, version):
        if version != self._version:
            return
        self._advance()
        while self._ends and (self._ends[0][2].state != "run" or self._ends[0][0] <= self._tokens + 1e-6):
            self._finish(heapq.heappop(self._ends)[2])
        self._arm()

    def _free(self):
        super()._free()
        self._arm()

    def _abort(self, send):
        self._advance()
        if send.ends is not None:
            self.waste += max(0.0, send.call.output - (send.ends - self._tokens))


class Bucket(Slots):
    """`rate` calls per second after a burst, unlimited places; a refusal costs no token."""

    def __init__(self, world, rate, burst, *, tells=True):
        super().__init__(world, 10**9, 0)
        self.rate, self.burst, self.tells = rate, burst, tells
        self._level, self._at = float(burst), 0.0

    def arrive(self, send):
        now = self.world.now
        self._level = min(self.burst, self._level + (now - self._at) * self.rate)
        self._at = now
        if send.state == "gone":
            return
        if self._level >= 1.0:
            self._level -= 1.0
            self._start(send)
        else:
            self._refuse(send, math.ceil((1.0 - self._level) / self.rate) if self.tells else None)

    def capacity(self, works):
        return max(max(0.0, (i + 1 - self.burst) / self.rate) + work for i, work in enumerate(works))


class Process:
    """One client: a queue (newest first once the head is old), one limit, one core; never sends before its time."""

    def __init__(self, world, server, limit, rng, *, stream, cpu=(0.0005, 0.0005), shed=False, bound=10**9):
        self.world, self.server, self.limit, self.rng, self.stream = world, server, limit, rng, stream
        self.cpu, self.shed, self.bound = cpu, shed, bound
        self.queue, self.flying = deque(), set()
        self.sends = self.done = self.good = self.failed = self.logical = 0
        self.answered_at, self.firsts = [], []
        self.latency = 1.0
        self._core_free, self._wake_at = 0.0, INF

    def submit(self, call):
        if len(self.queue) >= self.bound:
            self.queue.popleft()
            self.failed += 1
        self.queue.append(call)
        self.pump()

    def pump(self):
        now, limit = self.world.now, self.limit
        while self.queue:
            at = limit.may_send(now)
            if at > 0.0:
                at = limit.press(now, len(self.queue))
            if at > 0.0:
                if at < self._wake_at:
                    self._wake_at = at
                    self.world.at(at, self._wake, at)
                return
            call = self._next(now)
            if call is None:
                return
            self._send(call, now)

    def on_first(self, send):
        if self.stream:
            self._compute(0.0001, self._first, send)
        if send in self.flying:
            self.firsts.append(self.world.now - send.slot.sent_at)

    def on_done(self, send):
        self._compute(self.cpu[1], self._done, send)

    def on_refused(self, send, retry_after):
        self._compute(self.cpu[1], self._refused, send, retry_after)

    def _next(self, now):
        while self.queue:
            head = self.queue[0]
            newest = self.shed and now - head.arrived > 2.0 and head.deadline < INF
            call = self.queue.pop() if newest else self.queue.popleft()
            if not self.shed or now + 0.7 * self.latency <= call.deadline:
                return call
            self.failed += 1
        return None

    def _send(self, call, now):
        send = Send(call, self, self.limit.sent(now, stream=self.stream, prompt=call.prompt))
        self.flying.add(send)
        self.sends += 1
        self.logical += call.sends == 0
        call.sends += 1
        self._compute(self.cpu[0], self.world.wire, self.server.arrive, send)
        if call.deadline < INF:
            self.world.at(call.deadline, self._expire, send)

    def _compute(self, cost, fn, *args):
        self._core_free = max(self.world.now, self._core_free) + cost
        self.world.at(self._core_free, fn, *args)

    def _wake(self, at):
        if at == self._wake_at:
            self._wake_at = INF
        self.pump()

    def _first(self, send):
        if send in self.flying:
            self.limit.first(send.slot, self.world.now)
            self.pump()

    def _done(self, send):
        if send not in self.flying:
            return
        now, call = self.world.now, send.call
        self.flying.discard(send)
        self.done += 1
        self.answered_at.append(now)
        self.latency += 0.05 * (now - send.slot.sent_at - self.latency)
        if now <= call.deadline:
            self.good += 1
            self.server.good += call.output or 0.0
        self.limit.done(send.slot, now, prompt_tokens=call.prompt, output_tokens=call.output)
        self.pump()

    def _refused(self, send, retry_after):
        if send not in self.flying:
            return
        now, call = self.world.now, send.call
        self.flying.discard(send)
        self.limit.refused(send.slot, now, retry_after)
        backoff = min(20.0, 2.0 ** (call.sends - 1))
        if retry_after:
            at = now + retry_after + self.rng.uniform(0.0, max(retry_after / 2.0, backoff))
        else:
            at = now + max(0.05, self.rng.uniform(0.0, backoff))
        if at + 0.5 * self.latency > call.deadline:
            self.failed += 1
        else:
            self.world.at(at, self._back, call)
        self.pump()

    def _back(self, call):
        self.queue.appendleft(call)
        self.pump()

    def _expire(self, send):
        if send not in self.flying:
            return
        self.flying.discard(send)
        self.failed += 1
        self.world.wire(self.server.cancel, send)
        self.limit.dropped(send.slot, self.world.now)
        self.pump()
