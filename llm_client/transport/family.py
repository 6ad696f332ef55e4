"""The one place that imports httpx or httpx2, and the table of what is used from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from llm_client.errors import ConfigError

# Family name -> (HTTP library, its core, what to install).
FAMILIES: Final = {
    "httpx": ("httpx", "httpcore", "pip install 'httpx>=0.27'"),
    "httpx2": ("httpx2", "httpcore2", "pip install 'resilient-llm-client[httpx2]'"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One HTTP library: the classes that this package uses, by the names that both libraries share.

    Attributes:
        name: `httpx` or `httpx2`.
        http: the library's module; exceptions are looked up here by name.
        core: the module of its connection layer; network errors are raised as its classes.
    """

    name: str
    http: ModuleType
    core: ModuleType
    client: type[Any]
    async_client: type[Any]
    request: type[Any]
    url: type[Any]
    limits: type[Any]
    timeout: type[Any]
    proxy: type[Any]
    transport: type[Any]
    async_transport: type[Any]
    errors: tuple[type[Exception], ...]


@cache
def load(name: str = "httpx") -> Family:
    """Import a family, once.

    Raises:
        ConfigError: there is no such family, or its library is not installed.
    """
    found = FAMILIES.get(name)
    if found is None:
        msg = f"http.family: expected one of {', '.join(FAMILIES)}, got {name!r}"
        raise ConfigError(msg, path="http.family")
    http_name, core_name, install = found
    try:
        http = import_module(http_name)
        core = import_module(core_name)
    except ImportError as error:
        msg = f"http.family: {name} is not installed; run {install}"
        raise ConfigError(msg, path="http.family") from error
    return Family(
        name=name,
        http=http,
        core=core,
        client=http.Client,
        async_client=http.AsyncClient,
        request=http.Request,
        url=http.URL,
        limits=http.Limits,
        timeout=http.Timeout,
        proxy=http.Proxy,
        transport=http.HTTPTransport,
        async_transport=http.AsyncHTTPTransport,
        errors=exceptions(http),
    )


def exceptions(module: ModuleType) -> tuple[type[Exception], ...]:
    """Every exception class that a module shows, warnings aside; the gate in `faults` must know each of them."""
    classes = (value for value in vars(module).values() if isinstance(value, type))
    return tuple(found for found in classes if issubclass(found, Exception) and not issubclass(found, Warning))
