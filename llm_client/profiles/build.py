"""From the values of a section to the record it stands for, where more than one key decides."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from llm_client.profiles import addresses
from llm_client.profiles.reading import FAILED
from llm_client.profiles.scalars import UnreadableError, show_number
from llm_client.profiles.section import Place
from llm_client.profiles.tree import BUILT_IN, join
from llm_client.profiles.types import (
    WITH_PRIORITY,
    BackpressureSpec,
    CachedFallback,
    CallableFallback,
    ConcurrencySpec,
    EndpointSpec,
    LimitsSpec,
    ModelFallback,
    OpenFor,
    ProfileFallback,
    Rate,
    RetrySpec,
    ScopeLimits,
    StaticFallback,
)


def open_for(values: dict[str, Any], place: Place) -> Any:
    """Make the time a circuit stays open."""
    made = OpenFor(**values)
    if made.base > made.cap:
        return place.fail(
            "cap" if place.has("cap") else "base", "the first time (base) is longer than the longest (cap)"
        )
    return made


def rate(values: dict[str, Any], place: Place) -> Any:
    """Make a rate of its map form, {rate, burst}."""
    del place
    return replace(values["rate"], burst=values.get("burst"))


def limits_of_scope(values: dict[str, Any], place: Place) -> Any:
    """Make the limits of one scope."""
    limited = [name for name in ("requests", "tokens") if values.get(name) is not None]
    ok = True
    if not limited:
        for key in ("pacing", "fleet_size", "pessimistic"):
            if place.has(key):
                ok = place.fail(key, "has no effect: no rate is set here, neither requests nor tokens") is not FAILED
    if place.has("pessimistic") and limited == ["requests"]:
        ok = place.fail("pessimistic", "has no effect without a limit on tokens") is not FAILED
    if values.get("pacing") == "leaky":
        for key in limited:
            if values[key].burst is not None:
                ok = place.fail(key, "burst has no effect with pacing: leaky, which spaces calls evenly") is not FAILED
    return ScopeLimits(**values) if ok else FAILED


def limits(values: dict[str, Any], place: Place) -> Any:
    """Make the limits that are wider than an endpoint."""
    del place
    return LimitsSpec(**values)


def concurrency(values: dict[str, Any], place: Place) -> Any:
    """Make the concurrency settings."""
    del place
    return ConcurrencySpec(**values)


def ceilings(values: dict[str, Any], place: Place) -> Any:
    """Make the tier ceilings; a more urgent class never has the lower one."""
    made = (values["critical"], values["high"], values["normal"], values["low"])
    if list(made) != sorted(made, reverse=True):
        return place.reading.fail(
            place.node, "a more urgent class must not have a lower ceiling than a less urgent one"
        )
    return made


def retry(values: dict[str, Any], place: Place) -> Any:
    """Make the retry settings; one attempt means that nothing is tried again, not even what was refused."""
    made = RetrySpec(**values)
    if made.attempts > 1:
        return made
    attempts, refusals = join(place.path, "attempts"), join(place.path, "refusals")
    if made.refusals and BUILT_IN < place.reading.rank(refusals) >= place.reading.rank(attempts):
        return place.fail("refusals", "has no effect with attempts: 1, which tries nothing again")
    place.reading.note(refusals, place.reading.origin(attempts), "0")
    return replace(made, refusals=0)


def backpressure(values: dict[str, Any], place: Place) -> Any:
    """Make the back-pressure thresholds, whose defaults depend on the kind."""
    latency = values["kind"] == "latency"
    defaults: Mapping[str, Any] = LATENCY if latency else DEPTH
    made = BackpressureSpec(**{**defaults, **values})
    for key in ("watch", "refuse"):
        at = join(place.path, key)
        place.reading.note(at, place.reading.origin(at), show_number(getattr(made, key)))
    if made.watch > made.refuse:
        return place.fail("watch", "watch comes before refuse: it must not be the larger one")
    if not latency and made.refuse > 1:
        return place.fail("refuse", "the queue is never fuller than 1.0, so this has no effect")
    return made


# Load ratios of the queue; and latency over its target.
DEPTH: Final[Mapping[str, Any]] = {"watch": 0.5, "refuse": 0.8}
LATENCY: Final[Mapping[str, Any]] = {"watch": 1.0, "refuse": 1.5, "target": 2.0, "window": 100}


def fallback(values: dict[str, Any], place: Place) -> Any:
    """Make one link of the fallback chain."""
    kind = values.pop("kind")
    for field in ("model", "stream"):
        for key in ("rename", "drop", "set"):
            if field in values.get(key, ()) or (key == "rename" and field in values.get(key, {}).values()):
                return place.fail(key, f"{field} is not for a fallback to change")
    if kind == "callable":
        name, function = values["target"]
        return CallableFallback(target=name, function=function)
    return _FALLBACKS[kind](**values)


_FALLBACKS: Final[Mapping[str, Callable[..., Any]]] = {
    "static": StaticFallback,
    "profile": ProfileFallback,
    "model": ModelFallback,
    "cached": CachedFallback,
}


def endpoint(values: dict[str, Any], place: Place) -> Any:
    """Make an endpoint: a normalised URL, one way to authenticate, a name."""
    if not isinstance(values["base_url"], str):
        name, values["discover"] = values["base_url"]
        if inspect.iscoroutinefunction(values["discover"]):
            return place.fail("base_url", "the function is async; it is asked in a thread of its own, so make it sync")
        values["base_url"] = f"callable:{name}"
        values["name"] = values.get("name") or name
    try:
        if "discover" not in values:
            values["base_url"] = addresses.base_url(values["base_url"], as_is=values.get("path_mode") == "as_is")
    except UnreadableError as error:
        return place.fail("base_url", str(error))
    if place.has("api_key_file"):
        if place.has("api_key"):
            return place.fail("api_key_file", "api_key is written as well; keep one")
        values["api_key"] = values["api_key_file"]
    values.pop("api_key_file", None)
    if not values.get("name"):
        values["name"] = addresses.host_name(values["base_url"])
    values["account"] = values["account"] or values["name"]
    for key in ("base_url", "name", "account"):
        at = join(place.path, key)
        place.reading.note(at, place.reading.origin(at), values[key])
    way, values["token"] = values.pop("auth", ("bearer", None))
    values["auth"] = way
    ok = _authenticated(values, way, place)
    if values.get("forward_priority") and values.get("dialect", "auto") not in {"auto", *WITH_PRIORITY}:
        text = f"has no effect: {values['dialect']} reads no priority; {', '.join(WITH_PRIORITY)} do"
        ok = place.fail("forward_priority", text) is not FAILED
    return EndpointSpec(**values) if ok else FAILED


def _authenticated(values: Mapping[str, Any], way: str, place: Place) -> bool:
    """Check that there is one way to authenticate, and that it can work."""
    key = "api_key_file" if place.has("api_key_file") else "api_key"
    has_key = place.has(key)
    if way in {"none", "callable"} and values.get("api_key") is not None:
        why = "no key is sent" if way == "none" else "the function gives the token"
        return place.fail(key, f"has no effect while auth is {way}: {why}") is not FAILED
    if way == "api-key" and not has_key:
        return place.fail("auth", "needs an api_key to send") is not FAILED
    header = {"bearer": "authorization", "callable": "authorization", "api-key": "api-key"}.get(way)
    names = {name.lower() for name in values.get("headers", ())}
    if header in names and (values.get("api_key") is not None or way == "callable"):
        return place.fail("headers", f"{header} is also made from {key if has_key else 'auth'}; keep one") is not FAILED
    return True


def auth(value: Any) -> tuple[str, Callable[[], Any] | None]:
    """Make (auth, token) of the map form, {callable: module:function}."""
    return ("callable", value[1])


def as_rate(value: Rate) -> Rate:
    """A rate written short is a rate."""
    return value
