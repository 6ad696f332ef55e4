"""Every way a server says "not before": headers, body fields, reset windows, words in a text.

Grammar and precedence follow RFC 9110 sections 5.6.7 and 10.2.3 and what servers are seen to send. `Retry-After`
and its relatives are *directive*: a floor. Reset headers, HF's `estimated_time` and words are *advisory*: a bucket
that will be full in a minute serves one request long before.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from llm_client.model import Headers, RetryHint

# Above a year nobody means a delay: an epoch sent by mistake, or garbage.
LONGEST: Final = 365 * 86400.0
# No advisory wait exceeds this; OpenAI's own SDK draws its line at the same place.
ADVISORY_CAP: Final = 120.0

_MAX_VALUE: Final = 256  # characters; no legal value is longer
# `int()` and `float()` accept "+7", "1_0", "1e1" and non-ASCII digits; the grammar does not.
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_GO: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:h|ms|m|s|us|\u00b5s|\u03bcs|ns))+")
_GO_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|s|us|\u00b5s|\u03bcs|ns)")
_GO_UNITS: Final = {
    "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ns": 1e-9,
}  # fmt: skip
_MONTHS: Final = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6,
    "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
}  # fmt: skip
_CLOCK: Final = r"(?P<H>[0-9]{1,2}):(?P<M>[0-9]{2}):(?P<S>[0-9]{2})"
_ZONE: Final = r"(?:\s*(?P<zone>GMT|UTC|UT|Z|[+-][0-9]{2}:?[0-9]{2}))"
# IMF-fixdate and RFC 850; asctime; ISO 8601 with a zone.
_DATES: Final = (
    re.compile(
        r"(?:[A-Za-z]{3,9},?\s+)?(?P<d>[0-9]{1,2})[ -](?P<mon>[A-Za-z]{3})[ -](?P<y>[0-9]{4}|[0-9]{2})\s+"
        + _CLOCK + _ZONE + "?", re.IGNORECASE),
    re.compile(r"[A-Za-z]{3}\s+(?P<mon>[A-Za-z]{3})\s+(?P<d>[0-9]{1,2})\s+" + _CLOCK + r"\s+(?P<y>[0-9]{4})"),
    re.compile(
        r"(?P<y>[0-9]{4})-(?P<mon>[0-9]{2})-(?P<d>[0-9]{2})[Tt ](?P<H>[0-9]{2}):(?P<M>[0-9]{2})"
        r"(?::(?P<S>[0-9]{2})(?P<frac>\.[0-9]+)?)?" + _ZONE, re.IGNORECASE),
)  # fmt: skip
_TEXT: Final = re.compile(
    r"\b(?:try again|retry) (?:in|after):?\s+"
    r"(?:(?P<go>(?:[0-9]+(?:\.[0-9]+)?(?:h|ms|m|s))+)(?!\w)|(?P<n>[0-9]+(?:\.[0-9]+)?)(?:\s(?P<unit>[a-z]+))?)",
    re.IGNORECASE,
)
_WORDS: Final = {
    "ms": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3,
    "m": 60.0, "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "hour": 3600.0, "hours": 3600.0, "day": 86400.0, "days": 86400.0,
}  # fmt: skip
_REMAINING: Final = re.compile(r"(?P<head>(?:x-)?rate-?limit-)remaining(?P<tail>-.+)?")
_ANTHROPIC: Final = re.compile(r"(?P<head>anthropic-ratelimit-.+-)remaining")
_STRUCTURED: Final = re.compile(r"(?:;\s*r=(?P<r>[0-9]+)(?=[;,\s]|$)).*?(?:;\s*t=(?P<t>[0-9]+)(?=[;,\s]|$))")
_LEGACY: Final = re.compile(r"remaining=(?P<r>[0-9]+)\b.*?reset=(?P<t>[0-9]+)\b")
_QUOTA_NAMES: Final = ("x-ratelimit-", "x-rate-limit-", "ratelimit", "anthropic-ratelimit-")
_BODY_KEYS: Final = ("error", "errors", "details", "metadata", "fault")
_BODY_NODES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RateWindow:
    """One quota a server reports in its headers.

    Attributes:
        dimension: `requests` or `tokens`.
        name: the header it came from, in lower case; tells windows of one dimension apart.
        limit: the size of the window; None when unknown or a sentinel such as -1.
        remaining: what is left of it; None likewise.
        reset: seconds until it is full again; None likewise.
    """

    dimension: str
    name: str = ""
    limit: float | None = None
    remaining: float | None = None
    reset: float | None = None


def read_hint(headers: Headers, body: object = None, text: str = "", *, wall: float) -> RetryHint | None:
    """Find the server's wait; the first source that yields a sane value wins.

    Args:
        headers: the response's headers.
        body: the decoded body, or a list of nested error objects; searched a few levels deep.
        text: the error's words.
        wall: the local clock, seconds since the epoch; used where the response has no usable `Date`.

    Returns:
        Seconds, unclamped when directive, at most 120 when advisory.
    """
    now = _server_now(headers, wall)
    return (
        _from_headers(headers, now)
        or _from_body(body, now)
        or _from_provider(headers, now)
        or _from_windows(headers, body, now)
        or _from_text(text)
    )


def parse_delay(value: str, *, wall: float, date: str | None = None) -> float | None:
    """Read one `Retry-After` value: seconds, a Go duration, an HTTP-date or ISO 8601 with a zone.

    Args:
        value: the header's value.
        wall: the local clock, seconds since the epoch.
        date: the response's `Date`; preferred to the local clock.

    Returns:
        Seconds from now, 0 for a moment in the past, None for anything else.
    """
    moment = parse_date(date) if date else None
    return _delay(value, wall if moment is None else moment)


def parse_reset(value: str, *, wall: float, date: str | None = None) -> float | None:
    """Read one `x-ratelimit-reset` value: seconds, epoch seconds or milliseconds, a duration or a date.

    Returns:
        Seconds from now; None for sentinels (-1, 0), moments in the past and garbage.
    """
    moment = parse_date(date) if date else None
    return _reset(value, wall if moment is None else moment)


def parse_date(value: str) -> float | None:
    """Read an HTTP-date in any of its three forms, or ISO 8601 with a zone, as epoch seconds."""
    value = value.strip()
    if len(value) > _MAX_VALUE:
        return None
    for pattern in _DATES:
        found = pattern.fullmatch(value)
        if found:
            return _epoch(found.groupdict())
    return None


def rate_headers(headers: Headers, *, wall: float) -> tuple[RateWindow, ...]:
    """Read every quota window the headers report; sentinels become None, empty windows are left out."""
    now = _server_now(headers, wall)
    return tuple(
        window
        for window in _windows(headers, now)
        if window.limit is not None or window.remaining is not None or window.reset is not None
    )


def has_quota(headers: Headers) -> bool:
    """Tell whether the answer speaks of a quota at all, which makes a limit the account's."""
    return any(name.startswith(_QUOTA_NAMES) for name in headers)


def _number(value: str) -> float | None:
    value = value.strip()
    if len(value) <= _MAX_VALUE and _NUMBER.fullmatch(value):
        return float(value)
    return None


def _sane(seconds: float | None) -> float | None:
    return seconds if seconds is not None and 0.0 <= seconds <= LONGEST else None


def _duration(value: str) -> float | None:
    if len(value) <= _MAX_VALUE and _GO.fullmatch(value):
        return math.fsum(float(number) * _GO_UNITS[unit] for number, unit in _GO_PART.findall(value))
    return None


def _epoch(part: Mapping[str, str | None]) -> float | None:
    month = part["mon"] or ""
    year = int(part["y"] or 0)
    if len(part["y"] or "") == 2:
        # RFC 9110: a two-digit year more than 50 years ahead means the last one that ended so.
        year += 2000 if year < 77 else 1900
    zone = UTC
    offset = (part.get("zone") or "").replace(":", "")
    if offset[:1] in {"+", "-"}:
        minutes = int(offset[1:3]) * 60 + int(offset[3:5])
        if minutes >= 24 * 60:
            return None
        zone = timezone(timedelta(minutes=-minutes if offset[0] == "-" else minutes))
    try:
        moment = datetime(
            year,
            int(month) if month.isdigit() else _MONTHS.get(month.lower(), 0),
            int(part["d"] or 0),
            int(part["H"] or 0),
            int(part["M"] or 0),
            min(int(part["S"] or 0), 59),  # a leap second
            tzinfo=zone,
        ).timestamp()
    except (ValueError, OverflowError):
        return None
    return moment + float(part.get("frac") or 0.0)


def _server_now(headers: Headers, wall: float) -> float:
    """Return the server's clock when it wrote the answer: `Date` plus `Age`, else our own clock."""
    values = headers.get_list("date")
    moment = parse_date(values[0]) if values else None
    if moment is None:
        return wall
    ages = headers.get_list("age")
    age = _sane(_number(ages[0])) if ages else None
    return moment + (age or 0.0)


def _delay(value: str, now: float) -> float | None:
    value = value.strip()
    seconds = _number(value)
    if seconds is None:
        seconds = _duration(value)
    if seconds is None:
        moment = parse_date(value)
        seconds = None if moment is None else max(0.0, moment - now)
    return _sane(seconds)


def _reset(value: str, now: float) -> float | None:
    value = value.strip()
    seconds = _number(value)
    if seconds is not None:
        if seconds > 1e11:
            seconds = seconds / 1000 - now
        elif seconds > 1e9:
            seconds -= now
    else:
        seconds = _duration(value)
        if seconds is None:
            moment = parse_date(value)
            seconds = None if moment is None else moment - now
    return seconds if seconds is not None and 0.0 < seconds <= LONGEST else None


def _largest(values: list[str], now: float) -> float | None:
    """Repeated headers and comma lists: the largest valid value, so that none is undercut."""
    found: list[float] = []
    for value in values:
        whole = _delay(value, now)
        parts = [whole] if whole is not None or "," not in value else [_delay(one, now) for one in value.split(",")]
        found.extend(one for one in parts if one is not None)
    return max(found, default=None)


def _from_headers(headers: Headers, now: float) -> RetryHint | None:
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        numbers = [_number(one) for value in headers.get_list(name) for one in value.split(",")]
        sane = [one / 1000 for one in numbers if one is not None and one / 1000 <= LONGEST]
        if sane:
            return RetryHint(seconds=max(sane), directive=True, source=name)
    seconds = _largest(headers.get_list("retry-after"), now)
    return None if seconds is None else RetryHint(seconds=seconds, directive=True, source="retry-after")


def _objects(body: object) -> Iterator[Mapping[str, object]]:
    """Walk the error objects of a body, breadth first and bounded."""
    queue: list[object] = [body]
    for node in queue:
        if isinstance(node, dict):
            yield node
            queue.extend(node[key] for key in _BODY_KEYS if key in node)
        elif isinstance(node, list):
            queue.extend(node[:_BODY_NODES])
        if len(queue) > _BODY_NODES:
            return


def _field(value: object, now: float) -> float | None:
    if isinstance(value, Mapping):  # protobuf's Duration, spelled out
        value = value.get("seconds")
    if isinstance(value, str):
        return _delay(value, now)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Comparing first keeps an int of a thousand digits away from float(); NaN compares false.
    return float(value) if 0 <= value <= LONGEST else None


def _from_body(body: object, now: float) -> RetryHint | None:
    for name in ("retryDelay", "retry_after"):
        for node in _objects(body):
            seconds = _field(node.get(name), now)
            if seconds is not None:
                return RetryHint(seconds=seconds, directive=True, source=f"body {name}")
    for node in _objects(body):
        seconds = _field(node.get("estimated_time"), now)
        if seconds is not None:
            return _advisory(seconds, "body estimated_time")
    return None


def _from_provider(headers: Headers, now: float) -> RetryHint | None:
    """LiteLLM renames the upstream's header; advisory, because another upstream may answer the next request."""
    seconds = _largest(headers.get_list("llm_provider-retry-after"), now)
    return None if seconds is None else _advisory(seconds, "llm_provider-retry-after")


def _from_windows(headers: Headers, body: object, now: float) -> RetryHint | None:
    """Only an exhausted dimension speaks; with several, the last of them to refill."""
    reports = [headers]
    for node in _objects(body):  # OpenRouter passes the provider's headers on inside the body
        inner = node.get("headers")
        if isinstance(inner, dict):
            reports.append(Headers((name, str(value)) for name, value in inner.items() if isinstance(name, str)))
    resets = [
        window.reset
        for report in reports
        for window in _windows(report, now)
        if window.remaining == 0 and window.reset is not None
    ]
    return _advisory(max(resets), "rate-limit reset") if resets else None


def _windows(headers: Headers, now: float) -> Iterator[RateWindow]:
    for name in headers:
        found = _REMAINING.fullmatch(name) or _ANTHROPIC.fullmatch(name)
        if found:
            head, tail = found["head"], found.groupdict().get("tail") or ""
            yield RateWindow(
                dimension="tokens" if "token" in name else "requests",
                name=name,
                limit=_first(headers, f"{head}limit{tail}"),
                remaining=_first(headers, name),
                reset=_reset((headers.get_list(f"{head}reset{tail}") or [""])[0], now),
            )
    for value in headers.get_list("ratelimit"):
        for item in value[:4096].split(","):
            found = _STRUCTURED.search(item)
            if found:
                yield _structured(found, item)
        found = _LEGACY.search(value[:4096])
        if found:
            yield _structured(found, value)


def _structured(found: re.Match[str], item: str) -> RateWindow:
    """Read one window of the IETF draft's `RateLimit` field."""
    return RateWindow(
        dimension="tokens" if "token" in item else "requests",
        name="ratelimit",
        remaining=_number(found["r"]),
        reset=_reset(found["t"], 0.0),
    )


def _first(headers: Headers, name: str) -> float | None:
    """Read the leading number of a header; `10, 10;w=60` is 10."""
    values = headers.get_list(name)
    return _number(values[0].partition(",")[0].partition(";")[0]) if values else None


def _from_text(text: str) -> RetryHint | None:
    for found in _TEXT.finditer(text):
        go, number = found["go"], found["n"]
        if go:
            seconds = _duration(go.lower())
        else:
            plain = _number(number)
            seconds = None if plain is None else plain * _WORDS.get((found["unit"] or "").lower(), 1.0)
        seconds = _sane(seconds)
        if seconds is not None:
            return _advisory(seconds, "text")
    return None


def _advisory(seconds: float, source: str) -> RetryHint:
    return RetryHint(seconds=min(seconds, ADVISORY_CAP), directive=False, source=source)
