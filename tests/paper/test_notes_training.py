"""The notes' questions about training, depth and trained heads: each effect, at a tiny size."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from manyheads.errors import RequestError
from manyheads.paper.notes import normalization as normalization
from manyheads.paper.notes import relations, residuals, smoothing, translation, warmup
from manyheads.paper.notes.relations import GrammarSentence, SentenceMaps

STEPS = 32


def test_without_residuals_depth_hurts_on_the_training_data() -> None:
    found = residuals.measure(depths=(2, 16), trained_depths=(2, 6), steps=40)
    without, post, pre = (found.gradient_ratios[way][-1] for way in ("none", "post", "pre"))
    assert without < 0.5 * post < pre
    assert found.losses["none"][1] > found.losses["none"][0] + 0.1
    assert max(found.losses["post"][1], found.losses["pre"][1]) < 0.5 * found.losses["none"][1]


def test_batch_normalization_depends_on_the_batch_and_layer_normalization_does_not() -> None:
    found = normalization.measure(steps=25)
    assert found.batch_dependence["layer"] < 1e-5 < 0.1 < found.batch_dependence["batch"]
    assert found.mode_gap("layer") < 1e-6 < 0.05 < found.mode_gap("batch")
    assert np.ptp(found.by_batch["layer"]["eval"]) < 1e-5  # the same sentences, however they are put together
    assert np.ptp(found.by_batch["batch"]["eval"]) < 1e-5
    assert found.by_batch["batch"]["train"][0] > found.by_batch["batch"]["train"][-1]


def test_without_warm_up_the_first_updates_are_large_and_the_model_is_stuck() -> None:
    found = warmup.measure(steps=50, warmup=30)
    assert found.update_ratios["without"][0] > 10 * found.update_ratios["with"][0]
    assert found.gradient_norms["without"][0] == found.gradient_norms["with"][0]  # the same beginning
    assert found.final_loss["with"] < found.final_loss["without"] - 0.1
    assert found.paper_first_rate == pytest.approx(1.7469e-7, rel=1e-4)
    assert found.paper_peak_rate == pytest.approx(6.9877e-4, rel=1e-4)


def test_label_smoothing_makes_less_sure_and_perplexity_rise() -> None:
    material = translation.TranslationData.generate(train=1000, valid=60)
    plain, smoothed = (
        translation.train_translation_model(material, e, STEPS) for e in (0.0, smoothing.SMOOTHING)
    )
    found = smoothing.measure(material, plain, smoothed, steps=STEPS)
    assert found.smoothed.mean_confidence < found.plain.mean_confidence
    assert found.smoothed.entropy > found.plain.entropy
    assert found.smoothed.perplexity > found.plain.perplexity
    assert found.target_confidence == pytest.approx(0.9 + 0.1 / len(material.subwords))
    assert sum(found.plain.bin_shares) == pytest.approx(1)


def test_calibration_error_is_the_distance_of_confidence_and_accuracy() -> None:
    """Half of the tokens are 95 % sure and always right, half 65 % sure and right every other time."""
    top = torch.tensor([0.95, 0.95, 0.65, 0.65], dtype=torch.float64)
    shares, accuracies, error = smoothing.bin_by_confidence(
        top, torch.tensor([1, 1, 1, 0], dtype=torch.float64)
    )
    assert (shares[9], shares[6]) == (0.5, 0.5)
    assert (accuracies[9], accuracies[6], accuracies[0]) == (1, 0.5, None)
    assert error == pytest.approx(0.5 * 0.05 + 0.5 * 0.15)


# ---- which words a head relates

WORDS = ["Today", "the", "kind", "girl", "reads", "this", "book", "at", "home", ".", "</s>"]
SAID = GrammarSentence("Today the kind girl reads this book at home.", "girl", "reads", "book")


def test_places_of_grammar_in_a_sentence() -> None:
    pairs = relations.find_pairs(SAID, WORDS)
    assert pairs["verb_subject"] == [(4, 3)]
    assert pairs["object_verb"] == [(6, 4)]
    assert pairs["before"] == [(row, row - 1) for row in range(1, 10)]
    assert pairs["end"] == [(row, 10) for row in range(10)]
    assert pairs["same"] == []
    twice = relations.find_pairs(SAID, ["The", "girl", "reads", "the", "girl", "</s>"])
    assert twice["verb_subject"] == []  # whose place is not known
    assert twice["same"] == [(0, 3), (1, 4), (3, 0), (4, 1)]


def test_the_sentences_have_their_subject_and_verb() -> None:
    for said in relations.generate_sentences(40):
        words = said.text.lower().rstrip(".").split()
        assert said.subject.lower() in words
        assert said.verb in words
        assert not said.object or said.object in words


def looked(*maps: np.ndarray) -> SentenceMaps:
    """One layer, a head for each map."""
    return SentenceMaps(np.stack(maps)[None], relations.find_pairs(SAID, WORDS))


def even(size: int = len(WORDS)) -> np.ndarray:
    return np.full((size, size), 1 / size)


def seeing(row: int, column: int) -> np.ndarray:
    """A head that looks from one word at one other, and else evenly."""
    found = even()
    found[row] = np.eye(len(WORDS))[column]
    return found


def test_a_head_that_follows_grammar_is_found_on_other_sentences() -> None:
    verb_to_object = looked(even(), seeing(4, 6))
    found = relations.measure_relation("verb_object", [verb_to_object], [verb_to_object])
    assert found is not None
    assert (found.layer, found.head, found.share) == (0, 1, 1.0)
    assert [found.uniform_share, found.same_distance_share, found.other_words_share] == pytest.approx(
        [1 / 11] * 3
    )
    elsewhere = relations.measure_relation("verb_object", [verb_to_object], [looked(even(), even())])
    assert elsewhere is not None
    assert elsewhere.share == pytest.approx(1 / 11)  # chosen on one half, measured on the other


@pytest.mark.parametrize("fake", ["a head of positions", "a word that all look at"])
def test_what_only_looks_like_grammar_is_not_called_so(fake: str) -> None:
    size = len(WORDS)
    by_position = np.eye(size)[np.minimum(np.arange(size) + 2, size - 1)]  # always two words on
    all_at_the_object = np.tile(np.eye(size)[6], (size, 1))
    one = looked(even(), by_position if fake == "a head of positions" else all_at_the_object)
    found = relations.measure_relation("verb_object", [one], [one])
    assert found is not None
    assert found.share == found.baseline_share == 1
    told = relations.RelationResults(1, 2, 1, [found], {}, trained_here=True)
    assert not told.findings["grammar"]


def test_a_model_from_another_language_is_refused_with_the_remedy() -> None:
    material = translation.TranslationData.generate(train=200, valid=10, vocab_size=500)
    translator = translation.make_translator(translation.build_model(material.model_config()), material)
    found = relations.measure(translator, num_sentences=4)
    assert len(found.shares["before"]) == 2
    translator.source_language = "ko"
    with pytest.raises(RequestError, match=r"translates from 'ko'.* give a model from en, or none"):
        relations.measure(translator, num_sentences=4)


def test_an_effect_that_does_not_show_is_not_claimed() -> None:
    found = warmup.WarmupResults(
        warmup=3, peak_learning_rate=1.0, layers=6, losses={}, gradient_norms={},
        update_ratios={"with": [0.1], "without": [0.1]},
        final_loss={"with": 1.0, "without": 1.0}, accuracy={}, paper_first_rate=0.0, paper_peak_rate=0.0,
    )  # fmt: skip
    assert found.findings == {"first_updates": False, "learning": False}
    assert replace(found, final_loss={"with": 1.0, "without": 2.0}).findings["learning"]
