"""Metrics for Prometheus. They hold no texts, no addresses, and only known paths."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from manyheads.serve.jobs import BatchStats
from manyheads.serve.queue import JobQueue
from manyheads.serve.served_model import ServedModel

SECONDS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
CONFIDENCE_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1)
COUNT_BUCKETS = tuple(2**n for n in range(13))


class ServerMetrics:
    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "manyheads_requests", "Requests answered.", ["path", "status"], registry=registry
        )
        self._request_seconds = Histogram(
            "manyheads_request_seconds",
            "Time to answer a request.",
            ["path"],
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self._queue_seconds = Histogram(
            "manyheads_queue_seconds",
            "Time of a request in the queue.",
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self._batch_requests = Histogram(
            "manyheads_batch_requests", "Requests per batch.", buckets=COUNT_BUCKETS, registry=registry
        )
        self._batch_tokens = Histogram(
            "manyheads_batch_tokens", "Source tokens per batch.", buckets=COUNT_BUCKETS, registry=registry
        )
        self._worker_seconds = Counter(
            "manyheads_worker_seconds", "Busy time of the worker thread.", registry=registry
        )
        self._characters = Counter("manyheads_characters", "Characters of texts received.", registry=registry)
        self._confidence = Histogram(
            "manyheads_confidence",
            "Confidence of translations by calibrated models.",
            ["model"],
            buckets=CONFIDENCE_BUCKETS,
            registry=registry,
        )
        self._foreign_texts = Counter(
            "manyheads_foreign_texts", "Texts that do not look like their source language.", registry=registry
        )
        self._graphs = Gauge("manyheads_cuda_graphs", "CUDA graphs that are captured.", registry=registry)
        self._waiting = Gauge("manyheads_waiting_requests", "Requests in the queue now.", registry=registry)

    def track_models(self, models: Sequence[ServedModel]) -> None:
        self._graphs.set_function(lambda: sum(model.num_graphs for model in models))

    def track_queue(self, queue: JobQueue) -> None:
        self._waiting.set_function(lambda: len(queue.waiting))

    def record_request(self, path: str, status: int, seconds: float) -> None:
        self._requests.labels(path, str(status)).inc()
        self._request_seconds.labels(path).observe(seconds)

    def record_batch(self, batch: BatchStats) -> None:
        self._batch_requests.observe(batch.num_jobs)
        self._batch_tokens.observe(batch.num_tokens)
        self._worker_seconds.inc(batch.seconds)
        for seconds in batch.wait_seconds:
            self._queue_seconds.observe(seconds)

    def record_characters(self, count: int) -> None:
        self._characters.inc(count)

    def record_confidence(self, model: str, confidence: float) -> None:
        self._confidence.labels(model).observe(confidence)

    def record_foreign_text(self) -> None:
        self._foreign_texts.inc()

    def render(self) -> str:
        return generate_latest(self.registry).decode("utf-8")
