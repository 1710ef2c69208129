"""Review: the confidence of each translation, and a second try where a detector finds a failure.

`review` needs no engine and may run in any thread; `retry` decodes the sentences that failed once more, in
the engine's thread, or `plan_retry` says what is to be decoded. Terms of a glossary that are missing count as
failures of any model, all others as those of calibrated models.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from manyheads.confidence.calibration import ConfidenceModel
from manyheads.confidence.detectors import cut_loop, find_failures
from manyheads.config import DecodingConfig
from manyheads.inference.engine import Engine, ScoreDetail
from manyheads.pipeline.jobs import Decoding, SentenceJob, TranslationOptions
from manyheads.pipeline.preparation import derive_seed
from manyheads.pipeline.term_review import TERM_MISSING, TermReviewer
from manyheads.search.options import Hypothesis, Request, length_penalty

RETRY_BEAM, RETRY_NO_REPEAT = 8, 3
RETRY_TEMPERATURE, RETRY_SAMPLES = 0.5, 4
SECOND_TRY = "second try"


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
        lacking = yield from self._force_terms(sentences)
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

    def _force_terms(self, sentences: Sequence[SentenceJob]) -> Generator[Decoding, None, list[SentenceJob]]:
        """Have the sentences that lack terms decoded with them. Return these sentences."""
        if self.terms is None:
            return []
        lacking = [own for own in sentences if own.terms and self.terms.find_missing(own)]
        yield from self.terms.plan_forcing(lacking, self._score_detail)
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
