"""Continuous batching: sentences of different requests join a batch that is being decoded.

Two threads work beside the event loop. One prepares texts and makes texts of results, here. The other runs
the engine (decoding_scheduler.py), in this process or in another one (remote_engine.py). A request is
answered when its own sentences are done.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from manyheads.pipeline.assembly import Assembler
from manyheads.pipeline.jobs import SentenceJob, TranslationOptions
from manyheads.pipeline.preparation import TextPreparer
from manyheads.pipeline.stream import plan_translation
from manyheads.serve.decoding_scheduler import DecodingScheduler, ReportStep, Scheduler, StepReport
from manyheads.serve.fair_feed import JoiningJob
from manyheads.serve.jobs import BatchStats, Job, JobSize
from manyheads.serve.limits import ServerLimits
from manyheads.serve.served_model import suppress_warnings

LONG_TEXT = 2000  # characters of a request, and of several short ones that are prepared at once
SHORT_TEXT = 500  # characters of a request that is quickly prepared, whatever its size is
PAUSE_FACTOR, MAX_PAUSE = 3.0, 0.25  # after a long text was prepared: times its seconds, and seconds at most
PREPARATION_PATIENCE = 1.0  # seconds for which smaller requests are prepared first

Outcome = tuple[Job, list[Any] | Exception]
CreateScheduler = Callable[[ReportStep], Scheduler]


def count_characters(job: Job) -> int:
    return sum(map(len, job.items))


def is_long(job: Job) -> bool:
    return count_characters(job) > LONG_TEXT


class ContinuousBatcher:
    """Runs jobs whose task can join a stream. `on_start` and `resolve` are called on the event loop."""

    def __init__(
        self,
        limits: ServerLimits,
        on_start: Callable[[Job], None],
        resolve: Callable[[Outcome], None],
        on_batch: Callable[[BatchStats], None],
        create_scheduler: CreateScheduler | None = None,
    ) -> None:
        self.limits, self.on_start, self.resolve, self.on_batch = limits, on_start, resolve, on_batch
        self.scheduler: Scheduler = (
            create_scheduler(self._handle_report)
            if create_scheduler
            else DecodingScheduler(limits.batch_tokens, self._handle_report)
        )
        self.stages: dict[Any, tuple[TranslationOptions, TextPreparer, Assembler]] = {}  # by stage_key
        self.text_executor = ThreadPoolExecutor(1, "manyheads-text")
        self.unprepared: list[Job] = []
        self.is_preparing = False  # or about to
        self.pause_until = 0.0  # when the next long text may be prepared
        self.paused: deque[JoiningJob] = deque()  # between two parts of their alignment
        self.lock = threading.Lock()

    def submit(self, job: Job) -> None:
        """Add a job; its future gets the results. Call it on the event loop."""
        self.loop = asyncio.get_running_loop()
        job.future.add_done_callback(lambda _: self.scheduler.cancel(job))
        with self.lock:
            self.unprepared.append(job)
        self._submit_preparation()

    def shutdown(self) -> None:
        self.text_executor.shutdown(wait=False, cancel_futures=True)
        self.scheduler.shutdown()

    # ---- the thread for texts

    def _submit_preparation(self) -> None:
        with self.lock, suppress(RuntimeError):  # the server is stopping
            if not self.is_preparing:
                self.text_executor.submit(self._prepare_next)
                self.is_preparing = True

    def _prepare_next(self) -> None:
        """Prepare some jobs. Results that wait for this thread come before the next ones."""
        jobs = self._take_unprepared()
        start = time.monotonic()
        joining: list[JoiningJob] = []
        refused: list[Outcome] = []
        with suppress_warnings():
            for job in jobs:
                try:
                    joining.append(self._prepare(job))
                except Exception as error:
                    refused.append((job, error))
        self._report(refused, None)
        self._continue_jobs(joining)
        task: Any = jobs[0].task if jobs else None
        if jobs and is_long(jobs[0]) and task.model.runs_on_cpu:  # the next long text waits for its share
            now = time.monotonic()
            self.pause_until = now + min(MAX_PAUSE, PAUSE_FACTOR * (now - start))
        if jobs:
            with suppress(RuntimeError):  # the server is stopping
                self.text_executor.submit(self._prepare_next)

    def _take_unprepared(self) -> list[Job]:
        """Remove and return the jobs with the least text, or the oldest if that has waited for long."""
        now = time.monotonic()
        with self.lock:
            self.unprepared = [job for job in self.unprepared if not job.future.done()]
            is_pausing = now < self.pause_until
            jobs = [job for job in self.unprepared if not (is_pausing and is_long(job))]
            if not jobs:
                self.is_preparing = False
                if self.unprepared:
                    delay = max(0.0, self.pause_until - now)
                    self.loop.call_soon_threadsafe(self.loop.call_later, delay, self._submit_preparation)
                return []
            if now - jobs[0].arrived_at < PREPARATION_PATIENCE:
                jobs.sort(key=count_characters)
            num_characters = 0
            chosen: list[Job] = []
            for job in jobs:
                num_characters += count_characters(job)
                if chosen and num_characters > LONG_TEXT:
                    break
                chosen.append(job)
            self.unprepared = [job for job in self.unprepared if job not in chosen]
            return chosen

    def _prepare(self, job: Job) -> JoiningJob:
        task: Any = job.task
        options, preparer, assembler = self._get_stages(task)
        texts, finish = task.begin(job.items)
        is_short = sum(map(len, texts)) <= SHORT_TEXT
        if not is_short or task.forces_tokens:
            self.limits.check_work(task.estimate_size(texts))  # preparation takes longer
        text_jobs = preparer.prepare(texts)
        sentences = [sentence for text in text_jobs for sentence in text.sentences]
        num_tokens = sum(len(own.request.source) - 1 for own in sentences) if is_short else 0
        self.limits.check_work(JobSize(num_tokens, len(sentences), options.config.num_hypotheses))
        if task.forces_tokens:
            hypotheses = options.config.num_hypotheses
            self.limits.check_forced_work(sum(own.request.count_beam_tokens(hypotheses) for own in sentences))
        steps = plan_translation(text_jobs, assembler, options)

        def make_results() -> list[object]:
            results: list[object] = finish([assembler.assemble(text) for text in text_jobs])
            return results

        return JoiningJob(job, steps, make_results, assembler)

    def _get_stages(self, task: Any) -> tuple[TranslationOptions, TextPreparer, Assembler]:
        """Return what comes before and after decoding, kept for the next tasks unless it is for one alone."""
        key = task.stage_key
        if key is None:
            own: tuple[TranslationOptions, TextPreparer, Assembler] = task.create_stages()
            return own
        if key not in self.stages:
            self.stages = {own: stages for own, stages in self.stages.items() if not own[0].is_over}
            self.stages[key] = task.create_stages()
        return self.stages[key]

    def _continue_jobs(self, jobs: Sequence[JoiningJob]) -> None:
        """Have decoded what jobs need next. Report the results of those that need nothing."""
        self._process_decoded(jobs)
        self._take_next_steps(jobs)

    def _take_next_steps(self, jobs: Sequence[JoiningJob]) -> None:
        outcomes: list[Outcome] = []
        unfinished: list[JoiningJob] = []
        for job in jobs:
            if not job.is_abandoned:
                try:
                    if job.start_next_step():
                        unfinished.append(job)
                        continue
                    if job.is_paused:
                        self._pause(job)
                        continue
                    outcomes.append((job.job, job.finish()))
                except Exception as error:
                    outcomes.append((job.job, error))
            job.is_done = True
        self._report(outcomes, None)
        if unfinished:
            self.scheduler.put(unfinished)

    def _pause(self, job: JoiningJob) -> None:
        """Let what waits for this thread come first. One paused job goes on at a time, in turn."""
        self.paused.append(job)
        if len(self.paused) == 1:
            self._submit_paused()

    def _submit_paused(self) -> None:
        with suppress(RuntimeError):  # the server is stopping
            self.text_executor.submit(self._resume_paused)

    def _resume_paused(self) -> None:
        job = self.paused[0]
        self._take_next_steps([job])  # which appends it again if it is not done
        self.paused.popleft()
        if self.paused:
            self._submit_paused()

    @staticmethod
    def _process_decoded(jobs: Sequence[JoiningJob]) -> None:
        """Review and detokenize the sentences of all jobs at once, which takes less time."""
        sentences: dict[Assembler, list[SentenceJob]] = {}
        for job in jobs:
            is_decoded = job.decoding is not None and not job.decoding.is_retry
            if job.assembler is not None and is_decoded and not job.is_abandoned:
                sentences.setdefault(job.assembler, []).extend(job.sentences)
        for assembler, own in sentences.items():
            with suppress(Exception):  # each job comes to its own error again
                assembler.process_decoded(own)

    # ---- what the scheduler reports

    def _handle_report(self, report: StepReport) -> None:
        decoded: list[Any] = report.decoded
        failed: list[Any] = report.failed
        for job, _ in failed:
            job.is_done = True
        started: list[Any] = report.started
        self._report([(job.job, error) for job, error in failed], report.stats, [job.job for job in started])
        if decoded:
            with suppress(RuntimeError):  # the server is stopping
                self.text_executor.submit(self._continue_jobs, decoded)

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
