"""The bounded queue: order, bounds, displacement, expiry, and the rule for its size."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.server.queue import BoundedQueue, queue_size


def test_queue_is_sized_by_patience_over_service_times_concurrency():
    """Five seconds of patience, half a second each, ten at a time: a hundred may wait."""
    assert queue_size(5.0, 0.5, 10) == 100
    assert queue_size(0.3, 0.1, 1) == 3
    assert queue_size(1.0, 0.3, 1) == 4


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_sizing_names_the_number_at_fault(bad):
    """A size from nonsense would be worse than an error."""
    with pytest.raises(ValueError, match="inference_time"):
        queue_size(5.0, bad, 10)


def test_urgent_classes_go_first_and_arrival_decides_inside_a_class():
    """Strict classes, first come first served inside each."""
    queue = BoundedQueue(None)
    for item, rank in (("low", 3), ("normal 1", 2), ("critical", 0), ("normal 2", 2), ("high", 1)):
        queue.push(item, rank=rank)

    assert queue.drain() == ["critical", "high", "normal 1", "normal 2", "low"]


def test_number_orders_inside_a_class():
    """A smaller tie goes before an earlier arrival."""
    queue = BoundedQueue(None)
    queue.push("five", rank=3, tie=5)
    queue.push("four", rank=3, tie=4)

    assert queue.drain() == ["four", "five"]


def test_full_queue_takes_no_more():
    """Pushing into a full queue is a defect of the caller, not a silent drop."""
    queue = BoundedQueue(1)
    queue.push("a", rank=2)

    assert queue.full
    with pytest.raises(OverflowError):
        queue.push("b", rank=2)


def test_queue_of_size_zero_is_always_full():
    """Zero means that nobody waits."""
    assert BoundedQueue(0).full
    assert not BoundedQueue(None).full


def test_newest_of_the_lowest_class_strictly_below_is_displaced():
    """Of the least urgent, the one that waited least gives way; an equal never does."""
    queue = BoundedQueue(None)
    for item, rank in (("normal", 2), ("low old", 3), ("low new", 3)):
        queue.push(item, rank=rank)

    assert queue.displace(3) is None
    assert queue.displace(1) == "low new"
    assert queue.displace(2) == "low old"
    assert queue.displace(2) is None
    assert queue.displace(0) == "normal"
    assert len(queue) == 0


def test_what_expired_leaves_and_the_rest_stays():
    """Expiry takes exactly those whose time is over."""
    queue = BoundedQueue(None)
    queue.push("soon", rank=2, expires=5.0)
    queue.push("later", rank=2, expires=9.0)
    queue.push("never", rank=2)

    assert queue.next_expiry() == 5.0
    assert queue.expired(4.9) == []
    assert queue.expired(5.0) == ["soon"]
    assert queue.next_expiry() == 9.0
    assert queue.drain() == ["later", "never"]
    assert queue.next_expiry() == math.inf


def test_an_item_may_come_back_after_it_left():
    """The entry of an earlier stay must not speak for the later one."""
    queue = BoundedQueue(None)
    queue.push("a", rank=0, expires=1.0)
    queue.remove("a")
    queue.push("b", rank=2)
    queue.push("a", rank=3)

    assert queue.expired(2.0) == []
    assert queue.drain() == ["b", "a"]


def test_removed_entries_do_not_pile_up():
    """Ten thousand clients that left cost no memory."""
    queue = BoundedQueue(None)
    for number in range(10_000):
        queue.push(number, rank=2, expires=1e9)
        queue.remove(number)

    assert len(queue) == 0
    assert len(queue._heap) < 200
    assert len(queue._expiries) < 200


_STEPS = st.one_of(
    st.tuples(st.just("push"), st.integers(0, 3), st.one_of(st.none(), st.integers(0, 20))),
    st.tuples(st.just("pop"), st.just(0), st.none()),
    st.tuples(st.just("remove"), st.integers(0, 30), st.none()),
    st.tuples(st.just("displace"), st.integers(0, 3), st.none()),
    st.tuples(st.just("expire"), st.integers(0, 20), st.none()),
)


@given(st.lists(_STEPS, max_size=80), st.integers(1, 6))
def test_queue_agrees_with_a_sorted_list(steps, size):
    """Whatever happens to it, it gives what a plain list would give."""
    queue = BoundedQueue(size)
    model: list[tuple[int, int, float]] = []  # rank, number, expires
    number = 0
    for what, value, expires in steps:
        if what == "push" and not queue.full:
            number += 1
            model.append((value, number, math.inf if expires is None else float(expires)))
            queue.push(number, rank=value, expires=model[-1][2])
        elif what == "pop":
            expected = min(model, default=None)
            assert queue.pop() == (None if expected is None else expected[1])
            model = [entry for entry in model if entry is not expected]
        elif what == "remove":
            assert queue.remove(value) is any(entry[1] == value for entry in model)
            model = [entry for entry in model if entry[1] != value]
        elif what == "displace":
            below = [entry for entry in model if entry[0] > value]
            expected = max(below, default=None)
            assert queue.displace(value) == (None if expected is None else expected[1])
            model = [entry for entry in model if entry is not expected]
        elif what == "expire":
            assert sorted(queue.expired(value)) == sorted(entry[1] for entry in model if entry[2] <= value)
            model = [entry for entry in model if entry[2] > value]
        assert len(queue) == len(model)
        assert queue.by_class() == tuple(sum(entry[0] == rank for entry in model) for rank in range(4))
    assert queue.drain() == [entry[1] for entry in sorted(model)]
