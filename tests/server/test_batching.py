"""The model of continuous batching has the shapes that GPUs have."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_client.server.batching import PRESETS, Batch, PrefixCache, Preset, Sequence
from tests.server.shapes import capacity, first_tokens, p95, pictures, throughput

ENGINES = list(PRESETS.values())


@pytest.mark.parametrize("preset", ENGINES, ids=lambda preset: preset.name)
def test_throughput_grows_with_the_batch_and_saturates(preset):
    """At 32 at least twice that at 8; each doubling gives less than the one before."""
    at = {width: throughput(preset, width) for width in (4, 8, 16, 32)}

    assert at[32] >= 2 * at[8]
    assert at[8] / at[4] > at[16] / at[8] > at[32] / at[16] > 1


def test_throughput_of_a_large_batch_hardly_grows():
    """From 128 to 256 sequences an H100 gains far less than twofold."""
    preset = PRESETS["h100-8b"]

    assert 1.0 < throughput(preset, 256, output=50) / throughput(preset, 128, output=50) < 1.45


def test_first_tokens_get_slow_without_a_bound_and_stay_quick_with_one():
    """At 1.5 times the capacity for a minute: an unbounded queue grows the wait at least fivefold."""
    preset = PRESETS["l40s-7b"]
    unbounded = first_tokens(preset, 1.5, None)
    early = p95([wait for arrival, wait in unbounded if 2 <= arrival < 6])
    late = p95([wait for arrival, wait in unbounded if arrival > 25])
    bounded = p95([wait for arrival, wait in first_tokens(preset, 1.5, 40) if arrival > 6])
    print(f"p95: unbounded {early:.2f} s at first, {late:.2f} s later; bounded {bounded:.2f} s")

    assert late >= 5 * early
    # Forty wait at most, each turn takes one over the rate, and computing the prompt a few steps more.
    assert bounded <= 40 / capacity(preset) + 0.5


def test_pictures_of_the_docs_come_from_this_model():
    """Whoever changes a preset draws them again: `python -m tests.server.shapes docs/explanation`."""
    folder = Path(__file__).parents[2] / "docs" / "explanation"

    for name, svg in pictures().items():
        assert (folder / name).read_text() == svg


def test_prompt_is_computed_in_chunks():
    """A long prompt takes several steps, and others decode meanwhile."""
    preset = PRESETS["laptop"]
    batch = Batch(preset)
    short, long = Sequence(prompt=1, output=50), Sequence(prompt=1000, output=1)
    batch.admit(short)
    batch.admit(long)
    steps = 0
    while not long.produced:
        step = batch.plan()
        assert step is not None
        batch.commit(step)
        steps += 1

    assert steps == 4
    assert short.produced == 4


def test_known_prefix_needs_no_prefill():
    """The second request with the same prompt computes only what is not shared."""
    batch = Batch(PRESETS["laptop"])
    blocks = tuple(range(10))
    first = Sequence(prompt=170, output=1, blocks=blocks)
    batch.admit(first)
    cold = batch.plan()
    assert cold is not None
    batch.commit(cold)
    second = Sequence(prompt=170, output=1, blocks=blocks)
    batch.admit(second)
    warm = batch.plan()
    assert warm is not None

    assert second.cached == 160
    assert batch.hit_tokens == 160
    assert warm.seconds < cold.seconds / 2


def test_prefix_cache_forgets_the_least_recently_used():
    """Two blocks fit; the one touched last stays."""
    cache = PrefixCache(2)
    cache.store((1, 2))
    assert cache.match((1,)) == 1
    cache.store((3,))

    assert cache.match((1,)) == 1
    assert cache.match((2,)) == 0


def _small(**changes) -> Preset:
    values = {"name": "small", "slots": 8, "base": 0.01, "per_sequence": 0.0, "per_context": 0.0, "prefill": 1e6,
              "chunk": 1000, "cache_tokens": 100, "context": 100}  # fmt: skip
    return Preset(**{**values, **changes})


def test_full_cache_preempts_the_least_urgent_newest():
    """Whoever loses its place is computed again later and still gets its whole answer."""
    batch = Batch(_small())
    urgent, early, late = (Sequence(prompt=30, output=20, rank=rank) for rank in (0, 2, 2))
    for each in (urgent, early, late):
        batch.admit(each)
    order = []
    while (step := batch.plan()) is not None:
        assert sum(each.context for each in batch.running) <= 100
        batch.commit(step)
        order.extend(step.finished)

    assert batch.preemptions > 0
    assert order == [urgent, early, late]
    assert [each.produced for each in order] == [20, 20, 20]


def test_preempted_work_is_computed_again():
    """Prompt and answer so far are gone from the cache; coming back costs their prefill."""
    batch = Batch(_small(prefill=100.0))
    first, second = Sequence(prompt=40, output=20), Sequence(prompt=40, output=20)
    batch.admit(first)
    batch.admit(second)
    seconds = []
    while (step := batch.plan()) is not None:
        batch.commit(step)
        seconds.append(step.seconds)

    assert batch.preemptions == 1
    # 80 tokens at first, and later the second one's 40 with what it had produced: 0.4 s and more in one step.
    assert max(seconds[1:]) > 0.4


def test_nobody_new_is_admitted_while_a_preempted_one_waits():
    """The preempted were promised a place first."""
    batch = Batch(_small())
    for _ in range(3):
        batch.admit(Sequence(prompt=30, output=30))
    while not batch.waiting:
        step = batch.plan()
        assert step is not None
        batch.commit(step)

    assert not batch.fits(1)


def test_sequence_larger_than_the_cache_runs_alone():
    """It must not wait for ever for room that never comes."""
    batch = Batch(_small())
    giant = Sequence(prompt=300, output=2)
    assert batch.fits(300)
    batch.admit(giant)
    while (step := batch.plan()) is not None:
        batch.commit(step)

    assert giant.produced == 2


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(1, 30), st.integers(1, 3), st.integers(0, 3), st.booleans()),
        min_size=1,
        max_size=25,
    )
)
def test_every_sequence_ends_and_nothing_is_left_behind(requests):
    """Whatever mix comes and goes, the books of the cache end at zero."""
    batch = Batch(_small())
    pending = [(Sequence(prompt=p, output=o, width=w, rank=r), leaves) for p, o, w, r, leaves in requests]
    expected = [sequence for sequence, leaves in pending if not leaves]
    finished = []
    for _ in range(10_000):
        while pending and batch.fits(pending[0][0].prompt):
            sequence, leaves = pending.pop(0)
            batch.admit(sequence)
            if leaves:
                step = batch.plan()
                batch.remove(sequence)
                if step is not None:
                    batch.commit(step)
                    finished.extend(step.finished)
        step = batch.plan()
        if step is None and not pending:
            break
        if step is not None:
            batch.commit(step)
            finished.extend(step.finished)

    assert set(expected) <= set(finished)
    assert all(sequence.produced == sequence.output for sequence in finished)
    assert batch._context == 0
    assert batch.usage == 0
