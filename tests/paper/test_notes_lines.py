"""The notes line by line: numbers that can be checked by hand."""

import pytest
import torch

from manyheads.paper.notes import lines


def test_the_examples_of_the_notes_are_computed() -> None:
    texts = lines.format_small_examples()
    assert (texts["sum"], texts["node_mean"]) == ("(3, -1)", "2")
    assert texts["node_normalized"] == "(0.34, 1.02, -1.36)"
    assert texts["target_all"] == "(0.920, 0.020, 0.020, 0.020, 0.020)"
    assert texts["target_others"] == "(0.900, 0.025, 0.025, 0.025, 0.025)"
    assert (texts["thinking"], texts["machines"]) == ("0.88", "0.12")


def test_masks_before_and_after_the_softmax_agree_until_rounding_hides_the_visible() -> None:
    numbers = lines.measure_masking()
    assert numbers["mask_difference"] < 1e-15
    assert (numbers["before_weight"], numbers["after_is_nan"], numbers["hidden_rows_nan"]) == (0.5, 3, 3)


def test_rates_and_wavelengths_are_the_papers() -> None:
    numbers = lines.measure_positions_and_rate()
    assert numbers["rate_first"] == pytest.approx(1.7469e-7, rel=1e-4)
    assert numbers["rate_last"] == pytest.approx(1.3975e-4, rel=1e-4)
    assert numbers["shortest_wave"] == pytest.approx(6.2832, rel=1e-4)
    assert numbers["longest_wave"] < numbers["wave_bound"]
    assert numbers["convolution_difference"] < 1e-6


def test_distances_are_symmetric_and_prefer_the_word_itself() -> None:
    torch.manual_seed(0)
    numbers = lines.measure_distance()
    assert (numbers["distance_self"], numbers["cosine_self"]) == (100, 100)
    assert numbers["learned_self"] < 30
    assert numbers["kernel_change"] == 0 < numbers["learned_change"]


def test_one_averaging_head_loses_the_order_and_two_keep_it() -> None:
    numbers = lines.measure_resolution()
    assert numbers["one_head_difference"] == 0 < numbers["two_head_difference"]


def test_sampled_attention_approaches_the_weighted_sum() -> None:
    torch.manual_seed(0)
    numbers = lines.measure_sampling()
    assert numbers["sample_error_few"] > numbers["sample_error_some"] > numbers["sample_error_many"]
