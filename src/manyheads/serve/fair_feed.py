"""Which sentence is decoded next: one of each client in turn, and of each request of a client in turn."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator

from manyheads.pipeline.assembly import Assembler
from manyheads.pipeline.jobs import Decoding, SentenceJob
from manyheads.search.options import Request
from manyheads.serve.jobs import Job
from manyheads.serve.served_model import ServedModel

IDLE_SECONDS = 0.001  # between two looks for sentences that may be taken


class ScheduledJob:
    """Sentences of one request that are to be decoded: all of them, then those that are tried again."""

    def __init__(self, client: str, model: ServedModel, arrived_at: float) -> None:
        self.client, self.model, self.arrived_at = client, model, arrived_at
        self.decoding: Decoding | None = None
        self.has_started = False
        self.is_done = False
        self.sentences: list[SentenceJob] = []
        self.num_started = self.num_unfinished = self.num_tokens = 0

    def start_decoding(self, decoding: Decoding) -> None:
        self.decoding = decoding
        self.sentences, self.num_tokens = decoding.sentences, decoding.num_tokens
        self.num_started, self.num_unfinished = 0, len(decoding.sentences)

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody waits for its results: its client is gone, or its time is over."""
        raise NotImplementedError


class JoiningJob(ScheduledJob):
    """A job of the queue whose sentences join a stream, step by step."""

    def __init__(
        self,
        job: Job,
        steps: Iterator[Decoding | None],
        finish: Callable[[], list[object]],
        assembler: Assembler | None = None,
    ) -> None:
        super().__init__(job.client, getattr(job.task, "model", None), job.arrived_at)  # type: ignore[arg-type]
        self.job, self.finish, self.assembler = job, finish, assembler
        self._steps = steps
        self.is_paused = False  # it has something to do before the next step, and lets others go first

    def start_next_step(self) -> Decoding | None:
        """Return what is to be decoded next; None if the job pauses, or can be finished."""
        for decoding in self._steps:
            self.is_paused = decoding is None
            if decoding is not None:
                self.start_decoding(decoding)
            return decoding
        self.is_paused = False
        return None

    @property
    def is_abandoned(self) -> bool:
        return self.job.future.done()


class FairFeed:
    """A RequestSource of the sentences of several jobs.

    At most `max_tokens` source tokens are decoded at once, and at most `max_new_tokens` start at once: all
    others wait while their sources are encoded.
    """

    starts_at_once = True

    def __init__(
        self, max_tokens: int, max_new_tokens: int, on_start: Callable[[ScheduledJob], None]
    ) -> None:
        self.max_tokens, self.max_new_tokens, self.on_start = max_tokens, max_new_tokens, on_start
        self.waiting: OrderedDict[str, OrderedDict[ScheduledJob, None]] = OrderedDict()  # by client
        self.active: dict[int, tuple[ScheduledJob, SentenceJob]] = {}  # by the number of the request
        self.num_taken = self.active_tokens = 0
        self.lock = threading.Lock()

    def put(self, job: ScheduledJob) -> None:
        with self.lock:
            self.waiting.setdefault(job.client, OrderedDict())[job] = None

    @property
    def is_exhausted(self) -> bool:
        """More may come as long as a sentence is being decoded."""
        return not self.waiting and not self.active

    def has_waiting(self, job: Job) -> bool:
        with self.lock:
            return any(getattr(own, "job", None) is job for jobs in self.waiting.values() for own in jobs)

    @property
    def num_waiting(self) -> int:
        with self.lock:
            return sum(map(len, self.waiting.values()))

    def take(self, count: int) -> list[Request]:
        with self.lock:
            requests: list[Request] = []
            num_new = 0
            while self.waiting and len(requests) < count:
                client = next(iter(self.waiting))
                job = next(iter(self.waiting[client]))
                if job.is_abandoned:
                    self._remove(job)
                    continue
                sentence = job.sentences[job.num_started]
                num_tokens = len(sentence.request.source)
                if self.active and self.active_tokens + num_tokens > self.max_tokens:
                    break
                if requests and num_new + num_tokens > self.max_new_tokens:
                    break
                num_new += num_tokens
                self._start(job, sentence)
                requests.append(sentence.request)
            return requests

    def take_canceled(self) -> list[int]:
        """Remove the sentences of abandoned jobs that are being decoded. Return their numbers."""
        with self.lock:
            canceled = [index for index, (job, _) in self.active.items() if job.is_abandoned]
            for index in canceled:
                self.active_tokens -= len(self.active.pop(index)[1].request.source)
            return canceled

    def wait(self) -> None:
        time.sleep(IDLE_SECONDS)

    def finish(self, index: int) -> tuple[ScheduledJob, SentenceJob]:
        """Remove a sentence that is decoded. Return it and its job."""
        with self.lock:
            job, sentence = self.active.pop(index)
            self.active_tokens -= len(sentence.request.source)
            return job, sentence

    def remove_active(self) -> list[ScheduledJob]:
        """Remove all jobs with a sentence that is being decoded, or all if there is none, and return them."""
        with self.lock:
            jobs = list(dict.fromkeys(job for job, _ in self.active.values()))
            jobs = jobs or [job for waiting in self.waiting.values() for job in waiting]
            self.active.clear()
            self.num_taken = self.active_tokens = 0
            for job in jobs:
                self._remove(job)
            return jobs

    def _start(self, job: ScheduledJob, sentence: SentenceJob) -> None:
        if not job.has_started:
            job.has_started = True
            self.on_start(job)
        job.num_started += 1
        client = job.client
        if job.num_started == len(job.sentences):
            self._remove(job)
        else:
            self.waiting[client].move_to_end(job)
        if client in self.waiting:
            self.waiting.move_to_end(client)
        self.active[self.num_taken] = job, sentence
        self.num_taken += 1
        self.active_tokens += len(sentence.request.source)

    def _remove(self, job: ScheduledJob) -> None:
        jobs = self.waiting.get(job.client)
        if jobs is not None:
            jobs.pop(job, None)
            if not jobs:
                del self.waiting[job.client]
