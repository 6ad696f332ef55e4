"""The built-in profile: what a client uses that is told a base URL and nothing else."""

from __future__ import annotations

from llm_client.profiles.types import EndpointSpec, File, PoolSpec, Secret


def built_in(base_url: str | None = None, api_key: str | Secret | None = None, *, name: str = "default") -> File:
    """Return the built-in profile for one server.

    Args:
        base_url: where the server is; None for a file without endpoints.
        api_key: its key, if it wants one.
        name: what to call the endpoint in metrics and errors.
    """
    if base_url is None:
        return File()
    key = Secret(api_key) if isinstance(api_key, str) else api_key
    return File(pool=PoolSpec(endpoints=(EndpointSpec(name=name, base_url=base_url.rstrip("/"), api_key=key),)))
