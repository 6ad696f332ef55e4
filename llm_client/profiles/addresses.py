"""Where requests go and what their head carries: base URLs, header names and values, keys, proxies.

Everything wrong here is a mistake in the set-up and said at load. Found later it looks like a broken connection, and is
retried. Messages never quote a value: it may be, or contain, a secret.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from llm_client.profiles.scalars import UnreadableError

# RFC 9110 section 5.6.2: a token.
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# RFC 9110 section 5.5 allows obs-text; servers differ on it, so only visible ASCII, blank and tab remain.
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_KEY: Final = re.compile(r"[\x21-\x7e]+")
# Set per connection or per body by the HTTP library; a fixed value breaks or smuggles requests (RFC 9112 section 6).
_FRAMING: Final = frozenset(
    {
        "connection",
        "content-length",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_SENSITIVE: Final = re.compile(r"auth|key|token|secret|cookie|passw|credential", re.IGNORECASE)
_ROUTES: Final = ("/chat/completions", "/completions", "/responses", "/embeddings", "/models")
# Before a URL: every address of its host is an endpoint.
DNS: Final = "dns+"
_PROXIES: Final = ("http", "https", "socks5", "socks5h")


def is_sensitive(name: str) -> bool:
    """Tell whether a header or parameter of this name usually carries a secret."""
    return _SENSITIVE.search(name) is not None


def header_name(name: str) -> str:
    """Check a header's name; return it unchanged."""
    if _NAME.fullmatch(name) is None:
        raise UnreadableError("not a header name: letters, digits and hyphens, no blanks or colons")
    if name.lower() in _FRAMING:
        raise UnreadableError(f"{name.lower()} is set for every request by the HTTP library; leave it out")
    return name


def header_value(value: str) -> str:
    """Check a header's value; return it without outer white space."""
    value = value.strip(" \t\r\n")
    if _VALUE.fullmatch(value) is None:
        what = "a line break or control character" if value.isascii() else "characters outside ASCII"
        raise UnreadableError(f"the header's value has {what}; only visible ASCII may be sent")
    _refuse_reference(value)
    return value


def query_value(value: str) -> str:
    """Check a query parameter's value; it is percent-encoded when it is sent."""
    _refuse_reference(value)
    return value


def key(value: str) -> str:
    """Clean an API key: no outer white space; empty means that there is none."""
    value = value.strip()
    if value and _KEY.fullmatch(value) is None:
        what = "blanks or control characters inside" if value.isascii() else "characters outside ASCII"
        raise UnreadableError(f"the key has {what}, so it was not copied whole or not copied right")
    _refuse_reference(value)
    return value


def _refuse_reference(value: str) -> None:
    if "${" in value:
        raise UnreadableError("the value still holds a reference (${...}); values of variables are not expanded again")


def base_url(value: str, *, as_is: bool = False) -> str:
    """Normalise a base URL: no trailing slash, no doubled slashes, `/v1` for an empty path.

    Args:
        value: as it was written.
        as_is: leave an empty path empty.
    """
    value = value.strip()
    _refuse_reference(value)
    if value.startswith("dns+https:"):
        raise UnreadableError("dns+ needs http: a certificate names a host, not the addresses behind it")
    prefix = DNS if value.startswith(f"{DNS}http:") else ""
    value = value.removeprefix(prefix)
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise UnreadableError(f"not a URL ({str(error).split(':')[0].lower()})") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise UnreadableError("expected a URL such as http://gpu-a:8000/v1")
    if any(character <= " " or character == "\x7f" for character in value):
        raise UnreadableError("a URL has no blanks or control characters in it")
    if "@" in parts.netloc:
        raise UnreadableError(
            "a user and password in the URL end up in logs; write api_key, or headers: {authorization: ${VARIABLE}}"
        )
    if parts.query or parts.fragment or value.endswith(("?", "#")):
        raise UnreadableError("the URL has a query or fragment; write parameters as query: {name: value}")
    path = re.sub(r"/{2,}", "/", parts.path).rstrip("/")
    for route in _ROUTES:
        if path.endswith(route):
            raise UnreadableError(f"the base URL ends where the routes begin: leave {route} out")
    if not path and not as_is:
        path = "/v1"
    return f"{prefix}{parts.scheme}://{parts.netloc}{path}"


def host_name(url: str) -> str:
    """Return host and port of a base URL: the name of an endpoint that was given none."""
    return urlsplit(url).netloc


def proxy(value: str) -> str:
    """Check a proxy's URL; it may hold a user and password."""
    value = value.strip()
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise UnreadableError("not a URL") from None
    if parts.scheme not in _PROXIES or not host:
        raise UnreadableError("expected a proxy URL such as http://proxy:3128 or socks5://proxy:1080")
    return value


def has_password(url: str) -> bool:
    """Tell whether a URL holds a password."""
    return urlsplit(url).password is not None
