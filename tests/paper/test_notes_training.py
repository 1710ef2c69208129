"""The notes' questions about training, depth and trained heads: each effect, at a tiny size."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from manyheads.errors import RequestError
from manyheads.paper.notes import normalization, relations, residuals, smoothing, translation, warmup
from manyheads.paper.notes.grammar_pairs import GrammarSentence, find_pairs, generate_sentences
from manyheads.paper.notes.learning import XAVIER_GAIN, build_model, initial_gain
from manyheads.paper.notes.relations import SentenceMaps

STEPS = 32


@pytest.fixture(autouse=True)
def use_xavier_weights() -> Iterator[None]:
    """From Xavier's initial weights the effects show in very few steps."""
    with initial_gain(XAVIER_GAIN):
        yield


def test_without_residuals_depth_hurts_on_the_training_data() -> None:
    results = residuals.measure(depths=(2, 16), trained_depths=(2, 6), steps=40)
    without, post, pre = (results.gradient_ratios[variant][-1] for variant in ("none", "post", "pre"))
    assert without < 0.5 * post < pre
    assert results.losses["none"][1] > results.losses["none"][0] + 0.1
    assert max(results.losses["post"][1], results.losses["pre"][1]) < 0.5 * results.losses["none"][1]
    assert 0 < results.branch_ratio < 5
    assert results.function_losses["identity"] > 2 * results.function_losses["zero"]


def test_a_layer_whose_weights_are_zero_adds_nothing() -> None:
    model = build_model(replace(residuals.VARIANTS["pre"], layers=3))
    assert residuals.measure_branch_ratio(model) > 0.01
    for name, parameter in model.encoder.named_parameters():
        if "w_o" in name or "w_2" in name:
            parameter.data.zero_()
    assert residuals.measure_branch_ratio(model) == 0


def test_batch_normalization_depends_on_the_batch_and_layer_normalization_does_not() -> None:
    results = normalization.measure(steps=25)
    assert results.batch_dependence["layer"] < 1e-5 < 0.1 < results.batch_dependence["batch"]
    assert results.mode_gap("layer") < 1e-6 < 0.05 < results.mode_gap("batch")
    assert np.ptp(results.by_batch["layer"]["eval"]) < 1e-5  # the same sentences, however they are batched
    assert np.ptp(results.by_batch["batch"]["eval"]) < 1e-5
    assert results.by_batch["batch"]["train"][0] > results.by_batch["batch"]["train"][-1]


def test_without_warm_up_the_first_updates_are_large_and_the_loss_stays_high() -> None:
    results = warmup.measure(steps=50, warmup=30)
    assert results.update_ratios["without"][0] > 10 * results.update_ratios["with"][0]
    assert (
        results.gradient_norms["without"][0] == results.gradient_norms["with"][0]
    )  # the same initial weights
    assert results.final_loss["with"] < results.final_loss["without"] - 0.1
    assert results.paper_first_rate == pytest.approx(1.7469e-7, rel=1e-4)
    assert results.paper_peak_rate == pytest.approx(6.9877e-4, rel=1e-4)


def test_label_smoothing_lowers_confidence_and_raises_perplexity() -> None:
    data = translation.TranslationData.generate(train=1000, valid=60)
    plain, smoothed = (
        translation.train_translation_model(data, e, STEPS) for e in (0.0, smoothing.SMOOTHING)
    )
    results = smoothing.measure(data, plain, smoothed, steps=STEPS)
    assert results.smoothed.mean_confidence < results.plain.mean_confidence
    assert results.smoothed.entropy > results.plain.entropy
    assert results.smoothed.perplexity > results.plain.perplexity
    assert results.target_confidence == pytest.approx(0.9 + 0.1 / len(data.subwords))
    assert sum(results.plain.bin_shares) == pytest.approx(1)


def test_calibration_error_is_the_difference_of_confidence_and_accuracy() -> None:
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
SENTENCE = GrammarSentence("Today the kind girl reads this book at home.", "girl", "reads", "book")


def test_pairs_of_each_relation_in_a_sentence() -> None:
    pairs = find_pairs(SENTENCE, WORDS)
    assert pairs["verb_subject"] == [(4, 3)]
    assert pairs["object_verb"] == [(6, 4)]
    assert pairs["before"] == [(row, row - 1) for row in range(1, 10)]
    assert pairs["end"] == [(row, 10) for row in range(10)]
    assert pairs["same"] == []
    twice = find_pairs(SENTENCE, ["The", "girl", "reads", "the", "girl", "</s>"])
    assert twice["verb_subject"] == []  # the position is not unique
    assert twice["same"] == [(0, 3), (1, 4), (3, 0), (4, 1)]


def test_sentences_contain_their_subject_and_verb() -> None:
    for sentence in generate_sentences(40):
        words = sentence.text.lower().rstrip(".").split()
        assert sentence.subject.lower() in words
        assert sentence.verb in words
        assert not sentence.object or sentence.object in words


def make_maps(*maps: np.ndarray) -> SentenceMaps:
    """Return one layer with a head for each map."""
    return SentenceMaps(np.stack(maps)[None], find_pairs(SENTENCE, WORDS))


def uniform(size: int = len(WORDS)) -> np.ndarray:
    return np.full((size, size), 1 / size)


def attend_to(row: int, column: int) -> np.ndarray:
    """Return a head that attends from one word to one other, and else uniformly."""
    map_QK = uniform()
    map_QK[row] = np.eye(len(WORDS))[column]
    return map_QK


def test_a_grammatical_head_is_measured_on_other_sentences() -> None:
    verb_to_object = make_maps(uniform(), attend_to(4, 6))
    relation = relations.measure_relation("verb_object", [verb_to_object], [verb_to_object])
    assert relation is not None
    assert (relation.layer, relation.head, relation.share) == (0, 1, 1.0)
    assert [
        relation.uniform_share,
        relation.same_distance_share,
        relation.other_words_share,
    ] == pytest.approx([1 / 11] * 3)
    elsewhere = relations.measure_relation("verb_object", [verb_to_object], [make_maps(uniform(), uniform())])
    assert elsewhere is not None
    assert elsewhere.share == pytest.approx(1 / 11)  # chosen on one half, measured on the other


@pytest.mark.parametrize("fake", ["a positional head", "an attention sink"])
def test_positional_heads_and_attention_sinks_are_not_grammar(fake: str) -> None:
    size = len(WORDS)
    positional = np.eye(size)[np.minimum(np.arange(size) + 2, size - 1)]  # always two words ahead
    sink = np.tile(np.eye(size)[6], (size, 1))
    maps = make_maps(uniform(), positional if fake == "a positional head" else sink)
    relation = relations.measure_relation("verb_object", [maps], [maps])
    assert relation is not None
    assert relation.share == relation.baseline_share == 1
    relation_results = relations.RelationResults(1, 2, 1, [relation], {}, trained_here=True)
    assert not relation_results.findings["grammar"]


def test_a_model_from_another_language_is_rejected_with_the_remedy() -> None:
    data = translation.TranslationData.generate(train=200, valid=10, vocab_size=500)
    translator = translation.make_translator(build_model(data.model_config()), data)
    results = relations.measure(translator, num_sentences=4)
    assert len(results.shares["before"]) == 2
    translator.source_language = "ko"
    with pytest.raises(RequestError, match=r"translates from 'ko'.* give a model from en, or none"):
        relations.measure(translator, num_sentences=4)


def test_an_effect_that_did_not_appear_is_not_claimed() -> None:
    results = warmup.WarmupResults(
        warmup=3, peak_learning_rate=1.0, layers=6, losses={}, gradient_norms={},
        update_ratios={"with": [0.1], "without": [0.1]},
        final_loss={"with": 1.0, "without": 1.0}, accuracy={}, paper_first_rate=0.0, paper_peak_rate=0.0,
    )  # fmt: skip
    assert results.findings == {"first_updates": False, "learning": False}
    assert replace(results, final_loss={"with": 1.0, "without": 2.0}).findings["learning"]
