"""Every case of the wire corpus, read by the pure readers; a new case is one more row of the file."""

import pytest
from tests.wire.harness import load, read, recut, script, verdict

CASES = load()
CHUNKED = [case for case in CASES if "body_chunks" in case]


def differences(case, reading) -> dict:
    """Return what differs between a case's expectation and a reading, as name -> (expected, actual)."""
    expect, outcome = case["expect"], reading.outcome
    hint = outcome.hint
    usage = reading.usage
    actual = {
        "outcome": verdict(outcome),
        "error_kind": outcome.kind.value if outcome.kind else None,
        "retry_after_s": None if hint is None else hint.seconds,
        "breaker": outcome.breaker,
        "overload": outcome.overload,
        "text": reading.text,
        "finish_reason": reading.finish_reason,
        "reasoning": reading.reasoning,
        "tool_calls": list(reading.tool_calls),
        "texts": list(reading.texts),
        "message": outcome.message,
        "usage": usage
        and {name: getattr(usage, name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")},
    }
    wanted = {name: value for name, value in expect.items() if name != "notes"}
    if wanted["retry_after_s"] is not None:
        wanted["retry_after_s"] = pytest.approx(wanted["retry_after_s"], abs=1e-6)
    return {name: (value, actual[name]) for name, value in wanted.items() if value != actual[name]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_case_of_the_corpus_is_read_as_expected(case):
    """Outcome, kind, wait, breaker, overload and content agree with the corpus."""
    assert differences(case, read(script(case))) == {}


@pytest.mark.parametrize("size", [1, 2, 3, 7, None], ids=lambda size: f"{size or 'whole'}")
@pytest.mark.parametrize("case", CHUNKED, ids=lambda case: case["id"])
def test_the_cut_of_a_body_changes_nothing(case, size):
    """One, two, three, seven bytes at a time or all at once: the same reading."""
    scripted = script(case)

    reading = read(scripted, recut(scripted.chunks, size))

    assert differences(case, reading) == {}
    assert read(scripted) == reading


def test_the_corpus_is_whole():
    """A file cut short would make the tests above pass for nothing."""
    assert len(CASES) >= 289
    assert len({case["id"] for case in CASES}) == len(CASES)
