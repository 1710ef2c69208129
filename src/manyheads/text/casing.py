"""Sentences whose case says nothing: they are translated as if they were written in the usual case.

"I GO HOME."  ->  "I go home."  ->  "Ich gehe nach Hause."  ->  "ICH GEHE NACH HAUSE."
"obama visits berlin"  ->  "Obama visits Berlin"  ->  "Obama besucht Berlin"

How words are usually written is learned from the training sources: `CaseLexicon`.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from manyheads.errors import DataError
from manyheads.text.languages import LANGUAGES_WITH_CASE, get_base_language
from manyheads.text.noise import is_verbatim

WORD = re.compile(r"[^\W\d_]{2,}")
MIN_LONGEST = 4  # letters of the longest of several words: "EU USA" are acronyms
MIN_SINGLE = 6  # letters of a word that is alone: "NATO" is one
MIN_SHOUTED = 3  # letters of words that a lexicon knows
ENGLISH_I = re.compile(r"(?<!\w)i(?=\W|$)")

DOTTED_I_LANGUAGES = frozenset({"tr", "az"})  # whose i has the capital İ
ENGLISH_I_WORDS = ("I", "I'm", "I'll", "I've", "I'd")

CASED_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
WORD_PARTS = re.compile(r"([^\W\d_]+['’])(.*)")  # "l'" and "Europe", "Obama'" and "s"
INNER_WORD = re.compile(rf"(?<=[\w,;] ){CASED_WORD.pattern}")  # not at the start of a sentence
DOT_LETTER, LETTER_DOT = re.compile(r"\.[^\W\d_]"), re.compile(r"[^\W\d_]\.")
SENTENCE_END = re.compile(r"[.!?…][\"'”’»)]*\s*$")
ANOTHER_SENTENCE = re.compile(r"(?:[!?…]|(?<=\w\w)\.)[\"'”’»)]*\s[^\w\s]*$")  # "i.e. the" is none
MAX_START_MARKS = 12  # characters before the first word of a sentence in which the end of another is sought
MAX_ELISION = 2  # letters of an article before an apostrophe: d'Europe, dell' has more
MIN_TITLE_WORDS = 4  # of a line in Title Case; fewer may be a name
MIN_SENTENCE_WORDS = 4  # of a sentence without a mark at its end
MIN_TITLE_CHANGES = 1 / 3  # of its words that are usually in lower case; a list of names has fewer
MIN_COUNT = 3  # of a word that is known
MAX_WORDS = 65_536  # that a lexicon keeps, the most frequent ones
MAX_COUNTED = 1_000_000  # forms that are counted at a time; the rarest are dropped when there are more
MIN_SHARE_OF_CASED = 1 / 2  # of the words, for a lexicon; a Korean text has some in Latin letters
MIN_SHARE_OF_NAMES = 1 / 3  # of the rare words, from which on unknown ones are taken for names
UNKNOWN_LINES = ("unknown words: as they are", "unknown words: capitalized")  # the first line of a file


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
    if get_base_language(language) == "en":
        lower = ENGLISH_I.sub("I", lower)
    first = next((index for index, character in enumerate(lower) if character.isalpha()), len(lower))
    return lower[:first] + text[first : first + 1] + lower[first + 1 :]


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
        """The usual forms of words in lower case, by their letters: apostrophes are straight."""
        return {straighten(word.lower()): word for word in self.words}

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.encode()).hexdigest()

    def read(self, source: str) -> str:
        """Return a source as a model reads it: as it is usually written if its case says nothing."""
        restored = self.restore_uninformative(source)
        return source if restored is None else restored

    def is_shouted(self, text: str) -> bool:
        """Return whether a text is capitals of words that are usually written otherwise: "HELLO", not "NATO".

        A word of two letters alone may be an acronym all the same: "IT", "US".
        """
        if not text.isupper():
            return False
        words = [straighten(word.lower()) for word in CASED_WORD.findall(text)]
        forms = [self.forms.get(word) for word in words if word != "i"]
        is_known = all(form is not None and not form.isupper() for form in forms)
        return is_known and sum(map(len, words)) >= MIN_SHOUTED

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
        start, parts = 0, []
        lower = to_lower(text)
        first = CASED_WORD.search(text)
        first_letter = first.start() if first and not has_word(text[: first.start()]) else -1
        for chunk in text.split(" "):
            end = start + len(chunk)
            if is_verbatim(chunk):
                parts.append(chunk)
            else:
                parts.append(self._restore_words(text, lower, start, end, capitalizes_starts, first_letter))
            start = end + 1
        return " ".join(parts)

    def _restore_words(
        self, text: str, lower: str, start: int, end: int, capitalizes_starts: bool, first_letter: int
    ) -> str:
        parts: list[str] = []
        position = start
        for match in CASED_WORD.finditer(lower, start, end):
            own_start, own_end = match.span()
            if is_abbreviated(lower, own_start, own_end):
                continue
            form = self._find_form(text, lower, own_start, own_end)
            may_start = capitalizes_starts and form[0].islower()
            if may_start and (own_start == first_letter or starts_sentence(lower, own_start)):
                form = capitalize(form)
            parts += lower[position:own_start], form
            position = own_end
        return "".join(parts) + lower[position:end]

    def _find_form(self, text: str, lower_text: str, start: int, end: int) -> str:
        """Return how a word is usually written: "obama's" like "Obama", "d'europe" like "Europe"."""
        word, lower = text[start:end], lower_text[start:end]
        form = self.forms.get(straighten(lower))
        if form is not None:
            return copy_apostrophes(form, lower)
        stem_length = len(lower)
        if parts := WORD_PARTS.fullmatch(lower):
            stem, rest = parts.groups()
            stem_length = len(stem) - 1
            if known := self.forms.get(stem[:-1]):
                return known + lower[stem_length:]
            if stem_length <= MAX_ELISION and (known := self.forms.get(rest)):
                return stem + known
        if self.capitalizes_unknown:
            is_short = stem_length == 1 or (stem_length < len(lower) and stem_length <= MAX_ELISION)
            return lower if is_short or is_in_compound(lower_text, start, end) else capitalize(lower)
        return lower if word.isupper() else word

    def encode(self) -> bytes:
        """Return the contents of the file."""
        lines = (UNKNOWN_LINES[self.capitalizes_unknown], *self.words)
        return "".join(f"{line}\n" for line in lines).encode()

    @classmethod
    def decode(cls, content: bytes, name: str) -> Self:
        first, *words = content.decode(errors="replace").removesuffix("\n").split("\n")
        is_valid = all(CASED_WORD.fullmatch(word) and len(word.lower()) == len(word) for word in words)
        is_whole = content.endswith(b"\n") and len(words) <= MAX_WORDS
        if first not in UNKNOWN_LINES or not (is_valid and is_whole):
            raise DataError(f"{name}: not a case lexicon, or damaged: prepare the data again")
        return cls(tuple(words), first == UNKNOWN_LINES[True])


def has_word(text: str) -> bool:
    return any(map(str.isalnum, text))


def starts_sentence(text: str, position: int) -> bool:
    """Return whether another sentence ends before the word at a position."""
    return ANOTHER_SENTENCE.search(text, max(0, position - MAX_START_MARKS), position) is not None


def is_abbreviated(text: str, start: int, end: int) -> bool:
    """Return whether a word is a single letter of "i.e." and the like."""
    if end - start > 1:
        return False
    return (
        DOT_LETTER.match(text, end) is not None
        or LETTER_DOT.match(text, max(0, start - 2), start) is not None
    )


def is_in_compound(text: str, start: int, end: int) -> bool:
    """Return whether a hyphen joins a word to another."""
    return "-" in (text[start - 1 : start], text[end : end + 1])


def straighten(word: str) -> str:
    return word.replace("’", "'")


def copy_apostrophes(form: str, word: str) -> str:
    """Return a form with the apostrophes of a word."""
    if "'" not in word and "’" not in word:
        return form
    return "".join(other if other in "'’" else own for own, other in zip(form, word, strict=True))


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
        self.num_dropped = self.num_dropped_names = 0

    @classmethod
    def for_language(cls, language: str) -> Self | None:
        """Return a counter; None for a language without case, or one whose capitals other rules make."""
        base = get_base_language(language)
        return cls(language) if base in LANGUAGES_WITH_CASE and base not in DOTTED_I_LANGUAGES else None

    def add(self, texts: Iterable[str]) -> None:
        """Count the words within sentences. Texts in one case tell nothing."""
        for text in texts:
            if not (text.islower() or text.isupper() or is_title_case(text)):
                self.counts.update(map(straighten, INNER_WORD.findall(text)))
        while len(self.counts) > MAX_COUNTED:
            self.dropped_count += 1
            dropped = [form for form, count in self.counts.items() if count <= self.dropped_count]
            self.num_dropped += len(dropped)
            self.num_dropped_names += count_names(dropped)
            for form in dropped:
                del self.counts[form]

    def build(self) -> CaseLexicon | None:
        """Return the lexicon; None if most words have no case."""
        counts_by_word: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for form, count in self.counts.items():
            lower = form.lower()
            if len(lower) == len(form) and lower != to_capitals(form):
                counts_by_word[lower][form] = count
        totals = {word: sum(forms.values()) for word, forms in counts_by_word.items()}
        if sum(totals.values()) <= MIN_SHARE_OF_CASED * self.counts.total():
            return None
        rare = [form for word, forms in counts_by_word.items() if totals[word] < MIN_COUNT for form in forms]
        num_names, num_rare = self.num_dropped_names + count_names(rare), self.num_dropped + len(rare)
        known = [word for word, total in totals.items() if total >= MIN_COUNT]
        known = sorted(known, key=lambda word: (-totals[word], word))[: MAX_WORDS - len(ENGLISH_I_WORDS)]
        usual = [max(counts_by_word[word].items(), key=lambda item: (item[1], item[0]))[0] for word in known]
        if get_base_language(self.language) == "en":
            usual += [word for word in ENGLISH_I_WORDS if word.lower() not in known]
        return CaseLexicon(tuple(usual), num_names > MIN_SHARE_OF_NAMES * max(1, num_rare))


def count_names(forms: Iterable[str]) -> int:
    """Return how many forms begin with a capital."""
    return sum(not form[0].islower() for form in forms)
