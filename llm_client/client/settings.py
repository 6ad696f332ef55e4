"""What a client is constructed with: a pool and a profile, or openai-python's arguments."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from llm_client.client.patience import tuned
from llm_client.client.sending import Pairs, bearer, with_headers, with_query
from llm_client.compose.pool import Pool
from llm_client.errors import ConfigError
from llm_client.model import UNSET

if TYPE_CHECKING:
    from llm_client.flow.plan import Plan

Key = str | Callable[[], Any] | None

# openai-python's arguments that have another place here.
_ELSEWHERE: Final = {
    "http_client": "network settings are pool={'http': {...}}; to protect an existing SDK, pass "
    "llm_client.http_client(...) to that SDK instead",
    "websocket_base_url": "websockets are not supported",
    "webhook_secret": "webhooks are not supported",
    "admin_api_key": "the administration API is not supported",
    "workload_identity": "pass a callable as api_key, it is asked for a token",
    "azure_endpoint": "write pool={'endpoints': [{'base_url': ..., 'auth': 'api-key', 'api_key': ..., "
    "'query': {'api-version': ...}, 'path': 'as_is'}]}",
    "api_version": "pass default_query={'api-version': ...}, or query in the endpoint",
    "azure_ad_token_provider": "pass it as api_key: a callable is asked for a token",
}
_KNOWN: Final = (
    "pool", "profile", "base_url", "api_key", "timeout", "max_retries", "default_headers", "default_query",
    "organization", "project",
)  # fmt: skip
_CHANGEABLE: Final = tuple(name for name in _KNOWN if name not in {"pool", "base_url"})
_FIXED: Final = "a client's servers are its pool's; make a new client for other ones"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A client's view: the pool it uses, how its calls are carried out, what goes with each.

    Attributes:
        owned: the client made the pool and closes it.
        threads: the client is the one for threads.
    """

    pool: Pool
    plan: Plan
    owned: bool
    threads: bool = False
    headers: Pairs = ()
    query: Pairs = ()

    def changed(self, **changes: Any) -> Settings:
        """Return the view of `with_options`; what is UNSET stays.

        Raises:
            ConfigError, TypeError: as the constructor.
        """
        given = {name: value for name, value in changes.items() if value is not UNSET}
        plan = self.plan
        for name in given:
            if name not in _CHANGEABLE:
                why = {"pool": _FIXED, "base_url": _FIXED}.get(name)
                raise TypeError(f"with_options takes no {name!r}: {why}" if why else _unknown("with_options", name))
        if "profile" in given:
            plan = self.pool.plan(_named(given["profile"]))
        headers = with_headers("default_headers", self.headers, given.get("default_headers"))
        headers = with_headers("with_options", headers, _about(given.get("organization"), given.get("project")))
        if given.get("api_key") is not None:
            headers = with_headers("api_key", headers, {"authorization": bearer("api_key", given["api_key"])})
        made = replace(
            self,
            plan=tuned(plan, given.get("timeout", UNSET), given.get("max_retries", UNSET)),
            owned=False,
            headers=headers,
            query=with_query("default_query", self.query, given.get("default_query")),
        )
        return made.checked()

    def checked(self) -> Settings:
        """Return the view itself, when threads can run what it asks of the user's functions.

        Raises:
            ConfigError: an async function under a client for threads.
        """
        if self.threads:
            from llm_client.compose.colour import refuse_async  # noqa: PLC0415 - a light import

            refuse_async(self.pool, self.plan, "Client")
        return self


def settings(
    pool: Pool | Mapping[str, Any] | None,
    profile: str | Mapping[str, Any],
    *,
    base_url: str | None,
    api_key: Key,
    timeout: Any,
    max_retries: Any,
    default_headers: Mapping[str, Any] | None,
    default_query: Mapping[str, Any] | None,
    organization: str | None,
    project: str | None,
    unknown: Mapping[str, Any],
    threads: bool,
) -> Settings:
    """Make a client's settings.

    Raises:
        ConfigError: no server, a bad value, or a combination that cannot work.
        TypeError: an unknown argument; the message says what to write instead.
    """
    for name in unknown:
        raise TypeError(_unknown("the client", name))
    headers = with_headers("the client", (), _about(organization, project))
    headers = with_headers("default_headers", headers, default_headers)
    query = with_query("default_query", (), default_query)
    owned = not isinstance(pool, Pool)
    if isinstance(pool, Pool):
        if base_url is not None or api_key is not None:
            raise ConfigError("a shared pool knows its servers: leave out base_url and api_key, or pass no pool")
        found, name = pool, _named(profile)
    else:
        found, name = _own_pool(pool, profile, base_url, api_key)
    made = Settings(
        pool=found,
        plan=tuned(found.plan(name), timeout, max_retries),
        owned=owned,
        threads=threads,
        headers=headers,
        query=query,
    )
    return made.checked()


def _own_pool(
    pool: Mapping[str, Any] | None, profile: str | Mapping[str, Any], base_url: str | None, api_key: Key
) -> tuple[Pool, str]:
    """Make the pool of a client that was given none: the arguments win over the file, the file over OPENAI_BASE_URL."""
    if pool is not None and not isinstance(pool, Mapping):
        raise ConfigError(f"pool: expected a Pool or a mapping of pool settings, got {type(pool).__name__}")
    if not isinstance(profile, str | Mapping):
        raise ConfigError(f"profile: expected a name or a mapping of settings, got {type(profile).__name__}")
    changes = None if isinstance(profile, str) else profile
    name = profile if isinstance(profile, str) else "default"
    listed = pool is not None and "endpoints" in pool
    if base_url is None and os.environ.get("LLM_CLIENT_PROFILES"):
        if api_key is not None:
            raise ConfigError(
                "api_key: the servers come from the file that LLM_CLIENT_PROFILES names, and their keys with them; "
                "pass base_url too, or write the key in the file"
            )
        return Pool.load(pool=pool, profile=changes), name
    if base_url is None and not listed and not os.environ.get("OPENAI_BASE_URL"):
        raise ConfigError(
            "base_url is missing: pass base_url='http://host:8000/v1', set OPENAI_BASE_URL, "
            "or set LLM_CLIENT_PROFILES to a profile file"
        )
    if listed and (base_url is not None or api_key is not None):
        raise ConfigError("pool['endpoints'] names the servers and their keys: leave out base_url and api_key")
    return Pool(base_url=base_url, api_key=api_key, pool=pool, profile=changes), name


def _named(profile: Any) -> str:
    if not isinstance(profile, str):
        raise ConfigError("profile: with a pool that is there already, expected the name of one of its profiles")
    return profile


def _about(organization: Any, project: Any) -> dict[str, Any]:
    given = {"openai-organization": organization, "openai-project": project}
    return {name: value for name, value in given.items() if value is not None}


def _unknown(where: str, name: str) -> str:
    if name in _ELSEWHERE:
        return f"{where} takes no {name!r}: {_ELSEWHERE[name]}"
    near = difflib.get_close_matches(name, _KNOWN, n=1)
    guess = f"; did you mean {near[0]!r}?" if near else f"; it takes {', '.join(_KNOWN)}"
    return f"{where} takes no argument {name!r}{guess}"
