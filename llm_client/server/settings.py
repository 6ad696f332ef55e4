"""Every setting of the server: default, check, environment variable and command line option from one table."""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .queue import queue_size

ENGINES = ("workers",)
OVERFLOWS = ("reject", "drop", "delay")
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


def _or_none(read: Callable[[str], Any], *words: str) -> Callable[[str], Any]:
    return lambda text: None if text.lower() in words else read(text)


def _queue(text: str) -> int | str | None:
    if text.lower() == "auto":
        return "auto"
    return None if text.lower() in {"unbounded", "none", "off"} else integer(text)


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
    workers: int = option(2, "workers of the engine `workers`", integer)
    seconds: float = option(1.0, "time a worker needs for one request", duration)
    queue: int | str | None = option(
        100, "how many may wait: a number, `unbounded`, or `auto` (see max-latency)", _queue
    )
    max_latency: float = option(5.0, "patience that `queue auto` is sized for", duration)
    overflow: str = option("reject", "when the queue is full: reject, drop (429 without a hint) or delay", str)
    status: int = option(429, "status of a refusal for overload: 429 or 503", integer)
    retry_after: float | str = option("auto", "Retry-After of refusals: auto, none or a time", _retry_after)
    max_delay: float = option(5.0, "how long `delay` lets a request stand outside the full queue", duration)
    queue_timeout: float | None = option(None, "longest wait in the queue, or off", _or_none(duration, "off", "none"))
    models: tuple[str, ...] = option(("reference",), "names of the served models, with commas", _names)
    strict_models: bool = option(False, "answer 404 for other model names", switch)
    tokens: int | None = option(None, "length of an answer when the request sets none", _or_none(integer, "auto"))
    loading: float = option(0.0, "how long the model seems to load after the start", duration)
    drain: float = option(30.0, "how long running work may go on after SIGTERM", duration)
    max_body: int = option(8 << 20, "largest request body in bytes", integer)
    max_headers: int = option(64 << 10, "largest request head in bytes", integer)
    read_timeout: float = option(10.0, "how long a client may take to send its request", duration)
    keepalive: float = option(75.0, "how long an idle connection is kept", duration)
    max_concurrency: int = option(20_000, "requests in progress at most; above it 503", integer)
    request_log: int = option(10_000, "how many requests `/stats?log=N` remembers", integer)

    def __post_init__(self) -> None:
        self._check()
        if self.queue == "auto":
            object.__setattr__(self, "queue", queue_size(self.max_latency, self.seconds, self.workers))

    def _check(self) -> None:
        _one_of("engine", self.engine, ENGINES)
        _one_of("overflow", self.overflow, OVERFLOWS)
        _one_of("status", self.status, (429, 503))
        _between("port", self.port, 0, 65535)
        _between("workers", self.workers, 1, 100_000)
        _between("seconds", self.seconds, 0.0, 86_400.0)
        if self.queue is not None and self.queue != "auto":
            _between("queue", self.queue, 0, 10_000_000)
        if isinstance(self.retry_after, str):
            _one_of("retry_after", self.retry_after, ("auto", "none"))
        else:
            _between("retry_after", self.retry_after, 0.0, 10_000_000.0)
        if self.queue_timeout is not None:
            _between("queue_timeout", self.queue_timeout, 0.001, 86_400.0)
        if self.tokens is not None:
            _between("tokens", self.tokens, 1, 1_000_000)
        for name in ("max_latency", "read_timeout", "keepalive"):
            _between(name, getattr(self, name), 0.001, 86_400.0)
        for name in ("max_delay", "loading", "drain"):
            _between(name, getattr(self, name), 0.0, 86_400.0)
        for name in ("max_body", "max_headers", "max_concurrency"):
            _between(name, getattr(self, name), 1, 1 << 40)
        _between("request_log", self.request_log, 0, 10_000_000)
        if not self.models:
            raise SettingsError("models: name at least one")


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
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(value) if isinstance(value, tuple) else str(value)
