"""The source model and the features, by hand on small cases."""

import math

import numpy as np
import pytest

from manyheads.confidence.features import FEATURES, FeatureExtractor, PieceTable
from manyheads.confidence.ragged import Ragged, share_of_repeats
from manyheads.confidence.source_model import SourceModel, sample_sentences
from manyheads.config import SubwordConfig
from manyheads.text.subwords import SubwordTokenizer

EOS = 2
SENTENCES = [[3, 4, 5, EOS], [3, 4, 6, EOS], [3, 4, 5, EOS], [7, 4, 5, EOS]] * 25
TOKENS = np.array([token for sentence in SENTENCES for token in sentence], np.uint16)
STEP = 1 / 16 + 1e-9  # what quantization may change, twice half a level


def test_sums_and_worst_windows_stay_within_their_sentences() -> None:
    sentences = Ragged.of([[1, 2], [], [3, 4, 5]])
    values = np.array([1.0, 2.0, 3.0, -4.0, 0.0])
    assert sentences.sum(values).tolist() == [3, 0, -1]
    assert sentences.mean(values).tolist() == pytest.approx([1.5, 0, -1 / 3])
    assert sentences.mean_of_worst_window(values, 2).tolist() == [1.5, 0, -2]
    assert sentences.mean_of_worst_window(values, 3).tolist() == pytest.approx([1.5, 0, -1 / 3])


def test_repeated_n_grams_are_counted_within_a_sentence() -> None:
    sentences = Ragged.of([[1, 2, 1, 2, 1, 2], [1, 2, 3], [4], []])
    assert share_of_repeats(sentences, 2).tolist() == [3 / 5, 0, 0, 0]
    assert share_of_repeats(Ragged.of([]), 2).tolist() == []


def test_the_source_model_returns_discounted_relative_frequencies() -> None:
    model = SourceModel.train(TOKENS, 10)
    scores = model.score(Ragged.of([[3, 4, 5, EOS]]))
    expected = [math.log(74.5 / 100), math.log(74.5 / 75), math.log(74.5 / 100), math.log(74.5 / 75)]
    assert scores.tolist() == pytest.approx(expected, abs=STEP)


def test_unseen_bigrams_back_off_to_unigrams() -> None:
    model = SourceModel.train(TOKENS, 10)
    score = model.score(Ragged.of([[3, 5]]))[1]
    backoff, unigram = math.log(0.5 * 1 / 75), math.log(75.5 / (400 + 5))
    assert score == pytest.approx(backoff + unigram, abs=2 * STEP)


def test_a_sentence_scores_the_same_alone_and_among_others() -> None:
    model = SourceModel.train(TOKENS, 10)
    others = [[4, 4], [3, 4, 6, EOS], []]
    together = model.score(Ragged.of(others))[2:6]
    assert together.tolist() == model.score(Ragged.of([[3, 4, 6, EOS]])).tolist()


def test_shuffled_sentences_are_less_likely() -> None:
    model = SourceModel.train(TOKENS, 10)
    plain, shuffled = Ragged.of([[3, 4, 5, EOS]]), Ragged.of([[5, 3, 4, EOS]])
    assert plain.mean(model.score(plain))[0] > shuffled.mean(model.score(shuffled))[0] + 1


def test_a_large_table_keeps_the_frequent_bigrams() -> None:
    random = np.random.default_rng(0)
    rare = random.integers(3, 30_000, 300_000)
    frequent = np.tile([5, 6, 7, 8, EOS], 2_000)
    model = SourceModel.train(np.concatenate((rare, frequent)), 30_000)
    assert len(model.checks) == 1 << 16
    scores = model.score(Ragged.of([[5, 6, 7, 8, EOS]]))[1:]
    assert scores.min() > -0.3


def test_samples_are_whole_sentences_of_all_parts() -> None:
    offsets = np.arange(0, 40_001, 4)
    tokens = np.tile([3, 4, 5, EOS], 10_000)
    sample = sample_sentences(tokens, offsets, 4_000)
    assert 3_000 <= len(sample) <= 4_500
    assert sample[::4].tolist() == [3] * (len(sample) // 4)
    assert sample[3::4].tolist() == [EOS] * (len(sample) // 4)
    assert sample_sentences(tokens, offsets, 10**6) is not None


@pytest.fixture(scope="module")
def subwords() -> SubwordTokenizer:
    texts = ["나는 오늘 집에 간다.", "I go home today.", "We read a book at school."] * 20
    return SubwordTokenizer.train(texts, SubwordConfig(vocab_size=340))


def compute(subwords: SubwordTokenizer, source: str, output: str, log_p: float = -3.0) -> dict[str, float]:
    tables = PieceTable.of(subwords, "en"), PieceTable.of(subwords, "ko")
    extractor = FeatureExtractor(SourceModel.train(TOKENS, len(subwords)), *tables, log_length_ratio=0.0)
    row = extractor.compute([[*subwords.encode(source), EOS]], [subwords.encode(output)], [log_p])[0]
    return dict(zip(FEATURES, row.tolist(), strict=True))


def test_features_of_a_plain_translation(subwords: SubwordTokenizer) -> None:
    row = compute(subwords, "I go home today.", "나는 오늘 집에 간다.")
    lengths = len(subwords.encode("나는 오늘 집에 간다.")) + 1, len(subwords.encode("I go home today.")) + 1
    assert row["log_p"] == pytest.approx(-3.0 / lengths[0])
    assert row["too_long"] - row["too_short"] == pytest.approx(math.log(lengths[0] / lengths[1]))
    assert row["source_foreign"] == row["output_foreign"] == row["source_unknown"] == 0
    assert row["source_length"] == pytest.approx(math.log(lengths[1]))


def test_features_show_scripts_and_bytes(subwords: SubwordTokenizer) -> None:
    row = compute(subwords, "나는 I", "I go")
    assert row["source_foreign"] == pytest.approx(2 / 3)
    assert row["output_foreign"] == 1
    unknown = compute(subwords, "Ж Ж", "🙂")
    assert unknown["source_unknown"] > 0.5
    assert unknown["output_unknown"] > 0.5


def test_an_empty_output_has_features(subwords: SubwordTokenizer) -> None:
    row = compute(subwords, "I go", "", log_p=-4.0)
    assert row["log_p"] == -4
    assert np.isfinite(list(row.values())).all()
