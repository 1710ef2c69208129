"""Cleaning: normalization of sentences, and the filters of pairs. Each can be switched off."""

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

# Reasons for which pairs are dropped, as reports count them.
MARKUP = "placeholders or tags"
MARKUP_DIFFERS = "placeholders or tags differ"
TOO_LONG_SIDE = "side too long"
LENGTH_RATIO = "length ratio"
WRONG_SCRIPT = "wrong script"
IDENTICAL = "identical sides"
LEAKAGE = "also in valid or test"
DUPLICATE = "duplicate"

RATIO_SLACK = 20  # bytes added to each side: "Hi." may be "안녕하세요."

# %s, %1$d, %(name)s, %.2f, {name}, {0:.2f}, {{name}}, ${name}, <b>, </b>, <br/>. Korean particles follow
# directly (%s를, %d개); a Latin letter after a bare conversion makes it a word (%sure), a digit before it a
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
    """Compose to NFC, replace runs of white space by one space, and strip."""
    return " ".join(unicodedata.normalize("NFC", text).split())


@dataclass
class Cleaner:
    """Normalizes sentences and filters pairs. `held_out` maps every side of valid and test to its split."""

    config: CleanConfig
    corpus: CorpusConfig
    held_out: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.normalized: Counter[str] = Counter()
        self.script_patterns = [
            get_script_pattern(language) for language in (self.corpus.source, self.corpus.target)
        ]

    def normalize(self, text: str) -> str:
        """Normalize as configured, and count what changed."""
        if self.config.nfc and not unicodedata.is_normalized("NFC", text):
            self.normalized["Unicode NFC"] += 1
            text = unicodedata.normalize("NFC", text)
        if self.config.whitespace and (stripped := " ".join(text.split())) != text:
            self.normalized["white space"] += 1
            text = stripped
        return text

    def find_rejection(self, source: str, target: str) -> tuple[str, str] | None:
        """Return the first reason to drop a normalized pair with a detail, or None to keep it."""
        for check in (
            self._check_length,
            self._check_identical,
            self._check_markup,
            self._check_script,
            self._check_leakage,
        ):
            if rejection := check(source, target):
                return rejection
        return None

    def _check_markup(self, source: str, target: str) -> tuple[str, str] | None:
        if self.config.markup == "ignore":
            return None
        in_source, in_target = find_placeholders(source), find_placeholders(target)
        if self.config.markup == "drop" and (in_source or in_target):
            return MARKUP, (in_source or in_target)[0]
        if sorted(in_source) != sorted(in_target):
            return MARKUP_DIFFERS, f"{' '.join(in_source) or 'none'} / {' '.join(in_target) or 'none'}"
        return None

    def _check_length(self, source: str, target: str) -> tuple[str, str] | None:
        """Compare bytes of UTF-8, which differ less between scripts: a Hangul syllable has three."""
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
        for pattern, text, side in zip(
            self.script_patterns, (source, target), ("source", "target"), strict=True
        ):
            if pattern and not pattern.search(text) and ANY_LETTER.search(text):
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
    """Return the placeholders and tags of a text, in order."""
    if "%" in text or "{" in text or "<" in text:
        return PLACEHOLDER.findall(text)
    return []


class SeenKeys:
    """The set of keys seen in a stream, in eight bytes a key, and twice that while it merges.

    The keys are in sorted arrays, each at least twice as large as the next. A new array is merged into its
    neighbor once it has half its size, so a lookup searches few arrays and a key is copied few times.
    """

    def __init__(self) -> None:
        self.levels: list[NDArray[np.uint64]] = []

    def add(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Add keys, and return for each whether it is new."""
        is_new = np.zeros(len(keys), bool)
        unique, first = np.unique(keys, return_index=True)
        is_known = np.zeros(len(unique), bool)
        for level in self.levels:
            indices = np.minimum(np.searchsorted(level, unique), len(level) - 1)
            is_known |= level[indices] == unique
        is_new[first[~is_known]] = True
        self._insert(unique[~is_known])
        return is_new

    def _insert(self, keys: NDArray[np.uint64]) -> None:
        while self.levels and len(self.levels[-1]) < 2 * len(keys):
            keys = np.concatenate([self.levels.pop(), keys])
            keys.sort()  # in place, two sorted runs
        if len(keys):
            self.levels.append(keys)


def hash_pairs(pairs: Iterable[tuple[str, str]]) -> NDArray[np.uint64]:
    """Hash each pair to 64 bits. With 36 million pairs, one corpus in 28,000 has a collision."""
    return np.fromiter(map(hash_pair, pairs), np.uint64)


def hash_pair(pair: tuple[str, str]) -> int:
    return int.from_bytes(blake2b("\n".join(pair).encode(), digest_size=8).digest(), "little")


def find_frequent_placeholders(texts: Iterator[str], max_count: int) -> list[str]:
    """Return the most frequent placeholders and tags, ties in alphabetical order."""
    counts = Counter(symbol for text in texts for symbol in find_placeholders(text))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [symbol for symbol, _ in ranked if can_be_user_symbol(symbol)][:max_count]


def can_be_user_symbol(symbol: str) -> bool:
    """Return whether the symbol has no white space and is not one of SentencePiece's own."""
    return "".join(symbol.split()) == symbol and not SENTENCEPIECE_RESERVED.fullmatch(symbol)
