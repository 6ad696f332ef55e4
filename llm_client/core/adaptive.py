"""The adaptive limit: finds how many calls an endpoint takes, and keeps the rest at home.

Three rules do the work. Growth leaves one call at a time, so the first refusal comes after one call too many and not
after a doubled window. The count in flight at a refusal *is* what the server has room for. Retry-After stops the
refused call and growth, not the self-clock: an answered call may be replaced, which adds no load (packet conservation,
Jacobson 1988). Two refused replacements in a row revoke that privilege.
"""

from __future__ import annotations

from math import inf
from random import Random

from llm_client.core.ceiling import Ceiling
from llm_client.core.concurrency import Slot, endpoint_scope
from llm_client.core.outage import Outage
from llm_client.core.pace import Pace
from llm_client.core.proven import Proven
from llm_client.core.signal import Reading, Signal
from llm_client.core.trial import Trial
from llm_client.core.tuning import TUNING, Tuning
from llm_client.errors import ConfigError

_DAY = 86400.0  # seconds; longer Retry-Afters are mistakes


class AdaptiveLimit:
    """A fractional limit that grows while the server keeps up; implements `Limit`.

    Attributes:
        limit: calls in flight; below 1.0 it is a pace of `limit` calls per latency.
        inflight: calls sent and not settled.
        epoch: counts decreases; what was sent before one neither lowers the limit again nor is a sample.
        refusals: calls the server declined.
    """

    __slots__ = (
        "_answered",
        "_ceiling",
        "_changed",
        "_clean",
        "_endpoint_scope",
        "_goal",
        "_hold",
        "_last_sent",
        "_limited",
        "_limited_at",
        "_max",
        "_next_grow",
        "_outage",
        "_over",
        "_pace",
        "_pause",
        "_proven",
        "_quiet",
        "_quiet_since",
        "_ramp",
        "_retry_after",
        "_retry_after_end",
        "_rng",
        "_signal",
        "_slow",
        "_streams",
        "_strikes",
        "_taken",
        "_trial",
        "_tuning",
        "epoch",
        "inflight",
        "limit",
        "refusals",
    )

    def __init__(
        self,
        rng: Random,
        *,
        maximum: float = 1024.0,
        retry_after_scope: str = "call",
        tuning: Tuning = TUNING,
    ) -> None:
        """Start at a few calls and ramp up.

        Args:
            rng: spreads the returns of a fleet.
            maximum: the limit never exceeds this many calls.
            retry_after_scope: `call` holds back the refused call, `endpoint` every call.
            tuning: the constants.

        Raises:
            ConfigError: `maximum` is below 1 or the scope is unknown.
        """
        if not maximum >= 1.0:
            msg = f"concurrency.max: expected a number of at least 1, got {maximum!r}"
            raise ConfigError(msg)
        self._tuning = tuning
        self._rng = rng
        self._max = float(maximum)
        self._endpoint_scope = endpoint_scope(retry_after_scope)
        self._signal = Signal(tuning)
        self._ceiling = Ceiling(tuning)
        self._pace = Pace(tuning)
        self.limit = min(self._max, tuning.start)
        self.inflight = 0
        self.epoch = 0
        self.refusals = 0
        self._answered = 0
        self._goal = self.limit  # where the limit creeps to, one call at a time
        self._slow = False  # the last answer of the ramp came late
        self._ramp = True  # doubling per round trip, until the first congestion
        self._streams = 0  # of those in flight
        self._hold = self._pause = self._next_grow = 0.0  # no growth, no sending, no next step before
        self._strikes = 0  # refused replacements in a row
        self._outage = Outage(tuning, self.limit)
        self._retry_after, self._retry_after_end = 0.0, -inf
        self._quiet_since, self._quiet = 0.0, 0  # silence of the server, and how often it counted as a weak yes
        self._limited, self._limited_at = False, -1.0  # a call waited: since the last window, and when
        self._last_sent = -inf
        self._trial = Trial(tuning)
        self._proven = Proven(tuning, self.limit)
        self._taken = 0  # most calls in flight of which one was answered, while none was ever refused
        self._clean, self._changed, self._over = 0, 0.0, 0  # calm windows in a row; last growth; congested in a row

    @property
    def searching(self) -> bool:
        """Whether the ramp goes on."""
        return self._ramp

    def clear_at(self) -> float:
        """Tell when the less urgent may take one more place while the more urgent are about; inf at the next answer."""
        return self._proven.clear_at(self.inflight, inf if self._ramp else self.limit)

    def may_send(self, now: float) -> float:
        """Tell when one more call may go: 0.0 now, `t > now` ask again at t, inf at the next event. Changes nothing."""
        if now < self._pause:
            return self._pause
        if self._pace.rate is not None and now < self._pace.next_at:
            return self._pace.next_at
        if self.limit < 1.0:  # pacing
            if self.inflight:
                return inf
            at = self._last_sent + (self._signal.latency or 1.0) / self.limit
            return 0.0 if now >= at else at
        return 0.0 if self.inflight + self._tuning.slack < self.limit else inf

    def press(self, now: float, backlog: float) -> float:
        """Say that a call waits and nothing is free; the limit may grow by one call. Answers as `may_send`."""
        wait = self.may_send(now)
        if wait == 0.0 or now < self._pause or (self._pace.rate is not None and now < self._pace.next_at):
            return wait
        self._limited, self._limited_at = True, now
        if self.limit < 1.0:
            return wait
        if now < self._hold:
            return self._hold if self._goal > self.limit else inf
        if self._ramp and not self._slow and (not self._streams or self._signal.late):
            t = self._tuning
            at = self._quiet_since + t.silence * 2.0**self._quiet
            if now >= at:  # silence is a weak yes: a server that is full refuses within milliseconds
                self._quiet += 1
                self._goal = min(self._max, self._goal + t.start)
            elif self._goal <= self.limit:
                return at
        return inf if self._goal <= self.limit else self._creep(now, backlog)

    def sent(self, now: float, *, stream: bool, prompt: float = 0.0) -> Slot:
        """Book a call that leaves now; `prompt` is its estimated prompt tokens."""
        self.inflight = level = self.inflight + 1
        slot = Slot(now, level, stream, prompt, self.epoch)
        slot.refusals = self.refusals
        slot.held = now < self._hold
        if self._ceiling.probing:
            slot.probe = level > self._ceiling.level - 0.5
        if stream:
            self._streams += 1
        self._last_sent = now
        if self._pace.rate is not None:
            self._pace.sent(now)
        if level == 1:
            self._quiet_since, self._quiet = now, 0
            self._proven.sent(now)
        return slot

    def first(self, slot: Slot, now: float) -> None:
        """Note the first content of a stream: it clocks growth and is the best sample of waiting."""
        if not slot.open or slot.seen or not slot.stream:
            return
        slot.seen = True
        slot.first_after = now - slot.sent_at
        signal = self._signal
        signal.first(slot, now)
        self._alive(slot, now)
        if slot.epoch == self.epoch and not signal.late:
            self._weigh(signal.take(slot, now, 0.0, self.limit, self._changed), now)

    def done(self, slot: Slot, now: float, *, prompt_tokens: float | None, output_tokens: float | None) -> None:
        """Settle an answered call; a plain one is a sample of waiting as far as its tokens explain its latency."""
        if not self._settle(slot):
            return
        if prompt_tokens is not None:
            slot.prompt = prompt_tokens
        output = output_tokens or 0.0
        signal = self._signal
        signal.answer(slot, now, output)
        self._answered += 1
        if self._pace.rate is not None:
            self._pace.raised(now, self.limit, signal.latency or 0.0)
        back = self._outage.answered(slot.sent_at)
        if back is not None:
            self._ceiling.forget()
            self._goal = max(self._goal, min(self._max, back))
        self._outage.remember(slot.sent_at, max(self.limit, self._goal))
        if now >= self._hold:
            self._strikes = 0
        if slot.seen and not signal.late:
            return
        self._alive(slot, now)
        if slot.epoch == self.epoch and (signal.late or not slot.stream):
            self._weigh(signal.take(slot, now, output, self.limit, self._changed), now)

    def refused(self, slot: Slot, now: float, retry_after: float | None) -> None:
        """Settle a refused call: the server holds what it accepted; keep that, and stop growing."""
        if not self._settle(slot):
            return
        # Refusals come in order, so those counted since this call left were not held either.
        held = float(max(slot.level - 1 - (self.refusals - slot.refusals), self.inflight))
        self.refusals += 1
        wait = min(_DAY, max(0.0, retry_after or 0.0))
        self._retry_after, self._retry_after_end = wait, now + wait
        self._quiet_since, self._quiet = now, 0
        self._ramp = False
        if self._endpoint_scope and wait:
            self._pause = max(self._pause, now + self._outage.silence(self._rng, wait))
        ceiling = self._ceiling
        if slot.epoch != self.epoch:
            ceiling.lowered(held, self._answered)
            self.limit = min(self.limit, ceiling.yielded(ceiling.level))
        else:
            self._decrease(slot, now, held, wait)
        known = ceiling.level < inf and self._strikes < self._tuning.strikes
        self._goal = max(self.limit, min(self._max, ceiling.level)) if known else self.limit

    def failed(self, slot: Slot, now: float) -> None:
        """Settle a call that got neither an answer nor a refusal: no sample, no growth."""
        self.dropped(slot, now)

    def dropped(self, slot: Slot, now: float) -> None:
        """Settle a call that was cancelled or never sent; a dropped probe takes its place above the ceiling back."""
        if not self._settle(slot):
            return
        if slot.probe and self._ceiling.probing:
            self._ceiling.withdrawn(now)
        if slot.epoch == self.epoch and not slot.seen and now - slot.sent_at > self._tuning.alarm:
            self._weigh(self._signal.lost(slot, now, self.limit, self._changed), now)

    def recovered(self, now: float) -> None:
        """Start slowly from a quarter of the old limit: the server may have come back cold or smaller."""
        self.limit = self._goal = max(self._tuning.floor, self.limit / 4.0, min(self._max, self._outage.before) / 4.0)
        self._ramp = True
        self._strikes = self._outage.misses = 0
        self._pause = self._hold = 0.0
        self._quiet_since, self._quiet = now, 0
        self._taken = 0
        self._ceiling.forget()
        self._pace.forget()
        self._new_epoch(now)

    # -- growth

    def _creep(self, now: float, backlog: float) -> float:
        """Raise the limit towards the goal, one call at a time."""
        if now < self._next_grow:
            return self._next_grow
        t, ceiling = self._tuning, self._ceiling
        cap = ceiling.cap(now)
        # Back to where it was before nothing can be refused; what waits there shows in the windows.
        safe = self._ramp or (ceiling.level == inf and self.limit + 1.0 <= self._taken)
        if not safe and not self._worth(now, backlog, inf if ceiling.level == inf else t.worth_below):
            return inf
        if self.limit + 1.0 <= cap + 1e-9 or (self._worth(now, backlog, inf) and self._probe(now)):
            self.limit = min(self._goal, self.limit + 1.0)
            self._next_grow = now + self._signal.gap(self.limit)
            return 0.0 if self.inflight + t.slack < self.limit else self._next_grow
        if self.limit < cap:
            self.limit = min(cap, self._goal)
            if self.inflight + t.slack < self.limit:
                return 0.0
        return ceiling.poll(now) if cap < ceiling.level else inf

    def _probe(self, now: float) -> bool:
        ceiling = self._ceiling
        if ceiling.level >= self._max or not ceiling.probe(now, self.limit, self._answered):
            return False
        self._goal = ceiling.level
        return True

    def _worth(self, now: float, backlog: float, longest: float) -> bool:
        """Tell whether the queue outlasts the Retry-After of a call that growth may cost."""
        t = self._tuning
        known = now <= self._retry_after_end + t.lapse
        wait = min(longest, self._retry_after if known else t.retry_after_assumed)
        return backlog >= t.worth * wait * self.limit / (self._signal.latency or 1.0)

    def _alive(self, slot: Slot, now: float) -> None:
        """Note that the server took this call."""
        self._quiet_since, self._quiet = now, 0
        self._taken = max(self._taken, slot.level)
        if slot.probe and self._ceiling.probing:
            self._ceiling.admitted()
            self._clean = 0
        if not self._ramp or slot.epoch != self.epoch:
            return
        self._proven.answered()
        self._slow = not self._signal.brisk(slot, now, self.limit)
        if self._slow:
            self._goal = self.limit
        elif now >= self._hold and self._limited_at >= slot.sent_at:
            self._goal = min(self._max, self._goal + 1.0, 2.0 * self.limit)
            if self.limit < 1.0:
                self.limit = min(1.0, self._goal)

    # -- decreases

    def _decrease(self, slot: Slot, now: float, held: float, wait: float) -> None:
        t, ceiling = self._tuning, self._ceiling
        self._outage.refused(now)
        self._strikes = self._strikes + 1 if slot.held else 0
        if held >= 1.0 and self._strikes < t.strikes:
            ceiling.learned(held, replaced=slot.held)
            self.limit = min(self.limit, ceiling.yielded(held))
        else:  # replacements are refused too: drain
            if self._strikes >= t.strikes:
                self._pace.learn(now, self._answered)
            self.limit = t.keep_drained * min(self.limit, max(held, 1.0))
        if held == 0.0 or self.limit < 1.0:  # nothing of ours is served: silence
            self._outage.misses += 1
            self._pause = max(self._pause, now + self._outage.silence(self._rng, wait))
            self.limit = max(self.limit, 1.0)
        soft = max(t.hold, min(wait, t.hold_latencies * (self._signal.latency or 1.0)))
        self._hold = max(self._hold, now + soft)
        ceiling.refused(now, self._hold, wait, self._answered)
        self._new_epoch(now)
        self._pace.mark(now, self._answered)

    def _new_epoch(self, now: float) -> None:
        self.epoch += 1
        self._clean = 0
        self._ceiling.restart(now)
        self._signal.restart(now)

    # -- windows

    def _weigh(self, reading: Reading | None, now: float) -> None:
        if reading is None:
            return
        t = self._tuning
        wait, target = reading.wait, reading.target
        self._proven.weighed(reading)
        limited, self._limited = self._limited, False
        back = self._trial.ended(reading, now)
        if back is not None:
            self._goal = max(self._goal, min(back, self._max))
        elif not self._ramp and (lighter := self._trial.begun(reading, self.limit, now)) is not None:
            self.limit = self._goal = lighter
            self._new_epoch(now)
            return
        self._over = self._over + 1 if wait > target else 0
        if wait > target and (reading.sure or self._over >= 2):
            # Little's law: calls in flight are proportional to service + waiting, so one jump instead of many steps.
            service = reading.service if reading.service < inf else wait
            factor = max(t.cut, (service + t.fill * target) / (service + wait))
            least = min(self.limit, reading.least)
            self.limit = self._goal = max(least, min(self.limit, reading.level * factor))
            self._ramp = self._ceiling.probing = False
            self._new_epoch(now)
        elif wait < t.calm * target and limited and reading.fresh >= t.seen and not self._ramp:
            level = min(self.limit, reading.level + t.slack)  # what the window speaks of
            level += t.ahead * (self.limit - level)
            self._goal = min(self._max, max(self._goal, level + self._step(level, now)))
            if self.limit < 1.0:
                self.limit = min(self._goal, 1.0)
            self._clean, self._changed = self._clean + 1, now
        elif wait >= t.calm * target:
            self._clean = 0
            if self._ramp:
                self._ramp, self._goal = False, self.limit

    def _step(self, level: float, now: float) -> float:
        t = self._tuning
        if now < self._ceiling.firm:  # inside a Retry-After: slowly
            return max(1.0, t.scale * level)
        step = t.add + t.scale * level
        return max(step, min(step * 2.0 ** min(self._clean, t.clean_max), t.accelerate * level))

    def _settle(self, slot: Slot) -> bool:
        was_open, slot.open = slot.open, False
        self.inflight -= was_open
        self._streams -= was_open and slot.stream
        return was_open
