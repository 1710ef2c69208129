"""Continuous batching: sentences of different requests join a batch that is being decoded.

Two threads work beside the event loop. One prepares texts and makes texts of results. The other runs the
engine: it decodes one stream of sentences for each model and kind of search, some steps of each in turn. A
stream takes sentences from a FairFeed, one of each request in turn, whenever it has free slots, and ends when
there are none left. A request is answered when its own sentences are done.
"""

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from manyheads.pipeline.assembly import Assembler, check_hypotheses
from manyheads.pipeline.jobs import SentenceJob, TextJob
from manyheads.search.options import Hypothesis, Request
from manyheads.serve.jobs import BatchStats, Job, run_jobs
from manyheads.serve.served_model import WINDOW, suppress_warnings

RETIRED_SECONDS = 600.0  # for which the stream of an adapter that was replaced is kept
IDLE_SECONDS = 0.001  # between two looks for sentences that may be taken

Results = list[tuple[int, list[Hypothesis]]]
Outcome = tuple[Job, list[Any] | Exception]


class JoiningJob:
    """A job whose sentences join a stream."""

    def __init__(self, job: Job, texts: list[TextJob]) -> None:
        self.job, self.texts = job, texts
        self.has_started = False
        self.error: Exception | None = None
        self.set_sentences([sentence for text in texts for sentence in text.sentences])

    def set_sentences(self, sentences: list[SentenceJob]) -> None:
        """Set what is to be decoded: all sentences, and then the parts of those that are repaired."""
        self.sentences = sentences
        self.num_started = 0
        self.num_unfinished = len(sentences)

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody waits for its results, or it has failed: the rest of it is not decoded."""
        return self.job.future.done() or self.error is not None


class FairFeed:
    """A RequestSource of the sentences of several jobs: one of each job in turn."""

    starts_at_once = True

    def __init__(self, max_tokens: int, on_start: Callable[[Job], None]) -> None:
        self.max_tokens, self.on_start = max_tokens, on_start
        self.waiting: OrderedDict[JoiningJob, None] = OrderedDict()
        self.active: dict[int, tuple[JoiningJob, SentenceJob]] = {}  # by the number of the request
        self.num_taken = self.active_tokens = 0
        self.lock = threading.Lock()

    def put(self, job: JoiningJob) -> None:
        with self.lock:
            self.waiting[job] = None

    @property
    def is_exhausted(self) -> bool:
        """More may come as long as a sentence is being decoded."""
        return not self.waiting and not self.active

    def take(self, count: int) -> list[Request]:
        with self.lock:
            requests: list[Request] = []
            while self.waiting and len(requests) < count:
                job = next(iter(self.waiting))
                if job.is_abandoned:
                    del self.waiting[job]
                    continue
                sentence = job.sentences[job.num_started]
                num_tokens = len(sentence.request.source)
                if self.active and self.active_tokens + num_tokens > self.max_tokens:
                    break
                self._start(job, sentence)
                requests.append(sentence.request)
            return requests

    def wait(self) -> None:
        time.sleep(IDLE_SECONDS)

    def finish(self, index: int) -> tuple[JoiningJob, SentenceJob]:
        """Remove a sentence that is decoded. Return it and its job."""
        with self.lock:
            job, sentence = self.active.pop(index)
            self.active_tokens -= len(sentence.request.source)
            return job, sentence

    def remove_active(self) -> list[JoiningJob]:
        """Remove all jobs with a sentence that is being decoded, and return them."""
        with self.lock:
            jobs = list(dict.fromkeys(job for job, _ in self.active.values()))
            self.active.clear()
            self.num_taken = self.active_tokens = 0
            for job in jobs:
                self.waiting.pop(job, None)
            return jobs

    def _start(self, job: JoiningJob, sentence: SentenceJob) -> None:
        if not job.has_started:
            job.has_started = True
            self.on_start(job.job)
        job.num_started += 1
        if job.num_started == len(job.sentences):
            del self.waiting[job]
        else:
            self.waiting.move_to_end(job)
        self.active[self.num_taken] = job, sentence
        self.num_taken += 1
        self.active_tokens += len(sentence.request.source)


class Stream:
    """The jobs of one task: one model, one kind of search."""

    def __init__(self, task: Any, max_tokens: int, on_start: Callable[[Job], None]) -> None:
        self.assembler: Assembler
        self.options, self.preparer, self.assembler = task.create_stages()
        self.engine = task.model.translator.engine
        self.feed = FairFeed(max_tokens, on_start)
        self.decoding: Iterator[Results] | None = None

    def prepare(self, job: Job) -> JoiningJob:
        with suppress_warnings():
            return JoiningJob(job, self.preparer.prepare(list(job.items)))

    def advance(self) -> list[JoiningJob]:
        """Decode until some sentences are done. Return the jobs that are complete, or that failed."""
        if self.decoding is None:
            self.feed.num_taken = 0
            self.decoding = self.engine.decode_batches(
                self.feed, self.options.config, scores=self.options.scores, window=WINDOW
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
        if job.is_abandoned:
            return []
        try:
            check_hypotheses(sentence)
        except Exception as error:
            job.error = error
            return [job]
        return [job] if job.num_unfinished == 0 else []

    def assemble(self, jobs: Sequence[JoiningJob]) -> list[Outcome]:
        """Return the results of jobs that are complete. Others join the stream again, to be repaired."""
        complete = [job for job in jobs if job.error is None]
        self.assembler.reviewer.review_at_once([sentence for job in complete for sentence in job.sentences])
        outcomes: list[Outcome] = []
        for job in jobs:
            parts = [] if job.error else self._detokenize(job.sentences)
            if parts:
                job.set_sentences(parts)
                self.feed.put(job)
            else:
                results = job.error or [self.assembler.assemble(text) for text in job.texts]
                outcomes.append((job.job, results))
        return outcomes

    def _detokenize(self, sentences: list[SentenceJob]) -> list[SentenceJob]:
        if sentences and self.options.alignment:
            self.assembler.align(sentences)
        return self.assembler.detokenize(sentences)


class ContinuousBatcher:
    """Runs jobs whose task can join a stream. `on_start` and `resolve` are called on the event loop."""

    def __init__(
        self,
        max_tokens: int,
        on_start: Callable[[Job], None],
        resolve: Callable[[Outcome], None],
        on_batch: Callable[[BatchStats], None],
    ) -> None:
        self.max_tokens, self.on_start, self.resolve, self.on_batch = max_tokens, on_start, resolve, on_batch
        self.streams: dict[Any, Stream] = {}  # by task
        self.text_executor = ThreadPoolExecutor(1, "manyheads-text")
        self.engine_executor = ThreadPoolExecutor(1, "manyheads-engine")
        self.unprepared: deque[Job] = deque()
        self.started: list[Job] = []  # not yet reported to the event loop
        self.is_running = False
        self.lock = threading.Lock()

    def submit(self, job: Job) -> None:
        """Add a job; its future gets the results. Call it on the event loop."""
        self.loop = asyncio.get_running_loop()
        self.unprepared.append(job)
        if len(self.unprepared) == 1:
            self.text_executor.submit(self._prepare_jobs)

    def shutdown(self) -> None:
        self.text_executor.shutdown(wait=False, cancel_futures=True)
        self.engine_executor.shutdown(wait=False, cancel_futures=True)

    # ---- the thread for texts

    def _prepare_jobs(self) -> None:
        outcomes: list[Outcome] = []
        while self.unprepared:
            job = self.unprepared.popleft()
            try:
                stream = self._find_stream(job.task)
                joining = stream.prepare(job)
                if not joining.sentences:
                    outcomes += stream.assemble([joining])
                else:
                    stream.feed.put(joining)
            except Exception as error:
                outcomes.append((job, error))
        self._report(outcomes, None)
        self._wake_engine()

    def _find_stream(self, task: Any) -> Stream:
        if task not in self.streams:
            self._drop_retired()
            self.streams[task] = Stream(task, self.max_tokens, self.started.append)
        return self.streams[task]

    def _drop_retired(self) -> None:
        """Drop the streams of models that were replaced so long ago that every request has ended."""
        oldest = time.monotonic() - RETIRED_SECONDS
        for task, stream in list(self.streams.items()):
            retired_at = task.model.retired_at
            if retired_at is not None and retired_at < oldest and stream.feed.is_exhausted:
                del self.streams[task]

    def _assemble_jobs(self, stream: Stream, jobs: list[JoiningJob]) -> None:
        try:
            outcomes = stream.assemble(jobs)
        except Exception:
            outcomes = [(job.job, run_jobs([job.job])[0]) for job in jobs]
        self._report(outcomes, None)
        if len(outcomes) < len(jobs):
            self._wake_engine()

    # ---- the thread of the engine

    def _wake_engine(self) -> None:
        with self.lock:
            if not self.is_running:
                self.is_running = True
                self.engine_executor.submit(self._decode)

    def _decode(self) -> None:
        """Advance all streams in turn until there is nothing left to decode."""
        while True:
            busy = [stream for stream in list(self.streams.values()) if not stream.feed.is_exhausted]
            for stream in busy:
                self._advance(stream)
            if not busy:
                with self.lock:
                    if all(stream.feed.is_exhausted for stream in list(self.streams.values())):
                        self.is_running = False
                        return

    def _advance(self, stream: Stream) -> None:
        start = time.monotonic()
        try:
            jobs = stream.advance()
        except Exception:  # one of the sentences is to blame: each job runs alone
            stream.decoding = None
            failed = stream.feed.remove_active()
            self._report([(job.job, run_jobs([job.job])[0]) for job in failed if not job.is_abandoned], None)
            return
        started, self.started[:] = list(self.started), []
        num_jobs = len({id(job) for job, _ in list(stream.feed.active.values())} | {id(job) for job in jobs})
        stats = BatchStats(
            num_jobs,
            stream.feed.active_tokens,
            time.monotonic() - start,
            [start - job.arrived_at for job in started],
            len(jobs),
        )
        self._report([], stats, started)
        if jobs:
            self.text_executor.submit(self._assemble_jobs, stream, jobs)

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
