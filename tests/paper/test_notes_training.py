"""The notes' questions about training, depth and trained heads: each effect, at a tiny size."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from manyheads.errors import RequestError
from manyheads.paper.notes import normalization as normalization
from manyheads.paper.notes import relations, residuals, smoothing, translation, warmup
from manyheads.paper.notes.relations import Looked, Said

STEPS = 32


def test_without_residuals_depth_hurts_on_the_training_data() -> None:
    found = residuals.measure(depths=(2, 16), trained=(2, 6), steps=40)
    without, post, pre = (found.gradients[way][-1] for way in ("none", "post", "pre"))
    assert without < 0.5 * post < pre
    assert found.losses["none"][1] > found.losses["none"][0] + 0.1
    assert max(found.losses["post"][1], found.losses["pre"][1]) < 0.5 * found.losses["none"][1]


def test_batch_normalization_depends_on_the_batch_and_layer_normalization_does_not() -> None:
    found = normalization.measure(steps=25)
    assert found.company["layer"] < 1e-5 < 0.1 < found.company["batch"]
    assert found.gap("layer") < 1e-6 < 0.05 < found.gap("batch")
    assert np.ptp(found.by_batch["layer"]["eval"]) < 1e-5  # the same sentences, however they are put together
    assert np.ptp(found.by_batch["batch"]["eval"]) < 1e-5
    assert found.by_batch["batch"]["train"][0] > found.by_batch["batch"]["train"][-1]


def test_without_warm_up_the_first_updates_are_large_and_the_model_is_stuck() -> None:
    found = warmup.measure(steps=50, warmup=30)
    assert found.updates["without"][0] > 10 * found.updates["with"][0]
    assert found.gradients["without"][0] == found.gradients["with"][0]  # the same beginning
    assert found.last_loss["with"] < found.last_loss["without"] - 0.1
    assert found.paper_first == pytest.approx(1.7469e-7, rel=1e-4)
    assert found.paper_peak == pytest.approx(6.9877e-4, rel=1e-4)


def test_label_smoothing_makes_less_sure_and_perplexity_rise() -> None:
    material = translation.Material.made(train=1000, valid=60)
    plain, smoothed = (translation.trained(material, e, STEPS) for e in (0.0, smoothing.SMOOTHING))
    found = smoothing.measure(material, plain, smoothed, steps=STEPS)
    assert found.smoothed.top < found.plain.top
    assert found.smoothed.entropy > found.plain.entropy
    assert found.smoothed.perplexity > found.plain.perplexity
    assert found.target_top == pytest.approx(0.9 + 0.1 / len(material.subwords))
    assert sum(found.plain.share_of_bin) == pytest.approx(1)


def test_calibration_error_is_the_distance_of_confidence_and_accuracy() -> None:
    """Half of the tokens are 95 % sure and always right, half 65 % sure and right every other time."""
    top = torch.tensor([0.95, 0.95, 0.65, 0.65], dtype=torch.float64)
    shares, accuracies, error = smoothing.by_bin(top, torch.tensor([1, 1, 1, 0], dtype=torch.float64))
    assert (shares[9], shares[6]) == (0.5, 0.5)
    assert (accuracies[9], accuracies[6], accuracies[0]) == (1, 0.5, None)
    assert error == pytest.approx(0.5 * 0.05 + 0.5 * 0.15)


# ---- which words a head relates

WORDS = ["Today", "the", "kind", "girl", "reads", "this", "book", "at", "home", ".", "</s>"]
SAID = Said("Today the kind girl reads this book at home.", "girl", "reads", "book")


def test_places_of_grammar_in_a_sentence() -> None:
    pairs = relations.pairs_of(SAID, WORDS)
    assert pairs["verb_subject"] == [(4, 3)]
    assert pairs["object_verb"] == [(6, 4)]
    assert pairs["before"] == [(row, row - 1) for row in range(1, 10)]
    assert pairs["end"] == [(row, 10) for row in range(10)]
    assert pairs["same"] == []
    twice = relations.pairs_of(SAID, ["The", "girl", "reads", "the", "girl", "</s>"])
    assert twice["verb_subject"] == []  # whose place is not known
    assert twice["same"] == [(0, 3), (1, 4), (3, 0), (4, 1)]


def test_the_sentences_have_their_subject_and_verb() -> None:
    for said in relations.sentences(40):
        words = said.text.lower().rstrip(".").split()
        assert said.subject.lower() in words
        assert said.verb in words
        assert not said.object or said.object in words


def looked(*maps: np.ndarray) -> Looked:
    """One layer, a head for each map."""
    return Looked(np.stack(maps)[None], relations.pairs_of(SAID, WORDS))


def even(size: int = len(WORDS)) -> np.ndarray:
    return np.full((size, size), 1 / size)


def seeing(row: int, column: int) -> np.ndarray:
    """A head that looks from one word at one other, and else evenly."""
    found = even()
    found[row] = np.eye(len(WORDS))[column]
    return found


def test_a_head_that_follows_grammar_is_found_on_other_sentences() -> None:
    verb_to_object = looked(even(), seeing(4, 6))
    found = relations.relation("verb_object", [verb_to_object], [verb_to_object])
    assert found is not None
    assert (found.layer, found.head, found.share) == (0, 1, 1.0)
    assert [found.even, found.at_the_distance, found.from_others] == pytest.approx([1 / 11] * 3)
    elsewhere = relations.relation("verb_object", [verb_to_object], [looked(even(), even())])
    assert elsewhere is not None
    assert elsewhere.share == pytest.approx(1 / 11)  # chosen on one half, measured on the other


@pytest.mark.parametrize("fake", ["a head of positions", "a word that all look at"])
def test_what_only_looks_like_grammar_is_not_called_so(fake: str) -> None:
    size = len(WORDS)
    by_position = np.eye(size)[np.minimum(np.arange(size) + 2, size - 1)]  # always two words on
    all_at_the_object = np.tile(np.eye(size)[6], (size, 1))
    one = looked(even(), by_position if fake == "a head of positions" else all_at_the_object)
    found = relations.relation("verb_object", [one], [one])
    assert found is not None
    assert found.share == found.without_grammar == 1
    told = relations.Relations(1, 2, 1, [found], {}, ours=True)
    assert not told.findings["grammar"]


def test_a_model_from_another_language_is_refused_with_the_remedy() -> None:
    material = translation.Material.made(train=200, valid=10, vocabulary=500)
    translator = translation.translator_of(translation.fresh(material.model_config()), material)
    found = relations.measure(translator, count=4)
    assert len(found.shares["before"]) == 2
    translator.source_language = "ko"
    with pytest.raises(RequestError, match=r"translates from 'ko'.* give a model from en, or none"):
        relations.measure(translator, count=4)


def test_an_effect_that_does_not_show_is_not_claimed() -> None:
    found = warmup.Warmup(
        warmup=3, peak=1.0, layers=6, losses={}, gradients={}, updates={"with": [0.1], "without": [0.1]},
        last_loss={"with": 1.0, "without": 1.0}, accuracy={}, paper_first=0.0, paper_peak=0.0,
    )  # fmt: skip
    assert found.findings == {"first_updates": False, "learning": False}
    assert replace(found, last_loss={"with": 1.0, "without": 2.0}).findings["learning"]
