"""Builds whole HTTP clients, and puts our network streams beneath them.

A transport passed to a client switches off its limits, certificates and proxies without a word, so the library builds
everything itself, and only the lowest layer is exchanged: the network backend of each connection pool. Requests are
then handed to the transport that the client would choose, proxies included, past what the client itself adds: cookies,
which would tie calls to one replica, log lines with whole URLs, and redirects.
"""

from __future__ import annotations

import logging
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

from llm_client.errors import ConfigError
from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport.family import Family
from llm_client.transport.shards import SIZE, SIZE_MULTIPLEXED, Shards
from llm_client.transport.trust import Trust

_SCHEMES: Final = ("http", "https", "socks5", "socks5h")


def check(spec: HttpSpec, family: Family) -> None:
    """Refuse what cannot work, before anything is sent.

    Raises:
        ConfigError: a package is missing, or the proxy's URL makes no sense.
    """
    if spec.http2 and find_spec("h2") is None:
        msg = f"http.http2: the h2 package is not installed; run pip install '{family.name}[http2]'"
        raise ConfigError(msg, path="http.http2")
    if spec.proxy is not None:
        scheme, separator, _rest = spec.proxy.reveal().partition("://")
        if not separator or scheme.lower() not in _SCHEMES:
            msg = "http.proxy: expected http://host:port, https://host:port or socks5://host:port"
            raise ConfigError(msg, path="http.proxy")
        if scheme.lower().startswith("socks") and find_spec("socksio") is None:
            msg = f"http.proxy: a SOCKS proxy needs the socksio package; run pip install '{family.name}[socks]'"
            raise ConfigError(msg, path="http.proxy")


def build(spec: HttpSpec, family: Family, trust: Trust, backend: Any, *, asynchronous: bool, fresh: bool) -> Any:
    """Build a client whose connections are ours.

    Args:
        spec: the profile's network settings.
        family: the HTTP library.
        trust: the TLS context, shared by every client of one transport.
        backend: opens the connections.
        asynchronous: which of the library's two clients.
        fresh: never reuse a connection.

    Raises:
        ConfigError: the library refuses the settings, or is built differently from what this package knows.
    """
    if spec.http2:
        _keep_quiet("hpack")
    keep = not fresh and spec.keepalive > 0
    options = {
        "verify": trust.context,
        "trust_env": spec.trust_env,
        # A new HTTP/2 connection would be shared by all who wait for it.
        "http2": spec.http2 and not fresh,
        "proxy": _proxy(spec, family),
        "timeout": family.timeout(None),
        # Nobody waits inside the pool: how many requests are in flight is decided above.
        "limits": family.limits(
            max_connections=None,
            max_keepalive_connections=None if keep else 0,
            keepalive_expiry=spec.keepalive,
        ),
        "follow_redirects": False,
    }
    made = family.async_client if asynchronous else family.client
    try:
        client = made(**options)
    except (ImportError, ValueError) as error:  # proxies that the environment names
        msg = f"http: {family.name} refuses the network settings ({type(error).__name__}); check the proxy variables"
        raise ConfigError(msg, path="http") from None
    _install(client, family, trust, backend, asynchronous=asynchronous)
    return client


def sharded(spec: HttpSpec, family: Family, trust: Trust, backend: Any, *, asynchronous: bool, fresh: bool) -> Shards:
    """Build as many clients as are needed, as they are needed.

    Raises:
        ConfigError: as `build`.
    """
    make = partial(build, spec, family, trust, backend, asynchronous=asynchronous, fresh=fresh)
    shared = spec.http2 and not fresh
    return Shards(make, size=SIZE_MULTIPLEXED if shared else SIZE, keep=spec.keepalive + 1.0)


def _keep_quiet(name: str) -> None:
    """Take a logger that writes headers and addresses down out of a program's general DEBUG level.

    hpack hides `authorization`, but not `api-key`, a header of one's own, or what is signed in a query. Who sets a
    level for that very logger gets it.
    """
    log = logging.getLogger(name)
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)


def _proxy(spec: HttpSpec, family: Family) -> Any:
    if spec.proxy is None:
        return None
    try:
        return family.proxy(spec.proxy.reveal())
    except Exception:  # noqa: BLE001 - the error may quote the proxy's password
        msg = "http.proxy: not a valid URL; expected http://host:port"
        raise ConfigError(msg, path="http.proxy") from None


def _install(client: Any, family: Family, trust: Trust, backend: Any, *, asynchronous: bool) -> None:
    """Exchange the network backend of every pool of a client, and make sure that there were pools to change."""
    secure = family.core.HTTPProxy, family.core.AsyncHTTPProxy
    kind = family.async_transport if asynchronous else family.transport
    base = family.core.AsyncNetworkBackend if asynchronous else family.core.NetworkBackend
    try:
        transports = [client._transport, *client._mounts.values()]  # noqa: SLF001 - no public way leads here
        pools = [transport._pool for transport in transports if isinstance(transport, kind)]  # noqa: SLF001
        known = bool(pools) and callable(client._transport_for_url)  # noqa: SLF001
        for pool in pools:
            known = known and isinstance(pool._network_backend, base)  # noqa: SLF001
            pool._network_backend = backend  # noqa: SLF001
            if isinstance(pool, secure) and pool._proxy_url.scheme == b"https":  # noqa: SLF001
                # A proxy that the environment names would be held to the library's own authorities, whichever they are.
                pool._proxy_ssl_context = trust.context  # noqa: SLF001
    except AttributeError:
        known = False
    if not known:
        version = getattr(family.http, "__version__", "of unknown version")
        msg = (
            f"http.family: {family.name} {version} is built differently from what this package knows; pin an older one"
        )
        raise ConfigError(msg, path="http.family")
