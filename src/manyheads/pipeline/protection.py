"""Sentences are protected before they are encoded: text to copy becomes symbols, case becomes the usual one.

A sentence in which there is nothing of the kind costs one search.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from manyheads.glossary import TermConstraints
from manyheads.text.casing import CaseLexicon, is_all_capitals, to_sentence_case
from manyheads.text.languages import LANGUAGES_WITH_CASE, get_base_language, get_script_pattern
from manyheads.text.masks import extend_to_word, join_codes, mask, select_masked, split_at
from manyheads.text.restoration import Restoration
from manyheads.text.segmentation import Segment, has_words, split_edges
from manyheads.text.subwords import SubwordTokenizer
from manyheads.text.term_matching import TermMatch
from manyheads.text.verbatim import TRIGGERS, Span, find_verbatim, is_invisible

FULL_WIDTH = re.compile(r"[\uff21-\uff3a\uff41-\uff5a\u3000]")
INNER_DOT = re.compile(r"\.[A-Za-z]")  # of a host or file name
LETTERS = re.compile(r"[^\W\d_]{2}")  # a word, rather than a letter among marks
SPAN_FILLER = "0"  # in place of spans where only the letters around them matter
MIN_LONG_SPAN = 64  # characters of a span at which a sentence that is too long is split first
ASCII = frozenset(map(chr, range(0x20, 0x7F)))
ASCII_MARKS = dict(zip("‘’‚‛′“”„‟″«»–—−―…", [*"'''''", *'""""""' + '"', *"----", "..."], strict=True))


class ProtectedSentence(NamedTuple):
    """A sentence as it is encoded, and what its translation gets back."""

    encoded: str
    restoration: Restoration | None
    terms: tuple[TermMatch, ...] = ()  # of the glossary


class SentenceProtector:
    """Protects the sentences of one model and the options of one call."""

    def __init__(
        self,
        subwords: SubwordTokenizer,
        language: str,
        uses_copy_symbols: bool,
        terms: TermConstraints,
        casing: CaseLexicon | None = None,
    ) -> None:
        self.known = add_own_script(subwords.known_characters, language)
        self.language, self.terms, self.casing = language, terms, casing
        self.uses_copy_symbols = uses_copy_symbols
        self.find_trigger = compile_trigger(self.known).search

    def protect(self, text: str) -> ProtectedSentence | None:
        """Return what is encoded, or None if there is nothing to translate: the text is all to be copied."""
        if not (self.find_trigger(text) or text.isupper() or has_dotted_name(text)):
            return ProtectedSentence(self._read(text, is_upper=False), None)
        text = self._narrow(text)
        spans = self.find_spans(text)
        without_spans = text if not spans else fill_spans(text, spans)
        if spans and not has_words(fill_spans(text, join_codes(text, spans)).replace(SPAN_FILLER, "")):
            return None
        is_upper = is_all_capitals(without_spans) or (
            self.casing is not None and self.casing.is_shouted(without_spans)
        )
        masked = select_masked(spans) if self.uses_copy_symbols else []
        encoded, values = mask(self._read_between(text, without_spans, spans, is_upper), masked)
        encoded = self.simplify(encoded)
        if not (spans or is_upper):
            return ProtectedSentence(encoded, None)
        unmasked = [(text[span.start : span.end], span.category) for span in spans if span not in masked]
        return ProtectedSentence(encoded, Restoration(tuple(spans), tuple(values), tuple(unmasked), is_upper))

    def find_spans(self, text: str) -> list[Span]:
        """Return what is copied. Spans inside terms of the glossary are translated by it."""
        spans = find_verbatim(text, self.known)
        if spans and len(self.terms.glossary):
            terms = self.terms.find(text)
            spans = [
                span
                for span in spans
                if not any(term.start <= span.start and span.end <= term.end for term in terms)
            ]
        return spans

    def mark_terms(self, sentence: ProtectedSentence) -> ProtectedSentence:
        """Find the terms of the glossary, and annotate them if the model is trained for it."""
        terms = self.terms.find(sentence.encoded)
        if not terms:
            return sentence
        encoded = (
            self.terms.annotate(sentence.encoded, terms) if self.terms.is_annotated else sentence.encoded
        )
        return sentence._replace(encoded=encoded, terms=terms)

    def split_at_long_spans(self, segment: Segment) -> list[Segment]:
        """Return a segment without long text that is copied, such as URLs of many tokens.

        Of a word with several addresses or codes nothing is translated.
        """
        if len(segment.text) < MIN_LONG_SPAN:
            return [segment]
        single = self.find_spans(segment.text)
        unjoined = set(single)
        spans = [
            span if span in unjoined else extend_to_word(segment.text, span)
            for span in join_codes(segment.text, single)
            if span.end - span.start >= MIN_LONG_SPAN
        ]
        return self.split_at_spans(segment.text, spans) if spans else [segment]

    def split_at_spans(self, text: str, spans: Sequence[Span]) -> list[Segment]:
        """Return a sentence as segments in which the spans are not translated."""
        return [
            segment
            for part, is_span in split_at(text, join_codes(text, spans))
            for segment in ([Segment(part, False)] if is_span else split_edges(part))
        ]

    def is_meaningless(self, word: str, fits: Callable[[str], bool]) -> bool:
        """Return whether a word that is longer than the model's sentences is left as it is.

        Writing systems with case have spaces between words. Others may have none, or people leave them out:
        what holds their letters is translated. So are words between addresses, tags and the like that fit.
        """
        if get_base_language(self.language) not in LANGUAGES_WITH_CASE:
            script = get_script_pattern(self.language)
            if script is None or script.search(word):
                return False
        spans = join_codes(word, self.find_spans(word))
        parts = [part for part, is_span in split_at(word, spans) if not is_span]
        return not (any(map(LETTERS.search, parts)) and all(map(fits, parts)))

    def protect_parts(
        self, text: str, restoration: Restoration
    ) -> tuple[list[Segment], list[ProtectedSentence]]:
        """Return a sentence as segments between its spans, and what is encoded of those to be translated."""
        without_spans = fill_spans(text, restoration.spans)
        usual = self._read_between(text, without_spans, restoration.spans, restoration.is_upper)
        own = Restoration(is_upper=True) if restoration.is_upper else None
        segments, parts, start = self.split_at_spans(text, restoration.spans), [], 0
        for segment in segments:
            end = start + len(segment.text)
            if segment.is_translatable:
                parts.append(ProtectedSentence(self.simplify(usual[start:end]), own))
            start = end
        return segments, parts

    def _narrow(self, text: str) -> str:
        """Write full-width Latin letters and spaces that the model does not know as ordinary ones."""
        if text.isascii() or not FULL_WIDTH.search(text):
            return text
        return FULL_WIDTH.sub(
            lambda match: match[0] if match[0] in self.known else unicodedata.normalize("NFKC", match[0]),
            text,
        )

    def simplify(self, text: str) -> str:
        """Write unknown quotes and dashes in ASCII, and leave out unknown control characters and the like."""
        if self.known.issuperset(text):
            return text
        return "".join(
            character if character in self.known else ASCII_MARKS.get(character, character)
            for character in text
            if character in self.known or character.isspace() or not is_invisible(character)
        )

    def _read_between(self, text: str, without_spans: str, spans: Sequence[Span], is_upper: bool) -> str:
        """Return a text as the model reads it, with the spans as they are."""
        usual = self._read(without_spans, is_upper)
        for span in spans:
            usual = usual[: span.start] + text[span.start : span.end] + usual[span.end :]
        return usual

    def _read(self, text: str, is_upper: bool) -> str:
        """Return a text without spans as the model reads it: in its usual case where its own says nothing."""
        if self.casing is None:
            return to_sentence_case(text, self.language) if is_upper else text
        return self.casing.restore(text) if is_upper else self.casing.read(text)


def has_dotted_name(text: str) -> bool:
    """Return whether there may be a host or file name, which has a dot inside."""
    return text.find(".", 0, -1) >= 0 and INNER_DOT.search(text) is not None


def fill_spans(text: str, spans: Sequence[Span]) -> str:
    """Return the text with every character of the spans replaced."""
    parts = [SPAN_FILLER * len(part) if is_span else part for part, is_span in split_at(text, spans)]
    return "".join(parts)


@lru_cache(maxsize=16)
def add_own_script(known: frozenset[str], language: str) -> frozenset[str]:
    """Return the characters that are not copied: known ones, ASCII, and a script without case of the source.

    There a rare character is a part of a word, which means nothing in another language; bytes spell it.
    """
    script = None if get_base_language(language) in LANGUAGES_WITH_CASE else get_script_pattern(language)
    own = [chr(code) for code in range(0x10000) if script.match(chr(code))] if script else []
    return known | ASCII | frozenset(own)


@lru_cache(maxsize=16)
def compile_trigger(known: frozenset[str]) -> "re.Pattern[str]":
    """Return a pattern of one character: one with which text to copy begins, or an unknown one."""
    is_trigger = re.compile(f"[{TRIGGERS}]").match
    ordinary = sorted(ord(character) for character in known if not is_trigger(character))
    ranges: list[list[int]] = []
    for code in ordinary:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    characters = "".join(f"{re.escape(chr(low))}-{re.escape(chr(high))}" for low, high in ranges)
    return re.compile(f"[^{characters} ]")
