"""Texts with units are read exactly, and whatever has two readings is refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_client.profiles import scalars
from llm_client.profiles.scalars import UnreadableError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30.0),
        ("1.5s", 1.5),
        ("10m", 600.0),
        ("10min", 600.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        ("1m30s", 90.0),
        (" 1 h 30 m ", 5400.0),
        ("0s", 0.0),
    ],
)
def test_a_duration_is_read_in_seconds(text, seconds):
    """Every unit, compounds and blanks."""
    assert seconds == scalars.read_span(text)


@pytest.mark.parametrize(
    "text", ["30", "3", "s", "", "30 sec", "5x", "1:30", "-3s", "010s", "1e3s", "inf", "nan", ".nan", "9" * 30 + "d"]
)
def test_a_duration_without_one_clear_reading_is_refused(text):
    """No unit, no number, a foreign unit, a leading zero, or beyond all measure."""
    with pytest.raises(UnreadableError):
        scalars.read_span(text)


def test_a_bare_number_is_answered_with_the_units():
    """The commonest mistake gets the ready-made correction."""
    with pytest.raises(UnreadableError, match=r"needs a unit: 30s, 30ms or 30m"):
        scalars.read_span("30")


@pytest.mark.parametrize(
    ("text", "size"),
    [("10B", 10), ("1KB", 1000), ("1kB", 1000), ("256MB", 256_000_000), ("64KiB", 65536), ("1.5GiB", 1610612736)],
)
def test_a_size_is_read_in_bytes(text, size):
    """SI units are thousands, IEC units are 1024s."""
    assert size == scalars.read_size(text)


@pytest.mark.parametrize("text", ["10", "MB", "10 mb", "10Mb", "-1MB", "0x10B", "1_000B"])
def test_a_size_without_one_clear_reading_is_refused(text):
    """No unit, or one that might be bits."""
    with pytest.raises(UnreadableError):
        scalars.read_size(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("600/min", (600.0, 60.0)),
        ("10/s", (10.0, 1.0)),
        ("0.5/s", (0.5, 1.0)),
        ("90000 / m", (90000.0, 60.0)),
        ("5/30s", (5.0, 30.0)),
        ("1000/hour", (1000.0, 3600.0)),
        ("1/d", (1.0, 86400.0)),
    ],
)
def test_a_rate_is_read_as_amount_and_period(text, rate):
    """Every period, and a count of periods."""
    assert rate == scalars.read_rate(text)


@pytest.mark.parametrize("text", ["600", "/min", "600/", "600/week", "0600/min", "-1/s", "600 per min", "600/0600s"])
def test_a_rate_without_one_clear_reading_is_refused(text):
    """No period, a foreign one, a leading zero."""
    with pytest.raises(UnreadableError):
        scalars.read_rate(text)


@pytest.mark.parametrize("text", ["1.5", "1e3", "0600", "08", "0x10", "1_000", "one", "", "nan", "true", "9" * 20])
def test_a_count_takes_plain_digits_only(text):
    """Nothing that another reader might take for another number."""
    with pytest.raises(UnreadableError):
        scalars.read_whole(text)


@pytest.mark.parametrize(
    ("text", "told"), [("0600", "as octal, 384; write 600"), ("08080", "as text; write 8080"), ("00", "write 0")]
)
def test_a_leading_zero_is_told_with_what_yaml_makes_of_it(text, told):
    """The text, and both of its readings."""
    with pytest.raises(UnreadableError, match=told):
        scalars.read_whole(text)


@pytest.mark.parametrize("text", [".nan", "nan", "-.inf", "inf", "Infinity", "1,5", "0.5.1", ""])
def test_a_number_is_finite(text):
    """NaN passes every comparison that should have caught it."""
    with pytest.raises(UnreadableError):
        scalars.read_number(text)


@pytest.mark.parametrize(("text", "number"), [("0.5", 0.5), (".5", 0.5), ("-2", -2.0), ("1e-3", 0.001), ("0", 0.0)])
def test_a_number_is_read(text, number):
    """Decimal, with or without exponent."""
    assert number == scalars.read_number(text)


@pytest.mark.parametrize("text", ["on", "On", "TRUE", "yes"])
def test_a_switch_is_on(text):
    """All of YAML's words for it."""
    assert scalars.read_flag(text) is True


@pytest.mark.parametrize("text", ["off", "False", "NO"])
def test_a_switch_is_off(text):
    """All of YAML's words for it."""
    assert scalars.read_flag(text) is False


@pytest.mark.parametrize("text", ["1", "0", "y", "none", ""])
def test_a_switch_is_nothing_else(text):
    """One letter is a name, and a number a number."""
    with pytest.raises(UnreadableError):
        scalars.read_flag(text)


@given(st.integers(0, 10**12).map(lambda micros: micros / 1e6))
def test_a_duration_survives_being_shown(seconds):
    """What `show_span` writes, `read_span` reads back."""
    assert scalars.read_span(scalars.show_span(seconds)) == pytest.approx(seconds, abs=1e-9)


@given(st.integers(1, 10**14))
def test_a_size_survives_being_shown(size):
    """What `show_size` writes, `read_size` reads back."""
    assert size == scalars.read_size(scalars.show_size(size))


@given(st.integers(1, 10**9), st.sampled_from([1.0, 5.0, 60.0, 3600.0, 86400.0, 90.0]))
def test_a_rate_survives_being_shown(amount, period):
    """What `show_rate` writes, `read_rate` reads back."""
    assert (float(amount), period) == scalars.read_rate(scalars.show_rate(float(amount), period))


@given(st.text(max_size=12))
def test_no_text_makes_a_reader_fail_otherwise(text):
    """Whatever is typed, the answer is a number or UnreadableError."""
    for read in (scalars.read_span, scalars.read_size, scalars.read_rate, scalars.read_whole, scalars.read_number):
        with suppress(UnreadableError):
            read(text)
