"""Terms that a translation lacks are put into it, in the form that the glossary has.

A second search would cost as much as the first. Instead the phrase takes the place of a word, or of a part of
one, where the rest of the translation fits best: a few candidates are scored by forced decoding, all at once.
Which words are tried is told by the attention over an annotated term, or by how likely the phrase is there.
"""

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from manyheads.inference.engine import Engine
from manyheads.pipeline.jobs import SentenceJob, TranslationOptions
from manyheads.search.options import Hypothesis, length_penalty
from manyheads.text.term_matching import TermMatch, is_hangul

TERM_FORCED, TERM_MISSING = "term forced", "term missing"  # what translations note
TRIED_WORDS = 2  # of a translation, whose place a phrase may take


class MissingTerm(NamedTuple):
    """A term that the best translation of a sentence lacks, and the tokens of what it must become."""

    sentence: SentenceJob
    term: TermMatch
    phrase: tuple[int, ...]

    @property
    def tokens(self) -> list[int]:
        return self.sentence.hypotheses[0].tokens


class TermReviewer:
    """Checks the terms of the translations of one call, and forces those that are missing."""

    def __init__(self, engine: Engine, options: TranslationOptions) -> None:
        self.engine, self.options, self.terms = engine, options, options.terms
        self.can_force = options.config.temperature is None
        self.starts = self.terms.subwords.word_start_ids

    def find_missing(self, sentence: SentenceJob, hypothesis: Hypothesis | None = None) -> list[TermMatch]:
        """Return the terms that a hypothesis lacks, by default the best one."""
        hypothesis = hypothesis or sentence.hypotheses[0]
        if sentence.missing_terms is None or sentence.missing_terms[0] is not hypothesis:
            missing = self.terms.find_missing(sentence.terms, hypothesis.tokens)
            sentence.missing_terms = hypothesis, missing
        return sentence.missing_terms[1]

    def force(self, sentences: Sequence[SentenceJob]) -> None:
        """Put the terms that sentences lack into their translations, one of each sentence at a time."""
        if not self.can_force:
            return
        tried: dict[int, set[str]] = {id(own): set() for own in sentences}
        while missing := [
            MissingTerm(own, term, self.terms.require([term])[0][0])
            for own in sentences
            if not own.request.constraints.required_phrases
            for term in self.find_missing(own)[:1]
            if term.translation not in tried[id(own)]
        ]:
            for own in missing:
                tried[id(own.sentence)].add(own.term.translation)
            self._insert(missing)

    def _insert(self, missing: Sequence[MissingTerm]) -> None:
        """Replace the translations of sentences by the best ones that have a term more."""
        candidates = [
            [row for start in starts for row in self._list_candidates(own, start)]
            for own, starts in zip(missing, self._find_starts(missing), strict=True)
        ]
        sources = [
            own.sentence.request.source for own, rows in zip(missing, candidates, strict=True) for _ in rows
        ]
        log_p = iter(self.engine.score(sources, [row for rows in candidates for row in rows]))
        for own, rows in zip(missing, candidates, strict=True):
            sentence, num_missing = own.sentence, len(self.find_missing(own.sentence))
            made = sorted((self._create(row, next(log_p)) for row in rows), key=lambda made: -made.score)
            fitting = (made for made in made if len(self.find_missing(sentence, made)) < num_missing)
            best = next(fitting, None)
            if best is not None:
                sentence.hypotheses = [best]
                if TERM_FORCED not in sentence.notes:
                    sentence.notes.append(TERM_FORCED)

    def _create(self, tokens: list[int], token_scores: list[float]) -> Hypothesis:
        log_p = sum(token_scores)
        score = log_p / length_penalty(len(token_scores), self.options.config.alpha)
        return Hypothesis(tokens, token_scores if self.options.scores == "tokens" else [], score, log_p)

    def _list_candidates(self, own: MissingTerm, start: int) -> Iterator[list[int]]:
        """Yield the translation with the phrase instead of up to as many words as it has.

        Where it may be inflected, it may also take the place of a part of a word, and the ending stays.
        """
        tokens, constraints = own.tokens, own.sentence.request.constraints
        may_continue = self.terms.is_annotated or is_hangul(own.term.translation[-1])
        num_words = len(own.term.translation.split())
        for end in range(start, len(tokens) + 1):
            is_start = end == len(tokens) or tokens[end] in self.starts
            if end > start and is_start:
                num_words -= 1
            if is_start or end == start or may_continue:
                row = [*tokens[:start], *own.phrase, *tokens[end:]]
                if self._is_allowed(row, constraints.forbidden_phrases):
                    yield row
            if num_words == 0:
                return

    def _is_allowed(self, row: list[int], forbidden: Sequence[tuple[int, ...]]) -> bool:
        max_positions = self.engine.capabilities.max_positions
        if max_positions is not None and len(row) >= max_positions:
            return False
        return not any(
            tuple(row[first : first + len(phrase)]) == phrase
            for phrase in forbidden
            for first in range(len(row))
        )

    # ---- which words are tried

    def _find_starts(self, missing: Sequence[MissingTerm]) -> list[list[int]]:
        """Return for each sentence the starts of the words that are tried, the likeliest."""
        can_align = self.engine.capabilities.alignment
        is_aligned = [can_align and own.sentence.kept_positions is not None for own in missing]
        by_attention = self._weigh_by_attention(list(compress(missing, is_aligned)))
        by_score = self._weigh_by_score(
            [own for own, aligned in zip(missing, is_aligned, strict=True) if not aligned]
        )
        chosen = []
        for aligned in is_aligned:
            weights = next(by_attention if aligned else by_score)
            chosen.append(sorted(weights, key=lambda start: -weights[start])[:TRIED_WORDS])
        return chosen

    def _list_starts(self, own: MissingTerm) -> list[int]:
        """Return where the words of the translation start, and its end. A prefix stays as it is."""
        first, tokens = len(own.sentence.request.constraints.prefix), own.tokens
        inner = [n for n in range(first, len(tokens)) if n == first or tokens[n] in self.starts]
        return [*inner, len(tokens)]

    def _weigh_by_attention(self, missing: Sequence[MissingTerm]) -> Iterator[dict[int, float]]:
        """Yield for each word how much of its attention is on the annotated term."""
        if not missing:
            return
        sources = [own.sentence.request.source for own in missing]
        maps = self.engine.align(sources, [own.tokens for own in missing])
        for own, source, weights_TS in zip(missing, sources, maps, strict=True):
            spans = self.options.terms.annotation_remover.find_annotations(source)
            first, end = spans[own.sentence.terms.index(own.term)]
            weights_T = np.asarray(weights_TS)[:, first:end].sum(1)
            starts = self._list_starts(own)
            ends = [*starts[1:], len(own.tokens) + 1]
            yield {
                start: float(weights_T[start:word_end].max())
                for start, word_end in zip(starts, ends, strict=True)
            }

    def _weigh_by_score(self, missing: Sequence[MissingTerm]) -> Iterator[dict[int, float]]:
        """Yield for each word how likely the phrase is in its place."""
        starts = [self._list_starts(own) for own in missing]
        rows = [
            [*own.tokens[:start], *own.phrase]
            for own, own_starts in zip(missing, starts, strict=True)
            for start in own_starts
        ]
        sources = [
            own.sentence.request.source
            for own, own_starts in zip(missing, starts, strict=True)
            for _ in own_starts
        ]
        log_p = iter(self.engine.score(sources, rows) if rows else ())
        for own, own_starts in zip(missing, starts, strict=True):
            size = len(own.phrase)
            yield {start: sum(next(log_p)[start : start + size]) for start in own_starts}
