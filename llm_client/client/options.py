"""The options of one call, checked: what is wrong is told by its name, before anything is queued or sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from llm_client.client.patience import seconds
from llm_client.errors import ConfigError
from llm_client.flow.plan import CallableStep, OtherStep, StaticStep, Step
from llm_client.model import UNSET
from llm_client.wire.base import CallOptions, split_options
from llm_client.wire.body import absent

if TYPE_CHECKING:
    from llm_client.client.settings import Settings


def parted(arguments: Mapping[str, Any]) -> tuple[CallOptions, dict[str, Any]]:
    """Part a call's arguments into options and fields of the body; options that are not given are left out.

    Raises:
        TypeError: both `timeout` and `deadline`.
        ConfigError: an option of the wrong type.
    """
    options, fields = split_options({name: value for name, value in arguments.items() if not absent(value)})
    if options:
        _check(options)
    if fields.get("stream", UNSET) is None:
        del fields["stream"]
    return options, fields


def _check(options: CallOptions) -> None:
    for name in ("extra_body", "extra_headers", "extra_query"):
        given = options.get(name)
        if given is not None and not isinstance(given, Mapping):
            raise ConfigError(f"{name}: expected a mapping of names to values, got {type(given).__name__}")
    tenant = options.get("tenant")
    if tenant is not None and not (isinstance(tenant, str) and tenant):
        raise ConfigError(f"tenant: expected a name, or None, got {tenant!r}")


def deadline_of(options: CallOptions) -> Any:
    """Return the deadline in seconds, None for no bound, UNSET when none was given.

    Raises:
        ConfigError: it is no number above 0.
    """
    name = "deadline" if "deadline" in options else "timeout"
    given = options.get(name, UNSET)
    if given is UNSET:
        return UNSET
    found = seconds(name, given)
    return None if found == inf else found


def fallback_of(settings: Settings, options: CallOptions) -> Any:
    """Return the call's chain as steps, None to forbid any, UNSET for the profile's.

    Raises:
        ConfigError: something that is no fallback.
    """
    given = options.get("fallback", UNSET)
    if given is UNSET or given is None:
        return given
    several = given if isinstance(given, Sequence) and not isinstance(given, str | bytes) else [given]
    return tuple(_step(settings, each) for each in several)


def _step(settings: Settings, given: Any) -> Step:
    if isinstance(given, str):
        return StaticStep(text=given)
    if isinstance(given, StaticStep | CallableStep | OtherStep):
        return given
    if callable(given):
        return CallableStep(function=given)
    if isinstance(given, Mapping):
        make = _KINDS.get(str(given.get("kind")))
        if make is not None and set(given) == {"kind", make[0]}:
            return make[1](settings, given[make[0]])
    raise ConfigError(
        "fallback: expected None, a text, a function of (data, error), a mapping such as "
        f"{{'kind': 'model', 'model': 'small'}} of kind {', '.join(_KINDS)}, or a list of these, "
        f"got {type(given).__name__}"
    )


def _other_model(settings: Settings, name: str) -> Step:
    return OtherStep(plan=replace(settings.plan, fallback=()), model=name, kind="model")


_KINDS: dict[str, tuple[str, Callable[[Any, Any], Step]]] = {
    "static": ("text", lambda _settings, text: StaticStep(text=text)),
    "callable": ("function", lambda _settings, function: CallableStep(function=function)),
    "model": ("model", _other_model),
    "profile": ("profile", lambda settings, name: OtherStep(plan=settings.pool.plan(name), kind="profile")),
}
