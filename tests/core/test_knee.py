"""The point beyond which calls in flight only wait: from rates and latencies alone."""

from __future__ import annotations

from llm_client.core.knee import Knee
from llm_client.core.tuning import TUNING


def slots(level, count=8, seconds=0.8):
    """Rate and latency of a server with slots of a fixed time, at so many calls in flight."""
    return min(level, count) / seconds, max(1.0, level / count) * seconds


def batch(level, seconds=1.0, slow=0.02):
    """The same of a batch that every further call slows a little."""
    latency = seconds * (1.0 + slow * level)
    return level / latency, latency


def test_more_in_flight_without_more_answers_is_too_much():
    """Eight slots: 24 calls take three times as long as 8 and are no more per second."""
    knee = Knee(TUNING)

    assert [knee.passed(level, *slots(level)) for level in (2, 4, 8, 24)] == [False, False, False, True]


def test_a_batch_that_grows_slower_but_does_more_is_not_too_much():
    """From 4 to 64 calls each takes twice as long, and there are eight times as many answers."""
    knee = Knee(TUNING)

    assert not any(knee.passed(level, *batch(level)) for level in (4, 8, 16, 24, 32, 48, 64))


def test_a_load_from_others_at_the_same_level_is_too_much():
    """Our own eight calls take twice as long and half as many are answered: somebody else waits there too."""
    knee = Knee(TUNING)
    knee.passed(8, *slots(8))

    assert knee.passed(8, 5.0, 1.6)


def test_answers_that_have_become_longer_are_not_waiting():
    """A lighter load after the verdict is no quicker: what was seen was work, and becomes the measure."""
    knee = Knee(TUNING)
    knee.passed(8, 10.0, 0.8)

    assert knee.passed(8, 4.0, 2.0)
    assert not knee.passed(4, 2.0, 2.0)
    assert not knee.passed(5, 2.5, 2.0)


def test_a_lighter_load_that_is_quicker_keeps_the_verdict():
    """It was waiting: the old measure stays."""
    knee = Knee(TUNING)
    knee.passed(8, *slots(8))

    assert knee.passed(24, *slots(24))
    assert not knee.passed(12, *slots(10))
    assert knee.passed(24, *slots(24))
