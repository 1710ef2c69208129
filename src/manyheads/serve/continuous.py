"""Continuous batching: sentences of different requests join a batch that is being decoded.

Two threads work beside the event loop. One prepares texts and makes texts of results. The other runs the
engine: it decodes one stream of sentences for each model, adapter and kind of search, and for large requests
another one, a step of a stream at a time. Streams share the engine's time by weight, so that a small request
gets its steps at once, however large the others are. A stream takes sentences from a FairFeed whenever it has
free slots, and ends when there are none left. A request is answered when its own sentences are done.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from manyheads.config import DecodingConfig
from manyheads.pipeline.assembly import Assembler
from manyheads.pipeline.jobs import Decoding, TranslationOptions
from manyheads.pipeline.preparation import TextPreparer
from manyheads.pipeline.stream import plan_translation
from manyheads.search.options import Hypothesis
from manyheads.serve.fair_feed import FairFeed, JoiningJob
from manyheads.serve.jobs import BatchStats, Job, JobSize, run_jobs
from manyheads.serve.limits import ServerLimits
from manyheads.serve.served_model import WINDOW, ServedModel, suppress_warnings

# Large requests, in source tokens times hypotheses, and how much of them runs at once.
LARGE_REQUEST = 2048
LARGE_CLIENT = 4 * LARGE_REQUEST  # of all small requests of a client, while others are served
LARGE_BATCH_TOKENS, LARGE_NEW_TOKENS = 2048, 512  # source tokens: a step must not take long
LONG_TEXT = 2000  # characters of a request
PAUSE_FACTOR, MAX_PAUSE = 3.0, 0.25  # after a long text was prepared: times its seconds, and seconds at most
PREPARATION_PATIENCE = 1.0  # seconds for which smaller requests are prepared first
SMALL_WEIGHT, LARGE_WEIGHT = 4.0, 1.0  # shares of the engine's time
RETIRED_SECONDS = 600.0  # for which the streams of an adapted model that was replaced are kept

Results = list[tuple[int, list[Hypothesis]]]
Outcome = tuple[Job, list[Any] | Exception]


def count_characters(job: Job) -> int:
    return sum(map(len, job.items))


def is_long(job: Job) -> bool:
    return count_characters(job) > LONG_TEXT


class StreamKey(NamedTuple):
    """What sentences must share to be decoded in one stream."""

    model: ServedModel  # with an adapter it is another one, so that adapters never share a stream
    config: DecodingConfig
    scores: str
    is_large: bool


class Stream:
    """The sentences of one model and one kind of search."""

    def __init__(self, key: StreamKey, batch_tokens: int, on_start: Callable[[Job], None]) -> None:
        self.key, self.engine = key, key.model.translator.engine
        max_tokens = min(batch_tokens, LARGE_BATCH_TOKENS) if key.is_large else batch_tokens
        self.feed = FairFeed(max_tokens, LARGE_NEW_TOKENS if key.is_large else batch_tokens, on_start)
        self.decoding: Iterator[Results] | None = None
        self.is_busy = False
        self.virtual_time = 0.0  # seconds of the engine, divided by the weight
        self.unreported_seconds = 0.0

    def advance(self) -> list[JoiningJob]:
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

    def _finish(self, index: int, hypotheses: list[Hypothesis]) -> list[JoiningJob]:
        job, sentence = self.feed.finish(index)
        sentence.hypotheses = hypotheses
        job.num_unfinished -= 1
        return [job] if job.num_unfinished == 0 and not job.is_abandoned else []

    def account_time(self, seconds: float) -> None:
        self.unreported_seconds += seconds
        self.virtual_time += seconds / (LARGE_WEIGHT if self.key.is_large else SMALL_WEIGHT)


class ContinuousBatcher:
    """Runs jobs whose task can join a stream. `on_start` and `resolve` are called on the event loop."""

    def __init__(
        self,
        limits: ServerLimits,
        on_start: Callable[[Job], None],
        resolve: Callable[[Outcome], None],
        on_batch: Callable[[BatchStats], None],
    ) -> None:
        self.limits, self.on_start, self.resolve, self.on_batch = limits, on_start, resolve, on_batch
        self.streams: dict[StreamKey, Stream] = {}
        self.stages: dict[Any, tuple[TranslationOptions, TextPreparer, Assembler]] = {}  # by stage_key
        self.small_jobs: list[JoiningJob] = []  # in work
        self.text_executor = ThreadPoolExecutor(1, "manyheads-text")
        self.engine_executor = ThreadPoolExecutor(1, "manyheads-engine")
        self.unprepared: list[Job] = []
        self.virtual_clock = 0.0  # virtual time of the stream that was advanced last
        self.pause_until = 0.0  # when the next long text may be prepared
        self.started: list[Job] = []  # not yet reported to the event loop
        self.is_running = False
        self.lock = threading.Lock()

    def submit(self, job: Job) -> None:
        """Add a job; its future gets the results. Call it on the event loop."""
        self.loop = asyncio.get_running_loop()
        with self.lock:
            self.unprepared.append(job)
        self._submit_preparation()

    def shutdown(self) -> None:
        self.text_executor.shutdown(wait=False, cancel_futures=True)
        self.engine_executor.shutdown(wait=False, cancel_futures=True)

    # ---- the thread for texts

    def _prepare_next(self) -> None:
        job = self._take_unprepared()
        if job is None:
            return
        start = time.monotonic()
        try:
            with suppress_warnings():
                joining = self._prepare(job)
        except Exception as error:
            self._report([(job, error)], None)
        else:
            self._continue_jobs([joining])
        task: Any = job.task
        if is_long(job) and task.model.runs_on_cpu:  # the next one waits: a share of the time is theirs
            now = time.monotonic()
            self.pause_until = now + min(MAX_PAUSE, PAUSE_FACTOR * (now - start))

    def _take_unprepared(self) -> Job | None:
        """Remove and return the job with the least text, or the oldest if that has waited for long."""
        now = time.monotonic()
        with self.lock:
            self.unprepared = [job for job in self.unprepared if not job.future.done()]
            is_pausing = now < self.pause_until
            jobs = [job for job in self.unprepared if not (is_pausing and is_long(job))]
            if not jobs:
                if self.unprepared:
                    delay = max(0.0, self.pause_until - now)
                    self.loop.call_soon_threadsafe(self.loop.call_later, delay, self._submit_preparation)
                return None
            job = jobs[0]
            if now - job.arrived_at < PREPARATION_PATIENCE:
                job = min(jobs, key=count_characters)
            self.unprepared.remove(job)
            return job

    def _submit_preparation(self) -> None:
        with suppress(RuntimeError):  # the server is stopping
            self.text_executor.submit(self._prepare_next)

    def _prepare(self, job: Job) -> JoiningJob:
        task: Any = job.task
        if task.stage_key not in self.stages:
            self.stages[task.stage_key] = task.create_stages()
        options, preparer, assembler = self.stages[task.stage_key]
        texts, finish = task.begin(job.items)
        if is_long(job):  # preparation takes longer
            self.limits.check_work(task.estimate_size(texts))
        text_jobs = preparer.prepare(texts)
        sentences = [sentence for text in text_jobs for sentence in text.sentences]
        num_tokens = sum(len(sentence.request.source) for sentence in sentences)
        self.limits.check_work(JobSize(num_tokens, len(sentences), options.config.num_hypotheses))
        steps = plan_translation(text_jobs, assembler, options)
        return JoiningJob(job, steps, lambda: finish([assembler.assemble(text) for text in text_jobs]))

    def _continue_jobs(self, jobs: Sequence[JoiningJob]) -> None:
        """Let jobs join a stream for what they need next. Report the results of those that need nothing."""
        outcomes: list[Outcome] = []
        for job in jobs:
            if job.is_abandoned:
                job.is_done = True
                continue
            try:
                if decoding := job.start_next_step():
                    self._find_stream(job, decoding).feed.put(job)
                    continue
                outcomes.append((job.job, job.finish()))
            except Exception as error:
                outcomes.append((job.job, error))
            job.is_done = True
        self._report(outcomes, None)
        if len(outcomes) < len(jobs):
            self._wake_engine()

    def _find_stream(self, job: JoiningJob, decoding: Decoding) -> Stream:
        task: Any = job.job.task
        key = StreamKey(task.model, decoding.config, decoding.scores, self._is_large(job, task.model))
        if key not in self.streams:
            self._drop_retired()
            self.streams[key] = Stream(key, self.limits.batch_tokens, self.started.append)
        return self.streams[key]

    def _drop_retired(self) -> None:
        """Drop what belongs to models that were replaced so long ago that every request has ended."""
        oldest = time.monotonic() - RETIRED_SECONDS

        def is_over(model: ServedModel) -> bool:
            return model.retired_at is not None and model.retired_at < oldest

        for key, stream in list(self.streams.items()):
            if is_over(key.model) and stream.feed.is_exhausted:
                del self.streams[key]
        self.stages = {key: stages for key, stages in self.stages.items() if not is_over(key[0])}

    def _is_large(self, job: JoiningJob, model: ServedModel) -> bool:
        """Return whether a job must not delay the small requests of other clients.

        A GPU takes about as long for a large batch as for a small one, and has one batch for all.
        """
        if not model.runs_on_cpu:
            return False
        if job.num_tokens > LARGE_REQUEST:
            return True
        self.small_jobs = [own for own in self.small_jobs if not (own.is_done or own.is_abandoned)]
        if job not in self.small_jobs:
            self.small_jobs.append(job)
        client = job.job.client
        own_tokens = sum(own.num_tokens for own in self.small_jobs if own.job.client == client)
        has_others = any(own.job.client != client for own in self.small_jobs)
        return has_others and own_tokens > LARGE_CLIENT

    # ---- the thread of the engine

    def _wake_engine(self) -> None:
        with self.lock:
            if not self.is_running:
                self.is_running = True
                self.engine_executor.submit(self._decode)

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
            failed = [job for job in stream.feed.remove_active() if not job.is_abandoned]
            self._report([(job.job, run_jobs([job.job])[0]) for job in failed], None)
            for job in failed:
                job.is_done = True
            return
        stream.account_time(time.monotonic() - start)
        started, self.started[:] = list(self.started), []
        if jobs or started:
            self._report([], self._measure(stream, jobs, started, start), started)
        if jobs:
            self.text_executor.submit(self._continue_jobs, jobs)

    @staticmethod
    def _measure(stream: Stream, jobs: list[JoiningJob], started: list[Job], start: float) -> BatchStats:
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

    def _report(self, outcomes: list[Outcome], stats: BatchStats | None, started: Sequence[Job] = ()) -> None:
        """Tell the event loop what has happened."""

        def report() -> None:
            for job in started:
                self.on_start(job)
            for outcome in outcomes:
                self.resolve(outcome)
            if stats is not None:
                self.on_batch(stats)

        if outcomes or stats is not None:
            self.loop.call_soon_threadsafe(report)
