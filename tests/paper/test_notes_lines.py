"""The notes line by line: numbers that can be checked by hand."""

import pytest
import torch

from manyheads.paper.notes import lines, small_examples


def test_the_examples_of_the_notes_are_computed() -> None:
    texts = small_examples.format_small_examples()
    assert (texts["sum"], texts["node_mean"]) == ("(3, -1)", "2")
    assert texts["node_normalized"] == "(0.34, 1.02, -1.36)"
    assert texts["target_all"] == "(0.920, 0.020, 0.020, 0.020, 0.020)"
    assert texts["target_others"] == "(0.900, 0.025, 0.025, 0.025, 0.025)"
    assert (texts["thinking"], texts["machines"]) == ("0.88", "0.12")
    assert (texts["thinking_scores"], texts["thinking_output"]) == ("(14, 12)", "(0.88, 0.12)")


def test_masks_before_and_after_the_softmax_agree_until_rounding_hides_the_visible() -> None:
    numbers = small_examples.measure_masking()
    assert numbers["mask_difference"] < 1e-15
    assert (numbers["before_weight"], numbers["after_is_nan"], numbers["hidden_rows_nan"]) == (0.5, 3, 3)


def test_rates_and_wavelengths_are_the_papers() -> None:
    numbers = small_examples.measure_positions_and_rate()
    assert numbers["rate_first"] == pytest.approx(1.7469e-7, rel=1e-4)
    assert numbers["rate_last"] == pytest.approx(1.3975e-4, rel=1e-4)
    assert numbers["shortest_wave"] == pytest.approx(6.2832, rel=1e-4)
    assert numbers["longest_wave"] < numbers["wave_bound"]
    assert numbers["convolution_difference"] < 1e-6
    assert numbers["rate_factor"] == pytest.approx(0.0441942, rel=1e-5)
    assert numbers["rate_first_rise"] == pytest.approx(3.95284e-6, rel=1e-5)
    assert numbers["rate_last_fall"] == pytest.approx(0.00316228, rel=1e-5)
    assert numbers["rate_last_rise"] == pytest.approx(0.395284, rel=1e-5)


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


def test_long_sentences_leave_room_for_few_in_a_batch() -> None:
    numbers = lines.measure_memory()
    assert (numbers["short_length"], numbers["long_length"]) == (128, 2048)
    assert (numbers["short_batch"], numbers["long_batch"]) == (2048, 8)  # a GiB over 8 heads of n² floats


def test_a_factorized_recurrence_is_cheaper_and_no_shorter() -> None:
    numbers = lines.measure_factorization() | lines.measure_paths()
    assert numbers["factor_share"] == 25
    assert numbers["chain_factorized"] >= numbers["chain_recurrent"] > 3 * numbers["chain_attention"]
