"""Numbers stated in the paper and the study notes."""

import math

import pytest
import torch
from torch import nn

import manyheads as mh
from manyheads.model.attention import MultiHeadAttention
from manyheads.model.layers import FeedForward
from manyheads.model.positions import sinusoidal_encoding
from manyheads.ops.attention import attention_scores
from manyheads.ops.attention_spec import AttentionSpec
from manyheads.train.loss import smoothed_targets
from manyheads.train.schedule import learning_rate

PAPER = mh.TrainConfig()


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 1.7469e-7), (4000, 6.9877e-4), (100_000, 1.3975e-4)], ids=lambda value: f"{value}"
)
def test_the_schedule_of_equation_3(step: int, rate: float) -> None:
    assert learning_rate(step, PAPER, d_model=512) == pytest.approx(rate, rel=1e-4)
    formula = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    assert learning_rate(step, PAPER, d_model=512) == pytest.approx(formula, rel=1e-12)


def test_the_schedule_peaks_at_the_end_of_the_warm_up() -> None:
    rates = [learning_rate(step, PAPER, d_model=1024) for step in range(1, 10_001)]
    assert rates.index(max(rates)) + 1 == 4000
    assert max(rates) == pytest.approx(4.941e-4, rel=1e-3)


@pytest.mark.parametrize(
    ("schedule", "halfway", "end"), [("linear", 0.5, 0), ("cosine", 0.5, 0), ("constant", 1, 1)]
)
def test_the_other_schedules_rise_to_the_same_peak(schedule: str, halfway: float, end: float) -> None:
    train = mh.TrainConfig(schedule=schedule, warmup=100, steps=1099, learning_rate=2e-3)
    steps = (1, 50, 100, 350, 600, 1099, 1100, 5000)
    rate = {step: learning_rate(step, train, d_model=512) for step in steps}
    assert (rate[1], rate[50], rate[100]) == pytest.approx((2e-5, 1e-3, 2e-3))
    assert rate[600] == pytest.approx(halfway * 2e-3)
    assert rate[1100] == rate[5000] == pytest.approx(end * 2e-3)
    assert rate[1099] > 0  # the last update still counts
    if schedule == "cosine":
        assert rate[350] == pytest.approx(2e-3 * (1 + math.cos(math.pi / 4)) / 2)


def test_the_peak_of_the_paper_schedule_can_be_set() -> None:
    train = mh.TrainConfig(warmup=2000, learning_rate=5e-3)
    assert learning_rate(2000, train, d_model=128) == pytest.approx(5e-3)
    assert learning_rate(8000, train, d_model=128) == pytest.approx(2.5e-3)


def test_steps_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="from 1, not 0"):
        learning_rate(0, PAPER, d_model=512)


def test_a_warm_up_of_one_step_is_no_warm_up() -> None:
    """Equation (3) without its rise; or a given peak from the first step on."""
    bare = mh.TrainConfig(warmup=1)
    assert learning_rate(1, bare, d_model=512) == pytest.approx(512**-0.5)
    assert learning_rate(100, bare, d_model=512) == pytest.approx(512**-0.5 * 100**-0.5)
    flat = mh.TrainConfig(warmup=1, schedule="constant", learning_rate=1e-3)
    assert [learning_rate(step, flat, d_model=512) for step in (1, 2, 1000)] == [1e-3] * 3


def test_label_smoothing_of_the_notes() -> None:
    """K = 5 and e = 0.1: the right word keeps 0.9, the four others share the rest."""
    notes = mh.TrainConfig(label_smoothing=0.1, label_smoothing_over="others")
    assert smoothed_targets(torch.tensor([0]), 5, notes)[0].tolist() == pytest.approx(
        [0.9, 0.025, 0.025, 0.025, 0.025]
    )


def test_label_smoothing_of_the_inception_paper() -> None:
    config = mh.TrainConfig(label_smoothing=0.1)
    assert smoothed_targets(torch.tensor([2]), 5, config)[0].tolist() == pytest.approx(
        [0.02, 0.02, 0.92, 0.02, 0.02]
    )


@pytest.mark.parametrize("d_k", [4, 64, 512])
def test_the_variance_of_q_times_k_is_d_k(d_k: int) -> None:
    """Which is why the product is divided by sqrt(d_k) (3.2.1)."""
    q, k = torch.randn(2, 1, 1000, d_k)
    assert attention_scores(q, k, AttentionSpec("dot")).var().item() == pytest.approx(d_k, rel=0.1)
    assert attention_scores(q, k, AttentionSpec("scaled-dot")).var().item() == pytest.approx(1, rel=0.1)


def test_positional_wavelengths_run_from_2_pi_to_nearly_10000_times_2_pi() -> None:
    """Each pair of columns rotates; after one wavelength it is back at its start."""
    d_model = 512
    for i in (0, 1, 100, 255):
        wavelength = 2 * math.pi * 10000 ** (2 * i / d_model)
        start, end = sinusoidal_encoding(torch.tensor([3.0, 3.0 + wavelength], dtype=torch.float64), d_model)
        torch.testing.assert_close(start[2 * i : 2 * i + 2], end[2 * i : 2 * i + 2], atol=1e-9, rtol=0)
    steps = sinusoidal_encoding(torch.tensor([0, 1]), d_model)[1]
    turns = torch.atan2(steps[0::2], steps[1::2])  # by one position, of each pair
    assert (2 * math.pi / turns[0]).item() == pytest.approx(2 * math.pi)
    assert (2 * math.pi / turns[-1]).item() == pytest.approx(10000 * 2 * math.pi, rel=0.04)


def test_positions_are_sines_and_cosines_interleaved() -> None:
    table = sinusoidal_encoding(torch.arange(3), 4)
    assert table[0].tolist() == [0, 1, 0, 1]
    expected = [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)]
    assert table[2].tolist() == pytest.approx(expected, abs=1e-15)


def test_a_shift_of_positions_is_a_rotation() -> None:
    """PE(pos + k) is a linear function of PE(pos), the same for every pos (3.5)."""
    table = sinusoidal_encoding(torch.arange(50), 8)
    for k in (1, 7):
        for i in range(4):
            angle = torch.tensor(k / 10000 ** (2 * i / 8), dtype=torch.float64)
            turn = torch.stack(
                (torch.stack((angle.cos(), angle.sin())), torch.stack((-angle.sin(), angle.cos())))
            )
            pair = table[:, 2 * i : 2 * i + 2]
            torch.testing.assert_close(pair[:-k] @ turn.T, pair[k:], atol=1e-12, rtol=0)


def test_the_feed_forward_layer_is_two_convolutions_of_width_one() -> None:
    """Section 3.3's other way of saying it, with torch.nn.Conv1d as the judge."""
    ours = FeedForward(mh.TransformerConfig(d_model=6, d_ff=10, heads=2)).double()
    first, second = nn.Conv1d(6, 10, 1).double(), nn.Conv1d(10, 6, 1).double()
    for mine, theirs in ((ours.w_1, first), (ours.w_2, second)):
        theirs.weight.data, theirs.bias.data = mine.weight.data[:, :, None], mine.bias.data
    x_TD = torch.randn(7, 6, dtype=torch.float64)
    expected = second(first(x_TD.T[None]).relu())[0].T
    torch.testing.assert_close(ours(x_TD), expected, atol=1e-12, rtol=0)


def test_worked_example_of_the_notes() -> None:
    """나는 오늘 점심을 먹었어: five tokens through self-attention of the base model, every shape named."""
    words = ["나는", "오늘", "점심을", "먹었어", "</s>"]
    config = mh.presets.BASE
    layer = MultiHeadAttention(config)
    sentence = mh.Packed.of([[10, 11, 12, 13, 2]])
    x_TD = nn.Embedding(100, config.d_model)(sentence.tokens)
    assert x_TD.shape == (len(words), 512)

    q_THK, (k_THK, v_THV) = layer.split_heads(layer.w_q(x_TD)), layer.keys_and_values(x_TD)
    assert q_THK.shape == k_THK.shape == v_THV.shape == (5, 8, 64)
    scores_HTT = torch.einsum("qhk,lhk->hql", q_THK, k_THK) / math.sqrt(64)
    assert scores_HTT.shape == (8, 5, 5)
    weights_HTT = scores_HTT.softmax(-1)
    torch.testing.assert_close(weights_HTT.sum(-1), torch.ones(8, 5))
    heads_THV = torch.einsum("hql,lhv->qhv", weights_HTT, v_THV)
    assert heads_THV.shape == (5, 8, 64)
    concat_TD = heads_THV.flatten(1)
    assert concat_TD.shape == (5, 512)
    by_hand = layer.w_o(concat_TD)
    assert by_hand.shape == (5, 512)

    maps: list[torch.Tensor] = []
    torch.testing.assert_close(layer(x_TD, x_TD, sentence, sentence, maps), by_hand, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(maps[0], weights_HTT)


def test_the_causal_mask_of_the_decoder() -> None:
    """<s> 나는 집에 간다: position i looks at positions 1 to i, and at all of "I go home"."""
    config = mh.TransformerConfig(vocab_size=20, layers=1, d_model=8, d_ff=8, heads=2)
    trace = mh.Trace()
    mh.Transformer(config).eval()(mh.Packed.of([[5, 6, 7, 2]]), mh.Packed.of([[1, 8, 9, 10]]), trace=trace)
    assert torch.equal(trace.decoder[0][0] > 0, torch.ones(2, 4, 4).tril() > 0)
    assert (trace.cross[0][0] > 0).all()


def test_search_and_training_have_the_numbers_of_the_paper() -> None:
    base, parsing = mh.presets.PRESETS["base"], mh.presets.PRESETS["parsing"]
    assert (PAPER.beta1, PAPER.beta2, PAPER.epsilon) == (0.9, 0.98, 1e-9)
    assert (PAPER.steps, PAPER.warmup, PAPER.label_smoothing) == (100_000, 4000, 0.1)
    assert (base.decoding.beam, base.decoding.alpha, base.decoding.max_extra_length) == (4, 0.6, 50)
    assert (parsing.decoding.beam, parsing.decoding.alpha, parsing.decoding.max_extra_length) == (
        21,
        0.3,
        300,
    )
    assert (parsing.model.decoder_layers, parsing.model.d_model) == (4, 1024)
    assert base.data.batch_tokens == 25_000
