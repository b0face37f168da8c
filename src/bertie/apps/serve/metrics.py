"""Prometheus metrics: the names of Text Embeddings Inference, so that its dashboards work, and Bertie's own.

Labels are routes, models, reasons and statuses, which are few. Texts and unknown paths are never labels.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LENGTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class PlainCounters(Collector):
    """Counters without the suffix `_total`, as in Text Embeddings Inference."""

    def __init__(self, names: dict[str, tuple[str, tuple[str, ...]]]) -> None:
        self.names = names
        self.values: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in names}

    def add(self, name: str, *labels: str, amount: float = 1) -> None:
        """Counts."""
        values = self.values[name]
        values[labels] = values.get(labels, 0) + amount

    def collect(self) -> Iterator[Metric]:
        """Yields the counts."""
        for name, (about, labels) in self.names.items():
            family = CounterMetricFamily(name, about, labels=labels)
            family.name, family.type = name, "unknown"
            for values, count in self.values[name].items():
                family.add_sample(name, dict(zip(labels, values, strict=True)), count)
            yield family


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.counts = PlainCounters(
            {
                "te_request_count": ("Requests by route.", ("method",)),
                "te_request_success": ("Requests that were answered.", ("method",)),
                "te_request_failure": ("Requests that were not, by kind of error.", ("err",)),
                "bertie_requests_total": ("Responses by route and status.", ("route", "status")),
                "bertie_rejected_total": (
                    "Requests that were refused because a budget was spent, by reason.",
                    ("reason",),
                ),
                "bertie_truncated_total": ("Texts that were cut to fit.", ("model",)),
                "bertie_tokens_total": ("Tokens that went through a model.", ("model",)),
                "bertie_worker_restarts_total": ("Worker processes that were started again.", ("model",)),
                "bertie_reloads_total": ("Models that were loaded again, by outcome.", ("model", "outcome")),
            }
        )
        self.registry.register(self.counts)
        self.duration = self._times("te_request_duration", "Whole requests, in seconds.")
        self.tokenization = self._times("te_request_tokenization_duration", "Making token ids, in seconds.")
        self.queue = self._times("te_request_queue_duration", "Waiting for a batch, in seconds.")
        self.inference = self._times("te_request_inference_duration", "In the model, in seconds.")
        self.length = Histogram(
            "te_request_input_length", "Tokens of a request.", buckets=_LENGTHS, registry=self.registry
        )
        self.batch_size = Histogram(
            "te_batch_next_size", "Sequences of a batch.", buckets=BATCHES, registry=self.registry
        )
        self.batch_tokens = Histogram(
            "te_batch_next_tokens", "Tokens of a batch.", buckets=_LENGTHS, registry=self.registry
        )
        self.queue_size = self._gauge("te_queue_size", "Sequences that wait.")
        self.inflight_tokens = self._gauge("bertie_inflight_tokens", "Tokens admitted and not yet answered.")
        self.inflight_texts = self._gauge("bertie_inflight_texts", "Texts admitted and not yet answered.")
        self.inflight_bytes = self._gauge("bertie_inflight_bytes", "Bytes of request bodies that are held.")
        self.log_dropped = self._gauge("bertie_log_dropped", "Lines of the log that were dropped.")
        self.ready = self._gauge("bertie_ready", "1 while every model can answer.")

    def _times(self, name: str, about: str) -> Histogram:
        return Histogram(name, about, buckets=SECONDS, registry=self.registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(name, about, registry=self.registry)

    def text(self) -> bytes:
        """Returns the metrics in the text format."""
        return generate_latest(self.registry)
