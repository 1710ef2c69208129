"""Cleaning: what is mended in a pair of sentences, and why a pair is dropped. Each filter has its switch."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from manyheads.config import SENTENCEPIECE_RESERVED, CleanConfig, CorpusConfig
from manyheads.text.languages import get_script_pattern

# Reasons, as reports count them; a pair is dropped for the first that holds, in this order.
MARKUP = "placeholders or tags"
MARKUP_DIFFERS = "placeholders or tags differ"
TOO_LONG_SIDE = "too long a side"
LENGTH_RATIO = "lengths too unlike"
WRONG_SCRIPT = "wrong script"
IDENTICAL = "identical sides"
LEAKAGE = "stands in valid or test"
DUPLICATE = "duplicate"

RATIO_SLACK = 20  # bytes added to each side: "Hi." may well be "안녕하세요."

# %s, %1$d, %(name)s, %.2f, {name}, {0:.2f}, {{name}}, ${name}, <b>, </b>, <br/>. Korean writes its particles
# behind them (%s를, %d개); a Latin letter there makes a word of a bare one (%sure), and a digit before it a
# percentage (100%ige). A space is no flag: "50 % des".
CONVERSION = r"(?:hh|h|ll|l|z|L)?[diouxXeEfgGcrs@]"
PLACEHOLDER = re.compile(
    rf"(?<![\d%])%(?:\d{{1,2}}\$|\(\w{{1,60}}\))[-+#0]{{0,4}}(?:[1-9]\d?)?(?:\.\d{{1,2}})?{CONVERSION}"
    rf"|(?<![\d%])%[-+#0]{{0,4}}(?:[1-9]\d?(?:\.\d{{1,2}})?|\.\d{{1,2}}){CONVERSION}"
    rf"|(?<![\d%])%[-+#0]{{0,4}}{CONVERSION}(?![A-Za-z])"
    r"|\$?\{\{?[\w.:!\[\]%-]*\}\}?"
    r"|</?[A-Za-z][^<>]*>"
)

ANY_LETTER = re.compile(r"[^\W\d_]")


def normalize(text: str) -> str:
    """The text as subwords see it: composed (NFC), one space for a run of white space, none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text).split())


@dataclass
class Cleaner:
    """Mends sides and judges pairs by a CleanConfig. `held_out`: every side of valid and test, and which."""

    config: CleanConfig
    corpus: CorpusConfig
    held_out: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.normalized: Counter[str] = Counter()
        self.script_patterns = [
            get_script_pattern(language) for language in (self.corpus.source, self.corpus.target)
        ]

    def normalize(self, text: str) -> str:
        """Normalized as far as the switches allow; what changed is counted."""
        if self.config.nfc and not unicodedata.is_normalized("NFC", text):
            self.normalized["Unicode NFC"] += 1
            text = unicodedata.normalize("NFC", text)
        if self.config.whitespace and (spaced := " ".join(text.split())) != text:
            self.normalized["white space"] += 1
            text = spaced
        return text

    def find_rejection(self, source: str, target: str) -> tuple[str, str] | None:
        """Why a mended pair is dropped, and a detail; None where it is kept."""
        for check in (
            self._check_length,
            self._check_identical,
            self._check_markup,
            self._check_script,
            self._check_leakage,
        ):
            if found := check(source, target):
                return found
        return None

    def _check_markup(self, source: str, target: str) -> tuple[str, str] | None:
        if self.config.markup == "ignore":
            return None
        found, other = find_placeholders(source), find_placeholders(target)
        if self.config.markup == "drop" and (found or other):
            return MARKUP, (found or other)[0]
        if sorted(found) != sorted(other):
            return MARKUP_DIFFERS, f"{' '.join(found) or 'none'} / {' '.join(other) or 'none'}"
        return None

    def _check_length(self, source: str, target: str) -> tuple[str, str] | None:
        """In bytes of UTF-8, which make scripts more alike: Hangul has fewer letters, of three bytes each."""
        short, long = sorted((count_utf8_bytes(source), count_utf8_bytes(target)))
        if self.config.max_length is not None and long > self.config.max_length:
            return TOO_LONG_SIDE, f"{long} bytes"
        if self.config.max_length_ratio is not None and long + RATIO_SLACK > self.config.max_length_ratio * (
            short + RATIO_SLACK
        ):
            return LENGTH_RATIO, f"{count_utf8_bytes(source)} and {count_utf8_bytes(target)} bytes"
        return None

    def _check_script(self, source: str, target: str) -> tuple[str, str] | None:
        if not self.config.script:
            return None
        for letters, text, side in zip(
            self.script_patterns, (source, target), ("source", "target"), strict=True
        ):
            if letters and not letters.search(text) and ANY_LETTER.search(text):
                return WRONG_SCRIPT, side
        return None

    def _check_identical(self, source: str, target: str) -> tuple[str, str] | None:
        return (IDENTICAL, "") if self.config.identical and source == target else None

    def _check_leakage(self, source: str, target: str) -> tuple[str, str] | None:
        if self.config.leakage:
            for side, text in (("source", source), ("target", target)):
                if text in self.held_out:
                    return LEAKAGE, f"{side} in {self.held_out[text]}"
        return None


def count_utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def find_placeholders(text: str) -> list[str]:
    """The placeholders and tags of a text, in its order."""
    if "%" in text or "{" in text or "<" in text:
        return PLACEHOLDER.findall(text)
    return []


class SeenKeys:
    """Which of a stream of keys came before, in eight bytes a key, twice that while it merges.

    Sorted arrays, each at least twice the next: a new one is merged into its neighbor when it has grown to
    half of it, so that a lookup searches a handful of arrays and a key is copied a handful of times.
    """

    def __init__(self) -> None:
        self.levels: list[NDArray[np.uint64]] = []

    def add(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each key, whether it is new; from now on it is not."""
        new = np.zeros(len(keys), bool)
        unique, first = np.unique(keys, return_index=True)
        known = np.zeros(len(unique), bool)
        for level in self.levels:
            places = np.minimum(np.searchsorted(level, unique), len(level) - 1)
            known |= level[places] == unique
        new[first[~known]] = True
        self._insert(unique[~known])
        return new

    def _insert(self, keys: NDArray[np.uint64]) -> None:
        while self.levels and len(self.levels[-1]) < 2 * len(keys):
            keys = np.concatenate([self.levels.pop(), keys])
            keys.sort()  # in place: runs that are sorted already
        if len(keys):
            self.levels.append(keys)


def hash_pairs(pairs: Iterable[tuple[str, str]]) -> NDArray[np.uint64]:
    """A key for each pair. 64 bits: among 36 million pairs two keys meet by chance once in 28,000 corpora."""
    return np.fromiter(map(hash_pair, pairs), np.uint64)


def hash_pair(pair: tuple[str, str]) -> int:
    return int.from_bytes(blake2b("\n".join(pair).encode(), digest_size=8).digest(), "little")


def find_frequent_placeholders(texts: Iterator[str], max_count: int) -> list[str]:
    """The most frequent placeholders and tags, those of equal number in the order of the alphabet."""
    counts = Counter(found for text in texts for found in find_placeholders(text))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [symbol for symbol, _ in ranked if can_be_user_symbol(symbol)][:max_count]


def can_be_user_symbol(symbol: str) -> bool:
    """Not what has a space in it, nor what SentencePiece itself calls its ends, the unknown and bytes."""
    return "".join(symbol.split()) == symbol and not SENTENCEPIECE_RESERVED.fullmatch(symbol)
