"""Texts whose words take one of a few segmentations: the text stays, and the shares are as expected."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.config import EOS_ID, SubwordConfig
from manyheads.data import subword_regularization
from manyheads.data.subword_regularization import GrowableArray, SubwordRegularizer, hash_words
from manyheads.text.subword_regularization import SubwordSampler
from manyheads.text.subwords import SubwordTokenizer, TokenSequences, normalize

LINES = ["나는 오늘 점심을 먹었어.", "the cat drinks the water", "<b> reserved </b> %s", "drinking and drank"]
SUBWORDS = {
    algorithm: SubwordTokenizer.train(
        LINES * 9, SubwordConfig(algorithm=algorithm, vocab_size=size, user_symbols=("%s",))
    )
    for algorithm, size in (("bpe", 330), ("unigram", 302))
}
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(LINES)


def read(
    texts: list[str], algorithm: str = "bpe", rate: float = 0.3, key: int = 0, max_length: int = 999
) -> TokenSequences:
    subwords = SUBWORDS[algorithm]
    keys = np.arange(len(texts)) + key
    return SubwordRegularizer(subwords, rate, "1 source").resample(
        subwords.encode_batch(texts), keys, max_length
    )


@pytest.mark.parametrize("algorithm", SUBWORDS)
@settings(max_examples=40)
@given(texts=st.lists(ANY, min_size=1, max_size=4), key=st.integers(0, 2**40))
def test_the_texts_stay_the_same_and_end_with_end(algorithm: str, texts: list[str], key: int) -> None:
    sampled = read(texts, algorithm, key=key)
    assert [SUBWORDS[algorithm].decode(part.tolist()) for part in parts(sampled)] == [*map(normalize, texts)]
    assert all(part[-1] == EOS_ID and EOS_ID not in part[:-1] for part in parts(sampled))


def test_without_randomness_nothing_changes() -> None:
    stored = SUBWORDS["bpe"].encode_batch(LINES)
    sampled = read(LINES, rate=0.0)
    assert sampled.ids.tolist() == stored.ids.tolist()
    assert sampled.offsets.tolist() == stored.offsets.tolist()


def test_a_segmentation_is_one_of_the_sampler() -> None:
    texts = parts(read(["drinking"] * 40, rate=0.5))
    sampler, rng = SubwordSampler(SUBWORDS["bpe"], 0.5), random.Random(0)
    possible = {tuple(sampler.sample("drinking", rng)) for _ in range(3000)}
    segmentations = {tuple(part[:-1].tolist()) for part in texts}
    assert 3 < len(segmentations) <= subword_regularization.SEGMENTATIONS_PER_WORD
    assert segmentations <= possible


def test_all_segmentations_of_a_word_are_about_equally_frequent() -> None:
    reader, subwords = SubwordRegularizer(SUBWORDS["bpe"], 0.5, "1 source"), SUBWORDS["bpe"]
    stored = subwords.encode_batch(["cat cat cat cat"] * 500)
    reader.resample(stored, np.arange(500), 999)
    words = hash_words(stored.ids, np.flatnonzero(reader.is_word_start[stored.ids]))
    choices = reader._choose_segmentations(
        stored, np.flatnonzero(reader.is_word_start[stored.ids]), np.arange(500)
    )
    assert len(set(words.tolist())) == 2  # the word, and the end
    by_choice = Counter(choices.tolist())
    assert len(by_choice) == subword_regularization.SEGMENTATIONS_PER_WORD
    assert max(by_choice.values()) < 1.35 * min(by_choice.values())


def test_segmentations_do_not_depend_on_earlier_texts() -> None:
    subwords = SUBWORDS["bpe"]
    regularizer, other = (SubwordRegularizer(subwords, 0.4, "1 source") for _ in range(2))
    for text in LINES[::-1]:
        other.resample(subwords.encode_batch([text]), np.array([7]), 999)
    assert [regularizer.resample(subwords.encode_batch(LINES), np.arange(4), 999).ids.tolist()] == [
        other.resample(subwords.encode_batch(LINES), np.arange(4), 999).ids.tolist()
    ]
    elsewhere = SubwordRegularizer(subwords, 0.4, "1 target").resample(
        subwords.encode_batch(LINES), np.arange(4), 999
    )
    assert (
        elsewhere.ids.tolist()
        != regularizer.resample(subwords.encode_batch(LINES), np.arange(4), 999).ids.tolist()
    )


def test_words_of_one_bucket_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = [read(LINES, key=key).ids.tolist() for key in range(5)]
    monkeypatch.setattr(subword_regularization, "NUM_BUCKETS", 1)
    assert [read(LINES, key=key).ids.tolist() for key in range(5)] == apart


def test_a_text_that_would_be_too_long_stays_as_stored() -> None:
    stored = parts(SUBWORDS["bpe"].encode_batch(LINES))
    max_length = max(map(len, stored))
    free = parts(read(LINES, rate=0.9))
    assert max(map(len, free)) > max_length
    limited = parts(read(LINES, rate=0.9, max_length=max_length))
    for kept, sampled, before in zip(limited, free, stored, strict=True):
        assert kept.tolist() == (sampled if len(sampled) <= max_length else before).tolist()


def test_an_empty_batch_stays_empty() -> None:
    assert len(read([]).ids) == 0


def test_hashes_distinguish_words_by_ids_and_order() -> None:
    words = [[3], [4], [3, 4], [4, 3], [3, 3], [7], [3 + 4]]
    starts = np.cumsum([0, *map(len, words)])[:-1]
    codes = hash_words(np.concatenate(words), starts)
    assert len(set(codes.tolist())) == len({tuple(word) for word in words})
    assert codes[5] == codes[6]


def test_an_array_grows_and_keeps_its_values() -> None:
    growing = GrowableArray()
    for number in range(3000):
        growing.append(np.array([number]))
    growing.append(np.arange(3000, 9000))
    assert growing.values.tolist() == list(range(9000))


def parts(pieces: TokenSequences) -> list[np.ndarray]:
    return np.split(pieces.ids, pieces.offsets[1:-1])
