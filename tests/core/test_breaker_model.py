"""B10: the circuit equals a small reference model for random histories."""

import random
from itertools import pairwise
from math import inf

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from llm_client.core.breaker import Breaker, BreakerConfig, Pass, Refused

# Times are multiples of a quarter second, so that both sides compute with the same digits.
OPEN_FOR, LEASE, PROBES, SUCCESSES, FAILURES, WINDOW = 4.0, 30.0, 2, 2, 3, 30.0


class Model:
    """What the circuit should do, written as plainly as possible."""

    def __init__(self):
        self.state, self.until, self.epoch, self.alive = "closed", -inf, 0, -inf
        self.clear()

    def clear(self):
        self.epoch += 1
        self.row, self.lonely, self.good, self.lost, self.lease = 0, 0, 0, 0, LEASE
        self.seen, self.ends, self.flying, self.first, self.broken = [], {}, set(), None, 0

    def trip(self, now):
        self.state, self.until, self.ends, self.epoch = "open", now + OPEN_FOR, {}, self.epoch + 1

    def ready_at(self, now):
        if self.state == "half_open":
            gone = [key for key, end in self.ends.items() if end <= now]
            self.lost += len(gone)
            self.ends = {key: end for key, end in self.ends.items() if end > now}
            if self.lost and not self.good and (self.lost >= 2 * PROBES or now - self.since >= 2 * self.lease):
                self.lease *= 2
                self.trip(now)
        if self.state == "half_open":
            return now if len(self.ends) < PROBES else min(self.ends.values())
        return max(now, self.until) if self.state == "open" else inf if self.state == "isolated" else now

    def acquire(self, now, key):
        if self.ready_at(now) > now:
            return None
        if self.state == "open":
            self.state, self.since, self.good, self.lost, self.epoch = "half_open", now, 0, 0, self.epoch + 1
        if self.state == "half_open":
            self.ends[key] = now + self.lease
        else:
            self.flying.add(key)
            self.latest = key
        return (self.epoch, self.state == "half_open")

    def settle(self, key, given, now, verdict, *, slow, lonely):
        epoch, probe = given
        if epoch != self.epoch:
            return
        self.ends.pop(key, None)
        self.flying.discard(key)
        since = self.first is not None and key > self.first
        if verdict == "failure" and (self.first is None or since):
            self.first, self.broken = self.first or self.latest, self.broken + 1
        elif verdict == "success" and since:
            self.first, self.broken = None, 0
        self.row = {"success": 0, "failure": self.row + 1, "neutral": self.row}[verdict]
        self.lonely = 0 if verdict == "success" else self.lonely + (verdict == "neutral" and lonely)
        trip = verdict == "neutral" and lonely and self.lonely >= FAILURES
        if probe:
            trip = trip or verdict == "failure"
            if verdict == "success":
                self.good, self.lost = self.good + 1, 0
                if self.good == SUCCESSES:
                    self.clear()
                    self.state = "closed"
        elif verdict != "neutral" or slow:
            self.seen.append((now, verdict == "failure", slow))
            recent = [each for each in self.seen if each[0] // 3.0 > now // 3.0 - 10]
            enough = len(recent) >= 10
            trip = trip or (verdict == "failure" and self.row >= FAILURES and now - self.alive >= 2.0)
            going = any(each > (self.first or 0) for each in self.flying)
            trip = trip or (verdict == "failure" and self.broken >= FAILURES and not going)
            trip = trip or (verdict == "failure" and enough and sum(f for _, f, _ in recent) >= 0.5 * len(recent))
            trip = trip or (slow and enough and sum(s for _, _, s in recent) >= 0.8 * len(recent))
        if trip:
            self.trip(now)


class Circuit(RuleBasedStateMachine):
    """Both sides side by side."""

    @initialize()
    def build(self):
        config = BreakerConfig(failures=FAILURES, open_base=OPEN_FOR, open_cap=OPEN_FOR)
        self.breaker, self.model = Breaker("a", config, random.Random(0)), Model()
        self.now, self.count, self.given, self.done = 0.0, 0, {}, []

    @rule(step=st.sampled_from([0.0, 0.25, 1.0, 2.0, 4.0, 10.0, 30.0, 61.0]))
    def wait(self, step):
        self.now += step

    @rule(times=st.integers(1, 6))
    def acquire(self, times):
        for _ in range(times):
            self.count += 1
            ours, theirs = self.breaker.acquire(self.now), self.model.acquire(self.now, self.count)

            assert isinstance(ours, Pass) == (theirs is not None)
            if isinstance(ours, Refused):
                assert ours.until == self.model.ready_at(self.now)
            else:
                self.given[self.count] = (ours, theirs)

    @precondition(lambda self: self.given)
    @rule(
        data=st.data(),
        verdict=st.sampled_from(["success", "success", "failure", "failure", "neutral"]),
        slow=st.booleans(),
        lonely=st.booleans(),
    )
    def settle(self, data, verdict, slow, lonely):
        key = data.draw(st.sampled_from(sorted(self.given)))
        ours, theirs = self.given.pop(key)
        until = self.breaker.until
        self.breaker.settle(ours, self.now, verdict, slow=slow, lonely=lonely and verdict == "neutral")
        self.model.settle(key, theirs, self.now, verdict, slow=slow, lonely=lonely)
        self.done.append(ours)

        # B1: while open, no outcome moves the end.
        assert until is None or self.breaker.until == until

    @rule(times=st.integers(1, 4))
    def fail_the_new_and_answer_the_old(self, times):
        for _ in range(times):
            old = min(self.given, default=None)
            self.acquire(1)
            for key, verdict in ((self.count, "failure"), (old, "success")):
                if key in self.given:
                    ours, theirs = self.given.pop(key)
                    self.breaker.settle(ours, self.now, verdict)
                    self.model.settle(key, theirs, self.now, verdict, slow=False, lonely=False)
                    self.done.append(ours)

    @precondition(lambda self: self.done)
    @rule(data=st.data(), verdict=st.sampled_from(["success", "failure", "neutral"]))
    def settle_again(self, data, verdict):
        self.breaker.settle(data.draw(st.sampled_from(self.done)), self.now, verdict, lonely=verdict == "neutral")

    @rule()
    def bytes_arrive(self):
        self.breaker.alive(self.now)
        self.model.alive = self.now

    @rule(by_hand=st.sampled_from(["isolate", "reset"]))
    def operate(self, by_hand):
        getattr(self.breaker, by_hand)()
        self.model.clear()
        self.model.state = {"isolate": "isolated", "reset": "closed"}[by_hand]

    @invariant()
    def same(self):
        assert self.breaker.ready_at(self.now) == self.model.ready_at(self.now)
        assert self.breaker.state == self.model.state
        assert self.breaker.until == (self.model.until if self.model.state == "open" else None)
        assert self.breaker.probing == len(self.model.ends) <= PROBES
        behaves = {"isolated": "open", "disabled": "closed", "metrics_only": "closed"}.get(self.model.state)
        assert self.breaker._circuit.current_state.replace("-", "_") == (behaves or self.model.state)

    @invariant()
    def every_change_is_told_once(self):
        told = self.breaker.drain()
        assert all(one.new == two.old for one, two in pairwise(told))
        assert all(each.old != each.new for each in told)
        if told:
            assert told[-1].new == self.breaker.state


Circuit.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestCircuit = Circuit.TestCase
