"""The queue: order, ageing, newest-first, bounds, delays, expiry."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.core.fairness import Fairness
from llm_client.core.lane import Lane, Line
from llm_client.core.ticket import State, Ticket
from llm_client.core.waiting import QueueLimits, WaitingRoom
from llm_client.model import Kind, Priority


def ticket(seq, priority=Priority.NORMAL, *, arrived=0.0, deadline=inf, size=0, stations=("a",), **more):
    made = Ticket(seq=seq, priority=priority, arrived=arrived, deadline=deadline, size=size, **more)
    made.stations = stations
    return made


def room(**limits):
    failed = []

    def fail(each, reason):
        each.state = State.FAILED
        each.reason = reason
        failed.append((each.seq, reason))

    made = WaitingRoom(QueueLimits(**limits), fail)
    return made, failed


def drain(waiting, now=0.0):
    """Serve everything in the order in which the room would."""
    order = []
    while waiting.count:
        _, first = min((lane.first(now) for lane in waiting.lanes.values() if lane.count), key=lambda each: each[0])
        waiting.remove(first)
        order.append(first.seq)
    return order


def test_classes_are_strict_and_each_is_first_in_first_out():
    """The smaller class goes first; inside a class the earlier arrival."""
    waiting, _ = room()
    for seq, priority in enumerate([3, 1, 2, 1, 0, 3]):
        waiting.add(ticket(seq, Priority(priority)), 0.0)

    assert drain(waiting) == [4, 1, 3, 2, 0, 5]


def test_a_returned_ticket_keeps_its_place():
    """Who was refused stands where he stood before."""
    waiting, _ = room()
    tickets = [ticket(seq) for seq in range(3)]
    for each in tickets:
        waiting.add(each, 0.0)
    waiting.remove(tickets[0])
    tickets[0].returned = True
    waiting.add(tickets[0], 1.0)

    assert drain(waiting, 1.0) == [0, 1, 2]


def test_a_ticket_that_comes_back_counts_once():
    """Leaving and entering again does not revive the first entry."""
    line = Line()
    first, second = ticket(1), ticket(2)
    line.add(first)
    line.add(second)
    for _ in range(5):
        line.discard(first)
        line.add(first)

    assert len(line) == 2
    assert sorted(each.seq for each in line) == [1, 2]


def test_waiting_raises_the_class_up_to_high():
    """A low call that has aged two steps stands beside high ones, never above critical."""
    lane = Lane("k", ("a",), Fairness(), ageing=10.0, lifo_after=inf)
    old = ticket(1, Priority.LOW, arrived=0.0)
    lane.add(old)
    lane.add(ticket(2, Priority.HIGH, arrived=20.0))

    assert old is lane.first(20.0)[1]

    lane.add(ticket(3, Priority.CRITICAL, arrived=500.0))

    assert lane.first(500.0)[1].seq == 3


def test_a_late_urgent_line_serves_its_newest():
    """Nothing is known of the rate, and the head is older than `lifo_after`: the newest can still be in time."""
    lane = Lane("k", ("a",), Fairness(), ageing=inf, lifo_after=2.0)
    for seq in range(3):
        lane.add(ticket(seq, arrived=float(seq), deadline=seq + 30.0))

    assert lane.first(1.9)[1].seq == 0
    assert lane.first(2.1)[1].seq == 2


def late_lane(count=10, *, deadline=30.0):
    """One call a second."""
    lane = Lane("k", ("a",), Fairness(), ageing=inf, lifo_after=2.0)
    for seq in range(count):
        lane.add(ticket(seq, arrived=float(seq), deadline=seq + deadline))
    return lane


def test_a_late_line_whose_rate_is_known_stays_in_order():
    """Who is hopeless is given up instead, so the oldest of the others goes first: it has the least time left."""
    lane = late_lane()
    lane.blind = False

    assert lane.first(10.0)[1].seq == 0


def hopeless(lane, now, **given):
    ticket = lane.hopeless(now, **{"service": 1.0, "going": 1.0, "flying": 0, "free": 0.0, **given})
    return None if ticket is None else ticket.seq


def test_the_oldest_is_given_up_when_an_answer_would_come_too_late():
    """Its deadline is at 30 s; an answer takes a second."""
    lane = late_lane()

    assert hopeless(lane, 28.9, going=100.0) is None
    assert hopeless(lane, 29.1, going=100.0) == 0


def test_the_oldest_is_given_up_when_the_line_outlasts_the_newest():
    """Ten calls at one per second end at 20 s; the newest has until 19 s, so one is too many whoever it is."""
    lane = late_lane(deadline=10.0)

    assert hopeless(lane, 9.0, going=1.0) == 0
    assert hopeless(lane, 9.0, going=1.3) is None
    assert hopeless(lane, 9.0, going=1.0, free=3.0) is None


@pytest.mark.parametrize("given", [{"going": 0.0}, {"flying": 10}])
def test_nobody_is_given_up_on_a_guess(given):
    """The rate is unknown; or no more wait than are under way, and all go when these are answered."""
    assert hopeless(late_lane(deadline=10.0), 9.0, **given) is None


def test_patient_calls_stay_first_in_first_out():
    """Calls with minutes of deadline do not overtake each other."""
    lane = Lane("k", ("a",), Fairness(), ageing=inf, lifo_after=2.0)
    for seq in range(3):
        lane.add(ticket(seq, arrived=0.0, deadline=600.0))

    assert lane.first(100.0)[1].seq == 0


def test_a_full_queue_displaces_the_newest_of_the_lowest_class():
    """An arrival pushes out what is strictly less urgent, the newest first."""
    waiting, failed = room(size=3)
    for seq, priority in enumerate([3, 3, 2]):
        waiting.add(ticket(seq, Priority(priority)), 0.0)
    urgent = ticket(9, Priority.HIGH)
    waiting.add(urgent, 0.0)
    waiting.settle_bounds(urgent)

    assert failed == [(1, Kind.QUEUE_FULL)]
    assert State.WAITING is urgent.state


def test_an_arrival_without_anybody_below_is_refused():
    """Equal classes do not displace each other."""
    waiting, failed = room(size=1)
    waiting.add(ticket(0), 0.0)
    second = ticket(1)
    waiting.add(second, 0.0)
    waiting.settle_bounds(second)

    assert failed == [(1, Kind.QUEUE_FULL)]


def test_the_bound_by_bytes_counts_bodies():
    """A queue of few, large calls is full as well."""
    waiting, failed = room(size=100, max_bytes=1000)
    waiting.add(ticket(0, size=900), 0.0)
    second = ticket(1, size=200)
    waiting.add(second, 0.0)
    waiting.settle_bounds(second)

    assert failed == [(1, Kind.QUEUE_FULL)]
    assert waiting.bytes == 900


def test_overflow_wait_lets_producers_in_as_room_appears():
    """At most `size` tickets are queued; the others wait outside in order, and expire there as well."""
    waiting, failed = room(size=1, overflow="wait")
    tickets = [ticket(0), ticket(1), ticket(2, deadline=5.0)]
    for each in tickets:
        waiting.add(each, 0.0)
        waiting.settle_bounds(each)

    assert waiting.count == 1
    assert failed == []

    waiting.expire(6.0)

    assert failed == [(2, Kind.DEADLINE)]

    waiting.remove(tickets[0])
    waiting.advance(6.0)

    assert [each.seq for lane in waiting.lanes.values() for each in lane] == [1]


def test_a_barred_ticket_waits_outside_until_its_endpoint_opens():
    """While it may go nowhere it is in no lane; its time is booked on what barred it."""
    waiting, _ = room()
    barred = ticket(0)
    barred.not_before["a"] = 5.0
    waiting.add(barred, 1.0)

    assert (waiting.count, waiting.delayed) == (0, 1)
    assert waiting.next_event() == 5.0

    waiting.advance(5.0)

    assert (waiting.count, waiting.delayed) == (1, 0)
    assert barred.waited == {"retry_after": 4.0}


def test_a_ticket_barred_at_one_endpoint_stands_in_the_lane_of_the_other():
    """A refusal speaks for one endpoint; the call may go to the other at once, and to both later."""
    waiting, _ = room()
    barred = ticket(0, stations=("a", "b"))
    barred.not_before["a"] = 5.0
    waiting.add(barred, 0.0)

    assert barred.lane.stations == ("b",)

    waiting.advance(5.0)

    assert barred.lane.stations == ("a", "b")


def test_a_wait_bound_and_a_deadline_are_told_apart():
    """`max_wait` is a queue time-out, the deadline is the deadline."""
    waiting, failed = room()
    waiting.add(ticket(0, deadline=10.0, expires=2.0), 0.0)
    waiting.add(ticket(1, deadline=10.0), 0.0)
    waiting.expire(20.0)

    assert failed == [(0, Kind.QUEUE_TIMEOUT), (1, Kind.DEADLINE)]


@given(st.data())
def test_the_room_agrees_with_a_sorted_list(data):
    """Whatever comes and goes, the order is that of a list sorted by class and place."""
    waiting, _ = room()
    model = {}
    seq = 0
    for _ in range(data.draw(st.integers(1, 60))):
        if model and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(model)))
            each = model.pop(gone)
            waiting.remove(each)
            if data.draw(st.booleans()):
                model[gone] = each
                each.returned = True
                waiting.add(each, 0.0)
        else:
            model[seq] = ticket(seq, data.draw(st.sampled_from(list(Priority))))
            waiting.add(model[seq], 0.0)
            seq += 1

    assert len(model) == waiting.count

    expected = [each.seq for each in sorted(model.values(), key=lambda each: (each.priority, each.seq))]

    assert expected == drain(waiting)


@pytest.mark.parametrize("operation", ["remove", "expire"])
def test_memory_follows_the_living(operation):
    """Dead entries are swept out: a million calls that came and went leave nothing behind."""
    waiting, _ = room(size=10**9)
    for seq in range(20_000):
        each = ticket(seq, deadline=600.0 if operation == "remove" else seq + 1.0)
        waiting.add(each, 0.0)
        if operation == "remove":
            waiting.remove(each)
            each.state = State.IDLE
        else:
            waiting.expire(seq + 1.0)

    assert len(waiting._expiries._heap) < 200
    assert sum(len(line._queue) for lane in waiting.lanes.values() for line in lane._lines.values()) < 200


def test_a_room_is_idle_once_nobody_waits_and_no_dead_timer_is_kept():
    """What a burst left in the heap of time-outs is dropped by the next look, and holds no ticket until then."""
    waiting, _ = room()
    assert waiting.idle

    tickets = [ticket(number, deadline=50.0) for number in range(100)]
    for each in tickets:
        waiting.add(each, 0.0)
    assert not waiting.idle

    for each in tickets:
        waiting.remove(each)
        each.state = State.IDLE
    assert not waiting.idle
    assert inf == waiting.next_event()
    assert waiting.idle


def test_a_room_with_a_barred_ticket_is_not_idle():
    """It stands in no line, and time opens its endpoint."""
    waiting, _ = room()
    barred = ticket(1)
    barred.not_before["a"] = 5.0
    waiting.add(barred, 0.0)

    assert 0 == waiting.count
    assert not waiting.idle
