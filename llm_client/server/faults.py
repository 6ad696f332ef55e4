"""What goes wrong on purpose: the words for it, and which request it hits."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from .settings import SettingsError, duration

HEADER = "x-llm-fault"
FOREVER = 3600.0  # a fault without an end lasts this many seconds; its client has given up long before


def _seconds(value: Any) -> Any:
    return duration(value) if isinstance(value, str) else value


Seconds = Annotated[
    float, Field(ge=0, le=86_400), BeforeValidator(_seconds, json_schema_input_type=float | str)
]  # the bounds come first, or the document would not tell them
Events = Annotated[int, Field(ge=0, le=1 << 24)]
Status = Annotated[int, Field(ge=200, le=599)]


class Fault(BaseModel):
    """One way to misbehave; fields combine.

    Numbers of events count what a stream delivers (tokens); on an answer that is no stream they count bytes.

    Attributes:
        latency: wait before anything else.
        status: answer this status instead of doing the work.
        body: the body of that answer, as it is; without it the server's usual error body.
        content_type: the type of that body.
        headers: more headers of that answer.
        overload: answer as if the queue were full.
        hang: take the request and never answer.
        reset: reset the connection after so many events; 0 is before the head.
        cut: close the connection without the end of the body after so many events.
        truncate: end the body cleanly after so many events, without the end of the answer.
        stall: go silent after so many events.
        stall_for: how long `stall` and `hang` last.
        ping: send a comment this often while silent.
        garble: break the JSON of this event, counted from 1.
        stream_error: put an error frame after so many events and end.
        code: the `code` in that frame.
        message: the message in that frame.
        done: send `[DONE]` after that frame.
        drip: seconds between events.
        linger: keep the body open this long after the end marker.
        finish_reason: say this instead of the true one.
        layout: other ways to write server-sent events that the standard allows.
        text: answer this instead of the words.
        brownout: the engine is this many times slower (rules only, it touches everybody).
    """

    model_config = ConfigDict(extra="forbid")

    latency: Seconds = 0.0
    status: Status | None = None
    body: str | None = None
    content_type: str = "text/plain"
    headers: dict[str, str] = {}
    overload: bool = False
    hang: bool = False
    reset: Events | None = None
    cut: Events | None = None
    truncate: Events | None = None
    stall: Events | None = None
    stall_for: Seconds = FOREVER
    ping: Seconds | None = None
    garble: Annotated[int, Field(ge=1)] | None = None
    stream_error: Events | None = None
    code: int | str | None = 500
    message: str = "The engine failed while it worked on this request."
    done: bool = False
    drip: Seconds = 0.0
    linger: Seconds = 0.0
    finish_reason: str | None = None
    layout: Literal["plain", "crlf", "nospace", "split", "bom", "comments", "fields", "unended", "nodone"] = "plain"
    text: str | None = None
    brownout: Annotated[float, Field(ge=1, le=1000)] = 1.0

    @property
    def stream_faults(self) -> bool:
        """Whether it touches the bytes of an answer."""
        numbers = (self.reset, self.cut, self.truncate, self.stall, self.garble, self.stream_error)
        return any(n is not None for n in numbers) or bool(
            self.drip or self.linger or self.finish_reason or self.layout != "plain"
        )


class Rule(Fault):
    """A fault and whom it hits.

    Attributes:
        at: when it begins, counted from the start of the server or of the rule.
        lasts: when it ends after that; `for` in files.
        rate: share of the matching requests that it hits.
        times: how many it hits at most.
        path: only requests whose path ends so.
        model: only requests for this model.
        header: only requests with these headers; `*` is any value.
    """

    at: Seconds = 0.0
    lasts: Annotated[Seconds | None, Field(validation_alias=AliasChoices("for", "lasts"))] = None
    rate: Annotated[float, Field(ge=0, le=1)] = 1.0
    times: Annotated[int, Field(ge=1)] | None = None
    path: str | None = None
    model: str | None = None
    header: dict[str, str] = {}

    def matches(self, path: str, model: str, headers: Mapping[str, str]) -> bool:
        """Whether it is meant for such a request."""
        if self.path is not None and not path.endswith(self.path):
            return False
        if self.model is not None and model != self.model:
            return False
        return all(headers.get(k) == v or (v == "*" and k in headers) for k, v in self.header.items())


@dataclass(slots=True, eq=False)
class _Active:
    number: int
    rule: Rule
    since: float
    hits: int = 0

    def alive(self, now: float) -> bool:
        end = math.inf if self.rule.lasts is None else self.since + self.rule.at + self.rule.lasts
        spent = self.rule.times is not None and self.hits >= self.rule.times
        return now < end and not spent

    def on(self, now: float) -> bool:
        return now >= self.since + self.rule.at and self.alive(now)


@dataclass(slots=True)
class Faults:
    """The rules in force, and the dice.

    Args:
        rng: decides where a rule has a rate below one.
        by_header: whether a request may ask for its own fault.
    """

    rng: random.Random
    by_header: bool = True
    _rules: list[_Active] = field(default_factory=list)
    _count: int = 0

    def add(self, rule: Rule, now: float) -> int:
        """Put a rule into force; its number takes it out again."""
        self._count += 1
        self._rules.append(_Active(self._count, rule, now))
        return self._count

    def remove(self, number: int) -> bool:
        """Take one out; False when there is none."""
        before = len(self._rules)
        self._rules = [each for each in self._rules if each.number != number]
        return len(self._rules) < before

    def clear(self) -> None:
        """Take all out."""
        self._rules.clear()

    def pick(self, path: str, model: str, headers: Mapping[str, str], now: float) -> Fault | None:
        """What goes wrong with this request: its own header first, else the first rule that hits it.

        Raises:
            ValueError: when its header cannot be read.
        """
        if self.by_header and (wish := headers.get(HEADER)) is not None:
            return parse(wish)
        if not self._rules:
            return None
        self._rules = [each for each in self._rules if each.alive(now)]
        for each in self._rules:
            rule = each.rule
            if rule.brownout > 1 or not each.on(now) or not rule.matches(path, model, headers):
                continue
            if rule.rate >= 1 or self.rng.random() < rule.rate:
                each.hits += 1
                return rule
        return None

    def slowdown(self, now: float) -> float:
        """How many times slower the engine is now."""
        return max((each.rule.brownout for each in self._rules if each.on(now)), default=1.0)

    def listing(self, now: float) -> list[dict[str, Any]]:
        """The rules as JSON."""
        return [
            {
                "id": each.number,
                "on": each.on(now),
                "hits": each.hits,
                **each.rule.model_dump(exclude_defaults=True),
            }
            for each in self._rules
            if each.alive(now)
        ]


def parse(text: str) -> Fault:
    """Read a header: JSON, or words such as `stall=3, stall_for=2s` and `hang`.

    Raises:
        ValueError: naming the word at fault.
    """
    try:
        if text.lstrip().startswith("{"):
            fault = Fault.model_validate_json(text)
        else:
            pairs = (part.partition("=") for part in text.split(",") if part.strip())
            fault = Fault.model_validate({k.strip(): v.strip() if eq else True for k, eq, v in pairs})
    except ValidationError as error:
        raise ValueError(_explain(error)) from None
    if fault.brownout > 1:
        raise ValueError("brownout touches everybody: use a rule, not a header")
    return fault


def rules(data: Any) -> list[Rule]:
    """Read one rule or a list of them.

    Raises:
        ValueError: naming the rule and the field at fault.
    """
    out: list[Rule] = []
    for number, each in enumerate(data if isinstance(data, list) else [data], 1):
        try:
            out.append(Rule.model_validate(each, strict=True))
        except ValidationError as error:
            raise ValueError(f"rule {number}: {_explain(error)}") from None
    return out


def script(path: Path) -> list[Rule]:
    """Read a YAML file: a list of rules, or a mapping with `faults:`.

    Raises:
        SettingsError: when it cannot be read.
    """
    try:
        data = yaml.safe_load(path.read_text("utf-8"))
        return rules(data.get("faults", data) if isinstance(data, dict) else data)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SettingsError(f"faults: {path}: {error}") from None


def _explain(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "it"
    known = ", ".join(sorted(Rule.model_fields))
    hint = f"; known are {known}" if first["type"] == "extra_forbidden" else ""
    return f"{where}: {first['msg']}{hint}"
