"""An answer before it is read: status, headers, bytes, and the model on demand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from llm_client.model import Headers, Meta

if TYPE_CHECKING:
    from llm_client.flow.run import Reply

T = TypeVar("T")


def unstreamed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call whose answer is left unread, which no stream can be.

    Raises:
        TypeError: a stream was asked for.
    """
    extra = arguments.get("extra_body")
    if arguments.get("stream") or (isinstance(extra, Mapping) and extra.get("stream")):
        raise TypeError("with_raw_response: a stream has no whole body; use create(stream=True) and its meta")
    return {name: value for name, value in arguments.items() if name != "stream" or value is not None}


class RawResponse(Generic[T]):
    """What a `with_raw_response` call returns.

    Attributes:
        status_code: the HTTP status.
        headers: the response's headers, looked up without regard to case.
        content: the body's bytes.
    """

    def __init__(self, reply: Reply, read: Callable[[Reply], T]) -> None:
        self._reply = reply
        self._read = read
        self.status_code: int = reply.status
        self.headers: Headers = reply.headers
        self.content: bytes = reply.body

    @property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode("utf-8", "replace")

    @property
    def meta(self) -> Meta:
        """How the answer came about."""
        return self._reply.meta

    @property
    def request_id(self) -> str | None:
        """The server's id of the request."""
        return self._reply.meta.request_id

    def json(self) -> Any:
        """Decode the body. Raises `ValueError` when it is not JSON."""
        return json.loads(self.content)

    def parse(self) -> T:
        """Read the body as the model that the plain call returns. Raises `InvalidResponseError`."""
        return self._read(self._reply)

    def __repr__(self) -> str:
        """Leave the body out."""
        return f"<RawResponse {self.status_code}, {len(self.content)} bytes>"
