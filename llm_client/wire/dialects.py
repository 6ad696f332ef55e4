"""What differs between servers beyond their errors, as data: priorities, health routes, load reports, marks.

Errors are read alike for all of them (`llm_client.wire.classify`), because a gateway may hide what is behind it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from llm_client.errors import ConfigError
from llm_client.model import Headers, Priority
from llm_client.wire.problem import decode_json

_MAX_REPORT: Final = 2048  # characters
_METRIC: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_.:]*)\s*=\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_KV_CACHE: Final = ("kv_cache_utilization", "kv_cache_usage_perc", "gpu_cache_usage_perc")
_WAITING: Final = ("num_requests_waiting", "waiting_requests")
_RUNNING: Final = ("num_requests_running", "running_requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One server's habits.

    Attributes:
        name: as profiles write it.
        priority_field: the body field that orders the server's own queue; None where it has none.
        priority_step: what is added per step of urgency above normal: +1 where larger numbers run first, -1 where
            smaller ones do.
        priority_base: the number of a normal call; 0 is what servers give to calls that name none.
        health: a cheap route that tells whether the server works, from the server's root; None where there is none.
        load_route: a route that tells how busy it is, from the root.
        load_request: a request header, name and value, that asks for a load report with the answer.
        load_response: the response header that carries it.
        owners: what its model list says in `owned_by`, lower-case.
        marks: response headers only it sends: a name, a prefix ending in `*`, or `name=value`.
    """

    name: str
    priority_field: str | None = None
    priority_step: int = 0
    priority_base: int = 0
    health: str | None = None
    load_route: str | None = None
    load_request: tuple[str, str] | None = None
    load_response: str | None = None
    owners: frozenset[str] = frozenset()
    marks: tuple[str, ...] = ()

    def priority_value(self, priority: Priority) -> int:
        """Translate a priority into this server's number."""
        return self.priority_base + self.priority_step * (Priority.NORMAL - priority)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """How busy a server says it is; None for what it does not say.

    Attributes:
        kv_cache: the share of its cache in use, 0 to 1.
        waiting: requests in its queue.
        running: requests it works on.
        metrics: every number of the report, by name.
    """

    kv_cache: float | None = None
    waiting: float | None = None
    running: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


_ORCA: Final = ("endpoint-load-metrics-format", "TEXT")

# Engines first, then what stands in front of them, then hosted services: `guess` takes the first that fits.
_ALL: Final = (
    Dialect(
        name="vllm", priority_field="priority", priority_step=-1, health="/health", load_route="/load",
        load_request=_ORCA, load_response="endpoint-load-metrics", owners=frozenset({"vllm"}),
    ),
    Dialect(
        name="sglang", priority_field="priority", priority_step=1, load_route="/v1/loads",
        # Not /health_generate: it runs a token and times out under load.
        health="/health", owners=frozenset({"sglang"}),
    ),
    Dialect(name="tgi", health="/health", load_route="/info", marks=("x-compute-type", "x-inference-time")),
    Dialect(
        name="llamacpp", health="/health", load_route="/slots", owners=frozenset({"llamacpp"}),
        marks=("server=llama.cpp",),
    ),
    Dialect(name="tensorrt", health="/health", owners=frozenset({"tensorrt_llm"})),
    # Triton's priority levels count from 1; 0 is the model's default level.
    Dialect(
        name="triton", priority_field="priority", priority_step=-1, priority_base=3, health="/v2/health/ready",
        owners=frozenset({"triton inference server"}),
    ),
    Dialect(name="lmdeploy", health="/health", owners=frozenset({"lmdeploy"})),
    Dialect(name="ollama", health="/api/version", owners=frozenset({"library"})),
    Dialect(name="dynamo", health="/health"),
    Dialect(name="llmd", marks=("x-llm-d-*", "x-gateway-inference-*")),
    Dialect(name="litellm", health="/health/liveliness", marks=("x-litellm-*",)),
    Dialect(name="ray", health="/-/healthz"),
    Dialect(name="nim", health="/v1/health/ready", marks=("nvcf-*",)),
    Dialect(name="azure", marks=("apim-request-id", "x-ms-region", "azureml-*")),
    Dialect(name="openai", marks=("openai-processing-ms", "openai-organization", "openai-version")),
    Dialect(name="anthropic", marks=("anthropic-*",)),
    Dialect(name="groq", marks=("x-groq-*",)),
    Dialect(name="openrouter", marks=("x-generation-id",)),
    Dialect(name="bedrock", marks=("x-amzn-bedrock-*", "x-amzn-requestid")),
    Dialect(name="kong", marks=("x-kong-*", "via=kong")),
    Dialect(name="envoy", marks=("x-envoy-*", "server=envoy")),
    Dialect(name="nginx", marks=("server=nginx",)),
)  # fmt: skip

# Nothing is known: nothing is assumed, and in particular no direction of priorities.
AUTO: Final = Dialect(name="auto")

DIALECTS: Final[Mapping[str, Dialect]] = MappingProxyType({one.name: one for one in (AUTO, *_ALL)})


def dialect(name: str) -> Dialect:
    """Return a dialect by name.

    Raises:
        ConfigError: there is none of that name.
    """
    found = DIALECTS.get(name)
    if found is None:
        raise ConfigError(f"dialect: expected one of {', '.join(DIALECTS)}, got {name!r}")
    return found


def guess(headers: Headers, models: object = None) -> str:
    """Name the server behind an answer, as far as it shows.

    Args:
        headers: of any answer.
        models: the decoded body of its model list, if at hand; it tells an engine behind a gateway.

    Returns:
        A name of `DIALECTS`; `auto` when nothing gives it away.
    """
    owners = _owners(models)
    for one in _ALL:
        if owners & one.owners:
            return one.name
    for one in _ALL:
        if any(_marked(headers, mark) for mark in one.marks):
            return one.name
    return AUTO.name


def parse_load(value: str) -> LoadReport | None:
    """Read an `endpoint-load-metrics` header, in its TEXT or its JSON form; None when it says nothing.

    The format is ORCA's, the open request cost aggregation of Envoy and gRPC.
    """
    value = value.strip()[:_MAX_REPORT]
    form, _, rest = value.partition(" ")
    metrics = _from_json(rest if form.upper() == "JSON" else value)
    if metrics is None:
        metrics = {name: float(number) for name, number in _METRIC.findall(value)}
    named = {name.removeprefix("named_metrics."): number for name, number in metrics.items()}
    if not named:
        return None
    return LoadReport(
        kv_cache=_first(named, _KV_CACHE),
        waiting=_first(named, _WAITING),
        running=_first(named, _RUNNING),
        metrics=named,
    )


def _from_json(text: str) -> dict[str, float] | None:
    if not text.startswith("{"):
        return None
    try:
        data = decode_json(text)
    except ValueError:
        return {}
    if not isinstance(data, dict):
        return {}
    inner = data.pop("named_metrics", None)
    merged: dict[str, Any] = {**data, **(inner if isinstance(inner, dict) else {})}
    return {
        name: float(number)
        for name, number in merged.items()
        if isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number < 1e15
    }


def _first(metrics: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    return next((metrics[name] for name in names if name in metrics), None)


def _owners(models: object) -> frozenset[str]:
    rows = models.get("data") if isinstance(models, dict) else None
    names = (row.get("owned_by") for row in (rows[:64] if isinstance(rows, list) else ()) if isinstance(row, dict))
    return frozenset(name.strip().lower() for name in names if isinstance(name, str))


def _marked(headers: Headers, mark: str) -> bool:
    name, _, value = mark.partition("=")
    if value:
        return value in headers.get(name, "").lower()
    if name.endswith("*"):
        return any(present.startswith(name[:-1]) for present in headers)
    return name in headers
