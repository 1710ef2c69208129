"""Words that the training sources did not have are found, and those that they had are not."""

import numpy as np

from manyheads.confidence.known_words import KnownWords
from manyheads.confidence.source_model import SourceModel
from manyheads.config import EOS_ID, SubwordConfig
from manyheads.text.subwords import SubwordTokenizer

SENTENCES = ["I go home today.", "We read a book at school.", "They like the green garden."] * 20
SUBWORDS = SubwordTokenizer.train(SENTENCES, SubwordConfig(vocab_size=310))


def make_known_words() -> KnownWords:
    ids = [token for sentence in SENTENCES for token in [*SUBWORDS.encode(sentence), EOS_ID]]
    return KnownWords.of(SUBWORDS, "en", SourceModel.train(np.array(ids), len(SUBWORDS)))


def test_words_of_other_texts_are_unknown() -> None:
    words = ["They", "like", "the", "government", "and", "its", "42", "naïve", "ghosts", "at", "school", "."]
    unknown = [words[index] for index in make_known_words().find_unknown(words)]
    assert set(unknown) >= {"government", "naïve"}
    assert not {"They", "like", "the", "at", "school", "42", "."} & set(unknown)


def test_every_word_of_the_training_text_is_known() -> None:
    words = " ".join(SENTENCES[:3]).replace(".", "").split()
    assert make_known_words().find_unknown(words) == []


def test_without_a_complete_source_model_only_unknown_characters_count() -> None:
    known = KnownWords.of(SUBWORDS, "en")
    assert known.find_unknown(["ghosts", "naïve", "school"]) == [1]
