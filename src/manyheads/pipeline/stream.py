"""The pipeline: texts are read and prepared, decoded by the engine, and detokenized, all at the same time.

The engine runs in the caller's thread and takes requests as it needs them. Its results are detokenized in a
thread, many at a time, and returned in the order of the texts.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from manyheads.inference.engine import Engine
from manyheads.pipeline.assembly import ALIGNED_TOKENS, Assembler, check_hypotheses
from manyheads.pipeline.background import BackgroundPreparation
from manyheads.pipeline.jobs import Decoding, SentenceJob, TextJob, TranslationOptions
from manyheads.pipeline.preparation import TextPreparer
from manyheads.search.options import Request
from manyheads.translation import Translation

ReportDone = Callable[[int], None]  # the texts that are decoded

DETOKENIZED_SENTENCES, ALIGNED_SENTENCES = 256, 64  # at once
FLUSH_SECONDS = 0.1  # for which finished sentences may wait for others to be detokenized with
RETRIES_PER_WINDOW = 8  # so many sentences that failed are decoded again together: 512, on a GPU 4,096
HELD_TEXTS_FACTOR = 4  # times the sentences that the engine reads ahead: texts held at most
BLOCKED_SHARE = 0.75  # of them: from then on the first text is not left waiting for its second try


def translate_at_once(
    texts: Sequence[str],
    engine: Engine,
    preparer: TextPreparer,
    assembler: Assembler,
    options: TranslationOptions,
    report_done: ReportDone,
    check_canceled: Callable[[], None] = lambda: None,
) -> list[Translation]:
    """Translate texts that are all known, without threads. `check_canceled` may raise between sentences."""
    jobs = preparer.prepare(texts)
    num_done = sum(not job.sentences for job in jobs)
    steps = plan_translation(jobs, assembler, options)
    for decoding in steps:
        check_canceled()
        if decoding is None:
            continue
        requests = [sentence.request for sentence in decoding.sentences]
        for index, hypotheses in engine.decode(requests, decoding.config, scores=decoding.scores):
            check_canceled()
            sentence = decoding.sentences[index]
            sentence.hypotheses = hypotheses
            if sentence.is_last:
                num_done += 1
                report_done(num_done)
    return [assembler.assemble(job) for job in jobs]


def plan_translation(
    jobs: Sequence[TextJob], assembler: Assembler, options: TranslationOptions
) -> Iterator[Decoding | None]:
    """Yield what is to be decoded, step by step. When that has its hypotheses, ask for the next step.

    None is a pause in what takes long, so that others may come in between. After the last step the jobs can
    be assembled: a translation may need a second try, or its parts.
    """
    sentences = [sentence for job in jobs for sentence in job.sentences]
    while sentences:
        yield Decoding(options.config, options.scores, sentences)
        for sentence in sentences:
            if sentence.outputs is None:  # otherwise processed already, with those of other calls
                check_hypotheses(sentence)
        yield from assembler.reviewer.plan_retry(assembler.reviewer.review(sentences))
        if options.alignment:
            yield from assembler.align(sentences, ALIGNED_TOKENS)
        sentences = assembler.detokenize(sentences)


class TranslationStream:
    """Translates any number of texts, about `read_ahead` at a time."""

    def __init__(
        self,
        engine: Engine,
        preparer: TextPreparer,
        assembler: Assembler,
        options: TranslationOptions,
        read_ahead: int | None,
        report_done: ReportDone,
    ) -> None:
        self.engine, self.preparer, self.assembler, self.options = engine, preparer, assembler, options
        self.window = read_ahead or engine.read_ahead
        self.max_failed = max(1, self.window // RETRIES_PER_WINDOW)
        self.max_texts = read_ahead or HELD_TEXTS_FACTOR * engine.read_ahead
        self.batch_size = ALIGNED_SENTENCES if options.alignment else DETOKENIZED_SENTENCES
        self.jobs: deque[TextJob] = deque()  # not yet returned, in order
        self.finished: list[SentenceJob] = []  # decoded, not yet detokenized
        self.flush_time = 0.0
        self.num_done, self.report_done = 0, report_done
        self.detokenizing: deque[Future[tuple[list[SentenceJob], list[SentenceJob]]]] = deque()
        self.parts: deque[SentenceJob] = deque()  # of sentences to repair, not yet decoded
        self.failed: list[SentenceJob] = []  # to be tried again

    def run(self, texts: Iterable[str]) -> Iterator[list[Translation]]:
        """Yield translations in the order of the texts, as many as are ready. Call it once."""
        self.background = BackgroundPreparation(texts, self.preparer.prepare, self.max_texts)
        with ThreadPoolExecutor(1, "manyheads detokenizer") as self.detokenizer:
            self.background.start()
            try:
                while self.parts or not self.background.is_exhausted:
                    yield from self._decode_available()
            finally:
                self.background.stop()
        if self.background.error is not None:
            raise self.background.error

    def _decode_available(self) -> Iterator[list[Translation]]:
        """Yield the translations of all texts that come without a pause."""
        active: dict[int, SentenceJob] = {}  # by the index of the request
        decoded = self.engine.decode(
            self._take_requests(active), self.options.config, scores=self.options.scores, window=self.window
        )
        for index, hypotheses in decoded:
            sentence = active.pop(index)
            sentence.hypotheses = hypotheses
            check_hypotheses(sentence)
            self.finished.append(sentence)
            self.background.reset_patience()
            if len(self.finished) >= self.batch_size or time.monotonic() >= self.flush_time:
                self._detokenize_finished()
            if self.detokenizing and self.detokenizing[0].done():
                yield from self._return_ready()
        self._detokenize_finished()
        while self.detokenizing:
            self._collect(*self.detokenizing.popleft().result())
        self._retry_failed()
        self.background.reset_patience()
        yield from self._return_ready()

    def _take_requests(self, active: dict[int, SentenceJob]) -> Iterator[Request]:
        """Yield requests until there are none for now: the engine then finishes what it has."""
        for index, sentence in enumerate(self._take_sentences()):
            active[index] = sentence
            yield sentence.request

    def _take_sentences(self) -> Iterator[SentenceJob]:
        """Yield sentences, and between them the parts of those that are repaired."""
        while True:
            while self.parts:
                yield self.parts.popleft()
            jobs = self.background.take(is_urgent=bool(self.jobs))
            if not jobs and not self.parts:
                return
            self.jobs.extend(jobs)
            for job in jobs:
                self.num_done += not job.sentences
                yield from job.sentences

    def _detokenize_finished(self) -> None:
        """Start to detokenize the sentences that are decoded."""
        self.flush_time = time.monotonic() + FLUSH_SECONDS
        if not self.finished:
            return
        self.num_done += sum([sentence.is_last for sentence in self.finished])
        self.report_done(self.num_done)
        if self.options.alignment:  # in this thread: it runs the engine
            list(self.assembler.align(self.finished))
        self.detokenizing.append(self.detokenizer.submit(self._review_and_detokenize, self.finished))
        self.finished = []

    def _review_and_detokenize(
        self, sentences: list[SentenceJob]
    ) -> tuple[list[SentenceJob], list[SentenceJob]]:
        """Give sentences their texts. Return those to be tried again, and parts of those to be repaired."""
        failed = self.assembler.reviewer.review(sentences)
        unfinished = {id(sentence) for sentence in failed}
        finished = [sentence for sentence in sentences if id(sentence) not in unfinished]
        return failed, self.assembler.detokenize(finished)

    def _collect(self, failed: list[SentenceJob], parts: list[SentenceJob]) -> None:
        """Keep what is to be decoded again: parts with the sentences that follow, failed ones together."""
        self.parts.extend(parts)
        self.failed += failed
        # Soon no more texts can be read, and not because others are still to be detokenized.
        is_blocking = not self.detokenizing and len(self.jobs) >= BLOCKED_SHARE * self.max_texts
        if len(self.failed) >= self.max_failed or (self.failed and is_blocking):
            self._retry_failed()

    def _retry_failed(self) -> None:
        """Decode the sentences whose translations failed again. Few at a time would keep a GPU waiting."""
        sentences, self.failed = self.failed, []
        if not sentences:
            return
        self.assembler.reviewer.retry(sentences)
        if self.options.alignment:
            list(self.assembler.align(sentences))
        self.parts.extend(self.assembler.detokenize(sentences))

    def _return_ready(self) -> Iterator[list[Translation]]:
        """Yield the translations of the first texts, as far as they are done."""
        while self.detokenizing and self.detokenizing[0].done():
            self._collect(*self.detokenizing.popleft().result())
        ready = []
        while self.jobs and self.jobs[0].is_done:
            ready.append(self.jobs.popleft())
        if ready:
            yield [self.assembler.assemble(job) for job in ready]
            self.background.release(ready)
