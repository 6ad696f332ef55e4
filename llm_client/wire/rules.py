"""The decision table: which kind an error answer is, and what follows from it. First match decides.

Order, and why: money and size first, because they hide in 429 with Retry-After; overload words before the status,
because operators choose and gateways rewrite statuses; warm-up after overload, because "overloaded or not ready yet"
exists; the status last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from llm_client.model import Headers, Kind
from llm_client.wire import words
from llm_client.wire.problem import Problem

_DROPPED: Final = "request-dropped-reason"  # llm-d and the Gateway API inference extension
_CANCELLED: Final = "rejected-context-cancelled"


class Verdict(NamedTuple):
    """What one row of the table says.

    Attributes:
        kind: what went wrong.
        retry: safe to try again automatically.
        breaker: evidence that the endpoint is broken.
        overload: evidence that it has too much to do.
        loading: it warms up.
        firm: no header of the server's overrules this.
    """

    kind: Kind
    retry: bool = False
    breaker: bool = False
    overload: bool = False
    loading: bool = False
    firm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One error answer, prepared for the table.

    Attributes:
        status: the HTTP status; for an error inside a 2xx answer, the number its body names, else None.
        inband: the error came inside a 2xx answer.
    """

    status: int | None
    inband: bool
    problem: Problem
    headers: Headers

    @property
    def text(self) -> str:
        """Message and raw body, lower-case and collapsed."""
        return self.problem.text

    @property
    def reason(self) -> str | None:
        """Why an inference gateway dropped the request, if it says so."""
        name = next((name for name in self.headers if name.endswith(_DROPPED)), None)
        return None if name is None else self.headers[name].strip().lower()


OVERLOADED: Final = Verdict(Kind.OVERLOADED, retry=True, overload=True)
RATE_LIMITED: Final = Verdict(Kind.RATE_LIMITED, retry=True, overload=True)
UNAVAILABLE: Final = Verdict(Kind.UNAVAILABLE, retry=True, breaker=True)
PASSING: Final = Verdict(Kind.UNAVAILABLE, retry=True)
LOADING: Final = Verdict(Kind.UNAVAILABLE, retry=True, loading=True)
TIMEOUT: Final = Verdict(Kind.TIMEOUT, retry=True, breaker=True)
QUEUE_TIMEOUT: Final = Verdict(Kind.TIMEOUT, retry=True, overload=True)
SERVER_ERROR: Final = Verdict(Kind.SERVER_ERROR, retry=True, breaker=True)
BAD_REQUEST: Final = Verdict(Kind.BAD_REQUEST)
NOT_FOUND: Final = Verdict(Kind.NOT_FOUND)
PROTOCOL: Final = Verdict(Kind.PROTOCOL, breaker=True)


def _firmly(kind: Kind) -> Verdict:
    return Verdict(kind, firm=True)


def _filtered(e: Evidence) -> bool:
    return e.problem.moderated or bool(e.problem.words & words.FILTER_WORDS)


def _used_up(e: Evidence) -> bool:
    if e.status == 402 or e.problem.words & words.QUOTA_WORDS or words.QUOTA_PER_DAY.search(e.text):
        return True
    # Gemini says "exceeded your current quota" for a per-minute limit; its RetryInfo tells.
    return "retrydelay" not in e.text and words.QUOTA_TEXT.search(e.text) is not None


def _too_long(e: Evidence) -> bool:
    if e.status == 429:
        return False
    return bool(e.problem.words & words.CONTEXT_WORDS) or words.CONTEXT_TEXT.search(e.text) is not None


def _cancelled(e: Evidence) -> bool:
    return e.reason == _CANCELLED or words.CANCELLED_TEXT.search(e.text) is not None


def _overloaded(e: Evidence) -> bool:
    return (
        "x-envoy-overloaded" in e.headers
        or e.reason is not None
        or "x-error-model-replica-inflight-exceeded" in e.headers
        or bool(e.problem.words & words.OVERLOAD_WORDS)
        or words.OVERLOAD_TEXT.search(e.text) is not None
    )


_ROWS: Final[tuple[tuple[Callable[[Evidence], object], Verdict], ...]] = (
    (_filtered, _firmly(Kind.CONTENT_FILTER)),
    (_used_up, _firmly(Kind.QUOTA_EXHAUSTED)),
    (lambda e: words.asks_too_much(e.text), _firmly(Kind.BAD_REQUEST)),
    (_too_long, _firmly(Kind.CONTEXT_LENGTH)),
    # SGLang without priority scheduling: 503 that never heals.
    (lambda e: "priority is disabled" in e.text, _firmly(Kind.BAD_REQUEST)),
    (lambda e: "api key not valid" in e.text, _firmly(Kind.AUTH)),
    (_cancelled, PASSING),
    (_overloaded, OVERLOADED),
    # LiteLLM: a 429 that means that the back ends broke.
    (lambda e: "all_deployments_in_cooldown" in e.problem.words, UNAVAILABLE),
    (lambda e: words.WARM_UP_TEXT.search(e.text), LOADING),
    (lambda e: "running timeout" in e.text, TIMEOUT),
    (lambda e: e.status == 400 and "unknown model" in e.text, NOT_FOUND),
)
_STATUSES: Final = {
    401: Verdict(Kind.AUTH),
    403: Verdict(Kind.PERMISSION),
    404: NOT_FOUND,
    408: QUEUE_TIMEOUT,
    410: NOT_FOUND,
    424: SERVER_ERROR,
    425: PASSING,
    429: RATE_LIMITED,
    451: Verdict(Kind.PERMISSION),
    498: OVERLOADED,
    499: UNAVAILABLE,
    501: BAD_REQUEST,
    502: UNAVAILABLE,
    503: UNAVAILABLE,
    504: TIMEOUT,
    505: PROTOCOL,
    507: BAD_REQUEST,
    521: UNAVAILABLE,
    522: UNAVAILABLE,
    523: UNAVAILABLE,
    524: TIMEOUT,
    525: PROTOCOL,
    526: PROTOCOL,
    529: OVERLOADED,
    530: UNAVAILABLE,
}


def judge(evidence: Evidence) -> Verdict:
    """Walk the table."""
    for applies, verdict in _ROWS:
        if applies(evidence):
            return verdict
    if evidence.status is None:
        rate = any(words.RATE_WORD.search(word) for word in evidence.problem.words)
        return RATE_LIMITED if rate else SERVER_ERROR
    if evidence.status == 499 and "cancel" in evidence.text:
        return PASSING
    found = _STATUSES.get(evidence.status)
    if found is not None:
        return found
    # A refusal of a kind nobody has documented is permanent when it blames the request, else a fault.
    return BAD_REQUEST if evidence.status < 500 else SERVER_ERROR
