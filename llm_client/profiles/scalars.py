"""Text to numbers with units, and back: durations, sizes, rates, counts, switches.

YAML 1.1 reads `0600` as octal 384, `1:30` as 90 and `no` as false. Here the type of a field says how its text is read;
whatever has two readings is refused with both of them.
"""

from __future__ import annotations

import math
import re
from typing import Final

_NUMBER: Final = r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"
_PLAIN: Final = re.compile(rf"[+-]?{_NUMBER}(?:[eE][+-]?[0-9]+)?|[+-]?\.[0-9]+")
_WHOLE: Final = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")
_QUANTITY: Final = re.compile(rf"({_NUMBER})\s*([A-Za-z]+)")
_SPAN: Final = re.compile(rf"(?:{_NUMBER}\s*[a-z]+\s*)+")
_RATE: Final = re.compile(rf"({_NUMBER})\s*/\s*({_NUMBER})?\s*([A-Za-z]+)")
_LEADING_ZERO: Final = re.compile(r"[+-]?0[0-9]+(?![0-9.])")

# In seconds; the first of equals is the one that is shown.
_TIME: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PERIOD: Final = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "m": 60.0, "minute": 60.0}
_LONG_PERIOD: Final = {"h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0}
# SI and IEC units: 1 MB is a million bytes, 1 MiB is 2**20.
_SIZE: Final = {
    "B": 1,
    "KB": 10**3,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_LARGEST: Final = 1e15
_TRUE: Final = frozenset({"true", "on", "yes"})
_FALSE: Final = frozenset({"false", "off", "no"})


class UnreadableError(ValueError):
    """A text that is not what its field wants; the message says what was expected and never quotes the text."""


def _refuse_odd_numbers(text: str) -> None:
    """Refuse what YAML and people read differently, with both readings."""
    zero = _LEADING_ZERO.match(text)
    if zero is not None:
        digits = zero.group().lstrip("+-")
        octal = set(digits) <= set("01234567")
        yaml = f"as octal, {int(digits, 8)}" if octal else "as text"
        meant = digits.lstrip("0") or "0"
        raise UnreadableError(f"{digits} has a leading zero, which YAML reads {yaml}; write {meant}")
    word = text.lower().lstrip("+-.")
    if word in {"nan", "inf", "infinity"}:
        raise UnreadableError(f"{word} is no number that can be used")
    if re.fullmatch(r"[+-]?0[xob][0-9a-f_]+", text.lower()) or re.fullmatch(r"[0-9][0-9_]*_[0-9_]*", text):
        raise UnreadableError("write the number in plain decimal digits")


def _sane(value: float) -> float:
    """Refuse what would be infinite somewhere down the line."""
    if value > _LARGEST:
        raise UnreadableError("this is too large to be meant")
    return value


def read_whole(text: str) -> int:
    """Read a whole number in plain decimal digits."""
    text = text.strip()
    _refuse_odd_numbers(text)
    if _WHOLE.fullmatch(text) is None or len(text) > 18:
        raise UnreadableError("expected a whole number in plain digits")
    return int(text)


def read_number(text: str) -> float:
    """Read a finite decimal number."""
    text = text.strip()
    _refuse_odd_numbers(text)
    value = float(text) if _PLAIN.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise UnreadableError("expected a number")
    return value


def read_flag(text: str) -> bool:
    """Read on/off, true/false or yes/no in any case."""
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise UnreadableError("expected true or false (on and off are understood too)")


def read_span(text: str) -> float:
    """Read a duration such as 500ms, 30s, 1m30s or 2h, in seconds."""
    text = text.strip()
    _refuse_odd_numbers(text)
    if _PLAIN.fullmatch(text):
        raise UnreadableError(
            f"a duration needs a unit: {text.lstrip('+-')}s, {text.lstrip('+-')}ms or {text.lstrip('+-')}m"
        )
    if _SPAN.fullmatch(text) is None:
        raise UnreadableError("expected a duration such as 500ms, 30s, 10m, 2h or 1d")
    total = 0.0
    for amount, unit in _QUANTITY.findall(text):
        if unit not in _TIME:
            raise UnreadableError("the units of a duration are ms, s, m (or min), h and d")
        total += float(amount) * _TIME[unit]
    return round(_sane(total), 9)


def read_size(text: str) -> int:
    """Read a size such as 256MB or 64KiB, in bytes."""
    text = text.strip()
    _refuse_odd_numbers(text)
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise UnreadableError("expected a size with its unit, such as 256MB or 64KiB")
    amount, unit = found.groups()
    if unit not in _SIZE:
        raise UnreadableError("the units of a size are B, KB, MB, GB, TB (thousands) and KiB, MiB, GiB, TiB (1024s)")
    return round(_sane(float(amount) * _SIZE[unit]))


def read_rate(text: str) -> tuple[float, float]:
    """Read a rate such as 600/min or 10/s; return amount and period in seconds."""
    text = text.strip()
    _refuse_odd_numbers(text)
    found = _RATE.fullmatch(text)
    if found is None:
        raise UnreadableError("expected a rate such as 10/s, 600/min or 90000/h")
    amount, count, unit = found.groups()
    period = (_PERIOD | _LONG_PERIOD).get(unit)
    if period is None:
        raise UnreadableError("the periods of a rate are s, min, h and d")
    return _sane(float(amount)), _sane(float(count or 1) * period)


def show_number(value: float) -> str:
    """Write a number without a needless fraction."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def show_span(value: float) -> str:
    """Write a duration so that `read_span` gives it back."""
    if value == 0:
        return "0s"
    if value < 1:
        return f"{show_number(round(value * 1000, 6))}ms"
    for unit in ("d", "h", "m"):
        if value % _TIME[unit] == 0:
            return f"{show_number(value / _TIME[unit])}{unit}"
    return f"{show_number(value)}s"


def show_size(value: int) -> str:
    """Write a size so that `read_size` gives it back."""
    for unit in ("TB", "TiB", "GB", "GiB", "MB", "MiB", "KB", "KiB"):
        if value and value % _SIZE[unit] == 0:
            return f"{value // _SIZE[unit]}{unit}"
    return f"{value}B"


def show_rate(amount: float, period: float) -> str:
    """Write a rate so that `read_rate` gives it back."""
    for unit in ("s", "min", "h", "d"):
        if period == (_PERIOD | _LONG_PERIOD)[unit]:
            return f"{show_number(amount)}/{unit}"
    return f"{show_number(amount)}/{show_number(period)}s"
