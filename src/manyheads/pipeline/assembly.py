"""Ids to text: hypotheses are detokenized many at a time, and the sentences of a text are joined."""

import math
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from manyheads.confidence.calibration import ConfidenceModel
from manyheads.errors import RequestError
from manyheads.inference.engine import Engine
from manyheads.pipeline.jobs import Alignment, SentenceJob, TextJob, TranslationOptions
from manyheads.pipeline.preparation import TextPreparer
from manyheads.pipeline.review import Reviewer
from manyheads.search.options import Hypothesis
from manyheads.text.invalid import LONE_SURROGATE, REPLACEMENT_CHARACTER
from manyheads.text.korean_particles import correct_particles
from manyheads.text.masks import ANY_SYMBOL
from manyheads.text.restoration import Restoration
from manyheads.text.segmentation import replace_line_breaks
from manyheads.text.subwords import SubwordPair
from manyheads.text.term_matching import is_hangul
from manyheads.translation import TokenIds, Translation

SYMBOL_START = "\u27e6"  # of a copy symbol, or one of terms

ALIGNED_TOKENS = 512  # of sources and hypotheses that are aligned before others may come in between

# What translations note.
ALL_CAPITALS = "all capitals"
BROKEN_BYTES = "broken bytes removed"
NOTHING_TO_TRANSLATE = "nothing to translate"
REPAIRED = "copied text repaired"


class Assembler:
    """Makes translations of jobs whose sentences are decoded."""

    def __init__(
        self,
        engine: Engine,
        subwords: SubwordPair,
        options: TranslationOptions,
        preparer: TextPreparer,
        confidence: ConfidenceModel | None = None,
    ) -> None:
        self.engine, self.subwords, self.preparer = engine, subwords, preparer
        self.reviewer = Reviewer(engine, options, confidence)
        self.has_alignment = options.alignment
        self.has_details = confidence is not None and options.scores == "tokens"
        sampled = "" if options.config.temperature is None else "sampled, ranked by "
        self.objective = sampled + engine.objective

    def align(self, sentences: Sequence[SentenceJob], max_tokens: float = math.inf) -> Iterator[None]:
        """Find which source token each token of every hypothesis attended to most.

        Pause after every `max_tokens`.
        """
        pairs = [(own, hypothesis.tokens) for own in sentences for hypothesis in own.hypotheses]
        for sentence in sentences:
            sentence.alignments = []
        start = 0
        while start < len(pairs):
            end, num_tokens = start, 0.0
            while end < len(pairs) and (end == start or num_tokens < max_tokens):
                num_tokens += len(pairs[end][0].request.source) + len(pairs[end][1])
                end += 1
            part, start = pairs[start:end], end
            maps = self.engine.align([own.request.source for own, _ in part], [target for _, target in part])
            for (sentence, _), weights_TS in zip(part, maps, strict=True):
                assert sentence.alignments is not None
                sentence.alignments.append(find_aligned(sentence, weights_TS))
            yield

    def detokenize(self, sentences: Sequence[SentenceJob]) -> list[SentenceJob]:
        """Give sentences the texts of their hypotheses, once. What would break a line becomes a space.

        Return the parts of sentences in which text to copy was lost; they are decoded and come here too.
        """
        self._detokenize_new([sentence for sentence in sentences if sentence.outputs is None])
        return [
            part
            for sentence in sentences
            if sentence.repair is not None
            for part in sentence.repair.sentences
        ]

    def _detokenize_new(self, sentences: Sequence[SentenceJob]) -> None:
        ids = [hypothesis.tokens for sentence in sentences for hypothesis in sentence.hypotheses]
        decoded = self.subwords.target.decode_sentences(ids)
        are_clean = is_clean("".join(decoded))
        texts = map(replace_line_breaks, decoded)
        for sentence in sentences:
            outputs = sentence.outputs = [next(texts) for _ in sentence.hypotheses]
            if not are_clean and not all(map(is_clean, outputs)):
                sentence.outputs = [clean_output(sentence, output) for output in outputs]
            if sentence.terms:
                sentence.outputs = [correct_terms(sentence, output) for output in sentence.outputs]
            if sentence.restoration is not None:
                restore_outputs(sentence, sentence.restoration)
                if not sentence.outputs:
                    sentence.repair = self.preparer.prepare_parts(sentence)
                    sentence.notes.append(REPAIRED)

    def process_decoded(self, sentences: Sequence[SentenceJob]) -> None:
        """Review and detokenize sentences of several calls together, as far as nothing else comes before.

        What follows for each call, `plan_translation`, finds this done.
        """
        decoded = [sentence for sentence in sentences if sentence.hypotheses]
        self.reviewer.review(decoded)
        if not self.has_alignment:
            self._detokenize_new(
                [sentence for sentence in decoded if sentence.outputs is None and not sentence.must_retry]
            )

    def assemble(self, job: TextJob) -> Translation:
        """Join the sentences of a text. The n-th alternative is made of the n-th best of each."""
        expanded = job.expand()
        if len(expanded.sentences) > 1:
            self.reviewer.review_text(expanded.sentences)
        notes, corrections = collect_notes(job), list(job.corrections)
        job = expanded
        sentences = job.sentences
        count = max([len(sentence.hypotheses) for sentence in sentences], default=1)
        best = self._create_version(job, [0] * len(sentences), self.objective, notes)
        best.corrections.extend(corrections)
        for rank in range(1, count):
            ranks = [min(rank, len(sentence.hypotheses) - 1) for sentence in sentences]
            best.alternatives.append(self._create_version(job, ranks, "", notes))
        return best

    def _create_version(
        self, job: TextJob, ranks: list[int], objective: str, notes: list[str]
    ) -> Translation:
        """Return the text with the hypothesis of this rank of each sentence."""
        chosen: list[Hypothesis] = []
        outputs: list[str] = []
        source_ids: list[list[int]] = []
        restorations = [sentence.restoration for sentence in job.sentences]
        for sentence, rank in zip(job.sentences, ranks, strict=True):
            assert sentence.outputs is not None
            chosen.append(sentence.hypotheses[rank])
            outputs.append(sentence.outputs[rank])
            source_ids.append(sentence.plain_source)
        return Translation(
            job.text,
            make_valid(job.join(outputs)),
            sum([hypothesis.score for hypothesis in chosen]),
            sum([hypothesis.log_probability for hypothesis in chosen]),
            TokenIds(self.subwords.source, source_ids, True, restorations),
            TokenIds(self.subwords.target, [hypothesis.tokens for hypothesis in chosen], False, restorations),
            [score for hypothesis in chosen for score in hypothesis.token_scores[:-1]],
            join_alignments(job.sentences, ranks) if self.has_alignment else None,
            len(chosen),
            self.engine.name,
            objective,
            confidence=join_confidences(job.sentences, ranks),
            notes=list(notes),
            sentence_confidences=self._list_confidences(job.sentences, ranks, outputs),
        )

    def _list_confidences(
        self, sentences: list[SentenceJob], ranks: list[int], outputs: list[str]
    ) -> list[tuple[str, float | None]]:
        """Return the output and the confidence of each sentence, if details are requested."""
        if not self.has_details:
            return []
        return [
            (output, join_confidences([sentence], [rank]))
            for sentence, rank, output in zip(sentences, ranks, outputs, strict=True)
        ]


def find_aligned(sentence: SentenceJob, weights_TS: Any) -> Alignment:
    """Return the source token that each token of a translation attends to most."""
    # Tokens attend to the end token too, but nothing is translated from it.
    weights_TS = weights_TS[:-1, :-1] if weights_TS.shape[1] > 1 else weights_TS[:0]
    best = weights_TS.argmax(-1).tolist() if len(weights_TS) else []
    if sentence.kept_positions is not None:  # what a token owes to an annotation is of its term
        best = [bisect_right(sentence.kept_positions, position, 1) - 1 for position in best]
    return [(source, target) for target, source in enumerate(best)]


def is_clean(output: str) -> bool:
    """Return whether an output, or several, have no broken bytes and no copy symbols, and are composed."""
    return output.isascii() or (
        REPLACEMENT_CHARACTER not in output
        and SYMBOL_START not in output
        and unicodedata.is_normalized("NFC", output)
    )


def clean_output(sentence: SentenceJob, output: str) -> str:
    """Remove bytes that are not UTF-8, unless the source has such, and symbols that stand for nothing."""
    if REPLACEMENT_CHARACTER in output and REPLACEMENT_CHARACTER not in sentence.text:
        output = " ".join(output.replace(REPLACEMENT_CHARACTER, "").split())
        sentence.notes.append(BROKEN_BYTES)
    if SYMBOL_START in output and sentence.restoration is None:
        output = " ".join(ANY_SYMBOL.sub("", output).split())
    return unicodedata.normalize("NFC", output)


def correct_terms(sentence: SentenceJob, output: str) -> str:
    """Give the particles behind Korean terms their right form."""
    for term in sentence.terms:
        if is_hangul(term.translation[-1]):
            output = correct_particles(output, term.translation)
    return output


def restore_outputs(sentence: SentenceJob, restoration: Restoration) -> None:
    """Restore the outputs, and leave out those that lost text to copy, with their hypotheses."""
    assert sentence.outputs is not None
    restored = [restoration.restore(output) for output in sentence.outputs]
    kept = [rank for rank, output in enumerate(restored) if output is not None]
    sentence.outputs = [output for output in restored if output is not None]
    sentence.hypotheses = [sentence.hypotheses[rank] for rank in kept]
    if sentence.alignments is not None:
        sentence.alignments = [sentence.alignments[rank] for rank in kept]
    if sentence.confidences is not None:
        sentence.confidences = [sentence.confidences[rank] for rank in kept]
    if restoration.is_upper:
        sentence.notes.append(ALL_CAPITALS)


def collect_notes(job: TextJob) -> list[str]:
    """Return what was unusual about a text, each once."""
    if not job.sentences and not job.corrections:
        return [*job.notes, NOTHING_TO_TRANSLATE]
    notes = list(job.notes)
    for sentence in job.sentences:
        notes += sentence.notes
        if sentence.repair is not None:
            notes += collect_notes(sentence.repair)
    return list(dict.fromkeys(notes)) if notes else notes


def make_valid(text: str) -> str:
    """Replace lone surrogates, which a Python string can hold, but no file."""
    if text.isascii() or not LONE_SURROGATE.search(text):
        return text
    return LONE_SURROGATE.sub(REPLACEMENT_CHARACTER, text)


def join_alignments(sentences: list[SentenceJob], ranks: list[int]) -> Alignment:
    """Return the alignments of all sentences, counted from the first token of the text."""
    alignment: Alignment = []
    num_source, num_target = 0, 0
    for sentence, rank in zip(sentences, ranks, strict=True):
        assert sentence.alignments is not None
        alignment += [
            (source + num_source, target + num_target) for source, target in sentence.alignments[rank]
        ]
        num_source += len(sentence.plain_source) - 1
        num_target += len(sentence.hypotheses[rank].tokens)
    return alignment


def join_confidences(sentences: list[SentenceJob], ranks: list[int]) -> float | None:
    """Return the mean confidence of the sentences, weighted by their output tokens, or else source tokens.

    It is the share of the text that is expected to be adequate; None where a sentence has no confidence.
    """
    total, weight = 0.0, 0
    for sentence, rank in zip(sentences, ranks, strict=True):
        if sentence.confidences is None:
            return None
        length = (len(sentence.hypotheses[rank].tokens) or len(sentence.plain_source) - 1) + 1
        total += length * sentence.confidences[rank]
        weight += length
    return total / weight if weight and not math.isnan(total) else None


def check_hypotheses(sentence: SentenceJob) -> None:
    """Refuse a sentence without a result."""
    if not sentence.hypotheses:
        raise RequestError(
            f"no translation of {sentence.text[:60]!r}: the required and forbidden words exclude "
            f"each other, or the model's numbers are not finite"
        )
