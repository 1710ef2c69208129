"""Review: the confidence of each translation, and a second try where a detector finds a failure.

`review` needs no engine and may run in any thread; `retry` decodes the sentences that failed once more, in
the engine's thread, or `plan_retry` says what is to be decoded. Terms of a glossary that are missing count as
failures of any model, all others as those of calibrated models.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, islice

from manyheads.confidence.calibration import ConfidenceModel
from manyheads.confidence.detectors import cut_loop, find_failures, find_loop_spans
from manyheads.config import DecodingConfig
from manyheads.inference.engine import Engine, ScoreDetail
from manyheads.pipeline.jobs import Decoding, SentenceJob, TranslationOptions
from manyheads.pipeline.preparation import derive_seed, split_language_tag
from manyheads.pipeline.term_review import TERM_MISSING, TermReviewer
from manyheads.search.options import Hypothesis, Request, length_penalty

RETRY_BEAM, RETRY_NO_REPEAT = 8, 3
RETRY_TEMPERATURE, RETRY_SAMPLES = 0.5, 4
EVEN_CHANCE = 0.5  # the confidence below which a sentence is probably not adequate
MAX_LOOPS = 8  # in a text: with more, nothing that may be copied is kept
SECOND_TRY, REPETITION_COPIED = "second try", "repeating parts copied"


class Reviewer:
    """Judges the translations of one call."""

    def __init__(
        self, engine: Engine, options: TranslationOptions, confidence: ConfidenceModel | None
    ) -> None:
        self.engine, self.options, self.confidence = engine, options, confidence
        config = options.config
        self.can_retry = options.second_try and config.nbest == 1 and config.temperature is None
        self.terms = TermReviewer(engine, options) if len(options.terms.glossary) else None

    def review(self, sentences: Sequence[SentenceJob]) -> list[SentenceJob]:
        """Set the confidences and notes of decoded sentences, once. Return those to be tried again."""
        if self.confidence is None and self.terms is None:
            return []
        unreviewed = [sentence for sentence in sentences if sentence.must_retry is None]
        if unreviewed and self.confidence is not None:
            self._review_unreviewed(unreviewed)
        if self.terms is not None:
            for sentence in unreviewed:
                if sentence.terms and self.terms.find_missing(sentence):
                    sentence.must_retry = True
        return [sentence for sentence in sentences if sentence.must_retry]

    def _review_unreviewed(self, sentences: Sequence[SentenceJob]) -> None:
        self._set_confidences(sentences)
        failures = self._find_failures([(own, own.hypotheses[0]) for own in sentences])
        for sentence, failure in zip(sentences, failures, strict=True):
            sentence.must_retry = failure is not None and self.can_retry
            if failure is not None:
                sentence.notes.append(failure)

    def review_text(self, sentences: Sequence[SentenceJob]) -> None:
        """Copy sentences of a text that repeat each other's outputs, where the text as a whole is a loop.

        It concerns parts of sentences, and sentences that failed at first or are probably not adequate.
        """
        if self.confidence is None or not self.can_retry:
            return
        left = [own for own in sentences if own.is_part or own.must_retry or is_doubtful(own)]
        if len(left) < 2:
            return
        source = [token for own in sentences for token in own.plain_source[:-1]]
        for number in range(MAX_LOOPS + 1):
            outputs = [own.hypotheses[0].tokens for own in sentences]
            spans = find_loop_spans([token for output in outputs for token in output], source)
            overlapping = find_overlapping(list(map(len, outputs)), spans)
            repeating = {own for own, overlaps in zip(sentences, overlapping, strict=True) if overlaps}
            copied = left if spans and number == MAX_LOOPS else [own for own in left if own in repeating]
            if not copied:
                return
            for own in copied:
                copy_source(own)

    def retry(self, sentences: Sequence[SentenceJob]) -> None:
        """Decode sentences that failed again, as `plan_retry` says."""
        for decoding in self.plan_retry(sentences):
            requests = [sentence.request for sentence in decoding.sentences]
            decoded = self.engine.decode(requests, decoding.config, scores=decoding.scores)
            for index, hypotheses in decoded:
                decoding.sentences[index].hypotheses = hypotheses

    def plan_retry(self, sentences: Sequence[SentenceJob]) -> Iterator[Decoding]:
        """Force terms that are missing. Search again with a larger beam and without repetition; then sample.

        The candidate with the highest confidence that no detector finds fault with is kept. If there is none,
        the best of all is, and its loops are cut.
        """
        lacking = self._force_terms(sentences)
        if self.confidence is not None and self.can_retry:
            failures = self._find_failures([(own, own.hypotheses[0]) for own in sentences])
            failed = [
                own
                for own, failure in zip(sentences, failures, strict=True)
                if failure is not None or own not in lacking
            ]
            yield from self._plan_second_try(failed)
        if self.terms is not None:
            for sentence in lacking:
                if self.terms.find_missing(sentence):
                    sentence.notes.append(TERM_MISSING)

    def _force_terms(self, sentences: Sequence[SentenceJob]) -> list[SentenceJob]:
        """Put missing terms into the translations of sentences. Return those that lacked some."""
        if self.terms is None:
            return []
        lacking = [own for own in sentences if own.terms and self.terms.find_missing(own)]
        self.terms.force(lacking)
        self._set_confidences(lacking)
        return lacking

    def _plan_second_try(self, sentences: Sequence[SentenceJob]) -> Iterator[Decoding]:
        if not sentences:
            return
        beam = replace(
            self.options.config,
            beam=max(RETRY_BEAM, 2 * self.options.config.beam),
            no_repeat_ngram=RETRY_NO_REPEAT,
        )
        left = yield from self._try_again(sentences, beam)
        if self.engine.capabilities.sampling:
            sampling = replace(
                self.options.config,
                temperature=RETRY_TEMPERATURE,
                nbest=RETRY_SAMPLES,
                no_repeat_ngram=RETRY_NO_REPEAT,
            )
            constrained = [sentence for sentence in left if sentence.request.constraints.required_phrases]
            free = [sentence for sentence in left if not sentence.request.constraints.required_phrases]
            left = constrained + (yield from self._try_again(free, sampling))
        self._cut_loops(left)

    def _try_again(
        self, sentences: Sequence[SentenceJob], config: DecodingConfig
    ) -> Generator[Decoding, None, list[SentenceJob]]:
        """Have sentences decoded once more and keep what is better. Return those that still fail."""
        if not sentences:
            return []
        copies = [SentenceJob(own.text, self._create_request(own, config)) for own in sentences]
        yield Decoding(config, self._score_detail, copies, is_retry=True)
        return self._keep_best(sentences, [copy.hypotheses for copy in copies])

    @property
    def _score_detail(self) -> ScoreDetail:
        return "total" if self.options.scores == "none" else self.options.scores

    def _create_request(self, sentence: SentenceJob, config: DecodingConfig) -> Request:
        request = sentence.request
        if config.temperature is None:
            return request
        seed = derive_seed(config.seed, request.source)
        return Request(request.source, replace(request.constraints, seed=seed))

    def _keep_best(
        self, sentences: Sequence[SentenceJob], candidates: Sequence[list[Hypothesis]]
    ) -> list[SentenceJob]:
        """Replace hypotheses by candidates that are better, all at once. Return what still fails."""
        lists = [
            [*sentence.hypotheses[:1], *own] for sentence, own in zip(sentences, candidates, strict=True)
        ]
        judged = iter(self._judge(sentences, lists))
        changed, left = [], []
        for sentence, hypotheses in zip(sentences, lists, strict=True):
            failures, confidences = zip(*islice(judged, len(hypotheses)), strict=True)
            ranks = [
                (self._has_terms(sentence, hypothesis), failure is None, confidence)
                for hypothesis, failure, confidence in zip(hypotheses, failures, confidences, strict=True)
            ]
            best = max(range(len(ranks)), key=ranks.__getitem__)
            failure = failures[best]
            if best:
                sentence.hypotheses = [hypotheses[best]]
                sentence.notes = [SECOND_TRY] if failure is None else [SECOND_TRY, failure]
                changed.append(sentence)
            if failure is not None:
                left.append(sentence)
        self._set_confidences(changed)
        return left

    def _has_terms(self, sentence: SentenceJob, hypothesis: Hypothesis) -> bool:
        return self.terms is None or not self.terms.find_missing(sentence, hypothesis)

    def _judge(
        self, sentences: Sequence[SentenceJob], lists: Sequence[list[Hypothesis]]
    ) -> Iterator[tuple[str | None, float]]:
        """Return the failure and the confidence of each hypothesis, -1 where that is unknown."""
        assert self.confidence is not None
        pairs = [
            (sentence, hypothesis)
            for sentence, hypotheses in zip(sentences, lists, strict=True)
            for hypothesis in hypotheses
        ]
        confidences = self.confidence.compute(
            [sentence.plain_source for sentence, _ in pairs],
            [hypothesis.tokens for _, hypothesis in pairs],
            [hypothesis.log_probability for _, hypothesis in pairs],
        ).tolist()
        failures = self._find_failures(pairs)
        return zip(failures, [-1.0 if math.isnan(value) else value for value in confidences], strict=True)

    def _find_failures(self, pairs: Sequence[tuple[SentenceJob, Hypothesis]]) -> list[str | None]:
        """Return what the detectors find wrong with each hypothesis of a sentence."""
        assert self.confidence is not None
        return find_failures(
            [sentence.plain_source for sentence, _ in pairs],
            [hypothesis.tokens for _, hypothesis in pairs],
            [sentence.request.constraints.max_length for sentence, _ in pairs],
            self.confidence.calibration.log_length_ratio,
        )

    def _cut_loops(self, sentences: Sequence[SentenceJob]) -> None:
        """Cut the loops that no try has avoided, and score what is left, all at once."""
        cut = [
            (sentence, tokens)
            for sentence in sentences
            if (tokens := cut_loop(sentence.hypotheses[0].tokens, sentence.plain_source[:-1]))
            != sentence.hypotheses[0].tokens
        ]
        if not cut:
            return
        scored = self.engine.score([own.request.source for own, _ in cut], [tokens for _, tokens in cut])
        for (sentence, tokens), scores in zip(cut, scored, strict=True):
            log_p = sum(scores)
            kept = scores if self.options.scores == "tokens" else []
            sentence.hypotheses = [Hypothesis(tokens, kept, self._penalize(log_p, len(scores)), log_p)]
        self._set_confidences([sentence for sentence, _ in cut])

    def _penalize(self, log_p: float, length: int) -> float:
        return log_p / length_penalty(length, self.options.config.alpha)

    def _set_confidences(self, sentences: Sequence[SentenceJob]) -> None:
        """Compute the confidence of every hypothesis, unless the caller reads no scores."""
        if self.confidence is None or self.options.scores == "none":
            return
        pairs = [(sentence, hypothesis) for sentence in sentences for hypothesis in sentence.hypotheses]
        computed = self.confidence.compute(
            [sentence.plain_source for sentence, _ in pairs],
            [hypothesis.tokens for _, hypothesis in pairs],
            [hypothesis.log_probability for _, hypothesis in pairs],
        ).tolist()
        values = iter(computed)
        for sentence in sentences:
            sentence.confidences = [next(values) for _ in sentence.hypotheses]


def is_doubtful(sentence: SentenceJob) -> bool:
    """Return whether a sentence is probably not adequate, as far as its confidence is known."""
    confidences = sentence.confidences
    return confidences is not None and confidences[0] < EVEN_CHANCE


def find_overlapping(lengths: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[bool]:
    """Return which parts of so many tokens hold a token of the spans of the whole, which are in order."""
    overlapping, first = [], 0
    for length, end in zip(lengths, accumulate(lengths), strict=True):
        while first < len(spans) and spans[first][1] <= end - length:
            first += 1
        overlapping.append(first < len(spans) and spans[first][0] < end and length > 0)
    return overlapping


def copy_source(sentence: SentenceJob) -> None:
    """Leave a sentence as it is, in place of its translation."""
    sentence.hypotheses = [Hypothesis([], [], 0.0, 0.0)]
    sentence.outputs = [split_language_tag(sentence.text)[1]]
    sentence.alignments = None if sentence.alignments is None else [[]]
    sentence.confidences = None if sentence.confidences is None else [0.0]
    sentence.notes.append(REPETITION_COPIED)
