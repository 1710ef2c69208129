"""Which stream the engine decodes next, and which sentences of which requests are in it.

A stream has the sentences of one model, adapter and kind of search; large requests have another one. The
thread of the engine decodes a step of a stream at a time. Streams share its time by weight, so that a small
request gets its steps at once, however large the others are. A stream takes sentences from a FairFeed
whenever it has free slots, and ends when there are none left.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from manyheads.config import DecodingConfig
from manyheads.inference.engine import ScoreDetail
from manyheads.search.options import Hypothesis
from manyheads.serve.fair_feed import FairFeed, ScheduledJob
from manyheads.serve.jobs import BatchStats, Job
from manyheads.serve.served_model import WINDOW, ServedModel

# Large requests, in source tokens times hypotheses, and how much of them runs at once.
LARGE_REQUEST = 2048
LARGE_CLIENT = 4 * LARGE_REQUEST  # of all small requests of a client, while others are served
LARGE_BATCH_TOKENS, LARGE_NEW_TOKENS = 2048, 512  # source tokens: a step must not take long
SMALL_WEIGHT, LARGE_WEIGHT = 4.0, 1.0  # shares of the engine's time

Results = list[tuple[int, list[Hypothesis]]]


@dataclass
class StepReport:
    """What has happened since the last report."""

    started: list[ScheduledJob] = field(default_factory=list)
    decoded: list[ScheduledJob] = field(default_factory=list)  # all their sentences have hypotheses
    failed: list[tuple[ScheduledJob, Exception]] = field(default_factory=list)
    stats: BatchStats | None = None


ReportStep = Callable[[StepReport], None]


class Scheduler(Protocol):
    """Has jobs decoded, and reports what has become of them in a thread of its own."""

    def put(self, jobs: Sequence[ScheduledJob]) -> None:
        """Have the sentences of jobs decoded. Call it in one thread only."""
        ...

    def cancel(self, job: Job) -> None:
        """Note that nobody waits for a job any more."""
        ...

    def shutdown(self) -> None: ...


class StreamKey(NamedTuple):
    """What sentences must share to be decoded in one stream."""

    model: ServedModel  # with an adapter it is another one, so that adapters never share a stream
    config: DecodingConfig
    scores: ScoreDetail
    is_large: bool


class Stream:
    """The sentences of one model and one kind of search."""

    def __init__(self, key: StreamKey, batch_tokens: int, on_start: Callable[[ScheduledJob], None]) -> None:
        self.key, self.engine = key, key.model.translator.engine
        max_tokens = min(batch_tokens, LARGE_BATCH_TOKENS) if key.is_large else batch_tokens
        self.feed = FairFeed(max_tokens, LARGE_NEW_TOKENS if key.is_large else batch_tokens, on_start)
        self.decoding: Iterator[Results] | None = None
        self.is_busy = False
        self.virtual_time = 0.0  # seconds of the engine, divided by the weight
        self.unreported_seconds = 0.0

    def advance(self) -> list[ScheduledJob]:
        """Decode one step, or some. Return the jobs whose sentences are done."""
        if self.decoding is None:
            self.feed.num_taken = 0
            self.decoding = self.engine.decode_batches(  # type: ignore[attr-defined]
                self.feed, self.key.config, scores=self.key.scores, window=WINDOW
            )
        results = next(self.decoding, None)
        if results is None:
            self.decoding = None
            return []
        return [job for index, hypotheses in results for job in self._finish(index, hypotheses)]

    def _finish(self, index: int, hypotheses: list[Hypothesis]) -> list[ScheduledJob]:
        job, sentence = self.feed.finish(index)
        sentence.hypotheses = hypotheses
        job.num_unfinished -= 1
        return [job] if job.num_unfinished == 0 and not job.is_abandoned else []

    def account_time(self, seconds: float) -> None:
        self.unreported_seconds += seconds
        self.virtual_time += seconds / (LARGE_WEIGHT if self.key.is_large else SMALL_WEIGHT)


class DecodingScheduler:
    """The streams, and the thread that decodes them."""

    def __init__(self, batch_tokens: int, report: ReportStep) -> None:
        """`report` is called in the engine's thread."""
        self.batch_tokens, self.report = batch_tokens, report
        self.streams: dict[StreamKey, Stream] = {}
        self.small_jobs: list[ScheduledJob] = []  # in work
        self.executor = ThreadPoolExecutor(1, "manyheads-engine")
        self.started: list[ScheduledJob] = []  # not yet reported
        self.virtual_clock = 0.0  # virtual time of the stream that was advanced last
        self.is_running = False
        self.lock = threading.Lock()

    def put(self, jobs: Sequence[ScheduledJob]) -> None:
        for job in jobs:
            self._find_stream(job).feed.put(job)
        with self.lock, suppress(RuntimeError):  # the server is stopping
            if not self.is_running:
                self.executor.submit(self._decode)
                self.is_running = True

    def cancel(self, job: Job) -> None:
        """Nothing to do: feeds look at the jobs that they have."""

    def shutdown(self) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)

    def _find_stream(self, job: ScheduledJob) -> Stream:
        assert job.decoding is not None
        key = StreamKey(job.model, job.decoding.config, job.decoding.scores, self._is_large(job))
        if key not in self.streams:
            self._drop_retired()
            self.streams[key] = Stream(key, self.batch_tokens, self.started.append)
        return self.streams[key]

    def _drop_retired(self) -> None:
        """Drop the streams of models that were replaced so long ago that every request has ended."""
        for key, stream in list(self.streams.items()):
            if key.model.is_over and stream.feed.is_exhausted:
                del self.streams[key]

    def _is_large(self, job: ScheduledJob) -> bool:
        """Return whether a job must not delay the small requests of other clients.

        A GPU takes about as long for a large batch as for a small one, and has one batch for all.
        """
        if not job.model.runs_on_cpu:
            return False
        if job.num_tokens > LARGE_REQUEST:
            return True
        self.small_jobs = [own for own in self.small_jobs if not (own.is_done or own.is_abandoned)]
        if job not in self.small_jobs:
            self.small_jobs.append(job)
        own_tokens = sum(own.num_tokens for own in self.small_jobs if own.client == job.client)
        has_others = any(own.client != job.client for own in self.small_jobs)
        return has_others and own_tokens > LARGE_CLIENT

    # ---- the thread of the engine

    def _decode(self) -> None:
        """Advance the stream that had the least of its share, until there is nothing left to decode."""
        while True:
            if stream := self._next_stream():
                self._advance(stream)
                continue
            with self.lock:
                if all(stream.feed.is_exhausted for stream in list(self.streams.values())):
                    self.is_running = False
                    return

    def _next_stream(self) -> Stream | None:
        """Return the stream whose turn it is. One that was idle has neither saved up time nor lost any."""
        busy = []
        for stream in list(self.streams.values()):
            is_busy = not stream.feed.is_exhausted
            if is_busy and not stream.is_busy:
                stream.virtual_time = max(stream.virtual_time, self.virtual_clock)
            stream.is_busy = is_busy
            busy += [stream] if is_busy else []
        chosen = min(busy, key=lambda stream: stream.virtual_time, default=None)
        if chosen:
            self.virtual_clock = max(self.virtual_clock, chosen.virtual_time)
        return chosen

    def _advance(self, stream: Stream) -> None:
        start = time.monotonic()
        try:
            jobs = stream.advance()
        except Exception:  # one of the sentences is to blame: each job runs alone
            stream.decoding = None
            self.report(decode_alone(stream))
            return
        stream.account_time(time.monotonic() - start)
        started, self.started[:] = list(self.started), []
        if jobs or started:
            self.report(StepReport(started, jobs, [], self._measure(stream, jobs, started, start)))

    @staticmethod
    def _measure(
        stream: Stream, jobs: list[ScheduledJob], started: list[ScheduledJob], start: float
    ) -> BatchStats:
        """Return what the steps since the last report did."""
        active = {id(job) for job, _ in list(stream.feed.active.values())}
        seconds, stream.unreported_seconds = stream.unreported_seconds, 0.0
        return BatchStats(
            len(active | {id(job) for job in jobs}),
            stream.feed.active_tokens,
            seconds,
            [start - job.arrived_at for job in started],
            len(jobs),
        )


def decode_alone(stream: Stream) -> StepReport:
    """Decode the jobs of a stream that has failed one by one."""
    report = StepReport()
    for job in stream.feed.remove_active():
        try:
            requests = [sentence.request for sentence in job.sentences]
            for index, hypotheses in stream.engine.decode(
                requests, stream.key.config, scores=stream.key.scores
            ):
                if job.is_abandoned:
                    break
                job.sentences[index].hypotheses = hypotheses
            report.decoded.append(job)
        except Exception as error:
            report.failed.append((job, error))
    return report
