"""Words as the lexical models see them: in lower case, cut to their first letters, the rare ones hashed.

A cut word stands for its inflections. Rare words share buckets, the same on both sides, so that a name or a
number that is copied is seen to explain itself. Nothing has to be trained but counts.
"""

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence

from manyheads.confidence.ragged import Ragged

NUM_BUCKETS = 512  # of rare words
MAX_WORDS = 6000  # frequent words with an id of their own
MIN_COUNT = 2
MAX_LENGTH = 100  # words of a sentence that are looked at
EMPTY_WORD = 0
# Kana and ideographs are words by themselves, Hangul words are cut to two syllables, others to five letters.
WORD = re.compile(
    r"[\u3040-\u30FF\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF]|([\uAC00-\uD7A3]{1,2})[\uAC00-\uD7A3]*"
    r"|([^\W\d_\u3040-\u30FF\u3400-\u4DBF\u4E00-\u9FFF\uAC00-\uD7A3\uF900-\uFAFF]{1,5})"
    r"[^\W\d_\u3040-\u30FF\u3400-\u4DBF\u4E00-\u9FFF\uAC00-\uD7A3\uF900-\uFAFF]*|\d+|[^\w\s]"
)


def split_words(text: str) -> list[str]:
    """Return the beginnings of the words of a text, its numbers and its marks."""
    return [match[match.lastindex or 0] for match in WORD.finditer(text.lower())][:MAX_LENGTH]


class WordVocabulary:
    """The ids of words: 0 is the empty word, then come buckets, then frequent words."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self.ids = {word: 1 + NUM_BUCKETS + n for n, word in enumerate(self.words)}

    @classmethod
    def train(cls, texts: Iterable[str]) -> "WordVocabulary":
        counts = Counter(word for text in texts for word in split_words(text))
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MAX_WORDS]
        return cls([word for word, count in ranked if count >= MIN_COUNT])

    def __len__(self) -> int:
        return 1 + NUM_BUCKETS + len(self.words)

    def encode(self, texts: Iterable[str]) -> Ragged:
        get = self.ids.get
        return Ragged.of(
            [
                [get(word) or 1 + zlib.crc32(word.encode("utf-8", "replace")) % NUM_BUCKETS for word in words]
                for words in map(split_words, texts)
            ]
        )
