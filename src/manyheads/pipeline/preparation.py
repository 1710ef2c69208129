"""Text to ids: texts are split into sentences, and these are encoded, many at a time and each once."""

import hashlib
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from manyheads.glossary import TermConstraints
from manyheads.memory.index import MemoryIndex
from manyheads.memory.matches import MATCH_NOTES, MemoryMatch
from manyheads.pipeline.jobs import SentenceJob, TextJob, TranslationOptions
from manyheads.pipeline.protection import ProtectedSentence, SentenceProtector
from manyheads.search.options import DecodingConstraints, Request
from manyheads.text import segmentation
from manyheads.text.casing import CaseLexicon
from manyheads.text.identification import LanguageCheck
from manyheads.text.segmentation import Segment, has_words, split_edges
from manyheads.text.subwords import SubwordTokenizer
from manyheads.text.term_matching import TermMatch

MAX_LENGTH_FACTOR = 4  # times the length that the model was trained for: longer words are split
MAX_TOKEN_CHARACTERS = 40  # a text with more of them per token is not encoded to see whether it is too long
LONG_WORD_COPIED = "long word copied"  # what translations note
LANGUAGE_TAG = re.compile(r">>[\w-]+<<\s*")  # selects the target language of a multilingual model


class SentenceSplitter:
    """Splits texts into what is translated and what is copied. No sentence is longer than it must be."""

    def __init__(
        self, subwords: SubwordTokenizer, language: str, max_length: int, max_positions: int | None
    ) -> None:
        self.subwords, self.language = subwords, language
        self.max_length = max_length  # tokens of a sentence that the model was trained for, the end counted
        max_tokens = MAX_LENGTH_FACTOR * max_length
        self.max_encoded_characters = MAX_TOKEN_CHARACTERS * max_tokens
        self.max_tokens = min(max_tokens, max_positions or max_tokens)

    def split(self, text: str, into_sentences: bool) -> list[Segment]:
        """Return the segments of a text, whatever their lengths."""
        return segmentation.split_text(text, self.language if into_sentences else None)

    def shorten(self, segments: Sequence[Segment], protector: SentenceProtector) -> list[Segment]:
        """Return the segments with long sentences split, and without long text that is copied."""
        return [
            part
            for segment in segments
            for whole in (protector.split_at_long_spans(segment) if segment.is_translatable else [segment])
            for part in (self._shorten_sentence(whole.text, protector) if whole.is_translatable else [whole])
        ]

    def _shorten_sentence(self, text: str, protector: SentenceProtector) -> Iterator[Segment]:
        """Split a long sentence where possible; otherwise warn. Words that are no language are copied.

        Other words are split only far beyond the limit.
        """
        for part in segmentation.split_long_sentence(text, self._fits):
            length = self._count_tokens(part)
            if length <= self.max_length:
                yield from segmentation.split_edges(part)
                continue
            if protector.protect(part) is None:
                yield Segment(part, False)
                continue
            is_copied = protector.is_meaningless(part, self._fits)
            what_happens = (
                "copied"
                if is_copied
                else "translated as it is"
                if self._is_acceptable(part)
                else "translated in parts of words"
            )
            warnings.warn(
                f"a sentence of {length} tokens cannot be split, and the model was trained with at most "
                f"{self.max_length}: {part[:40]!r}... is {what_happens}",
                stacklevel=2,
            )
            if is_copied:
                yield Segment(part, False, LONG_WORD_COPIED)
                continue
            for piece in segmentation.split_in_halves(part, self._is_acceptable):
                yield from segmentation.split_edges(piece)

    def _fits(self, text: str) -> bool:
        return self._count_tokens(text) <= self.max_length

    def _is_acceptable(self, text: str) -> bool:
        """Return whether a sentence that is too long is translated as a whole all the same."""
        return self._count_tokens(text) <= self.max_tokens

    def _count_tokens(self, text: str) -> int:
        """Return the tokens of a text, the end counted; of very long texts an estimate."""
        if len(text) > self.max_encoded_characters:
            return len(text)
        return len(self.subwords.encode(text)) + 1


class SplitText(NamedTuple):
    """A text in segments, and those that are translated as they are encoded."""

    tag: str  # of the target language
    segments: list[Segment]
    sentences: list[ProtectedSentence]
    corrections: tuple[MemoryMatch, ...] = ()
    are_parts: tuple[bool, ...] = ()  # of sentences that were too long, if one was


class TextPreparer:
    """Makes jobs of texts."""

    def __init__(
        self,
        splitter: SentenceSplitter,
        options: TranslationOptions,
        uses_copy_symbols: bool = False,
        can_require: bool = True,
        casing: CaseLexicon | None = None,
        encoding_threads: int = 1,
    ) -> None:
        """`can_require` is whether the engine can be required to write phrases."""
        self.splitter, self.options, self.can_require = splitter, options, can_require
        self.encoding_threads = encoding_threads
        self.subwords = splitter.subwords
        self.language_check = LanguageCheck(splitter.language)
        self.protector = SentenceProtector(
            splitter.subwords, splitter.language, uses_copy_symbols, options.terms, casing
        )
        self.has_glossary = len(options.terms.glossary) > 0
        self.plain_constraints: dict[int, DecodingConstraints] = {}  # by maximum length

    def prepare(self, texts: Sequence[str]) -> list[TextJob]:
        """Split, protect and encode texts."""
        memory = self._open_memory()
        split_texts = [self._split(text, memory) for text in texts]
        protected = [sentence.encoded for split in split_texts for sentence in split.sentences]
        encoded = iter(self.subwords.encode_sentences(protected, self.encoding_threads))
        jobs = []
        for text, split in zip(texts, split_texts, strict=True):
            ids = [next(encoded) for _ in split.sentences]
            is_long = max(map(len, ids), default=0) > self.splitter.max_length
            if is_long and len(text) <= self.splitter.max_encoded_characters:
                split = self._shorten(split)
                ids = self.subwords.encode_sentences([part.encoded for part in split.sentences])
            jobs.append(self._create_job(text, split, ids))
        return jobs

    def prepare_parts(self, sentence: SentenceJob) -> TextJob:
        """Return a sentence in parts, between which the text that must survive is copied."""
        restoration = sentence.restoration
        assert restoration is not None
        tag, text = split_language_tag(sentence.text)
        segments, parts = self.protector.protect_parts(text, restoration)
        parts = [self.protector.mark_terms(part) for part in parts]
        split = SplitText(tag, segments, [part._replace(encoded=tag + part.encoded) for part in parts])
        ids = self.subwords.encode_sentences([part.encoded for part in split.sentences])
        job = self._create_job(sentence.text, split, ids, is_part=True)
        job.sentences[-1].is_last = False  # progress has counted the text
        return job

    def _split(self, text: str, memory: MemoryIndex | None) -> "SplitText":
        """Return the segments of a text, and those to be translated as they are encoded."""
        if memory and (match := self._find_correction(memory, text)):
            return SplitText("", fill_edges(text, match.target), [], (match,))
        tag, rest = split_language_tag(text)
        segments = self.splitter.split(rest, self.options.split)
        corrections = self._use_corrections(memory, segments) if memory and not tag else ()
        if len(text) > self.splitter.max_encoded_characters:
            return self._shorten(SplitText(tag, segments, [], corrections))
        return self._protect(tag, segments)._replace(corrections=corrections)

    def _shorten(self, split: "SplitText") -> "SplitText":
        """Split sentences that are too long."""
        segments: list[Segment] = []
        sentences: list[ProtectedSentence] = []
        are_parts: list[bool] = []
        for segment in split.segments:
            own = self._protect(split.tag, self.splitter.shorten([segment], self.protector))
            segments += own.segments
            sentences += own.sentences
            are_parts += [len(own.segments) > 1] * len(own.sentences)
        return split._replace(segments=segments, sentences=sentences, are_parts=tuple(are_parts))

    # ---- corrections

    def _open_memory(self) -> MemoryIndex | None:
        """Return the corrections as they are now, unless the call requests what they may not satisfy."""
        options, terms = self.options, self.options.terms
        is_free = not terms.prefix and not terms.forbidden_phrases and options.config.temperature is None
        return options.corrections.get_index() if options.corrections and is_free else None

    def _find_correction(self, memory: MemoryIndex, text: str) -> MemoryMatch | None:
        """Return the correction that is the translation of a text. Terms of the glossary go before it."""
        if self.has_glossary and self.options.terms.find(text):
            return None
        return memory.find_used(text)

    def _use_corrections(self, memory: MemoryIndex, segments: list[Segment]) -> tuple[MemoryMatch, ...]:
        """Replace sentences by their corrections. Return these, and those that are similar to others."""
        matches = []
        for index, segment in enumerate(segments):
            if not segment.is_translatable:
                continue
            if match := self._find_correction(memory, segment.text):
                segments[index] = Segment(match.target, False)
            else:
                match = memory.find_similar(segment.text)
            if match:
                matches.append(match)
        return tuple(matches)

    def _protect(self, tag: str, segments: list[Segment]) -> "SplitText":
        sentences = []
        for index, segment in enumerate(segments):
            if segment.is_translatable:
                protected = self.protector.protect(segment.text)
                if protected is None:
                    segments[index] = Segment(segment.text, False)
                else:
                    if self.has_glossary:
                        protected = self.protector.mark_terms(protected)
                    sentences.append(
                        protected._replace(encoded=tag + protected.encoded) if tag else protected
                    )
        return SplitText(tag, segments, sentences)

    def _create_job(
        self, text: str, split: "SplitText", ids: list[list[int]], is_part: bool = False
    ) -> TextJob:
        texts = add_tag(split.tag, split.segments)
        sentences = []
        for index, (own_text, protected, own_ids) in enumerate(zip(texts, split.sentences, ids, strict=True)):
            has_prefix = not (is_part and index)
            if protected.terms:
                sentences.append(self._create_term_job(own_text, protected, own_ids, has_prefix))
            else:
                request = self._create_request(own_ids, has_prefix)
                sentences.append(SentenceJob(own_text, request, protected.restoration))
        for sentence, part in zip(sentences, split.are_parts or [is_part] * len(sentences), strict=True):
            sentence.is_part = part
        job = TextJob(text, split.segments, sentences)
        job.corrections = split.corrections
        if not is_part:
            job.notes = self._find_language_notes(job)
            job.notes += tuple(MATCH_NOTES[match.match] for match in split.corrections)
            job.notes += tuple(segment.note for segment in split.segments if segment.note)
        return job

    def _create_term_job(
        self, text: str, protected: ProtectedSentence, ids: list[int], has_prefix: bool
    ) -> SentenceJob:
        """Return the job of a sentence with terms: annotated, or forced by the search, or forced afterwards.

        A sentence that annotations make too long goes without them.
        """
        terms, kept = self.options.terms, None
        if terms.is_annotated:
            kept = self.subwords.annotation_remover.find_kept(ids)
            if len(ids) > self.splitter.max_tokens:
                ids, kept = [ids[position] for position in kept], None
        if kept is not None or not self.can_require:
            request = self._create_request(ids, has_prefix)
            return SentenceJob(text, request, protected.restoration, protected.terms, kept)
        constraints = self._constrain(ids, self._limit_length(ids), has_prefix)
        request = Request(ids, require_terms(constraints, terms, protected.terms))
        return SentenceJob(text, request, protected.restoration, protected.terms)

    def _find_language_notes(self, job: TextJob) -> tuple[str, ...]:
        """Return which other languages the sentences of a text look like."""
        if not job.sentences:
            if job.corrections:
                return ()
            note = self.language_check.find_note(job.text, 1) if has_words(job.text) else None
            return (note,) if note else ()
        notes: tuple[str, ...] = ()
        for sentence in job.sentences:
            note = self.language_check.find_note(sentence.text, len(sentence.plain_source))
            notes += (note,) if note else ()
        return notes

    def _create_request(self, ids: list[int], has_prefix: bool = True) -> Request:
        """`ids` end with the end token."""
        max_length = self._limit_length(ids)
        if self.options.config.temperature is not None or not has_prefix:
            return Request(ids, self._constrain(ids, max_length, has_prefix))
        constraints = self.plain_constraints.get(max_length)
        if constraints is None:
            constraints = self.plain_constraints[max_length] = self._constrain(ids, max_length)
        return Request(ids, constraints)

    def _limit_length(self, ids: list[int]) -> int:
        config = self.options.config
        max_length = max(len(ids) - 1 + config.max_extra_length, config.min_length)
        return max_length + len(self.options.terms.prefix)

    def _constrain(self, ids: list[int], max_length: int, has_prefix: bool = True) -> DecodingConstraints:
        """Return what the output must satisfy. Without terms and sampling the length alone decides."""
        config, terms = self.options.config, self.options.terms
        return DecodingConstraints(
            max_length,
            config.min_length,
            prefix=terms.prefix if has_prefix else (),
            forbidden_phrases=terms.forbidden_phrases,
            seed=0 if config.temperature is None else derive_seed(config.seed, ids),
        )


def require_terms(
    constraints: DecodingConstraints, terms: TermConstraints, matches: Sequence[TermMatch]
) -> DecodingConstraints:
    """Return constraints with the translations of terms as phrases that the output must contain."""
    required, whole_word = terms.require(matches)
    return replace(
        constraints,
        max_length=constraints.max_length + sum(map(len, required)),
        required_phrases=required,
        whole_word_phrases=whole_word,
        word_start_ids=terms.subwords.word_start_ids if whole_word else frozenset(),
    )


def derive_seed(seed: int, ids: list[int]) -> int:
    """Return the seed of a sentence's random numbers, which depends on nothing but the sentence."""
    digest = hashlib.blake2b(f"{seed} {ids}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "little")


def add_tag(tag: str, segments: Sequence[Segment]) -> list[str]:
    return [tag + segment.text for segment in segments if segment.is_translatable]


def fill_edges(text: str, content: str) -> list[Segment]:
    """Return a text with other content between the white space around it, as segments to copy."""
    edges = split_edges(text)
    return [Segment(content if edge.text.strip() else edge.text, False) for edge in edges]


def split_language_tag(text: str) -> tuple[str, str]:
    """Return a language tag such as >>fra<<, which every sentence of a text needs, and the rest."""
    match = LANGUAGE_TAG.match(text) if text.startswith(">>") else None
    return (match.group().rstrip() + " ", text[match.end() :]) if match else ("", text)
