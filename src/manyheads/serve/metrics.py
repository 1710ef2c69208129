"""What Prometheus may ask. No text, no address, and paths only by their names."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from manyheads.serve.queue import BatchStats, JobQueue

SECONDS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
COUNT_BUCKETS = tuple(2**n for n in range(13))


class ServerMetrics:
    """The server's counts."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        labels = ["path", "status"]
        self._requests = Counter("manyheads_requests", "Requests answered.", labels, registry=registry)
        self._seconds = Histogram(
            "manyheads_request_seconds",
            "To answer a request.",
            ["path"],
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self._waited = Histogram(
            "manyheads_queue_seconds", "In the queue.", buckets=SECONDS_BUCKETS, registry=registry
        )
        self._jobs = Histogram(
            "manyheads_batch_requests", "Requests done together.", buckets=COUNT_BUCKETS, registry=registry
        )
        self._tokens = Histogram(
            "manyheads_batch_tokens", "Source tokens done together.", buckets=COUNT_BUCKETS, registry=registry
        )
        self._work = Counter("manyheads_working_seconds", "Of the working thread.", registry=registry)
        self._characters = Counter("manyheads_characters", "Of texts taken in.", registry=registry)
        self._waiting = Gauge("manyheads_waiting_requests", "In the queue now.", registry=registry)

    def track_queue(self, queue: JobQueue) -> None:
        self._waiting.set_function(lambda: len(queue.waiting))

    def record_request(self, path: str, status: int, seconds: float) -> None:
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def record_batch(self, batch: BatchStats) -> None:
        self._jobs.observe(batch.num_jobs)
        self._tokens.observe(batch.num_tokens)
        self._work.inc(batch.seconds)
        for seconds in batch.wait_seconds:
            self._waited.observe(seconds)

    def record_characters(self, count: int) -> None:
        self._characters.inc(count)

    def render(self) -> str:
        return generate_latest(self.registry).decode("utf-8")
