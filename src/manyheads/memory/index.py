"""The corrections of one space in memory, and the lookup of texts among them."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from manyheads.memory.copied_text import Frame, adapt_target, find_frame
from manyheads.memory.database import Correction
from manyheads.memory.matches import MatchType, MemoryMatch
from manyheads.memory.similarity import SimilarSentences
from manyheads.text.segmentation import LINE_BREAKS, split_text

MAX_ADAPTED = 100  # corrections of one frame that are tried, the newest
MIN_SIMILARITY = 0.7  # of a match that is shown


@dataclass(frozen=True)
class MemoryEntry:
    """A text of a correction, or a sentence of it, with its translation."""

    source: str
    target: str
    correction: Correction

    def match(self, match: MatchType, similarity: float, target: str) -> MemoryMatch:
        own = self.correction
        return MemoryMatch(match, similarity, self.source, target, own.who, own.when)


class MemoryIndex:
    """Looks texts up. Of several corrections of a text the newest is in force."""

    def __init__(self, corrections: Sequence[Correction], languages: tuple[str, str]) -> None:
        self.languages = languages
        self.entries: dict[str, MemoryEntry] = {}
        for correction in corrections:
            for source, target in list_units(correction.source, correction.target, languages):
                key = normalize(source)
                self.entries.pop(key, None)  # so that the order is that of the newest
                self.entries[key] = MemoryEntry(key, target.strip(), correction)
        self.by_frame: dict[str, list[tuple[Frame, MemoryEntry]]] = {}
        for key, entry in self.entries.items():
            frame = find_frame(key)
            if frame.values:
                self.by_frame.setdefault(frame.text, []).append((frame, entry))
        self.similar = SimilarSentences(list(self.entries), MIN_SIMILARITY)
        self.by_number = list(self.entries.values())

    def find_used(self, text: str) -> MemoryMatch | None:
        """Return the correction that is the translation of a text, as it is or adapted."""
        key = normalize(text)
        if entry := self.entries.get(key):
            return entry.match("exact", 1.0, entry.target)
        if not self.by_frame:
            return None
        frame = find_frame(key)
        newest = self.by_frame.get(frame.text, [])[-MAX_ADAPTED:] if frame.values else []
        for old, entry in reversed(newest):
            target = adapt_target(entry.target, old, frame, self.languages[1])
            if target is not None:
                return entry.match("adapted", 1.0, target)
        return None

    def find_similar(self, text: str) -> MemoryMatch | None:
        """Return the most similar correction, if there is a similar one."""
        best = self.similar.find_best(normalize(text))
        if best is None:
            return None
        entry = self.by_number[best[0]]
        return entry.match("similar", round(best[1], 4), entry.target)


def normalize(text: str) -> str:
    """Return a text without what makes no difference: NFC, and a space for each run of spaces."""
    text = "\n".join([" ".join(line.split()) for line in text.strip().splitlines()])
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def list_units(source: str, target: str, languages: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Yield a correction, and its lines and sentences where both sides have the same number of them."""
    lines = [*zip_equal(LINE_BREAKS.split(source.strip()), LINE_BREAKS.split(target.strip()))]
    for line in lines:
        sentences = [
            [segment.text for segment in split_text(text, language) if segment.is_translatable]
            for text, language in zip(line, languages, strict=True)
        ]
        if len(sentences[0]) > 1:
            yield from zip_equal(*sentences)
    if len(lines) > 1:
        yield from lines
    yield source, target


def zip_equal(sources: Sequence[str], targets: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of texts; none if their numbers differ, or one of a pair is blank."""
    if len(sources) != len(targets):
        return []
    return [pair for pair in zip(sources, targets, strict=True) if all(map(str.strip, pair))]
