"""What is measured of a pair: one number per feature. Low is bad, whatever the feature."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manyheads.confidence.ragged import Floats, Ints, Ragged, count_repeats
from manyheads.judge.character_model import CharacterModel, to_characters
from manyheads.judge.language_evidence import score_language
from manyheads.judge.lexical_model import LexicalModel
from manyheads.judge.vocabulary import WordVocabulary
from manyheads.judge.word_evidence import WordEvidence, find_worst_part

WINDOW = 24  # characters in a row of which the least likely are looked at
LENGTH_SLACK = 8  # characters added to both lengths: "Hi." may be "Guten Tag."
REPEAT_ORDER = 2  # words
LONG_WORD = re.compile(r"[^\W\d_]{3,}")
# Bytes 0x80 to 0xBF follow the first of a character in UTF-8; Windows-1252 and Latin-1 read them as these.
CONTINUATION = "[\u0080-\u00bf" + bytes(range(0x80, 0xA0)).decode("cp1252", "ignore") + "]"
MOJIBAKE = re.compile(f"[\u00c2-\u00df]{CONTINUATION}|[\u00e0-\u00ef]{CONTINUATION}{{2}}")

Flags = NDArray[np.bool_]

# The features, each with the reason that it gives for a low score.
REASONS = {
    "lexical_target": "misaligned",
    "lexical_source": "misaligned",
    "part_target": "added text",
    "part_source": "missing text",
    "short_target": "length",
    "short_source": "length",
    "fluency_source": "garbled",
    "fluency_target": "garbled",
    "window_source": "garbled",
    "window_target": "garbled",
    "language_source": "wrong language",
    "language_target": "wrong language",
    "identified_source": "wrong language",
    "identified_target": "wrong language",
    "copy": "untranslated copy",
    "repetition": "garbled",
    "encoding": "garbled",
}
NAMES = tuple(REASONS)


@dataclass(frozen=True)
class PairBatch:
    """Pairs as the models see them."""

    texts: tuple[list[str], list[str]]
    words: tuple[Ragged, Ragged]
    characters: tuple[Ragged, Ragged]

    @classmethod
    def create(
        cls, sources: list[str], targets: list[str], vocabularies: tuple[WordVocabulary, WordVocabulary]
    ) -> "PairBatch":
        return cls(
            (sources, targets),
            (vocabularies[0].encode(sources), vocabularies[1].encode(targets)),
            (to_characters(sources), to_characters(targets)),
        )

    def __len__(self) -> int:
        return len(self.texts[0])

    @property
    def sizes(self) -> Ints:
        """Characters of both sides together."""
        return self.characters[0].lengths + self.characters[1].lengths


def measure_texts(batch: PairBatch) -> dict[str, Floats]:
    """Return the features that need no model."""
    ratios = measure_length(batch)
    repeats = [count_repeats(words, REPEAT_ORDER) / np.maximum(1, words.lengths - 1) for words in batch.words]
    return {
        "short_target": ratios,
        "short_source": -ratios,
        "copy": -measure_copying(*batch.texts),
        "repetition": -np.abs(repeats[1] - repeats[0]),
        "encoding": -np.maximum(*(count_broken_characters(texts) for texts in batch.texts)),
    }


def measure_characters(batch: PairBatch, models: tuple[CharacterModel, CharacterModel]) -> dict[str, Floats]:
    """Return what the character models say of each side: how likely it is, and in which language."""
    features = {}
    for side, end in enumerate(("source", "target")):
        characters = batch.characters[side]
        log_p = models[side].score(characters)
        features[f"fluency_{end}"] = characters.mean(log_p)
        features[f"window_{end}"] = characters.mean_of_worst_window(log_p, WINDOW)
        features[f"language_{end}"] = characters.mean(log_p - models[1 - side].score(characters))
    return features


def identify_languages(
    batch: PairBatch, languages: tuple[str, str], suspected: tuple[Flags, Flags] | None = None
) -> tuple[dict[str, Floats], tuple[list[str], list[str]]]:
    """Return the evidence of the language identifier, and what languages the sides look like.

    It is slow: where `suspected` is given, only those sides are looked at.
    """
    features, names = {}, []
    for side, end in enumerate(("source", "target")):
        numbers = np.flatnonzero(suspected[side]) if suspected else np.arange(len(batch))
        evidence, found_names = np.zeros(len(batch)), [""] * len(batch)
        texts = [batch.texts[side][n] for n in numbers]
        for n, value, name in zip(numbers, *score_language(texts, languages[side]), strict=True):
            evidence[n], found_names[n] = value, name
        features[f"identified_{end}"] = evidence
        names.append(found_names)
    return features, (names[0], names[1])


def measure_length(batch: PairBatch) -> Floats:
    """Return the logarithm of the ratio of lengths, in characters."""
    source, target = (characters.lengths + LENGTH_SLACK for characters in batch.characters)
    return np.log(target / source)


def measure_copying(sources: Sequence[str], targets: Sequence[str]) -> Floats:
    """Return the share of the longer side's different words that the other side has too.

    Short words and numbers do not count: texts without longer words are not translated.
    """
    shares = np.zeros(len(sources))
    for n, (source, target) in enumerate(zip(sources, targets, strict=True)):
        words = set(LONG_WORD.findall(source.lower())), set(LONG_WORD.findall(target.lower()))
        if words[0] and words[1]:
            shares[n] = len(words[0] & words[1]) / max(map(len, words))
    return shares


def count_broken_characters(texts: Sequence[str]) -> Floats:
    """Return how often each text has characters of UTF-8 that was read as another encoding, up to 5."""
    return np.array([0.0 if text.isascii() else min(5, len(MOJIBAKE.findall(text))) for text in texts])


@dataclass(frozen=True)
class LexicalPair:
    """The lexical models of both directions, with what their evidence is worth."""

    models: tuple[LexicalModel, LexicalModel]  # of target words given the source, and the other way round
    weights: tuple[WordEvidence, WordEvidence]

    def measure(self, words: tuple[Ragged, Ragged]) -> dict[str, Floats]:
        features = {}
        for direction, end in enumerate(("target", "source")):
            given, explained = words[direction], words[1 - direction]
            evidence = self.models[direction].score(given, explained)
            ratios = self.weights[direction].score(explained.ids, evidence)
            features[f"lexical_{end}"] = explained.mean(ratios)
            features[f"part_{end}"] = find_worst_part(explained, ratios)
        return features
