"""The window of a circuit."""

from hypothesis import given
from hypothesis import strategies as st
from llm_client.core.window import BUCKETS, Window

SPAN = 30.0
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 0.1, 1.0, 2.9, 3.0, 11.0, 20.0, 29.9, 30.0, 31.0, 1e6]), st.booleans(), st.booleans()
    ),
    max_size=60,
)


def bucket(at: float) -> int:
    return int(at // (SPAN / BUCKETS))


@given(STEPS, st.floats(0, 1e9))
def test_sums_equal_brute_force(steps, now):
    """Sums are those of a list of all outcomes, through equal stamps and idle gaps longer than the window."""
    window, seen = Window(SPAN), []
    for gap, failed, slow in steps:
        now += gap
        window.add(now, failed=failed, slow=slow)
        seen.append((now, failed, slow))

        alive = [each for each in seen if bucket(each[0]) > bucket(now) - BUCKETS]
        assert (len(alive), sum(f for _, f, _ in alive), sum(s for _, _, s in alive)) == (
            window.total,
            window.failed,
            window.slow,
        )


def test_outcomes_leave_after_the_span():
    """An outcome counts for the span and is gone after it."""
    window = Window(SPAN)
    window.add(0.0, failed=True)

    window.advance(29.9)
    assert window.failed == 1

    window.advance(30.0)
    assert (window.total, window.failed) == (0, 0)


def test_a_clock_that_stands_still_or_steps_back_loses_nothing():
    """Monotonic clocks of two threads may arrive out of order by microseconds."""
    window = Window(SPAN)
    window.add(100.0)
    window.add(99.0, slow=True)

    assert (window.total, window.failed, window.slow) == (2, 0, 1)
