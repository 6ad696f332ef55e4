"""Cost estimates."""

import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.core.cost import Estimator
from llm_client.model import Size, Usage
from llm_client.wire.measure import measure


def chat(content, **more):
    return measure({"model": "m", "messages": [{"role": "user", "content": content}], **more})


def learned(outputs, prompt=None, size=None, model="m", **more):
    estimator = Estimator(**more)
    for output in outputs:
        estimator.learn(model, size or Size(text=400), Usage(prompt_tokens=prompt, completion_tokens=output))
    return estimator


def test_prompts_are_bytes_over_four_at_first():
    """Text counts in UTF-8 bytes, whatever it spells."""
    assert Estimator().estimate("m", Size(text=400)).prompt == 100
    assert chat("äöü").text == len("user") + 6


def test_bytes_per_token_is_learned_and_clamped():
    """Code at three bytes a token is learned within a hundred answers; absurd counts move it to the clamp at most."""
    assert learned([None] * 200, prompt=133).estimate("m", Size(text=300)).prompt == pytest.approx(100, abs=2)
    assert learned([None] * 500, prompt=1).estimate("m", Size(text=800)).prompt == pytest.approx(100, abs=1)
    assert learned([None] * 500, prompt=10**9).estimate("m", Size(text=150)).prompt == pytest.approx(100, abs=1)


def test_one_answer_moves_little():
    """A twentieth of the way."""
    assert learned([None], prompt=100, size=Size(text=800)).estimate("m", Size(text=4200)).prompt == 1000


def test_outputs_are_bounded_by_the_caller_and_by_history():
    """No history: min(max_tokens, 512). With history: what seven of ten answers did not exceed."""
    fresh, known = Estimator(), learned(list(range(100)) * 10)

    assert [fresh.estimate("m", Size(), max_tokens=n).output for n in (None, 100, 4096)] == [512, 100, 512]
    assert known.estimate("m", Size(), max_tokens=4096).output == pytest.approx(80, abs=3)
    assert known.estimate("m", Size(), max_tokens=10).output == 10
    assert known.estimate("other", Size(), max_tokens=4096).output == 512


def test_short_answers_that_come_first_do_not_promise_that_all_are_short():
    """The guess falls slowly and rises at once."""
    estimator = learned([5] * 10)
    assert estimator.estimate("m", Size()).output > 250

    for _ in range(50):
        estimator.learn("m", Size(), Usage(completion_tokens=2000))
    assert estimator.estimate("m", Size()).output == 2000


def test_pessimistic_reserves_the_whole_bound():
    """To match servers that book `max_tokens` at arrival."""
    estimator = learned([10] * 100, pessimistic=True)

    assert estimator.estimate("m", Size(), max_tokens=4096).output == 4096
    assert estimator.estimate("m", Size()).output < 512


def test_choices_multiply_the_bound_and_embeddings_have_no_output():
    """`n` answers cost n times; an embedding writes nothing."""
    assert Estimator().estimate("m", Size(), max_tokens=100, choices=3).output == 300
    assert Estimator().estimate("m", Size(text=40), generates=False).output == 0


def test_media_cost_a_learned_constant_per_dialect():
    """A six-megabyte image is not a million tokens."""
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 6_000_000}}
    size = chat([{"type": "text", "text": "x" * 396}, part])
    assert (size.media, size.text) == (1, 396 + len("user") + len("text"))

    estimator = Estimator()
    assert estimator.estimate("m", Size(text=400, media=1), dialect="vllm").prompt == 600

    for _ in range(200):
        estimator.learn("m", Size(text=400, media=2), Usage(prompt_tokens=2100), dialect="vllm")
    assert estimator.estimate("m", Size(text=400, media=1), dialect="vllm").prompt == pytest.approx(1100, abs=5)
    assert estimator.estimate("m", Size(text=400, media=1), dialect="tgi").prompt == 600
    assert estimator.estimate("m", Size(text=400)).prompt == 100


def test_memory_is_bounded():
    """Model names are the caller's words."""
    estimator = Estimator()
    for number in range(1000):
        estimator.learn(f"m{number}", Size(text=4), Usage(completion_tokens=1))

    assert len(estimator._models) == 256


@given(
    st.recursive(
        st.one_of(st.text(), st.none(), st.integers(), st.floats(), st.booleans()),
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=9), inner, max_size=4)),
        max_leaves=20,
    )
)
def test_any_body_is_measured_without_exception(content):
    """Also what no server would take."""
    size = chat(content)
    cost = Estimator().estimate("m", size)

    assert cost.prompt >= 0
    assert isinstance(cost.prompt, int)


@given(st.lists(st.tuples(st.integers(-5, 10**7), st.integers(-5, 10**7), st.integers(0, 3)), max_size=40))
def test_no_usage_makes_an_absurd_estimate(answers):
    """Whatever servers claim, a prompt stays within its clamps and an output within what was seen."""
    estimator = Estimator()
    for prompt, output, media in answers:
        usage = Usage(prompt_tokens=prompt, completion_tokens=output)
        estimator.learn("m", Size(text=100, media=media), usage)
    cost = estimator.estimate("m", Size(text=1200))

    assert 150 <= cost.prompt <= 800
    assert 0 <= cost.output <= max([512, *(output for _, output, _ in answers)])


def test_a_megabyte_is_measured_in_no_time():
    """Three orders of magnitude under the second that the field asked for."""
    started = time.perf_counter()
    for text in (" " * 1_000_000, "é" * 500_000):
        chat(text)

    assert time.perf_counter() - started < 0.5


def test_nothing_is_imported_for_it():
    """No tokenizer, no network: the module brings neither with it."""
    code = "import sys, llm_client.core.cost; assert not {'tiktoken', 'tokenizers', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
