"""The nouns that every floor shares: kinds, priorities, costs, outcomes, calls and requests.

All records are frozen; those that every call makes anew are so to the type checker alone, see `record`.
Durations are seconds as `float`; `deadline` is absolute on the monotonic clock, a `timeout` is relative.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from typing import Any, Final, TypeVar, dataclass_transform, overload

from llm_client.errors import ConfigError

D = TypeVar("D")
T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a frozen record of what every call makes anew: frozen to the type checker, not at run time.

    To make an object that guards itself costs three times as much.
    """
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)


class Unset(Enum):
    """The sentinel of "not given", where `None` already means "switched off"."""

    UNSET = "unset"

    def __repr__(self) -> str:
        """Read as what it is in signatures."""
        return "UNSET"

    def __bool__(self) -> bool:
        """An option that was not given is falsy."""
        return False


UNSET: Final = Unset.UNSET


class Kind(StrEnum):
    """What went wrong, in one word. The wire kinds first, ours last."""

    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    UNAVAILABLE = "unavailable"
    QUOTA_EXHAUSTED = "quota_exhausted"
    BAD_REQUEST = "bad_request"
    AUTH = "auth"
    PERMISSION = "permission"
    NOT_FOUND = "not_found"
    CONTEXT_LENGTH = "context_length"
    CONTENT_FILTER = "content_filter"
    TIMEOUT = "timeout"
    SERVER_ERROR = "server_error"
    PROTOCOL = "protocol"
    STREAM_INTERRUPTED = "stream_interrupted"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    DEADLINE = "deadline"
    DEADLINE_UNREACHABLE = "deadline_unreachable"
    RATE_LIMITED_LOCALLY = "rate_limited_locally"
    CIRCUIT_OPEN = "circuit_open"
    CONFIG = "config"
    CANCELLED = "cancelled"


class Priority(IntEnum):
    """Who goes first; the smaller number does."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3

    @classmethod
    def parse(cls, value: Priority | int | str) -> Priority:
        """Read a priority as users write it: a name, an int 0-3, or a member.

        Raises:
            ConfigError: the value is none of them.
        """
        if isinstance(value, str):
            name = value.strip().lower()
            found = _PRIORITY_NAMES.get(name)
            if found is not None:
                return found
        elif not isinstance(value, bool) and isinstance(value, int) and 0 <= value <= max(cls):
            return cls(value)
        msg = f"priority: expected critical, high, normal, low or an int 0-3 (0 goes first), got {value!r}"
        raise ConfigError(msg)


_PRIORITY_NAMES: Final = {
    "critical": Priority.CRITICAL,
    "high": Priority.HIGH,
    "normal": Priority.NORMAL,
    "medium": Priority.NORMAL,
    "low": Priority.LOW,
}


class Headers(Mapping[str, str]):
    """Response or request headers: ordered, repeated names kept, look-up without regard to case."""

    __slots__ = ("_index", "pairs")

    def __init__(self, pairs: Iterable[tuple[str, str]] | Mapping[str, str] = ()) -> None:
        """Take name-value pairs as they stood on the wire."""
        items = pairs.items() if isinstance(pairs, Mapping) else pairs
        self.pairs: tuple[tuple[str, str], ...] = tuple(items)
        self._index: dict[str, str] = {}
        index = self._index
        for name, value in self.pairs:
            key = name.lower()
            index[key] = value if key not in index else f"{index[key]}, {value}"

    def __getitem__(self, name: str) -> str:
        """Return the values of one name, joined by ", " as RFC 9110 section 5.3 allows."""
        return self._index[name.lower()]

    @overload
    def get(self, name: str, default: None = None, /) -> str | None: ...

    @overload
    def get(self, name: str, default: D, /) -> str | D: ...

    def get(self, name: str, default: object = None, /) -> object:
        """Return what stands under a name, or something else where it does not occur."""
        return self._index.get(name.lower(), default)

    def lacks(self, names: frozenset[str]) -> bool:
        """Tell whether none of these lower-case names occurs."""
        return self._index.keys().isdisjoint(names)

    def get_list(self, name: str) -> list[str]:
        """Return every value of one name, in order."""
        key = name.lower()
        return [value for each, value in self.pairs if each.lower() == key]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the lower-case names."""
        return iter(self._index)

    def __len__(self) -> int:
        """Count distinct names."""
        return len(self._index)

    def __contains__(self, name: object) -> bool:
        """Tell whether a name occurs, in any case."""
        return isinstance(name, str) and name.lower() in self._index

    def __repr__(self) -> str:
        """Show names only: values may be secrets."""
        return f"Headers({sorted(self._index)})"


@record
class Cost:
    """What a call is thought to cost, in tokens."""

    prompt: float = 0.0
    output: float = 0.0

    @property
    def total(self) -> float:
        """Prompt and output together."""
        return self.prompt + self.output


@dataclass(frozen=True, slots=True)
class Size:
    """How large a request is, before anybody counts tokens.

    Attributes:
        text: bytes of text that the model reads, as UTF-8.
        media: images, sounds, videos and files.
        tokens: tokens that the caller gave as numbers.
    """

    text: int = 0
    media: int = 0
    tokens: int = 0


@record
class Usage:
    """What the server says a call did cost, in tokens."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryHint:
    """When a server says "not before".

    `directive` hints (Retry-After and its relatives) are floors: never undercut, and above the cap
    they end the call. Advisory hints (reset headers, words in a text) are clamped to the cap.
    """

    seconds: float
    directive: bool
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an attempt taught us. Made by `wire.classify`, read by retry, gate, breaker and buckets.

    Attributes:
        ok: the server answered as asked.
        kind: what went wrong; None when ok.
        retryable: safe to try again automatically, as far as the answer tells.
        refusal: the server declined before doing any work (429, 529, overload-503, loading): it costs
            neither attempts nor budget.
        breaker: evidence that the endpoint is broken.
        overload: evidence that the endpoint has too much to do; feeds the adaptive limit.
        loading: the server warms up; a cool-down, not a failure.
        permanent: no waiting cures it.
        hint: the server's own "not before".
        elsewhere: another replica may answer at once (false for a limit that belongs to the account).
        account: the answer carries quota headers, so the limit is the account's, not the endpoint's.
        sent: False when the request certainly never reached the server.
        stale: a reused connection died before a byte of the answer; re-send at once on a new one.
    """

    ok: bool = False
    kind: Kind | None = None
    retryable: bool = False
    refusal: bool = False
    breaker: bool = False
    overload: bool = False
    loading: bool = False
    permanent: bool = False
    hint: RetryHint | None = None
    elsewhere: bool = True
    account: bool = False
    sent: bool = True
    stale: bool = False
    status: int | None = None
    message: str = ""
    code: str | None = None
    type: str | None = None
    param: str | None = None
    request_id: str | None = None


OK: Final = Outcome(ok=True)


@record
class Request:
    """One HTTP request in no library's words; the path is relative to the endpoint's base URL."""

    method: str = "POST"
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    url: str | None = None

    def __repr__(self) -> str:
        """Leave out headers and body: they hold secrets and prompts."""
        return f"Request({self.method} {self.path}, {len(self.body)} bytes)"


@record
class Call:
    """What the user asked for: replayable bytes and everything that decides when and where it goes.

    Attributes:
        route: a word of `llm_client.wire.ROUTES` (`chat`, `completions`, `responses`, `embeddings`, ...); `other` is
            passed through untouched.
        deadline: absolute, monotonic; None when unbounded.
        deadline_covers: `end` (the whole body) or `first_token`.
        measured: what the cost was estimated from, so that the answer's usage can mend the estimate.
        max_tokens: the output bound the caller gave, if any.
        fallback: UNSET for the profile's chain, None to forbid, or a chain of the caller's own.
        data: the request body as a mapping, where the typed client made it; never logged.
    """

    id: str
    request: Request
    route: str
    model: str | None = None
    stream: bool = False
    priority: Priority = Priority.NORMAL
    arrived: float = 0.0
    deadline: float | None = None
    deadline_covers: str = "end"
    cost: Cost = field(default_factory=Cost)
    measured: Any = None
    max_tokens: int | None = None
    tenant: str | None = None
    replayable: bool = True
    fallback: Any = UNSET
    data: Mapping[str, Any] | None = field(default=None, repr=False)
    span: Any = None

    @property
    def size(self) -> int:
        """Bytes this call keeps in memory while it waits."""
        return len(self.request.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One line of a call's story: where an attempt went and what came of it."""

    number: int
    endpoint: str
    started: float
    elapsed: float
    kind: Kind | None = None
    status: int | None = None
    refusal: bool = False
    retry_after: float | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """How an answer came about; `response.meta` of the typed client.

    Attributes:
        waited: seconds by cause (`queue`, `backoff`, `retry_after`, ...).
        limit: the endpoint's concurrency limit when the call was sent.
        fallback: None for a real answer, else the kind of fallback that made it.
        first_token: seconds from send to the first content; None where it was not seen.
    """

    endpoint: str | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    waited: Mapping[str, float] = field(default_factory=dict)
    limit: float | None = None
    fallback: str | None = None
    request_id: str | None = None
    first_token: float | None = None
    elapsed: float | None = None
