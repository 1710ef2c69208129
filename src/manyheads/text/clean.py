"""Cleaning: what is mended in a pair of sentences, and why a pair is dropped. Each filter has its switch."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from manyheads.config import CleanConfig, CorpusConfig

# Reasons, as reports count them; a pair is dropped for the first that holds, in this order.
MARKUP = "placeholders or tags"
MARKUP_DIFFERS = "placeholders or tags differ"
TOO_LONG_SIDE = "too long a side"
RATIO = "lengths too unlike"
WRONG_SCRIPT = "wrong script"
IDENTICAL = "identical sides"
LEAKAGE = "stands in valid or test"
DUPLICATE = "duplicate"

RATIO_SLACK = 20  # bytes added to each side: "Hi." may well be "안녕하세요."

# %s, %1$d, %(name)s, {name}, {0:.2f}, {{name}}, ${name}, <b>, </b>, <br/>. A space is no flag of a
# percentage, and a digit before it makes it one: "50 % des", "100%ige".
PLACEHOLDER = re.compile(
    r"(?<![\d%])%(?:\d+\$|\(\w+\))?[-+#0]*\d*(?:\.\d+)?(?:hh|h|ll|l|z|L)?[diouxXeEfgGcrs@](?![^\W\d_])"
    r"|\$?\{\{?[\w.:!\[\]%-]*\}\}?"
    r"|</?[A-Za-z][^<>]*>"
)

# The letters of each script, by Unicode blocks.
SCRIPTS = {
    "Latin": r"A-Za-z\u00AA\u00BA\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u02AF\u1E00-\u1EFF\u2C60-\u2C7F",
    "Greek": r"\u0370-\u03FF\u1F00-\u1FFF",
    "Cyrillic": r"\u0400-\u052F\u1C80-\u1C8F\u2DE0-\u2DFF\uA640-\uA69F",
    "Armenian": r"\u0530-\u058F",
    "Hebrew": r"\u05D0-\u05F4\uFB1D-\uFB4F",
    "Arabic": r"\u0620-\u06FF\u0750-\u077F\u08A0-\u08FF\uFB50-\uFDFF\uFE70-\uFEFC",
    "Devanagari": r"\u0900-\u097F",
    "Bengali": r"\u0980-\u09FF",
    "Gurmukhi": r"\u0A00-\u0A7F",
    "Gujarati": r"\u0A80-\u0AFF",
    "Tamil": r"\u0B80-\u0BFF",
    "Telugu": r"\u0C00-\u0C7F",
    "Kannada": r"\u0C80-\u0CFF",
    "Malayalam": r"\u0D00-\u0D7F",
    "Sinhala": r"\u0D80-\u0DFF",
    "Thai": r"\u0E00-\u0E7F",
    "Lao": r"\u0E80-\u0EFF",
    "Burmese": r"\u1000-\u109F",
    "Georgian": r"\u10A0-\u10FF\u1C90-\u1CBF",
    "Ethiopic": r"\u1200-\u139F",
    "Khmer": r"\u1780-\u17FF",
    "Hangul": r"\u1100-\u11FF\u3130-\u318F\uA960-\uA97F\uAC00-\uD7FF",
    "Japanese": r"\u3040-\u30FF\u31F0-\u31FF\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\uFF66-\uFF9F",
    "Han": r"\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\U00020000-\U000323AF",
}
LANGUAGES = {
    "Greek": "el",
    "Cyrillic": "ru uk be bg mk mn ky kk tg",
    "Armenian": "hy",
    "Hebrew": "he yi",
    "Arabic": "ar fa ur ps ug",
    "Devanagari": "hi mr ne sa",
    "Bengali": "bn as",
    "Gurmukhi": "pa",
    "Gujarati": "gu",
    "Tamil": "ta",
    "Telugu": "te",
    "Kannada": "kn",
    "Malayalam": "ml",
    "Sinhala": "si",
    "Thai": "th",
    "Lao": "lo",
    "Burmese": "my",
    "Georgian": "ka",
    "Ethiopic": "am ti",
    "Khmer": "km",
    "Hangul": "ko",
    "Japanese": "ja",
    "Han": "zh",
    "Latin": "en de fr es pt it nl sv da no nb nn fi is et lv lt pl cs sk sl hr bs hu ro sq tr ca gl eu ga "
    "cy mt id ms tl vi sw af eo la",
}
SCRIPT_OF = {code: script for script, codes in LANGUAGES.items() for code in codes.split()}


def letters_of(language: str) -> re.Pattern[str] | None:
    """What finds a letter of the language's script; None where a language has several, or is not known."""
    script = SCRIPT_OF.get(re.split("[-_]", language)[0].lower())
    return re.compile(f"[{SCRIPTS[script]}]") if script else None


ANY_LETTER = re.compile(r"[^\W\d_]")


def normalise(text: str) -> str:
    """The text as subwords see it: composed (NFC), one space for a run of white space, none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text).split())


@dataclass
class Cleaner:
    """Mends sides and judges pairs by a CleanConfig. `held_out`: every side of valid and test, mended."""

    config: CleanConfig
    corpus: CorpusConfig
    held_out: Collection[str] = frozenset()

    def __post_init__(self) -> None:
        self.mended: Counter[str] = Counter()
        self.letters = [letters_of(language) for language in (self.corpus.source, self.corpus.target)]

    def mend(self, text: str) -> str:
        """Normalised as far as the switches allow; what changed is counted."""
        if self.config.nfc and not unicodedata.is_normalized("NFC", text):
            self.mended["Unicode NFC"] += 1
            text = unicodedata.normalize("NFC", text)
        if self.config.whitespace and (spaced := " ".join(text.split())) != text:
            self.mended["white space"] += 1
            text = spaced
        return text

    def fault(self, source: str, target: str) -> tuple[str, str] | None:
        """Why a mended pair is dropped, and a detail; None where it is kept."""
        for check in (self._markup, self._length, self._script, self._identical, self._leakage):
            if found := check(source, target):
                return found
        return None

    def _markup(self, source: str, target: str) -> tuple[str, str] | None:
        if self.config.markup == "ignore":
            return None
        found, other = placeholders(source), placeholders(target)
        if self.config.markup == "drop" and (found or other):
            return MARKUP, (found or other)[0]
        if sorted(found) != sorted(other):
            return MARKUP_DIFFERS, f"{' '.join(found) or 'none'} / {' '.join(other) or 'none'}"
        return None

    def _length(self, source: str, target: str) -> tuple[str, str] | None:
        """In bytes of UTF-8, which make scripts more alike: Hangul has fewer letters, of three bytes each."""
        short, long = sorted((utf8_length(source), utf8_length(target)))
        if self.config.longest is not None and long > self.config.longest:
            return TOO_LONG_SIDE, f"{long} bytes"
        if self.config.ratio is not None and long + RATIO_SLACK > self.config.ratio * (short + RATIO_SLACK):
            return RATIO, f"{utf8_length(source)} and {utf8_length(target)} bytes"
        return None

    def _script(self, source: str, target: str) -> tuple[str, str] | None:
        if not self.config.script:
            return None
        for letters, text, side in zip(self.letters, (source, target), ("source", "target"), strict=True):
            if letters and not letters.search(text) and ANY_LETTER.search(text):
                return WRONG_SCRIPT, side
        return None

    def _identical(self, source: str, target: str) -> tuple[str, str] | None:
        return (IDENTICAL, "") if self.config.identical and source == target else None

    def _leakage(self, source: str, target: str) -> tuple[str, str] | None:
        if self.config.leakage:
            if source in self.held_out:
                return LEAKAGE, "source"
            if target in self.held_out:
                return LEAKAGE, "target"
        return None


def utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def placeholders(text: str) -> list[str]:
    """The placeholders and tags of a text, in its order."""
    if "%" in text or "{" in text or "<" in text:
        return PLACEHOLDER.findall(text)
    return []


class Seen:
    """Which of a stream of keys came before, in eight bytes a key, twice that while it merges.

    Sorted arrays, each at least twice the next: a new one is merged into its neighbour when it has grown to
    half of it, so that a lookup searches a handful of arrays and a key is copied a handful of times.
    """

    def __init__(self) -> None:
        self.levels: list[NDArray[np.uint64]] = []

    def fresh(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each key, whether it is new; from now on it is not."""
        new = np.zeros(len(keys), bool)
        unique, first = np.unique(keys, return_index=True)
        known = np.zeros(len(unique), bool)
        for level in self.levels:
            places = np.minimum(np.searchsorted(level, unique), len(level) - 1)
            known |= level[places] == unique
        new[first[~known]] = True
        self._keep(unique[~known])
        return new

    def _keep(self, keys: NDArray[np.uint64]) -> None:
        while self.levels and len(self.levels[-1]) < 2 * len(keys):
            keys = np.concatenate([self.levels.pop(), keys])
            keys.sort()  # in place: runs that are sorted already
        if len(keys):
            self.levels.append(keys)


def pair_keys(pairs: Iterable[tuple[str, str]]) -> NDArray[np.uint64]:
    """A key for each pair. 64 bits: among 36 million pairs two keys meet by chance once in 28,000 corpora."""
    return np.fromiter(map(pair_key, pairs), np.uint64)


def pair_key(pair: tuple[str, str]) -> int:
    return int.from_bytes(blake2b("\n".join(pair).encode(), digest_size=8).digest(), "little")


def frequent_placeholders(texts: Iterator[str], most: int) -> list[str]:
    """The most frequent placeholders and tags, those of equal number in the order of the alphabet."""
    counts = Counter(found for text in texts for found in placeholders(text))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [symbol for symbol, _ in ranked if not any(map(str.isspace, symbol))][:most]
