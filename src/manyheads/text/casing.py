"""Sentences whose case says nothing: they are translated as if they were written in the usual case.

"I GO HOME."  ->  "I go home."  ->  "Ich gehe nach Hause."  ->  "ICH GEHE NACH HAUSE."
"obama visits berlin"  ->  "Obama visits Berlin"  ->  "Obama besucht Berlin"

How words are usually written is learned from the training sources: `CaseLexicon`.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from manyheads.errors import DataError
from manyheads.text.noise import is_verbatim

WORD = re.compile(r"[^\W\d_]{2,}")
MIN_LONGEST = 4  # letters of the longest of several words: "EU USA" are acronyms
MIN_SINGLE = 6  # letters of a word that is alone: "NATO" is one
ENGLISH_I = re.compile(r"(?<!\w)i(?=\W|$)")

ENGLISH_I_WORDS = ("I", "I'm", "I'll", "I've", "I'd")

CASED_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
WORD_STEM = re.compile(r"[^\W\d_]+(?=['’])")
INNER_WORD = re.compile(rf"(?<=[\w,;] ){CASED_WORD.pattern}")  # not at the start of a sentence
SENTENCE_END = re.compile(r"[.!?…][\"'”’»)]*\s*$")
SENTENCE_START = re.compile(r"(?:^|[.!?…][\"'”’»)]*\s)[^\w\s]*$")  # before its first word
MIN_TITLE_WORDS = 4  # of a line in Title Case; fewer may be a name
MIN_SENTENCE_WORDS = 4  # of a sentence without a mark at its end
MIN_TITLE_CHANGES = 1 / 3  # of its words that are usually in lower case; a list of names has fewer
MAX_START_MARKS = 8  # before the first word of a sentence: quotes, a dash, the end of the sentence before
MIN_COUNT = 3  # of a word that is known
MAX_WORDS = 65_536  # that a lexicon keeps, the most frequent ones
MAX_COUNTED = 1_000_000  # forms that are counted at a time; the rarest are dropped when there are more
MIN_SHARE_OF_CASED = 1 / 2  # of the words, for a lexicon; a Korean text has some in Latin letters
MIN_SHARE_OF_NAMES = 1 / 3  # of the rare words, from which on unknown ones are taken for names
UNKNOWN_LINES = {
    "unknown words: as they are": False,
    "unknown words: capitalized": True,
}  # the first of a file


def is_all_capitals(text: str) -> bool:
    """Return whether all letters that have case are capitals, and they are words rather than acronyms."""
    if not text.isupper():
        return False
    lengths = [len(word) for word in WORD.findall(text) if word.isupper()]
    return bool(lengths) and max(lengths) >= (MIN_SINGLE if len(lengths) == 1 else MIN_LONGEST)


def is_title_case(text: str) -> bool:
    """Return whether Each Of Several Words Begins With A Capital, and has no other."""
    without_apostrophes = text.replace("'", "").replace("’", "")
    return without_apostrophes.istitle() and len(WORD.findall(text)) >= MIN_TITLE_WORDS


def is_sentence(text: str) -> bool:
    """Return whether a text ends like a sentence, or has the length of one. "open file" may be a label."""
    return SENTENCE_END.search(text) is not None or len(CASED_WORD.findall(text)) >= MIN_SENTENCE_WORDS


def to_sentence_case(text: str, language: str) -> str:
    """Return a text of capitals in lower case, but for its first letter and the English "I".

    A capital whose lower case is not upper-cased to it again stays.
    """
    lower = to_lower(text)
    if is_english(language):
        lower = ENGLISH_I.sub("I", lower)
    first = next((index for index, character in enumerate(lower) if character.isalpha()), len(lower))
    return lower[:first] + text[first : first + 1] + lower[first + 1 :]


def is_english(language: str) -> bool:
    return language.partition("-")[0].lower() == "en"


def to_lower(text: str) -> str:
    """Return a text in lower case, except for capitals that would not come back. Its length is the same."""
    lower = text.lower()
    if len(lower) == len(text) and to_capitals(lower) == to_capitals(text):
        return lower
    return "".join(
        small if to_capitals(small := character.lower()) == character else character for character in text
    )


def to_capitals(text: str) -> str:
    """Return a text in capitals. The capital of ß is ẞ, which lower-cases back to it."""
    return text.replace("ß", "ẞ").upper()


@dataclass(frozen=True)
class CaseLexicon:
    """How the words of a language are usually written within a sentence."""

    words: tuple[str, ...]  # as they are usually written, by frequency
    capitalizes_unknown: bool  # other words are mostly names

    FILE = "casing.txt"

    @cached_property
    def forms(self) -> Mapping[str, str]:
        """The usual forms of words in lower case."""
        return {word.lower(): word for word in self.words}

    def restore_uninformative(self, text: str) -> str | None:
        """Return a text in lower case or Title Case as it is usually written; None if its case stays."""
        if text.islower():
            return self.restore(text, is_sentence(text))
        if not is_title_case(text):
            return None
        restored = self.restore(text)
        words = zip(text.split(" "), restored.split(" "), strict=True)
        is_changed = [word != usual for word, usual in words]
        return restored if sum(is_changed) >= MIN_TITLE_CHANGES * len(is_changed) else None

    def restore(self, text: str, capitalizes_starts: bool = True) -> str:
        """Return a text with words as they are usually written, and a capital where a sentence starts.

        Numbers, URLs, placeholders and codes stay. The length is the same.
        """
        position, parts = 0, []
        lower = to_lower(text)
        for chunk in lower.split(" "):
            end = position + len(chunk)
            if is_verbatim(chunk):
                parts.append(text[position:end])
            else:
                parts.append(self._restore_words(lower, position, end, capitalizes_starts))
            position = end + 1
        return " ".join(parts)

    def _restore_words(self, text: str, start: int, end: int, capitalizes_starts: bool) -> str:
        parts: list[str] = []
        position = start
        for match in CASED_WORD.finditer(text, start, end):
            form = self._find_form(match[0])
            if capitalizes_starts and form[0].islower() and is_start(text, match.start()):
                form = capitalize(form)
            parts += text[position : match.start()], form
            position = match.end()
        return "".join(parts) + text[position:end]

    def _find_form(self, word: str) -> str:
        """Return how a word in lower case is usually written; "Obama's" like "Obama"."""
        if word in self.forms:
            return self.forms[word]
        stem = WORD_STEM.match(word)
        if stem and stem[0] in self.forms:
            return self.forms[stem[0]] + word[stem.end() :]
        return capitalize(word) if self.capitalizes_unknown and len(word) > 1 else word

    def encode(self) -> bytes:
        """Return the contents of the file."""
        (first,) = (line for line, value in UNKNOWN_LINES.items() if value == self.capitalizes_unknown)
        return "".join(f"{line}\n" for line in (first, *self.words)).encode()

    @classmethod
    def decode(cls, content: bytes, name: str) -> Self:
        try:
            first, *words, last = content.decode().split("\n")
        except ValueError:  # not UTF-8, or too few lines
            raise DataError(f"{name}: not a case lexicon, or damaged: prepare the data again") from None
        is_valid = all(CASED_WORD.fullmatch(word) and len(word.lower()) == len(word) for word in words)
        if first not in UNKNOWN_LINES or last or not is_valid or len(words) > MAX_WORDS:
            raise DataError(f"{name}: not a case lexicon, or damaged: prepare the data again")
        return cls(tuple(words), UNKNOWN_LINES[first])


def is_start(text: str, position: int) -> bool:
    """Return whether a sentence starts with the word at a position."""
    return SENTENCE_START.search(text, max(0, position - MAX_START_MARKS), position) is not None


def capitalize(word: str) -> str:
    """Return a word with its first letter as a capital, unless it becomes two."""
    first = to_capitals(word[0])
    return first + word[1:] if len(first) == 1 else word


class CaseCounter:
    """Counts how the words of training sources are written."""

    def __init__(self, language: str) -> None:
        self.language = language
        self.counts: Counter[str] = Counter()
        self.dropped_count = 0  # forms with as many occurrences or fewer were dropped

    def add(self, texts: Iterable[str]) -> None:
        """Count the words within sentences. Texts in one case tell nothing."""
        for text in texts:
            if not (text.islower() or text.isupper()):
                self.counts.update(INNER_WORD.findall(text))
        while len(self.counts) > MAX_COUNTED:
            self.dropped_count += 1
            kept = {form: count for form, count in self.counts.items() if count > self.dropped_count}
            self.counts = Counter(kept)

    def build(self) -> CaseLexicon | None:
        """Return the lexicon; None if the writing system has no case."""
        counts_by_word: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for form, count in self.counts.items():
            lower = form.lower()
            if len(lower) == len(form) and lower != to_capitals(form):
                counts_by_word[lower][form] = count
        totals = {word: sum(forms.values()) for word, forms in counts_by_word.items()}
        if sum(totals.values()) <= MIN_SHARE_OF_CASED * self.counts.total():
            return None
        rare = [form for word, forms in counts_by_word.items() if totals[word] < MIN_COUNT for form in forms]
        share_of_names = sum(not form[0].islower() for form in rare) / max(1, len(rare))
        known = [word for word, total in totals.items() if total >= MIN_COUNT]
        known = sorted(known, key=lambda word: (-totals[word], word))[: MAX_WORDS - len(ENGLISH_I_WORDS)]
        usual = [max(counts_by_word[word].items(), key=lambda item: (item[1], item[0]))[0] for word in known]
        if is_english(self.language):
            usual += [word for word in ENGLISH_I_WORDS if word.lower() not in set(known)]
        return CaseLexicon(tuple(usual), share_of_names > MIN_SHARE_OF_NAMES)
