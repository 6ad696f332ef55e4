"""The gate: nothing lost or granted twice, in order, within limits, whatever happens in whatever order."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from llm_client.core.breaker import Breaker, BreakerConfig
from llm_client.core.concurrency import FixedLimit
from llm_client.core.cooldown import CoolDown
from llm_client.core.gate import Gate
from llm_client.core.pressure import PressureRule
from llm_client.core.station import Station
from llm_client.core.ticket import State, Ticket
from llm_client.core.waiting import QueueLimits
from llm_client.model import Cost, Kind, Outcome, Priority, RetryHint, Usage

OK = Outcome(ok=True)
FAILED = Outcome(kind=Kind.SERVER_ERROR, retryable=True, breaker=True)
REFUSED = Outcome(
    kind=Kind.RATE_LIMITED, retryable=True, refusal=True, overload=True, hint=RetryHint(seconds=1.0, directive=True)
)


def station(name="a", limit=2, **breaker):
    return Station(
        name=name,
        limit=FixedLimit(limit),
        breaker=Breaker(name, BreakerConfig(**breaker), Random(1)),
        cooldown=CoolDown(),
    )


class Waker:
    """Counts the calls."""

    def __init__(self):
        self.calls = 0

    def wake(self):
        self.calls += 1


class Rig:
    """A gate, its endpoints, a clock, and tickets as calls would make them."""

    def __init__(self, *stations, **limits):
        self.now = 0.0
        self.seq = 0
        self.events = []
        self.gate = Gate(QueueLimits(**limits), Random(1), self.events.append)
        for each in stations or (station(),):
            self.gate.add_station(each, 0.0)

    def enter(self, priority=Priority.NORMAL, *, lasts=inf, tokens=10, **more):
        ticket = Ticket(
            seq=self.seq,
            priority=priority,
            arrived=self.now,
            deadline=self.now + lasts,
            cost=Cost(prompt=tokens),
            **more,
        )
        self.seq += 1
        ticket.waker = Waker()
        self.gate.enter(ticket, self.now)
        return ticket

    def answer(self, ticket, outcome=OK, usage=None):
        self.gate.take(ticket).settle(outcome, self.now, usage)

    def wait(self, seconds):
        self.now += seconds
        self.gate.pump(self.now)


def full(rig, number=2):
    """Occupy the endpoint."""
    return [rig.enter(Priority.CRITICAL) for _ in range(number)]


class Machine(RuleBasedStateMachine):
    """Random lives of tickets and permits against what must always hold."""

    @initialize(count=st.integers(1, 3), ceilings=st.booleans(), size=st.sampled_from([0, 3, 1000]))
    def begin(self, count, ceilings, size):
        stations = [station(f"s{n}", n + 1, failures=1) for n in range(count)]
        self.rig = Rig(
            *stations, size=size, ageing=inf, lifo_after=inf, ceilings=(1.0, 0.9, 0.7, 0.5) if ceilings else None
        )
        self.plain = count == 1 and not ceilings
        self.tickets = []
        self.permits = []
        self.stations = {each.name: each for each in stations}
        self.added = count

    def watch(self, act):
        """Do something; check order and wakers of what it granted or failed."""
        waiting = [each for each in self.tickets if each.state is State.WAITING]
        calls = {each.seq: each.waker.calls for each in waiting}
        result = act()
        changed = [each for each in waiting if each.state in (State.GRANTED, State.FAILED)]

        assert all(each.waker.calls == calls[each.seq] + 1 for each in changed)

        granted = [each for each in changed if each.state is State.GRANTED]
        left = [each for each in waiting if each.state is State.WAITING and each.lane is not None]
        if self.plain and granted and left:  # one endpoint, nobody ages: the smaller class, then the older
            assert max((each.priority, each.seq) for each in granted) < min((each.priority, each.seq) for each in left)
        return result

    @rule(priority=st.sampled_from(list(Priority)), lasts=st.sampled_from([0.0, 5.0, 300.0, inf]), tenant=st.none())
    def enter(self, priority, lasts, tenant):
        ticket = self.watch(lambda: self.rig.enter(priority, lasts=lasts, tenant=tenant, owner=7))

        assert ticket.state in (State.GRANTED, State.WAITING, State.FAILED)

        self.tickets.append(ticket)

    def some(self, data, state):
        found = [each for each in self.tickets if each.state is state]
        return data.draw(st.sampled_from(found)) if found else None

    @rule(data=st.data(), state=st.sampled_from([State.WAITING, State.GRANTED, State.FAILED]))
    def leave(self, data, state):
        ticket = self.some(data, state)
        if ticket is not None:
            self.watch(lambda: self.rig.gate.leave(ticket, self.rig.now))
            self.tickets.remove(ticket)

            assert State.IDLE is ticket.state
            assert ticket.permit is None

    @rule(data=st.data())
    def take(self, data):
        ticket = self.some(data, State.GRANTED)
        if ticket is not None:
            permit = self.rig.gate.take(ticket)

            assert not any(each is permit for _, each in self.permits)

            self.permits.append((ticket, permit))

    @precondition(lambda self: getattr(self, "permits", None))
    @rule(data=st.data(), how=st.sampled_from(["ok", "failed", "refused", "drop", "lose", "first", "twice"]))
    def use(self, data, how):
        ticket, permit = data.draw(st.sampled_from(self.permits))
        now = self.rig.now
        outcome = {"ok": OK, "failed": FAILED, "refused": REFUSED, "twice": OK}.get(how)
        if how == "first":
            self.watch(lambda: permit.first(now))
            return
        self.permits.remove((ticket, permit))
        if how == "drop":
            self.watch(lambda: permit.drop(now))
        elif how == "lose":
            permit.lose()
            self.watch(lambda: self.rig.gate.pump(now))
        else:
            self.watch(lambda: permit.settle(outcome, now, Usage(prompt_tokens=1, completion_tokens=1)))
        if how == "twice":
            before = {each.name: each.limit.inflight for each in self.rig.gate.stations}
            permit.settle(FAILED, now)
            permit.drop(now)

            assert before == {each.name: each.limit.inflight for each in self.rig.gate.stations}
        if how == "refused":  # the call comes back to its place
            ticket.not_before[permit.endpoint] = now + 1.0
            ticket.returned = True
            self.watch(lambda: self.rig.gate.enter(ticket, now))
        else:
            self.tickets.remove(ticket)

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 6.0, 70.0]))
    def pass_time(self, seconds):
        self.rig.now += seconds
        self.watch(lambda: self.rig.gate.pump(self.rig.now))

    @rule()
    def add_endpoint(self):
        if self.added < 5:
            self.plain = False
            each = station(f"s{self.added}", 1)
            self.stations[each.name] = each
            self.added += 1
            self.watch(lambda: self.rig.gate.add_station(each, self.rig.now))

    @rule(data=st.data())
    def drain_endpoint(self, data):
        names = [each.name for each in self.rig.gate.stations if not each.draining]
        if len(names) > 1:
            self.watch(lambda: self.rig.gate.drain_station(data.draw(st.sampled_from(names)), self.rig.now))

    @invariant()
    def books_balance(self):
        if not hasattr(self, "rig"):
            return
        gate = self.rig.gate
        held = [permit for _, permit in self.permits]
        held += [each.permit for each in self.tickets if each.state is State.GRANTED]
        for name, each in self.stations.items():
            mine = sum(permit.endpoint == name for permit in held)

            assert mine == each.outstanding == each.limit.inflight
            assert each.limit.inflight <= each.limit.limit
            assert each.breaker.probing <= each.breaker.config.probes
        waiting = [each for each in self.tickets if each.state is State.WAITING]

        assert len(waiting) == gate.waiting
        assert len({id(each) for each in held}) == len(held)
        assert gate.holds(7) is bool(waiting or held)
        assert gate._room.bytes == 0

    def teardown(self):
        if not hasattr(self, "rig"):
            return
        gate, now = self.rig.gate, self.rig.now
        for _, permit in self.permits:
            permit.drop(now)
        for each in self.tickets:
            gate.leave(each, now)

        assert gate.waiting == 0
        assert not gate.holds(7)
        assert {(each.outstanding, each.limit.inflight, each.breaker.probing) for each in self.stations.values()} == {
            (0, 0, 0)
        }
        assert all(not lane.count and not list(lane) for lane in gate._room.lanes.values())


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_a_granted_call_cannot_be_overtaken():
    """The right moves at the grant: a more urgent arrival waits for the next."""
    rig = Rig(station(limit=1))
    (busy,) = full(rig, 1)
    waiting = rig.enter(Priority.LOW)
    rig.answer(busy)
    urgent = rig.enter(Priority.CRITICAL)

    assert State.GRANTED is waiting.state
    assert waiting.waker.calls == 1
    assert State.WAITING is urgent.state


def test_a_ceiling_keeps_room_while_urgent_calls_are_about():
    """LOW may use half of the limit while CRITICAL calls were seen, and all of it ten seconds later."""
    rig = Rig(station(limit=10), ceilings=(1.0, 0.9, 0.7, 0.5))
    urgent = rig.enter(Priority.CRITICAL)
    lows = [rig.enter(Priority.LOW) for _ in range(12)]

    assert sum(each.state is State.GRANTED for each in lows) == 4

    second = rig.enter(Priority.CRITICAL)

    assert State.GRANTED is second.state

    rig.wait(9.9)

    assert sum(each.state is State.GRANTED for each in lows) == 4

    rig.wait(0.2)

    assert sum(each.state is State.GRANTED for each in lows) == 8
    assert State.GRANTED is urgent.state


def test_a_ceiling_does_not_idle_an_endpoint_that_only_low_calls_use():
    """Demand-aware: with nobody more urgent about, LOW has it all."""
    rig = Rig(station(limit=10), ceilings=(1.0, 0.9, 0.7, 0.5))
    lows = [rig.enter(Priority.LOW) for _ in range(12)]

    assert sum(each.state is State.GRANTED for each in lows) == 10


def served(rig, busy, number):
    """Answer so many calls, one after another; return who went."""
    order = []
    held = busy
    for _ in range(number):
        waiting = [each for each in rig.tickets if each.state is State.WAITING]
        rig.answer(held)
        held = next(each for each in waiting if each.state is State.GRANTED)
        order.append(held)
    return order


@pytest.mark.parametrize(("costs", "ratio"), [((100, 100), 1.0), ((100, 400), 4.0)])
def test_tenants_share_a_class_by_tokens(costs, ratio):
    """A tenant of calls four times as long gets a quarter as many: both get the same tokens."""
    rig = Rig(station(limit=1))
    (busy,) = full(rig, 1)
    rig.tickets = [rig.enter(tokens=costs[0], tenant="short") for _ in range(60)]
    rig.tickets += [rig.enter(tokens=costs[1], tenant="long") for _ in range(60)]
    gone = [each.tenant for each in served(rig, busy, 40)]

    assert gone.count("short") / gone.count("long") == pytest.approx(ratio, rel=0.15)


def test_a_tenant_that_comes_late_has_saved_nothing_up():
    """After a pause it starts level with the others, and does not take every turn."""
    rig = Rig(station(limit=1))
    (busy,) = full(rig, 1)
    rig.tickets = [rig.enter(tokens=100, tenant="busy") for _ in range(60)]
    held = served(rig, busy, 30)[-1]
    rig.tickets += [rig.enter(tokens=100, tenant="late") for _ in range(20)]
    gone = [each.tenant for each in served(rig, held, 20)]

    assert gone.count("late") == pytest.approx(10, abs=1)


def test_pressure_rises_with_the_queue_and_tells_when_to_come_back():
    """Low, medium above a half, high above four fifths, with a time from the rate of grants."""
    rig = Rig(station(limit=1), size=10)
    (held,) = full(rig, 1)
    levels = [rig.gate.pressure().level]
    rig.tickets = []
    for _ in range(10):
        rig.tickets.append(rig.enter())
        levels.append(rig.gate.pressure().level)

    assert levels == ["low"] * 6 + ["medium"] * 3 + ["high"] * 2

    pressure = rig.gate.pressure()

    assert (pressure.ratio, pressure.waiting) == (1.0, 10)
    assert pressure.retry_after > 0.0
    assert rig.gate.pressure(PressureRule(watch=0.9, refuse=1.0)).level == "medium"
    assert State.GRANTED is held.state


def test_pressure_by_latency_reads_answer_times():
    """Answers that take twice the target are load 2.0."""
    rig = Rig(station(limit=1))
    for _ in range(10):
        ticket = rig.enter()
        rig.now += 4.0
        rig.answer(ticket)

    assert rig.gate.pressure(PressureRule(kind="latency", target=2.0)).ratio == pytest.approx(2.0)
    assert rig.gate.pressure(PressureRule(kind="latency", target=2.0)).level == "high"


def test_displacement_never_hits_an_equal_or_more_urgent_call():
    """The newest of the lowest class goes, and is woken; equals are refused at the door."""
    rig = Rig(station(limit=1), size=2)
    full(rig, 1)
    low, other = rig.enter(Priority.LOW), rig.enter(Priority.LOW)
    high = rig.enter(Priority.HIGH)

    assert (State.WAITING, State.FAILED, State.WAITING) == (low.state, other.state, high.state)
    assert Kind.QUEUE_FULL is other.reason
    assert other.waker.calls == 1
    assert Kind.QUEUE_FULL is rig.enter(Priority.LOW).reason

    second = rig.enter(Priority.HIGH)

    assert (State.FAILED, State.WAITING) == (low.state, second.state)
    assert Kind.QUEUE_FULL is rig.enter(Priority.HIGH).reason


def test_a_refused_call_is_never_displaced():
    """It had its turn; the bounds are for those who have not."""
    rig = Rig(station(limit=1), size=1)
    (held,) = full(rig, 1)
    ticket = rig.enter(Priority.LOW)
    rig.answer(held)
    rig.answer(ticket, REFUSED)
    ticket.returned = True
    ticket.not_before["a"] = rig.now
    rig.gate.enter(ticket, rig.now)
    rig.wait(0.0)
    urgent = [rig.enter(Priority.HIGH) for _ in range(3)]

    assert ticket.state is not State.FAILED
    assert sum(each.state is State.FAILED for each in urgent) >= 1


def test_a_call_that_no_endpoint_answers_in_time_is_refused_at_once():
    """Eight answers of ten seconds are known: a call with five is told now, a stream is not foreseen."""
    rig = Rig(station(limit=1))
    for _ in range(8):
        ticket = rig.enter(tokens=10)
        rig.now += 10.0
        rig.answer(ticket)

    assert Kind.DEADLINE_UNREACHABLE is rig.enter(lasts=5.0).reason
    assert State.GRANTED is rig.enter(lasts=5.0, stream=True).state
    assert State.WAITING is rig.enter(lasts=15.0).state

    rig.wait(6.0)
    late = rig.enter(lasts=50.0)

    assert State.WAITING is late.state


def overload(rig, seconds, *, every, priority=Priority.NORMAL, lasts=30.0, serve=1.0):
    """One answer per `serve` seconds, arrivals more often."""
    held = full(rig, 1)[0]
    tickets, next_answer, end = [], rig.now + serve, rig.now + seconds
    while rig.now < end:
        rig.wait(every)
        tickets.append(rig.enter(priority, lasts=lasts, stream=True))
        if rig.now >= next_answer:
            next_answer += serve
            rig.answer(held)
            held = next((each for each in tickets if each.state is State.GRANTED), None) or rig.enter()
    return tickets


def test_what_waits_in_vain_is_told_early():
    """At four times the capacity the oldest are given up after a quarter of their time, not at their deadline."""
    rig = Rig(station(limit=1))
    tickets = overload(rig, 60.0, every=0.25)
    shed = [each for each in tickets if each.reason is Kind.DEADLINE_UNREACHABLE]

    assert len(shed) > 80
    assert not [each for each in tickets if each.reason is Kind.DEADLINE]


def test_few_that_wait_behind_a_pause_are_not_given_up():
    """Nothing was answered for ten seconds: as many as are under way may wait on, whatever the rates say."""
    rig = Rig(station(limit=4))
    held = full(rig, 4)
    waiting = [rig.enter(Priority.CRITICAL, lasts=30.0, stream=True) for _ in range(4)]
    for _ in range(100):
        rig.wait(0.1)

    assert [each.state for each in waiting] == [State.WAITING] * 4

    for each in held:
        rig.answer(each)

    assert [each.state for each in waiting] == [State.GRANTED] * 4


def test_nobody_is_given_up_before_anybody_went():
    """Without a single grant there is no rate to foresee a wait from: all wait as long as they may."""
    rig = Rig(station(limit=1))
    full(rig, 1)
    waiting = [rig.enter(lasts=30.0, stream=True) for _ in range(5)]
    for _ in range(290):
        rig.wait(0.1)

    assert [each.state for each in waiting] == [State.WAITING] * 5

    rig.wait(1.1)

    assert [each.reason for each in waiting] == [Kind.DEADLINE] * 5


def test_a_short_deadline_turns_its_line_sooner():
    """A fifth of its own time makes a head late: calls of 200 ms are served newest first after 40 ms."""
    rig = Rig(station(limit=1))
    (held,) = full(rig, 1)
    old = rig.enter(lasts=0.2)
    rig.wait(0.05)
    new = rig.enter(lasts=0.2)
    rig.answer(held)

    assert (State.WAITING, State.GRANTED) == (old.state, new.state)


def test_a_low_call_is_served_under_endless_high_ones():
    """It rises one class per ten seconds: after twenty it stands among HIGH calls, by its age before them."""
    rig = Rig(station(limit=1), ageing=10.0, lifo_after=inf)
    (held,) = full(rig, 1)
    low = rig.enter(Priority.LOW)
    waited = 0.0
    rig.tickets = [rig.enter(Priority.HIGH) for _ in range(3)]
    while low.state is State.WAITING and waited < 100.0:
        rig.wait(1.0)
        waited += 1.0
        rig.tickets.append(rig.enter(Priority.HIGH))
        rig.answer(held)
        held = next(each for each in [low, *rig.tickets] if each.state is State.GRANTED)

    assert State.GRANTED is low.state
    assert 10.0 <= waited <= 22.0
