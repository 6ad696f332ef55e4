"""The drop-in: the same protection for an SDK that is in place already, through its HTTP client."""

from __future__ import annotations

import os
from typing import Any, Literal

from llm_client.compose.pool import Pool


def transport(
    source: Pool | str | os.PathLike[str] | None = None,
    profile: str = "default",
    *,
    family: Literal["httpx", "httpx2"] = "httpx",
    asynchronous: bool = False,
) -> Any:
    """Make a transport that carries every request of an HTTP client out through a pool.

    The request's path decides its route; its host does not matter: the pool's endpoints are used. A request
    may carry `x-llm-client-priority`, `x-llm-client-deadline` (seconds) and `x-llm-client-tenant`, which are
    read and not sent on. Where an endpoint has a key of its own, the caller's authorisation is not sent.

    Args:
        source: a `Pool`, a profile file, or None for the file that LLM_CLIENT_PROFILES names.
        profile: the profile whose view is taken.
        family: the HTTP library of the caller: openai 3 and later use httpx2, earlier ones httpx.
        asynchronous: for the library's asynchronous client.

    Raises:
        ConfigError: no such profile, the library is not installed, or a function of the user's is async and the
            HTTP client is not.
    """
    from llm_client.compose.host import Host  # noqa: PLC0415 - a light import
    from llm_client.transport.family import load  # noqa: PLC0415 - as above
    from llm_client.transport.host import async_transport, sync_transport  # noqa: PLC0415 - as above

    library = load(family)
    pool = source if isinstance(source, Pool) else Pool.load(source)
    if not asynchronous:
        from llm_client.compose.colour import refuse_async  # noqa: PLC0415 - as above

        refuse_async(pool, pool.plan(profile), "a sync HTTP client")
    host = Host(pool, profile)
    return async_transport(library, host.handle_async) if asynchronous else sync_transport(library, host.handle)


def http_client(
    source: Pool | str | os.PathLike[str] | None = None,
    profile: str = "default",
    *,
    family: Literal["httpx", "httpx2"] = "httpx",
    asynchronous: bool = False,
) -> Any:
    """Make an HTTP client to hand to an SDK: `OpenAI(http_client=http_client(pool))`. See `transport`.

    It has no time-out of its own: the profile's deadline bounds a call, and so does the SDK's read time-out
    when its user set one.
    """
    from llm_client.transport.family import load  # noqa: PLC0415 - a light import

    library = load(family)
    made = transport(source, profile, family=family, asynchronous=asynchronous)
    kind = library.async_client if asynchronous else library.client
    return kind(transport=made, timeout=None)
