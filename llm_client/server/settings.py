"""Every setting of the server: default, check, environment variable and command line option from one table."""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .batching import PRESETS, Preset
from .dialects import DIALECTS
from .limits import Rate, rate
from .queue import queue_size

ENGINES = ("workers", *PRESETS)
OVERFLOWS = ("reject", "drop", "delay")
_CONTEXT = 131_072  # tokens the plain workers take
ENV_PREFIX = "LLM_SERVER_"


class SettingsError(ValueError):
    """A setting makes no sense; the message names it and says what would."""


_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def duration(text: str) -> float:
    """Read `1.5`, `1.5s`, `200ms`, `2m` or `1h`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?\s*", text)
    if match is None:
        raise SettingsError(f"expected a time such as 1.5s or 200ms, got {text!r}")
    return float(match[1]) * _UNITS[match[2] or ""]


def switch(text: str) -> bool:
    """Read a yes or no."""
    if text.lower() in {"1", "true", "yes", "on"}:
        return True
    if text.lower() in {"0", "false", "no", "off", ""}:
        return False
    raise SettingsError(f"expected on or off, got {text!r}")


def integer(text: str) -> int:
    """Read a whole number."""
    try:
        return int(text)
    except ValueError:
        raise SettingsError(f"expected a whole number, got {text!r}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SettingsError(f"expected a number, got {text!r}") from None


def _or_none(read: Callable[[str], Any], *words: str) -> Callable[[str], Any]:
    return lambda text: None if text.lower() in words else read(text)


def _queue(text: str) -> int | str | None:
    if text.lower() == "auto":
        return "auto"
    return None if text.lower() in {"unbounded", "none", "off"} else integer(text)


def _rate(text: str) -> Rate:
    try:
        return rate(text)
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _thresholds(text: str) -> tuple[float, ...]:
    if text.lower() == "on":
        return (0.9, 0.7, 0.5)
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(f"expected on, off or three numbers such as 0.9,0.7,0.5, got {text!r}") from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _retry_after(text: str) -> float | str:
    return text.lower() if text.lower() in {"auto", "none"} else duration(text)


def option(default: Any, text: str, read: Callable[[str], Any] = str, *, secret: bool = False) -> Any:
    """A field with what the command line needs to know about it."""
    return field(default=default, metadata={"help": text, "read": read}, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the server does. Times are seconds, sizes are bytes.

    Raises:
        SettingsError: when a value makes no sense.
    """

    host: str = option("127.0.0.1", "address to listen on")
    port: int = option(8000, "port to listen on; 0 takes a free one", integer)
    engine: str = option("workers", f"what does the work: {', '.join(ENGINES)}")
    speed: float = option(1.0, "how many times faster than real the GPU engines are", _number)
    burn: bool = option(False, "workers keep a processor busy instead of sleeping", switch)
    workers: int = option(2, "workers of the engine `workers`", integer)
    seconds: float = option(1.0, "time a worker needs for one request", duration)
    queue: int | str | None = option(
        100, "how many may wait: a number, `unbounded`, or `auto` (see max-latency)", _queue
    )
    max_latency: float = option(5.0, "patience that `queue auto` is sized for", duration)
    overflow: str = option("reject", "when the queue is full: reject, drop (no hint) or delay (discouraged)", str)
    status: int = option(429, "status of a refusal for overload: 429 or 503", integer)
    retry_after: float | str = option("auto", "Retry-After of refusals: auto, none or a time", _retry_after)
    max_delay: float = option(5.0, "how long `delay` lets a request stand outside the full queue", duration)
    queue_timeout: float | None = option(None, "longest wait in the queue, or off", _or_none(duration, "off", "none"))
    thresholds: tuple[float, ...] | None = option(
        None,
        "load above which high, normal and low work is shed: on (0.9,0.7,0.5), numbers or off",
        _or_none(_thresholds, "off", "none"),
    )
    target_latency: float | None = option(
        None, "shed low classes while answers take longer than this, or off", _or_none(duration, "off", "none")
    )
    key_requests: Rate | None = option(None, "requests of one API key, such as 10/s", _or_none(_rate, "off", "none"))  # noqa: RUF009 - it is `field`
    key_tokens: Rate | None = option(None, "tokens of one API key, such as 90000/min", _or_none(_rate, "off", "none"))  # noqa: RUF009 - it is `field`
    service_requests: Rate | None = option(None, "requests of all together", _or_none(_rate, "off", "none"))  # noqa: RUF009 - it is `field`
    service_tokens: Rate | None = option(None, "tokens of all together", _or_none(_rate, "off", "none"))  # noqa: RUF009 - it is `field`
    api_keys: tuple[str, ...] = option(
        (), "keys that may come in, with commas; better by environment", _names, secret=True
    )
    dialect: str = option("openai", f"whose words refusals use: {', '.join(DIALECTS)}")
    models: tuple[str, ...] = option(("reference",), "names of the served models, with commas", _names)
    strict_models: bool = option(False, "answer 404 for other model names", switch)
    tokens: int | None = option(None, "length of an answer when the request sets none", _or_none(integer, "auto"))
    context: int | None = option(None, "longest input and answer together, in tokens", _or_none(integer, "auto"))
    loading: float = option(0.0, "how long the model seems to load after the start", duration)
    drain: float = option(30.0, "how long running work may go on after SIGTERM", duration)
    max_body: int = option(8 << 20, "largest request body in bytes", integer)
    max_headers: int = option(64 << 10, "largest request head in bytes", integer)
    read_timeout: float = option(10.0, "how long a client may take to send its request", duration)
    keepalive: float = option(75.0, "how long an idle connection is kept", duration)
    max_concurrency: int = option(20_000, "requests in progress at most; above it 503", integer)
    fault_header: bool = option(True, "requests may ask for a fault by the header x-llm-fault", switch)
    faults: str | None = option(None, "YAML file of faults over time", _or_none(str, "off", "none"))
    admin: bool = option(False, "routes under /admin, for clients on this machine only", switch)
    seed: int = option(0, "for the dice of faults with a rate", integer)
    request_log: int = option(10_000, "how many requests `/stats?log=N` remembers", integer)

    def __post_init__(self) -> None:
        self._check()

    @property
    def bound(self) -> int | None:
        """How many may wait; None for no bound."""
        if isinstance(self.queue, str):
            return queue_size(self.max_latency, max(self.seconds, 0.001), self.workers)
        return self.queue

    @property
    def longest(self) -> int:
        """Longest input and answer together, in tokens."""
        return self.context or (_CONTEXT if self.preset is None else self.preset.context)

    @property
    def preset(self) -> Preset | None:
        """The GPU to be played; None for the plain workers."""
        return PRESETS.get(self.engine)

    def _check(self) -> None:
        for name, allowed in _CHOICES.items():
            _one_of(name, getattr(self, name), allowed)
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not (value is None or isinstance(value, str)):
                _between(name, value, low, high)
        if isinstance(self.queue, str):
            _one_of("queue", self.queue, ("auto",))
        if isinstance(self.retry_after, str):
            _one_of("retry_after", self.retry_after, ("auto", "none"))
        if self.thresholds is not None:
            if len(self.thresholds) != 3:
                raise SettingsError(f"thresholds: expected three numbers (high, normal, low), got {self.thresholds!r}")
            for each in self.thresholds:
                _between("thresholds", each, 0.0, 1.0)
        if not self.models:
            raise SettingsError("models: name at least one")


_DAY = 86_400.0
_CHOICES: Mapping[str, Sequence[Any]] = {
    "engine": ENGINES,
    "overflow": OVERFLOWS,
    "status": (429, 503),
    "dialect": tuple(DIALECTS),
}
_RANGES: Mapping[str, tuple[float, float]] = {
    "port": (0, 65_535),
    "workers": (1, 100_000),
    "seconds": (0.0, _DAY),
    "speed": (0.001, 1e6),
    "queue": (0, 10_000_000),
    "retry_after": (0.0, 1e7),
    "queue_timeout": (0.001, _DAY),
    "target_latency": (0.001, _DAY),
    "max_latency": (0.001, _DAY),
    "max_delay": (0.0, _DAY),
    "tokens": (1, 100_000_000),
    "context": (1, 100_000_000),
    "loading": (0.0, _DAY),
    "drain": (0.0, _DAY),
    "read_timeout": (0.001, _DAY),
    "keepalive": (0.001, _DAY),
    "max_body": (1, 1 << 40),
    "max_headers": (1024, 1 << 40),
    "max_concurrency": (1, 10_000_000),
    "request_log": (0, 10_000_000),
}


def _one_of(name: str, value: Any, allowed: Sequence[Any]) -> None:
    if value not in allowed:
        raise SettingsError(f"{name}: expected one of {', '.join(map(str, allowed))}, got {value!r}")


def _between(name: str, value: Any, low: float, high: float) -> None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not low <= value <= high:
        raise SettingsError(f"{name}: expected a number from {low:g} to {high:g}, got {value!r}")


def from_sources(
    argv: Sequence[str], environ: Mapping[str, str], prog: str = "python -m llm_client.server"
) -> Settings:
    """Settings from the command line, then the environment, then the defaults.

    Args:
        argv: the arguments, without the name of the program.
        environ: variables such as `LLM_SERVER_QUEUE=10`.
        prog: how the help calls the program.

    Raises:
        SettingsError: when a value makes no sense; a wrong option ends the program with its usage.
    """
    parser = argparse.ArgumentParser(
        prog=prog,
        description="A reference inference server with a bounded queue.",
        epilog=f"Each option is also an environment variable: --queue is {ENV_PREFIX}QUEUE.",
    )
    fields = dataclasses.fields(Settings)
    for each in fields:
        extra: dict[str, Any] = {"nargs": "?", "const": "on"} if each.metadata["read"] is switch else {}
        parser.add_argument(
            "--" + each.name.replace("_", "-"),
            dest=each.name,
            metavar=each.name.upper(),
            help=f"{each.metadata['help']} (default: {_shown(each.default)})".replace("%", "%%"),
            **extra,
        )
    given = vars(parser.parse_args(argv))
    values: dict[str, Any] = {}
    for each in fields:
        variable = ENV_PREFIX + each.name.upper()
        source, text = f"--{each.name.replace('_', '-')}", given[each.name]
        if text is None:
            source, text = variable, environ.get(variable)
        if text is not None:
            try:
                values[each.name] = each.metadata["read"](text)
            except SettingsError as error:
                raise SettingsError(f"{source}: {error}") from None
    return Settings(**values)


def _shown(value: Any) -> str:
    if value is None or value == ():
        return "off"
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(value) if isinstance(value, tuple) else str(value)
