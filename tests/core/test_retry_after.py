"""Retry-After in all its spellings, and the order in which its relatives are believed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_client.core.retry_after import (
    ADVISORY_CAP,
    LONGEST,
    RateWindow,
    has_quota,
    parse_date,
    parse_delay,
    parse_reset,
    rate_headers,
    read_hint,
)
from llm_client.model import Headers, RetryHint

NOON = 1_796_040_000.0  # 2026-11-30T12:00:00Z
DATE = "Mon, 30 Nov 2026 12:00:00 GMT"


def hint(headers=(), body=None, text="", wall=NOON):
    return read_hint(Headers(headers), body, text, wall=wall)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("7", 7.0),
        (" 7 ", 7.0),
        ("1.5", 1.5),
        ("0.05", 0.05),
        ("0", 0.0),
        ("30s", 30.0),
        ("1500ms", 1.5),
        ("1m30s", 90.0),
        ("1h2m3.5s", 3723.5),
        ("31536000", LONGEST),
    ],
)
def test_a_delay_in_seconds_or_as_a_duration_is_read(value, expected):
    """Numbers are seconds; Go durations carry their units."""
    assert expected == parse_delay(value, wall=NOON)


@pytest.mark.parametrize(
    "value",
    [
        "-5", "NaN", "nan", "inf", "-inf", "Infinity", "soon", "", " ", "+7", "1_0", "1e1", "\u00b2", "\u0667",
        "7.", ".5", "0x10", "9" * 40, "9" * 5000, "31536001", "1796040007", "1d", "5 minutes", "1h 2m", "ms", "s",
    ],
)  # fmt: skip
def test_a_value_outside_the_grammar_or_over_a_year_is_ignored(value):
    """What int() and float() would accept beyond the grammar does not count."""
    assert parse_delay(value, wall=NOON) is None


@pytest.mark.parametrize(
    "value",
    [
        "Mon, 30 Nov 2026 12:00:07 GMT",
        "Monday, 30-Nov-26 12:00:07 GMT",
        "Mon Nov 30 12:00:07 2026",
        "2026-11-30T12:00:07Z",
        "2026-11-30 12:00:07 UTC",
        "2026-11-30T13:30:07+01:30",
        "2026-11-30T05:00:07.000-0700",
        "Mon, 30 Nov 2026 14:00:07 +0200",
    ],
)
def test_a_date_is_measured_from_the_answers_own_date(value):
    """All three HTTP forms and ISO 8601 with a zone, against the server's clock and not ours."""
    assert pytest.approx(7.0) == parse_delay(value, wall=NOON - 5000, date=DATE)


@pytest.mark.parametrize(
    "value",
    [
        "Fri, 31 Dec 99999 23:59:59 GMT", "Mon, 31 Feb 2026 12:00:00 GMT", "Mon, 30 Xyz 2026 12:00:00 GMT",
        "Mon, 30 Nov 2026 25:00:00 GMT", "2026-13-01T00:00:00Z", "2026-11-30T12:00:07", "2026-11-30",
        "Mon, 30 Nov 2026 12:00:07 +9999", "Wed, 30 Nov 2033 12:00:00 GMT", "0000-01-01T00:00:00Z",
    ],
)  # fmt: skip
def test_a_bad_or_distant_date_is_ignored(value):
    """Impossible days, unknown zones and years away raise nothing and say nothing."""
    assert parse_delay(value, wall=NOON) is None


def test_a_date_in_the_past_means_now():
    """A date that has gone by asks for no wait."""
    assert parse_delay("Mon, 30 Nov 2026 11:59:00 GMT", wall=NOON) == 0.0


def test_without_a_usable_date_the_local_clock_counts():
    """A garbled Date header is no clock."""
    headers = {"Date": "yesterday", "Retry-After": "Mon, 30 Nov 2026 12:00:07 GMT"}

    assert hint(headers) == RetryHint(seconds=7.0, directive=True, source="retry-after")


def test_a_cached_answer_is_older_than_its_date():
    """Age is added to Date, so that the wait is not overstated."""
    headers = {"Date": DATE, "Age": "5", "Retry-After": "Mon, 30 Nov 2026 12:00:07 GMT"}

    assert hint(headers).seconds == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("Retry-After", "2"), ("retry-after", "7")], 7.0),
        ([("Retry-After", "soon"), ("retry-after", "3")], 3.0),
        ([("Retry-After", "2, 7")], 7.0),
        ([("Retry-After", "Mon, 30 Nov 2026 12:00:07 GMT, 5")], 7.0),
        ([("retry-after-ms", "-1"), ("retry-after", "2")], 2.0),
        ([("retry-after-ms", "250"), ("retry-after", "9")], 0.25),
        ([("retry-after-ms", "100"), ("retry-after-ms", "493.7")], 0.4937),
    ],
)
def test_of_repeated_values_the_largest_valid_one_counts(pairs, expected):
    """No valid demand is undercut, and no invalid one hides a valid one."""
    assert hint(pairs).seconds == pytest.approx(expected)


def test_the_first_source_with_a_sane_value_wins():
    """Milliseconds, seconds, body, exhausted window, words: dropped one by one."""
    headers = {
        "x-ms-retry-after-ms": "900",
        "Retry-After": "4",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6s",
    }
    body = {"error": {"details": [{"retryDelay": "5s"}]}}
    text = "please try again in 7s"
    seen = []
    for name in (None, "x-ms-retry-after-ms", "Retry-After"):
        headers.pop(name, None)
        seen.append(hint(headers, body, text))
    seen.append(hint(headers, None, text))
    seen.append(hint((), None, text))

    assert [(one.seconds, one.directive) for one in seen] == [
        (0.9, True),
        (4.0, True),
        (5.0, True),
        (6.0, False),
        (7.0, False),
    ]


def test_directives_are_not_clamped_and_advice_is():
    """Days are passed on for the caller to refuse; a reset an hour away is not waited for."""
    assert hint({"Retry-After": "86400"}) == RetryHint(seconds=86400.0, directive=True, source="retry-after")
    assert hint(text="try again in 7m12s").seconds == ADVISORY_CAP
    assert hint(body={"estimated_time": 2315.0}) == RetryHint(
        seconds=ADVISORY_CAP, directive=False, source="body estimated_time"
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"retry_after": 30}, 30.0),
        ({"retry_after": "30"}, 30.0),
        ({"error": {"retry_after": 1.5}}, 1.5),
        ([{"error": {"details": [{"@type": "x"}, {"retryDelay": "36s"}]}}], 36.0),
        ({"error": {"details": [{"retryDelay": {"seconds": 9}}]}}, 9.0),
        ({"retry_after": 10**400, "estimated_time": 20}, 20.0),
        ({"retry_after": float("nan")}, None),
        ({"retry_after": True}, None),
        ({"retry_after": -3}, None),
        ({"choices": [{"retry_after": 3}]}, None),
    ],
)
def test_a_body_says_when(body, expected):
    """Numbers and durations in the error objects count, at the levels where servers put them."""
    found = hint(body=body)

    assert expected == (found and found.seconds)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "37"}, 37.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1796040040000"}, 40.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1796040015"}, 15.0),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "5"}, 5.0),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-11-30T12:00:09Z",
            },
            9.0,
        ),
        ({"RateLimit": '"default";r=0;t=17'}, 17.0),
        ({"RateLimit": '"a";r=5;t=90, "b";r=0;t=3'}, 3.0),
        ({"RateLimit": "limit=10, remaining=0, reset=4"}, 4.0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "-43"}, None),
        ({"x-ratelimit-remaining-tokens": "-1", "x-ratelimit-reset-tokens": "0"}, None),
        ({"x-ratelimit-remaining-tokens": "12", "x-ratelimit-reset-tokens": "60s"}, None),
        ({"x-ratelimit-reset-tokens": "60s"}, None),
    ],
)
def test_only_an_exhausted_window_speaks(headers, expected):
    """A reset is the time to a full bucket: it counts where nothing is left, as advice."""
    found = hint(headers)

    assert expected == (found and found.seconds)
    assert found is None or not found.directive


def test_of_two_exhausted_windows_the_later_one_counts():
    """Both must refill before a request passes."""
    headers = {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "9s",
    }

    assert hint(headers).seconds == 9.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Please try again in 20s.", 20.0),
        ("Please try again in 494ms. Visit", 0.494),
        ("please try again in 1m2.5s", 62.5),
        ("please retry after 6 seconds.", 6.0),
        ("try again after 1 seconds", 1.0),
        ("Please retry in 36.2s.", 36.2),
        ("try again in 2 minutes", 120.0),
        ("Try again in 60", 60.0),
        ("try again in a while, then try again in 3 s", 3.0),
        ("please try again later", None),
        ("try again in -5 seconds", None),
        ("retry in " + "9" * 400, None),
    ],
)
def test_words_say_when(text, expected):
    """A number after the usual phrases is seconds unless it names a unit."""
    found = hint(text=text)

    assert expected == (found and found.seconds)


def test_litellm_passes_the_providers_wait_on_as_advice():
    """Its renamed header is believed where nothing better is there, but never makes a call fail."""
    found = hint({"llm_provider-retry-after": "3600"})

    assert found == RetryHint(seconds=ADVISORY_CAP, directive=False, source="llm_provider-retry-after")


def test_rate_headers_become_windows():
    """Limits, remainders and resets by dimension; sentinels are unknown, empty windows are left out."""
    headers = Headers({
        "x-ratelimit-limit-requests": "10000",
        "x-ratelimit-remaining-requests": "9999",
        "x-ratelimit-reset-requests": "6ms",
        "x-ratelimit-limit-tokens": "10, 10;w=60",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-remaining-audio": "-1",
    })  # fmt: skip

    assert rate_headers(headers, wall=NOON) == (
        RateWindow(
            dimension="requests", name="x-ratelimit-remaining-requests", limit=10000, remaining=9999, reset=0.006
        ),
        RateWindow(dimension="tokens", name="x-ratelimit-remaining-tokens", limit=10, remaining=0),
    )


def test_quota_headers_are_told_from_a_gateways_flag():
    """Envoy's marker that its own filter refused is no quota."""
    assert has_quota(Headers({"X-RateLimit-Remaining": "0"}))
    assert has_quota(Headers({"anthropic-ratelimit-tokens-reset": "x"}))
    assert not has_quota(Headers({"x-envoy-ratelimited": "true", "retry-after": "1"}))


@pytest.mark.parametrize(
    ("value", "expected"), [("0", None), ("-1", None), ("2", 2.0), ("1e3", None), ("1796039999", None)]
)
def test_a_reset_that_is_not_ahead_is_unknown(value, expected):
    """Zero, sentinels and moments gone by say nothing about when to come."""
    assert expected == parse_reset(value, wall=NOON)


VALUES = st.one_of(
    st.text(max_size=80),
    st.text(alphabet="0123456789.smhun:-+, TZGMTeE", max_size=40),
    st.from_regex(
        r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4,6} [0-9]{2}:[0-9]{2}:[0-9]{2}( GMT)?", fullmatch=True
    ),
)


@settings(deadline=None)
@given(VALUES, VALUES, st.floats(0, 4e9))
def test_no_value_breaks_the_reader(value, date, wall):
    """Whatever a header holds, the answer is a sane number of seconds or nothing."""
    for seconds in (parse_delay(value, wall=wall, date=date), parse_reset(value, wall=wall, date=date)):
        assert seconds is None or 0.0 <= seconds <= LONGEST
    assert parse_date(value) is None or isinstance(parse_date(value), float)


NAMES = st.sampled_from([
    "retry-after", "retry-after-ms", "x-ms-retry-after-ms", "date", "age", "x-ratelimit-remaining", "x-ratelimit-reset",
    "ratelimit", "ratelimit-remaining", "anthropic-ratelimit-x-remaining", "llm_provider-retry-after",
])  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["error", "errors", "details", "metadata", "headers", "retry_after", "retryDelay", "estimated_time"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.lists(st.tuples(NAMES, VALUES), max_size=6), JSON, st.text(max_size=60), st.floats(0, 4e9))
def test_no_answer_breaks_the_hint(pairs, body, text, wall):
    """Any headers, body and words together: a hint within bounds, or none."""
    found = read_hint(Headers(pairs), body, text, wall=wall)

    assert found is None or 0.0 <= found.seconds <= (LONGEST if found.directive else ADVISORY_CAP)


@settings(deadline=None)
@given(st.integers(0, 31_536_000))
def test_whole_seconds_come_back_as_they_were(seconds):
    """A plain number is read exactly."""
    assert float(seconds) == parse_delay(str(seconds), wall=NOON)
