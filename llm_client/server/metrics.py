"""What Prometheus sees: counters from the books, gauges read at the scrape, histograms of waiting and work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client import exposition as plain
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics

from .job import CLASSES, Job

if TYPE_CHECKING:
    from .admission import Door
    from .ledger import Ledger

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metrics:
    """One registry for one server.

    Args:
        ledger: where the counters live.
        door: asked for queue and engine at every scrape.
    """

    def __init__(self, ledger: Ledger, door: Door) -> None:
        self._ledger = ledger
        self._door = door
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self.queue_wait = self._histogram("llm_server_queue_wait_seconds", "Seconds between arrival and start.")
        self.service_time = self._histogram("llm_server_service_seconds", "Seconds in the engine.")
        self.first_token = self._histogram("llm_server_first_token_seconds", "Seconds from arrival to first token.")

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, buckets=_SECONDS, registry=self.registry)

    def served(self, job: Job) -> None:
        """Note a job that the engine finished."""
        self.queue_wait.observe(job.queue_time)
        self.service_time.observe(job.service_time)
        self.first_token.observe(job.first - job.arrived)

    def expose(self, accept: str) -> tuple[bytes, str]:
        """The text of a scrape and its content type, OpenMetrics when `accept` asks for it."""
        if "application/openmetrics-text" in accept:
            body: bytes = openmetrics.generate_latest(self.registry)  # type: ignore[no-untyped-call]
            return body, openmetrics.CONTENT_TYPE_LATEST
        return plain.generate_latest(self.registry), plain.CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Metric]:
        """Read everything that is counted elsewhere."""
        books, door = self._ledger, self._door
        yield CounterMetricFamily("llm_server_arrived", "Requests for inference that arrived.", value=books.arrived)
        results = CounterMetricFamily("llm_server_requests", "Requests by how they ended.", labels=["outcome"])
        for outcome, count in books.results.items():
            results.add_metric([outcome], count)
        yield results
        reasons = CounterMetricFamily(
            "llm_server_refusals", "Refused and failed requests by reason.", labels=["reason"]
        )
        for reason, count in books.reasons.items():
            reasons.add_metric([reason], count)
        yield reasons
        yield CounterMetricFamily(
            "llm_server_client_disconnected", "Clients that left before the end.", value=books.client_disconnected
        )
        yield CounterMetricFamily("llm_server_executed", "Jobs the engine started.", value=books.executed)
        tokens = CounterMetricFamily("llm_server_tokens", "Tokens of finished requests.", labels=["kind"])
        tokens.add_metric(["prompt"], books.prompt_tokens)
        tokens.add_metric(["completion"], books.completion_tokens)
        yield tokens
        length = GaugeMetricFamily("llm_server_queue_length", "Requests waiting, by class.", labels=["class"])
        for name, count in zip(CLASSES, door.queue.by_class(), strict=True):
            length.add_metric([name], count)
        yield length
        yield GaugeMetricFamily("llm_server_queue_size", "The bound; -1 for none.", value=door.size_or_minus_one)
        yield GaugeMetricFamily("llm_server_in_flight", "Requests without a result yet.", value=books.in_flight)
        load = door.engine.load()
        yield GaugeMetricFamily("llm_server_executing", "Jobs in the engine.", value=load.running)
        yield GaugeMetricFamily("llm_server_slots", "Jobs the engine can hold.", value=load.slots)
        yield GaugeMetricFamily("llm_server_kv_usage_ratio", "Share of the cache in use.", value=load.kv_usage)
        yield CounterMetricFamily("llm_server_preemptions", "Jobs pushed out of the cache.", value=load.preemptions)
        yield CounterMetricFamily(
            "llm_server_prefix_hit_tokens", "Prompt tokens found in the prefix cache.", value=load.prefix_hit_tokens
        )
        yield GaugeMetricFamily("llm_server_load_ratio", "Waiting and running over what fits.", value=door.load())
        yield GaugeMetricFamily("llm_server_ready", "1 while new work is welcome.", value=float(door.ready))
