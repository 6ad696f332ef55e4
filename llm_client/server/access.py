"""Who counts as being on this machine."""

from __future__ import annotations

from starlette.requests import Request

_LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})


def on_this_machine(request: Request) -> bool:
    """Whether a request comes from a program here and was meant for here.

    A proxy on this machine speaks for others, and a page from elsewhere can make a browser send requests to a
    name that was made to point here; both are told by their headers.
    """
    client = request.client
    if client is None or client.host not in _LOCAL:
        return False
    if "x-forwarded-for" in request.headers or "forwarded" in request.headers:
        return False
    host = request.headers.get("host", "localhost")
    name = host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return name.strip("[]").lower() in _LOCAL
