"""Terms of a glossary in texts: where they occur, and whether a translation has what they must become."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from manyheads.errors import RequestError
from manyheads.text.languages import get_base_language

WORD = re.compile(r"\w+")
MAX_INFLECTION = 4  # letters by which an inflected word may be longer than its base form
MAX_NESTED = 8  # terms at one position, of which one is the beginning of the next
UNCHANGED_LENGTH = 4  # words of at most so many letters keep all of them
DROPPED_ENDING = 2  # letters at the end of longer words that inflection may change
ENGLISH_PLURALS = ("s", "es")


class TermMatch(NamedTuple):
    """A term in a text: its characters, what it must become, and whether it is in another form there."""

    start: int
    end: int
    translation: str
    is_inflected: bool


class Glossary:
    """Terms and what they must become. The time to find them in a text does not grow with their number."""

    def __init__(self, terms: Mapping[str, str]) -> None:
        # By the first word of a term, or its first mark: the terms in lower case with their translations.
        self.terms: dict[str, dict[str, str]] = {}
        self.marks: set[str] = set()  # with which terms begin that begin with no word
        for source, translation in terms.items():
            term, translation = " ".join(source.split()), " ".join(translation.split())
            if not term or not translation:
                raise RequestError("a glossary must not hold empty entries")
            term = lower(term)
            word = WORD.match(term)
            first = word.group() if word else term[0]
            if word is None:
                self.marks.add(first)
            self.terms.setdefault(first, {})[term] = translation  # of equal ones the last counts
        # The lengths of terms, the longest first.
        self.lengths = {first: sorted(set(map(len, own)), reverse=True) for first, own in self.terms.items()}
        self.max_first = max(map(len, self.terms), default=0)

    def __len__(self) -> int:
        return sum(map(len, self.terms.values()))

    def find(self, text: str, language: str = "") -> list[TermMatch]:
        """Return the terms of a text, in order, as whole words and in any case.

        Particles may follow a term that ends in Hangul. A term inside a longer one does not count. With the
        language of the text, plurals of English terms count too.
        """
        folded = lower(text)
        has_plurals = get_base_language(language) == "en"
        matches = [
            match for start in self._find_starts(folded) for match in self._match(folded, start, has_plurals)
        ]
        matches.sort(key=lambda match: (match.start - match.end, match.start))
        chosen: list[TermMatch] = []
        is_taken = bytearray(len(text))
        for match in matches:
            if is_taken.find(1, match.start, match.end) < 0:
                is_taken[match.start : match.end] = b"\1" * (match.end - match.start)
                chosen.append(match)
        return sorted(chosen)

    def _find_starts(self, folded: str) -> Iterator[int]:
        for word in WORD.finditer(folded):
            yield word.start()
        if self.marks:
            yield from (index for index, character in enumerate(folded) if character in self.marks)

    def _match(self, folded: str, start: int, has_plurals: bool) -> Iterator[TermMatch]:
        word = WORD.match(folded, start)
        end = word.end() if word else start + 1
        for first_end in range(start + 1, min(end, start + self.max_first) + 1):
            first = folded[start:first_end]
            if first in self.terms:
                yield from islice(self._match_group(folded, start, first, has_plurals), MAX_NESTED)

    def _match_group(self, folded: str, start: int, first: str, has_plurals: bool) -> Iterator[TermMatch]:
        """Yield the terms with this first word at a position, the longest first."""
        group = self.terms[first]
        for length in self.lengths[first]:
            term_end = start + length
            term = folded[start:term_end]
            if len(term) < length or term not in group:
                continue
            if is_hangul(term[-1]) or not (term[-1].isalnum() and continues_word(folded, term_end)):
                yield TermMatch(start, term_end, group[term], False)
            elif has_plurals and (ending := find_plural_ending(folded, term_end)):
                yield TermMatch(start, term_end + len(ending), group[term], True)


def lower(text: str) -> str:
    """Return a text in lower case, of the same length."""
    folded = text.lower()
    if len(folded) == len(text):
        return folded
    return "".join(small if len(small := character.lower()) == 1 else character for character in text)


def continues_word(text: str, position: int) -> bool:
    return WORD.match(text, position) is not None


def find_plural_ending(folded: str, position: int) -> str:
    """Return the ending of an English plural at a position, at which the word must end; else nothing."""
    return next(
        (
            ending
            for ending in ENGLISH_PLURALS
            if folded.startswith(ending, position) and not continues_word(folded, position + len(ending))
        ),
        "",
    )


def is_hangul(character: str) -> bool:
    return "가" <= character <= "힣"


# ---- what a term has become


def contains_exactly(text: str, translation: str) -> bool:
    """Return whether a text has a translation as whole words, in any case. Particles may follow Hangul."""
    after = "" if is_hangul(translation[-1]) else r"(?!\w)"
    return re.search(rf"(?<!\w){re.escape(translation)}{after}", text, re.IGNORECASE) is not None


def contains_inflected(text: str, translation: str) -> bool:
    """Return whether a text has a translation in some form: its words in a row, with other endings."""
    wanted = [fold(word) for word in WORD.findall(translation)]
    if not wanted:
        return translation in text
    words = [fold(word) for word in WORD.findall(text)]
    return any(
        all(map(is_form, words[start : start + len(wanted)], wanted))
        for start in range(len(words) - len(wanted) + 1)
    )


def fold(word: str) -> str:
    """Return a word in lower case and without accents and umlauts: Häuser is a form of Haus."""
    if word.isascii() or is_hangul(word[0]):
        return word.lower()
    decomposed = unicodedata.normalize("NFD", word.lower())
    return "".join(character for character in decomposed if not unicodedata.combining(character))


def is_form(word: str, base: str) -> bool:
    """Return whether a folded word may be a form of a base form: endings may differ, and particles follow."""
    if is_hangul(base[-1]):
        return word.startswith(base)
    stem = base if len(base) <= UNCHANGED_LENGTH else base[:-DROPPED_ENDING]
    return word.startswith(stem) and len(word) <= len(base) + MAX_INFLECTION
