"""A text on its way through the pipeline."""

from dataclasses import dataclass

from manyheads.config import DecodingConfig
from manyheads.glossary import TermConstraints
from manyheads.inference.engine import ScoreDetail
from manyheads.memory.matches import MemoryMatch
from manyheads.memory.translation_memory import MemorySpace
from manyheads.search.options import Hypothesis, Request
from manyheads.text.restoration import Restoration
from manyheads.text.segmentation import Segment
from manyheads.text.term_matching import TermMatch

Alignment = list[tuple[int, int]]  # pairs of a source token and a target token


@dataclass(frozen=True)
class TranslationOptions:
    """What the texts of one call have in common."""

    config: DecodingConfig
    terms: TermConstraints
    alignment: bool
    split: bool
    scores: ScoreDetail
    second_try: bool = True  # where a detector finds a failure
    corrections: MemorySpace | None = None  # that take the place of the model's translations


@dataclass(frozen=True)
class Decoding:
    """Sentences that are to be decoded before a text can go on, and how."""

    config: DecodingConfig
    scores: ScoreDetail
    sentences: list["SentenceJob"]  # whose hypotheses are wanted
    is_retry: bool = False  # of sentences that have some

    @property
    def num_tokens(self) -> int:
        """The tokens of the sentences times the hypotheses of each: what decoding costs."""
        return sum(own.request.count_beam_tokens(self.config.num_hypotheses) for own in self.sentences)


class SentenceJob:
    """A sentence of a text, and its results once it is decoded."""

    __slots__ = (
        "alignments", "confidences", "hypotheses", "is_last", "is_part", "kept_positions", "missing_terms",
        "must_retry", "notes", "outputs", "repair", "request", "restoration", "terms", "text",
    )  # fmt: skip

    def __init__(
        self,
        text: str,
        request: Request,
        restoration: Restoration | None = None,
        terms: tuple[TermMatch, ...] = (),
        kept_positions: list[int] | None = None,
    ) -> None:
        self.text, self.request, self.restoration = text, request, restoration
        self.terms = terms  # of the glossary
        self.missing_terms: tuple[Hypothesis, list[TermMatch]] | None = None  # of the hypothesis last checked
        self.kept_positions = kept_positions  # of source tokens, if others annotate terms
        self.is_last = False  # in its text: progress counts texts
        self.is_part = False  # of a sentence that was too long, or was not translated as a whole
        self.hypotheses: list[Hypothesis] = []
        self.outputs: list[str] | None = None  # the texts of the hypotheses, once they are detokenized
        self.alignments: list[Alignment] | None = None  # of the hypotheses, if requested
        self.confidences: list[float] | None = None  # of the hypotheses, if the model is calibrated
        self.notes: list[str] = []  # what was unusual
        self.must_retry: bool | None = None  # what the review says, once there was one
        self.repair: TextJob | None = None  # the sentence in parts, if it was not translated as a whole

    @property
    def plain_source(self) -> list[int]:
        """The source without annotated terms."""
        if self.kept_positions is None:
            return self.request.source
        return [self.request.source[position] for position in self.kept_positions]

    @property
    def is_done(self) -> bool:
        return self.outputs is not None if self.repair is None else self.repair.is_done


class TextJob:
    """A text that is being translated."""

    __slots__ = ("corrections", "notes", "segments", "sentences", "text")

    def __init__(self, text: str, segments: list[Segment], sentences: list[SentenceJob]) -> None:
        self.text, self.segments, self.sentences = text, segments, sentences
        self.notes: tuple[str, ...] = ()  # what was unusual, besides the notes of sentences
        self.corrections: tuple[MemoryMatch, ...] = ()  # that the text or its sentences match
        if sentences:
            sentences[-1].is_last = True

    @property
    def is_done(self) -> bool:
        return False not in [sentence.is_done for sentence in self.sentences]

    def expand(self) -> "TextJob":
        """Return the job with the parts of repaired sentences in place of these."""
        if all(sentence.repair is None for sentence in self.sentences):
            return self
        segments: list[Segment] = []
        sentences: list[SentenceJob] = []
        remaining = iter(self.sentences)
        for segment in self.segments:
            sentence = next(remaining) if segment.is_translatable else None
            if sentence is None or sentence.repair is None:
                segments.append(segment)
                sentences += [sentence] if sentence else []
            else:
                segments += sentence.repair.segments
                sentences += sentence.repair.sentences
        return TextJob(self.text, segments, sentences)

    def join(self, outputs: list[str]) -> str:
        """Return the text with these outputs in place of its sentences."""
        if len(self.segments) == len(outputs):
            return "".join(outputs)
        remaining = iter(outputs)
        parts = [next(remaining) if segment.is_translatable else segment.text for segment in self.segments]
        return "".join(parts)
