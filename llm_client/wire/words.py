"""The words by which servers tell money, size, overload and warm-up apart; status numbers do not.

Matched case-insensitively on white-space-collapsed error text, never on an answer. Deliberately absent: the bare word
*quota*, which Azure's help URL, Gemini's per-minute limit and WSO2's throttle all contain.
"""

import re
from typing import Final


def _any(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives))


QUOTA_TEXT: Final = _any(
    "insufficient (?:balance|credits)",
    "exceeded your current (?:token )?quota",
    "credit balance is too low",
    "specified api usage limits",
    "monthly spend limit",
    "usage limit reached",
    "reached your usage limit",
    "budget has been exceeded",
    "daily free allocation",
    "too many tokens per day",
    "monthly included credits",
    r"\baccount\b.{0,100}?\bis suspended",
)
QUOTA_WORDS: Final = frozenset({
    "insufficient_quota",
    "credit_balance_exhausted",
    "billing_hard_limit_reached",
    "exceeded_current_quota_error",
    "budget_exceeded",
    "enforced_spend_limit_reached",
    "errors[3036]",  # Workers AI
})  # fmt: skip
# Gemini names the quota it counts; one per day is as good as used up.
QUOTA_PER_DAY: Final = re.compile(r"quotaid[\\\"'\s:]+[a-z0-9_\-]*perday")

CONTEXT_TEXT: Final = _any(
    "maximum context length",
    "longer than the model['\u2019]s context",
    "exceeds the available context size",
    "smaller than the model context length",
    "prompt is too long",
    r"input token count \(?[0-9,]+\)? exceeds",
    r"`inputs` tokens \+ `max_new_tokens` must be",
    "contextwindowexceeded",
)
CONTEXT_WORDS: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})

OVERLOAD_TEXT: Final = _any(
    "overloaded",
    "server busy",
    "currently busy",
    "too busy",
    "queue (?:is )?full",
    "maximum pending requests",
    "maximum queue size",
    "backpressure",
    "backlog limit",
    "reset reason: overflow",
    "reached concurrency limit",
    "capacity (?:temporarily )?exceeded",
    "no capacity available",
    "at capacity",
    "aborted by a higher priority",
    "waiting timeout reached",
    "memory pressure",
    "system saturated",
    "(?:rejected|evicted) by flow control",
    "total request limit reached",
    "no slot available",
    "high traffic",
    "failed to find target endpoint",
)
OVERLOAD_WORDS: Final = frozenset({
    "overloaded",
    "overloaded_error",
    "engine_overloaded_error",
    "server_is_overloaded",
    "service_overloaded",
    "capacity_exceeded",
    "queue_exceeded",
    "replica_inflight_exceeded",
    "errors[3040]",  # Workers AI
})  # fmt: skip

WARM_UP_TEXT: Final = _any(
    "currently loading", "loading model", "model is loading", "currently scaling", "model is cold", "not ready"
)
CANCELLED_TEXT: Final = _any("client disconnected", "request cancell?ed")
FILTER_WORDS: Final = frozenset({"content_filter", "content_policy_violation"})
RATE_WORD: Final = _any("rate_?limit", "too_?many_?requests", "throttl", "resource_exhausted")
TOO_LARGE: Final = re.compile(r"request too large.{0,400}?\blimit:? ([0-9][0-9,]*).{0,80}?\brequested:? ([0-9][0-9,]*)")

# Where a validation error starts to repeat the caller's input, whose words are not the server's.
ECHO: Final = re.compile(r"""(?:\\*['"]input\\*['"]\s*:|\binput_value=).*""", re.DOTALL)

# LMDeploy's proxy numbers its failures itself, inside HTTP 200.
PROXY_CODES: Final = {10400: 404, 10401: 503, 10402: 504}


def collapse(text: str) -> str:
    """Lower-case, with every run of white space as one space."""
    return " ".join(text.lower().split())


def asks_too_much(text: str) -> bool:
    """Tell whether one request is larger than its whole rate bucket, so that no waiting cures it."""
    found = TOO_LARGE.search(text)
    return found is not None and _count(found[2]) > _count(found[1])


def _count(digits: str) -> float:
    return float(digits.replace(",", "")[:32])
