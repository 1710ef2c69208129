"""Ids to text: hypotheses are detokenized many at a time, and the sentences of a text are joined."""

import math
from collections.abc import Sequence
from itertools import islice

from manyheads.confidence.calibration import ConfidenceModel
from manyheads.errors import RequestError
from manyheads.inference.engine import Engine
from manyheads.pipeline.jobs import Alignment, SentenceJob, TextJob, TranslationOptions
from manyheads.pipeline.review import Reviewer
from manyheads.search.options import Hypothesis
from manyheads.text.segmentation import replace_line_breaks
from manyheads.text.subwords import SubwordPair
from manyheads.translation import TokenIds, Translation


class Assembler:
    """Makes translations of jobs whose sentences are decoded."""

    def __init__(
        self,
        engine: Engine,
        subwords: SubwordPair,
        options: TranslationOptions,
        confidence: ConfidenceModel | None = None,
    ) -> None:
        self.engine, self.subwords = engine, subwords
        self.reviewer = Reviewer(engine, options, confidence)
        self.has_alignment = options.alignment
        sampled = "" if options.config.temperature is None else "sampled, ranked by "
        self.objective = sampled + engine.objective

    def align(self, sentences: Sequence[SentenceJob]) -> None:
        """Find which source token each token of every hypothesis attended to most."""
        pairs = [
            (sentence.request.source, hypothesis.tokens)
            for sentence in sentences
            for hypothesis in sentence.hypotheses
        ]
        maps = iter(self.engine.align([source for source, _ in pairs], [target for _, target in pairs]))
        for sentence in sentences:
            sentence.alignments = []
            for weights_TS in islice(maps, len(sentence.hypotheses)):
                # Tokens attend to the end token too, but nothing is translated from it.
                weights_TS = weights_TS[:-1, :-1] if weights_TS.shape[1] > 1 else weights_TS[:0]
                best = weights_TS.argmax(-1).tolist() if len(weights_TS) else []
                sentence.alignments.append([(source, target) for target, source in enumerate(best)])

    def detokenize(self, sentences: Sequence[SentenceJob]) -> None:
        """Give sentences the texts of their hypotheses. What would break a line becomes a space."""
        ids = [hypothesis.tokens for sentence in sentences for hypothesis in sentence.hypotheses]
        texts = map(replace_line_breaks, self.subwords.target.decode_sentences(ids))
        for sentence in sentences:
            sentence.outputs = [next(texts) for _ in sentence.hypotheses]

    def assemble(self, job: TextJob) -> Translation:
        """Join the sentences of a text. The n-th alternative is made of the n-th best of each."""
        sentences = job.sentences
        count = max([len(sentence.hypotheses) for sentence in sentences], default=1)
        best = self._create_version(job, [0] * len(sentences), self.objective)
        for rank in range(1, count):
            ranks = [min(rank, len(sentence.hypotheses) - 1) for sentence in sentences]
            best.alternatives.append(self._create_version(job, ranks, ""))
        return best

    def _create_version(self, job: TextJob, ranks: list[int], objective: str) -> Translation:
        """Return the text with the hypothesis of this rank of each sentence."""
        chosen: list[Hypothesis] = []
        outputs: list[str] = []
        source_ids: list[list[int]] = []
        for sentence, rank in zip(job.sentences, ranks, strict=True):
            assert sentence.outputs is not None
            chosen.append(sentence.hypotheses[rank])
            outputs.append(sentence.outputs[rank])
            source_ids.append(sentence.request.source)
        return Translation(
            job.text,
            job.join(outputs),
            sum([hypothesis.score for hypothesis in chosen]),
            sum([hypothesis.log_probability for hypothesis in chosen]),
            TokenIds(self.subwords.source, source_ids, True),
            TokenIds(self.subwords.target, [hypothesis.tokens for hypothesis in chosen], False),
            [score for hypothesis in chosen for score in hypothesis.token_scores[:-1]],
            join_alignments(job.sentences, ranks) if self.has_alignment else None,
            len(chosen),
            self.engine.name,
            objective,
            confidence=join_confidences(job.sentences, ranks),
            notes=list(dict.fromkeys(note for sentence in job.sentences for note in sentence.notes)),
        )


def join_alignments(sentences: list[SentenceJob], ranks: list[int]) -> Alignment:
    """Return the alignments of all sentences, counted from the first token of the text."""
    alignment: Alignment = []
    num_source, num_target = 0, 0
    for sentence, rank in zip(sentences, ranks, strict=True):
        assert sentence.alignments is not None
        alignment += [
            (source + num_source, target + num_target) for source, target in sentence.alignments[rank]
        ]
        num_source += len(sentence.request.source) - 1
        num_target += len(sentence.hypotheses[rank].tokens)
    return alignment


def join_confidences(sentences: list[SentenceJob], ranks: list[int]) -> float | None:
    """Return the mean confidence of the sentences, weighted by their output tokens.

    It is the share of the text that is expected to be adequate; None where a sentence has no confidence.
    """
    total, weight = 0.0, 0
    for sentence, rank in zip(sentences, ranks, strict=True):
        if sentence.confidences is None:
            return None
        length = len(sentence.hypotheses[rank].tokens) + 1
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
