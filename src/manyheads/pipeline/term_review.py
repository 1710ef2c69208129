"""Terms that a translation lacks are forced in a second search, in the form that the glossary has.

The search of the torch engine can be required to write phrases. For other engines a phrase is put into the
translation after those words where the model finds it likeliest, and the search goes on from there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from manyheads.inference.engine import Engine, ScoreDetail
from manyheads.pipeline.jobs import Decoding, SentenceJob, TranslationOptions
from manyheads.pipeline.preparation import require_terms
from manyheads.search.options import Hypothesis, Request
from manyheads.text.term_matching import TermMatch

TERM_FORCED, TERM_MISSING = "term forced", "term missing"  # what translations note
TRIED_POSITIONS = 3  # of a phrase in a translation, the likeliest


class TermReviewer:
    """Checks the terms of the translations of one call, and forces those that are missing."""

    def __init__(self, engine: Engine, options: TranslationOptions) -> None:
        self.engine, self.options, self.terms = engine, options, options.terms
        self.can_force = options.config.temperature is None

    def find_missing(self, sentence: SentenceJob, hypothesis: Hypothesis | None = None) -> list[TermMatch]:
        """Return the terms that a hypothesis lacks, by default the best one."""
        return self.terms.find_missing(sentence.terms, (hypothesis or sentence.hypotheses[0]).tokens)

    def plan_forcing(self, sentences: Sequence[SentenceJob], scores: ScoreDetail) -> Iterator[Decoding]:
        """Have sentences decoded again with the terms that they lack, as far as the search allows."""
        sentences = [own for own in sentences if self.can_force and self._can_force(own)]
        if not sentences:
            return
        if self.engine.capabilities.required_phrases:
            yield from self._require_phrases(sentences, scores)
            return
        max_terms = max(len(self._list_phrases(own)) for own in sentences)
        for _ in range(max_terms):
            sentences = [own for own in sentences if self._list_phrases(own)]
            if sentences:
                yield from self._insert_phrase(sentences, scores)

    def _can_force(self, sentence: SentenceJob) -> bool:
        return bool(self._list_phrases(sentence)) and not sentence.request.constraints.required_phrases

    def _list_phrases(self, sentence: SentenceJob) -> tuple[tuple[int, ...], ...]:
        return self.terms.require(self.find_missing(sentence))[0]

    def _require_phrases(self, sentences: Sequence[SentenceJob], scores: ScoreDetail) -> Iterator[Decoding]:
        copies = []
        for own in sentences:
            constraints = require_terms(own.request.constraints, self.terms, self.find_missing(own))
            copies.append(SentenceJob(own.text, Request(own.request.source, constraints)))
        yield Decoding(self.options.config, scores, copies, is_retry=True)
        for sentence, copy in zip(sentences, copies, strict=True):
            self._replace(sentence, copy.hypotheses)

    def _insert_phrase(self, sentences: Sequence[SentenceJob], scores: ScoreDetail) -> Iterator[Decoding]:
        """Continue from the likeliest positions of the first phrase that each sentence lacks."""
        copies: list[tuple[SentenceJob, SentenceJob]] = []
        for sentence, prefixes in zip(sentences, self._find_prefixes(sentences), strict=True):
            request = sentence.request
            for prefix in prefixes:
                max_length = request.constraints.max_length + len(self._list_phrases(sentence)[0])
                constraints = replace(request.constraints, prefix=tuple(prefix), max_length=max_length)
                copies.append((sentence, SentenceJob(sentence.text, Request(request.source, constraints))))
        config = replace(self.options.config, nbest=1)
        yield Decoding(config, scores, [copy for _, copy in copies], is_retry=True)
        for sentence in sentences:
            every = [own for other, copy in copies if other is sentence for own in copy.hypotheses]
            fitting = [own for own in every if len(self.find_missing(sentence, own)) < len(sentence.terms)]
            self._replace(sentence, sorted(fitting, key=lambda own: -own.score)[:1])

    def _find_prefixes(self, sentences: Sequence[SentenceJob]) -> list[list[list[int]]]:
        """Return the first words of each translation with a phrase after them, the likeliest of all."""
        candidates: list[list[list[int]]] = []
        for sentence in sentences:
            tokens, phrase = sentence.hypotheses[0].tokens, self._list_phrases(sentence)[0]
            first = len(sentence.request.constraints.prefix)
            starts = self.terms.subwords.word_start_ids
            positions = [n for n in range(first, len(tokens)) if n == first or tokens[n] in starts]
            candidates.append([[*tokens[:n], *phrase] for n in [*positions, len(tokens)]])
        sources = [own.request.source for own, rows in zip(sentences, candidates, strict=True) for _ in rows]
        log_p = iter(self.engine.score(sources, [row for rows in candidates for row in rows]))
        chosen = []
        for sentence, rows in zip(sentences, candidates, strict=True):
            size = len(self._list_phrases(sentence)[0])
            ranked = sorted((-sum(next(log_p)[len(row) - size : len(row)]), row) for row in rows)
            chosen.append([row for _, row in ranked[:TRIED_POSITIONS]])
        return chosen

    def _replace(self, sentence: SentenceJob, hypotheses: list[Hypothesis]) -> None:
        if hypotheses:
            sentence.hypotheses = hypotheses
            if TERM_FORCED not in sentence.notes:
                sentence.notes.append(TERM_FORCED)
