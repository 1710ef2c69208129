"""Ids to text: hypotheses are detokenized many at a time, and the sentences of a text are joined."""

from collections.abc import Sequence
from itertools import islice

from manyheads.errors import RequestError
from manyheads.inference.engine import Engine
from manyheads.pipeline.jobs import Alignment, SentenceJob, TextJob, TranslationOptions
from manyheads.search.options import Hypothesis
from manyheads.text.segmentation import replace_line_breaks
from manyheads.text.subwords import SubwordPair
from manyheads.translation import TokenIds, Translation


class Assembler:
    """Makes translations of jobs whose sentences are decoded."""

    def __init__(self, engine: Engine, subwords: SubwordPair, options: TranslationOptions) -> None:
        self.engine, self.subwords = engine, subwords
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
        texts = iter(
            self.subwords.target.decode_sentences(
                [hypothesis.tokens for sentence in sentences for hypothesis in sentence.hypotheses]
            )
        )
        for sentence in sentences:
            own = islice(texts, len(sentence.hypotheses))
            sentence.outputs = [replace_line_breaks(text) for text in own]

    def assemble(self, job: TextJob) -> Translation:
        """Join the sentences of a text. The n-th alternative is made of the n-th best of each."""
        count = max([len(sentence.hypotheses) for sentence in job.sentences], default=1)
        alternatives = [self._create_version(job, rank, "", []) for rank in range(1, count)]
        return self._create_version(job, 0, self.objective, alternatives)

    def _create_version(
        self, job: TextJob, rank: int, objective: str, alternatives: list[Translation]
    ) -> Translation:
        sentences = job.sentences
        ranks = [min(rank, len(sentence.hypotheses) - 1) for sentence in sentences]
        chosen = [sentence.hypotheses[own_rank] for sentence, own_rank in zip(sentences, ranks, strict=True)]
        return Translation(
            job.text,
            join_outputs(job, ranks),
            sum([hypothesis.score for hypothesis in chosen]),
            sum([hypothesis.log_probability for hypothesis in chosen]),
            TokenIds(self.subwords.source, [sentence.request.source for sentence in sentences], True),
            TokenIds(self.subwords.target, [hypothesis.tokens for hypothesis in chosen], False),
            [score for hypothesis in chosen for score in hypothesis.token_scores[:-1]],
            self._join_alignments(sentences, ranks, chosen),
            len(chosen),
            self.engine.name,
            objective,
            alternatives,
        )

    def _join_alignments(
        self, sentences: list[SentenceJob], ranks: list[int], chosen: list[Hypothesis]
    ) -> Alignment | None:
        """Return the alignments of all sentences, counted from the first token of the text."""
        if not self.has_alignment:
            return None
        alignment: Alignment = []
        num_source, num_target = 0, 0
        for sentence, rank, hypothesis in zip(sentences, ranks, chosen, strict=True):
            own = (sentence.alignments or [])[rank]
            alignment += [(source + num_source, target + num_target) for source, target in own]
            num_source += len(sentence.request.source) - 1
            num_target += len(hypothesis.tokens)
        return alignment


def join_outputs(job: TextJob, ranks: list[int]) -> str:
    """Return the text with the output of this rank for each sentence."""
    outputs = [(sentence.outputs or [])[rank] for sentence, rank in zip(job.sentences, ranks, strict=True)]
    if len(job.segments) == len(outputs):
        return "".join(outputs)
    remaining = iter(outputs)
    return "".join([next(remaining) if segment.is_translatable else segment.text for segment in job.segments])


def check_hypotheses(sentence: SentenceJob) -> None:
    """Refuse a sentence without a result."""
    if not sentence.hypotheses:
        raise RequestError(
            f"no translation of {sentence.text[:60]!r}: the required and forbidden words exclude "
            f"each other, or the model's numbers are not finite"
        )
