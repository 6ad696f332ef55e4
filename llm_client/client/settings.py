"""What a client is constructed with: a pool and a profile, or openai-python's arguments."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

from llm_client.compose.pool import Pool
from llm_client.errors import ConfigError
from llm_client.model import UNSET

if TYPE_CHECKING:
    from llm_client.flow.plan import Plan

# openai-python's arguments that have another place here.
_ELSEWHERE: Final = {
    "http_client": "network settings are pool={'http': {...}}; to protect an existing SDK, pass "
    "llm_client.http_client(...) to that SDK instead",
    "websocket_base_url": "websockets are not supported",
    "webhook_secret": "webhooks are not supported",
    "admin_api_key": "the administration API is not supported",
    "workload_identity": "pass a callable as api_key, it is asked for a token",
}
_KNOWN: Final = (
    "pool", "profile", "base_url", "api_key", "timeout", "max_retries", "default_headers", "default_query",
    "organization", "project",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A client's view: the pool it uses, how its calls are carried out, what goes with each.

    Attributes:
        owned: the client made the pool and closes it.
    """

    pool: Pool
    plan: Plan
    owned: bool
    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()

    def changed(self, **changes: Any) -> Settings:
        """Return the view of `with_options`.

        Raises:
            ConfigError, TypeError: as the constructor.
        """
        plan = self.plan
        if "profile" in changes:
            plan = self.pool.plan(changes.pop("profile"))
        headers, query = dict(self.headers), dict(self.query)
        headers.update(_pairs("default_headers", changes.pop("default_headers", None)))
        query.update(_pairs("default_query", changes.pop("default_query", None)))
        plan = _tuned(plan, changes.pop("timeout", UNSET), changes.pop("max_retries", UNSET))
        if changes:
            raise TypeError(_unknown("with_options", next(iter(changes))))
        return replace(self, plan=plan, owned=False, headers=tuple(headers.items()), query=tuple(query.items()))


def settings(
    pool: Pool | Mapping[str, Any] | None,
    profile: str | Mapping[str, Any],
    *,
    base_url: str | None,
    api_key: Any,
    timeout: Any,
    max_retries: Any,
    default_headers: Mapping[str, str] | None,
    default_query: Mapping[str, Any] | None,
    organization: str | None,
    project: str | None,
    unknown: Mapping[str, Any],
) -> Settings:
    """Make a client's settings.

    Raises:
        ConfigError: no server, a bad value, or a combination that cannot work.
        TypeError: an unknown argument; the message says what to write instead.
    """
    for name in unknown:
        raise TypeError(_unknown("the client", name))
    headers = _pairs("default_headers", default_headers)
    if organization is not None:
        headers["openai-organization"] = organization
    if project is not None:
        headers["openai-project"] = project
    owned = not isinstance(pool, Pool)
    if isinstance(pool, Pool):
        if base_url is not None or api_key is not None:
            raise ConfigError("a shared pool knows its servers: leave out base_url and api_key, or pass no pool")
        if not isinstance(profile, str):
            raise ConfigError("with a shared pool, profile is the name of one of its profiles, not a mapping")
        found, name = pool, profile
    else:
        found, name = _own_pool(pool, profile, base_url, api_key)
    return Settings(
        pool=found,
        plan=_tuned(found.plan(name), timeout, max_retries),
        owned=owned,
        headers=tuple(headers.items()),
        query=tuple(_pairs("default_query", default_query).items()),
    )


def _own_pool(
    pool: Mapping[str, Any] | None, profile: str | Mapping[str, Any], base_url: str | None, api_key: Any
) -> tuple[Pool, str]:
    changes = None if isinstance(profile, str) else profile
    name = profile if isinstance(profile, str) else "default"
    base_url = base_url or os.environ.get("OPENAI_BASE_URL") or None
    if base_url is None:
        if os.environ.get("LLM_CLIENT_PROFILES"):
            return Pool.load(pool=pool, profile=changes), name
        raise ConfigError(
            "base_url is missing: pass base_url='http://host:8000/v1', set OPENAI_BASE_URL, "
            "or set LLM_CLIENT_PROFILES to a profile file"
        )
    if api_key is None:
        api_key = os.environ.get("OPENAI_API_KEY") or None
    return Pool(base_url=base_url, api_key=api_key, pool=pool, profile=changes), name


def _tuned(plan: Plan, timeout: Any, max_retries: Any) -> Plan:
    """Apply openai-python's two words for patience."""
    if timeout is not UNSET:
        plan = replace(plan, deadline=_seconds(timeout))
    if max_retries is not UNSET:
        if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
            raise ConfigError(f"max_retries: expected an int >= 0 (further attempts), got {max_retries!r}")
        refusals = plan.retry.refusals if max_retries else 0
        plan = replace(plan, retry=replace(plan.retry, attempts=max_retries + 1, refusals=refusals))
    return plan


def _seconds(timeout: Any) -> float:
    """Read a timeout as seconds for the whole call; an `httpx.Timeout` gives its longest part."""
    if timeout is None:
        return inf
    if isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout > 0:
        return float(timeout)
    parts = [getattr(timeout, name, None) for name in ("connect", "read", "write", "pool")]
    if any(part is not None for part in parts):
        return float(max(part for part in parts if part is not None))
    raise ConfigError(f"timeout: expected seconds > 0 for the whole call, or None, got {timeout!r}")


def _pairs(name: str, given: Mapping[str, Any] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for key, value in (given or {}).items():
        if not isinstance(key, str) or not key.strip():
            raise ConfigError(f"{name}: expected text as a name, got {key!r}")
        text = str(value).strip()
        if any(character in f"{key}{text}" for character in "\r\n\0") or not f"{key}{text}".isascii():
            raise ConfigError(f"{name}: {key.strip()!r} has a line break or a character outside ASCII")
        pairs[key.strip()] = text
    return pairs


def _unknown(where: str, name: str) -> str:
    if name in _ELSEWHERE:
        return f"{where} takes no {name!r}: {_ELSEWHERE[name]}"
    near = difflib.get_close_matches(name, _KNOWN, n=1)
    guess = f"; did you mean {near[0]!r}?" if near else f"; it takes {', '.join(_KNOWN)}"
    return f"{where} takes no argument {name!r}{guess}"
