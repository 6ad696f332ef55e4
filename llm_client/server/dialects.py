"""How other servers and gateways say no: their status, headers and words for the same refusals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .job import Refusal

_TEXT = "text/plain"
_JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One refusal as one kind of server writes it.

    Attributes:
        status: its status; None leaves the server's choice between 429 and 503.
        body: the body; text is sent as it is, anything else as JSON, a function is asked.
        content_type: the type of that body.
        headers: headers that only this server sends.
        hint: whether it names a time to come back.
    """

    status: int | None = None
    body: str | dict[str, Any] | Callable[[int, Refusal], Any] = ""
    content_type: str = _JSON
    headers: tuple[tuple[str, str], ...] = ()
    hint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one kind of server talks.

    Attributes:
        answers: by the code of the refusal.
        other: the shape of every other error.
        other_type: the type of that shape.
        frames: refusals that reach a stream as a frame under status 200, by code.
        early: whether a stream's head is sent before there is a slot for it.
    """

    name: str
    other: Callable[[int, Refusal], Any]
    other_type: str = _JSON
    early: bool = False
    answers: Mapping[str, Answer] = field(default_factory=dict)
    frames: Mapping[str, Any] = field(default_factory=dict)

    def answer(self, refusal: Refusal) -> Answer:
        """The answer to this refusal."""
        return self.answers.get(refusal.code) or Answer(
            status=refusal.status, body=self.other, content_type=self.other_type, hint=True
        )


def render(answer: Answer, status: int, refusal: Refusal) -> bytes:
    """The bytes of the body."""
    body = answer.body(status, refusal) if callable(answer.body) else answer.body
    return body.encode() if isinstance(body, str) else json.dumps(body, separators=(",", ":")).encode()


# Shapes of error bodies.


def openai(_status: int, refusal: Refusal) -> dict[str, Any]:
    """OpenAI: an object with a word as code."""
    return {
        "error": {"message": refusal.message, "type": refusal.kind, "param": refusal.param, "code": refusal.code}
    }  # fmt: skip


_TYPES = {400: "Bad Request", 401: "Unauthorized", 404: "NotFoundError", 500: "InternalServerError"}


def vllm(status: int, refusal: Refusal) -> dict[str, Any]:
    """vLLM: the same object, the code is the status."""
    kind = _TYPES.get(status, "Service Unavailable" if status == 503 else "Bad Request")
    return {"error": {"message": refusal.message, "type": kind, "param": refusal.param, "code": status}}


def flat(status: int, refusal: Refusal) -> dict[str, Any]:
    """SGLang and its kin: no object around it."""
    return {
        "object": "error", "message": refusal.message, "type": _TYPES.get(status, str(status)),
        "param": refusal.param, "code": status,
    }  # fmt: skip


def tgi(_status: int, refusal: Refusal) -> dict[str, Any]:
    """TGI: a sentence and a type beside it."""
    return {"error": refusal.message, "error_type": refusal.kind}


def sentence(_status: int, refusal: Refusal) -> dict[str, Any]:
    """Triton, Hugging Face and others: a sentence."""
    return {"error": refusal.message}


def message(_status: int, refusal: Refusal) -> dict[str, Any]:
    """Kong, API gateways: one field."""
    return {"message": refusal.message}


def litellm(status: int, refusal: Refusal) -> dict[str, Any]:
    """LiteLLM: the status as a string, the missing as the word None."""
    return {"error": {"message": refusal.message, "type": "None", "param": "None", "code": str(status)}}


def plain(_status: int, refusal: Refusal) -> str:
    """Envoy, Ray Serve: text."""
    return refusal.message


_REASONS = {400: "Bad Request", 404: "Not Found", 413: "Request Entity Too Large", 429: "Too Many Requests",
            503: "Service Temporarily Unavailable", 504: "Gateway Time-out"}  # fmt: skip


def html(status: int, _refusal: Refusal) -> str:
    """Nginx: a page with DOS line ends."""
    title = f"{status} {_REASONS.get(status, 'Error')}"
    return (
        f"<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n"
        "<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
    )


def _error(text: str, kind: str | None, code: int | str | None) -> dict[str, Any]:
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


def _flat(text: str) -> dict[str, Any]:
    return {"object": "error", "message": text, "type": "503", "param": None, "code": 503}


_OVERLOAD = ("queue_full", "displaced", "load_shed")


def _all(answer: Answer) -> dict[str, Answer]:
    return dict.fromkeys(_OVERLOAD, answer)


def _each(frame: dict[str, Any]) -> dict[str, Any]:
    return {code: frame for code in _OVERLOAD}  # noqa: C420 - the frames are only read


_BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
)
_LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
_ENVOY = (("server", "envoy"),)
_OVERFLOW = "upstream connect error or disconnect/reset before headers. reset reason: overflow"
_LLMD = "x-llm-d-request-dropped-reason"

DIALECTS: Mapping[str, Dialect] = {
    each.name: each
    for each in (
        Dialect(name="openai", other=openai),
        Dialect(
            name="vllm",
            other=vllm,
            early=True,
            answers={
                **_all(Answer(status=503, body=_error(_BUSY, "Service Unavailable", 503))),
                "invalid_api_key": Answer(status=401, body={"error": "Unauthorized"}),
            },
            frames=_each(_error(_BUSY, "Service Unavailable", 503)),
        ),
        Dialect(
            name="sglang",
            other=flat,
            answers={
                **_all(Answer(status=503, body=_flat("The request queue is full."))),
                "displaced": Answer(status=503, body=_flat("The request is aborted by a higher priority request.")),
                "queue_timeout": Answer(status=503, body=_flat("Request waiting timeout reached.")),
                "invalid_api_key": Answer(status=401, body={"error": "Unauthorized"}),
            },
            frames={
                code: {"error": {**_flat(text), "type": "SERVICE_UNAVAILABLE"}}
                for code, text in (
                    ("queue_full", "The request queue is full."),
                    ("load_shed", "The request queue is full."),
                    ("displaced", "The request is aborted by a higher priority request."),
                    ("queue_timeout", "Request waiting timeout reached."),
                )
            },
        ),
        Dialect(
            name="tgi",
            other=tgi,
            answers={
                **_all(Answer(status=429, body={"error": "Model is overloaded", "error_type": "overloaded"})),
                "invalid_api_key": Answer(status=401),
                "engine_error": Answer(
                    status=424,
                    body=lambda _status, refusal: {"error": refusal.message, "error_type": "generation"},
                ),
            },
            frames=_each({"error": {"message": "Model is overloaded", "http_status_code": 422}}),
        ),
        Dialect(
            name="llamacpp",
            other=vllm,
            answers={
                **_all(Answer(status=503, body=_error("no slot available", "unavailable_error", 503))),
                "model_loading": Answer(status=503, body=_LOADING),
            },
        ),
        Dialect(
            name="ollama",
            other=lambda _status, refusal: _error(refusal.message, "api_error", None),
            answers=_all(
                Answer(
                    status=503,
                    body=_error("server busy, please try again.  maximum pending requests exceeded", "api_error", None),
                )
            ),
        ),
        Dialect(
            name="triton",
            other=sentence,
            answers=_all(Answer(status=503, body={"error": "Exceeds maximum queue size"})),
        ),
        Dialect(
            name="dynamo",
            other=lambda status, refusal: {"message": refusal.message, "type": refusal.kind, "code": status},
            answers={
                **_all(
                    Answer(
                        status=529,
                        body={
                            "message": "Service temporarily overloaded, please retry later",
                            "type": "Overloaded",
                            "code": 529,
                        },
                    )
                ),
                "model_loading": Answer(
                    status=503, body={"message": "Service is not ready", "type": "Service Unavailable", "code": 503}
                ),
            },
        ),
        Dialect(
            name="ray",
            other=plain,
            other_type=_TEXT,
            answers={
                **_all(
                    Answer(
                        status=503,
                        content_type=_TEXT,
                        body="Request dropped due to backpressure (num_queued_requests=10, max_queued_requests=10).",
                    )
                ),
                "queue_timeout": Answer(status=408, content_type=_TEXT, body="Request timed out after 60.0s."),
            },
        ),
        Dialect(
            name="llmd",
            other=plain,
            other_type=_TEXT,
            answers={
                **_all(
                    Answer(
                        status=429,
                        content_type=_TEXT,
                        headers=((_LLMD, "rejected-saturated"),),
                        body="inference error: ResourceExhausted - system saturated, sheddable request dropped",
                    )
                ),
                "queue_timeout": Answer(
                    status=503,
                    content_type=_TEXT,
                    headers=((_LLMD, "rejected-ttl-expired"),),
                    body="inference error: ServiceUnavailable - request timed out in queue: request TTL expired",
                ),
            },
        ),
        Dialect(
            name="litellm",
            other=litellm,
            answers=_all(
                Answer(
                    status=429,
                    body=_error("litellm.RateLimitError: RateLimitError: " + _BUSY, "None", "429"),
                    headers=(("llm_provider-retry-after", "60"),),
                )
            ),
        ),
        Dialect(
            name="anthropic",
            other=lambda _status, refusal: {
                "type": "error",
                "error": {"type": refusal.kind, "message": refusal.message},
            },
            answers=_all(
                Answer(
                    status=529, body={"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
                )
            ),
        ),
        Dialect(
            name="envoy",
            other=plain,
            other_type=_TEXT,
            answers={
                **_all(
                    Answer(
                        status=503,
                        content_type=_TEXT,
                        headers=(*_ENVOY, ("x-envoy-overloaded", "true")),
                        body=_OVERFLOW,
                    )
                ),
                "rate_limit_exceeded": Answer(
                    status=429,
                    content_type=_TEXT,
                    headers=(*_ENVOY, ("x-envoy-ratelimited", "true")),
                    body="local_rate_limited",
                ),
                "queue_timeout": Answer(
                    status=504, content_type=_TEXT, headers=_ENVOY, body="upstream request timeout"
                ),
                "draining": Answer(status=503, content_type=_TEXT, headers=_ENVOY, body="no healthy upstream"),
                "model_loading": Answer(status=503, content_type=_TEXT, headers=_ENVOY, body="no healthy upstream"),
            },
        ),
        Dialect(
            name="nginx",
            other=html,
            other_type="text/html",
            answers={
                **_all(Answer(status=503, content_type="text/html", body=html, headers=(("server", "nginx"),))),
                "rate_limit_exceeded": Answer(
                    status=503, content_type="text/html", body=html, headers=(("server", "nginx"),)
                ),
                "queue_timeout": Answer(
                    status=504, content_type="text/html", body=html, headers=(("server", "nginx"),)
                ),
            },
        ),
        Dialect(
            name="kong",
            other=message,
            answers={
                **_all(Answer(status=429, body={"message": "API rate limit exceeded"}, hint=True)),
                "rate_limit_exceeded": Answer(status=429, body={"message": "API rate limit exceeded"}, hint=True),
            },
        ),
    )
}
