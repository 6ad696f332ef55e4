"""From a request in no library's words to the library's own, and from a redirect's answer to the next request."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from llm_client._version import __version__
from llm_client.flow.faults import Fault, FaultKind
from llm_client.model import Headers, Request
from llm_client.profiles.pool_types import HttpSpec
from llm_client.transport.attempt import Attempt
from llm_client.transport.body import accept_encoding
from llm_client.transport.family import Family

MAX_REDIRECTS: Final = 3
USER_AGENT: Final = f"resilient-llm-client/{__version__}"

# Framing and the connection are the library's business (RFC 9110, 7.6.1); the body is whole bytes here.
_FRAMING: Final = frozenset(
    {"content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"}
)
_FOLLOWED: Final = frozenset({307, 308})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes.

    Attributes:
        url: the library's URL, without user name and password.
        shown: the same for messages, without its query.
        authorization: what user name and password in the URL stand for; None without them.
    """

    url: Any
    shown: str
    authorization: str | None


class Outgoing:
    """Makes the library's requests. Thread-safe."""

    def __init__(self, family: Family, spec: HttpSpec) -> None:
        """Keep what goes with every request."""
        self._family = family
        self._headers = tuple(spec.headers.items())
        self._query = tuple(spec.query.items())
        # The same few URLs are used over and over; parsing one costs as much as the rest of building a request.
        self.target = lru_cache(maxsize=256)(self._target)

    def request(self, request: Request, target: Target, attempt: Attempt, trace: Any = None) -> Any:
        """Build a request whose time-outs are the attempt.

        Raises:
            Fault: OTHER, a header cannot be written in HTTP.
        """
        given = {name.lower() for name, _ in request.headers}
        headers = [(name, value) for name, value in request.headers if name.lower() not in _FRAMING]
        headers.extend((name, value) for name, value in self._headers if name.lower() not in given)
        if "accept-encoding" in given:
            wished = ", ".join(value for name, value in headers if name.lower() == "accept-encoding")
            headers = [(name, value) for name, value in headers if name.lower() != "accept-encoding"]
            headers.append(("accept-encoding", accept_encoding(wished)))
        else:
            headers.append(("accept-encoding", accept_encoding(None)))
        if "accept" not in given:
            headers.append(("accept", "*/*"))
        if "user-agent" not in given:
            headers.append(("user-agent", USER_AGENT))
        if target.authorization is not None and "authorization" not in given:
            headers.append(("authorization", target.authorization))
        extensions: dict[str, Any] = {
            "timeout": {"connect": attempt, "read": attempt, "write": attempt, "pool": None},
        }
        if trace is not None:
            extensions["trace"] = trace
        if bad := [name for name, value in headers if not (name.isascii() and value.isascii())]:
            # Checked here, because the library's exception would quote the value.
            msg = f"{target.shown}: header {', '.join(map(ascii, bad))} holds a character outside ASCII"
            raise Fault(FaultKind.OTHER, msg, sent=False)
        return self._family.request(
            request.method, target.url, headers=headers, content=request.body or None, extensions=extensions
        )

    def redirected(self, request: Request, target: Target, status: int, headers: Headers, hops: int) -> Request | None:
        """Decide on a redirect: None when the answer is none, else the request to send instead.

        Only a 307 or 308 to the same origin is followed: it repeats method and body, and shows the key to nobody new.

        Raises:
            Fault: REDIRECT, naming the target; nothing was sent there.
        """
        if status not in _REDIRECTS or "location" not in headers:
            return None
        url = _parse(lambda: target.url.join(headers.get_list("location")[0]))
        if url is None:
            msg = f"{target.shown}: the server redirects ({status}) to something that is no URL"
            raise Fault(FaultKind.REDIRECT, msg)
        where = f"{target.shown}: the server redirects ({status}) to {show(url)}"
        if _origin(url) != _origin(target.url):
            msg = f"{where}, another origin; it was not followed and got no key. If it is right, set it as base_url"
            raise Fault(FaultKind.REDIRECT, msg)
        if status not in _FOLLOWED:
            msg = f"{where}; it was not followed, because that would change the method. Correct the base_url"
            raise Fault(FaultKind.REDIRECT, msg)
        if hops >= MAX_REDIRECTS:
            msg = f"{where}; gave up after {MAX_REDIRECTS} redirects"
            raise Fault(FaultKind.REDIRECT, msg)
        return replace(request, url=str(url), query=())

    def _target(self, text: str, query: tuple[tuple[str, str], ...] = ()) -> Target:
        url = _parse(lambda: self._family.url(text))
        if url is None:
            msg = "the URL is not valid"
            raise Fault(FaultKind.OTHER, msg, sent=False)
        if url.scheme not in {"http", "https"} or not url.host:
            msg = f"{show(url)}: the URL must begin with http:// or https:// and name a host"
            raise Fault(FaultKind.OTHER, msg, sent=False)
        present = {name for name, _ in url.params.multi_items()}
        for name, value in (*query, *self._query):
            if name not in present:
                url = url.copy_merge_params([*url.params.multi_items(), (name, value)])
        authorization = None
        if url.username or url.password:
            pair = f"{url.username}:{url.password}".encode()
            authorization = f"Basic {b64encode(pair).decode()}"
            url = url.copy_with(username=None, password=None)
        return Target(url, show(url), authorization)


def _parse(make: Callable[[], Any]) -> Any:
    """Return a URL, or None. The library's exception is dropped: it quotes the text, which may hold a password."""
    try:
        url = make()
        show(url)  # some faults show only when a part is decoded
    except Exception:  # noqa: BLE001 - libraries raise their own, ValueError and UnicodeError
        return None
    return url


def show(url: Any) -> str:
    """Write a URL for people: no user name, no password, no query."""
    port = "" if url.port is None else f":{url.port}"
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}{port}{url.path}"[:200]


def _origin(url: Any) -> tuple[str, str, int | None]:
    default = {"http": 80, "https": 443}.get(url.scheme)
    return (url.scheme, url.host, url.port if url.port is not None else default)
