"""The questions of the notes about attention: each experiment shows its effect at a tiny size."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

import manyheads as mh
from manyheads.paper.notes import example, heads, positions, projections, scale
from manyheads.paper.notes.learning import (
    XAVIER_GAIN,
    build_model,
    compute_gradient,
    initial_gain,
    measure_accuracy,
)
from manyheads.paper.notes.tasks import COPY_TASK, NEIGHBOR_PAIR_TASK, PREVIOUS_WORD_TASK


@pytest.fixture(autouse=True)
def use_xavier_weights() -> Iterator[None]:
    """From Xavier's initial weights the effects show in very few steps."""
    with initial_gain(XAVIER_GAIN):
        yield


def test_the_labels_of_the_tasks() -> None:
    assert COPY_TASK.label([5, 4, 3]) == [5, 4, 3]
    assert PREVIOUS_WORD_TASK.label([5, 4, 3]) == [2, 5, 4]
    assert NEIGHBOR_PAIR_TASK.label([5, 4, 3]) == [3 + 0 * 5 + 1, 3 + 2 * 5 + 0, 3 + 1 * 5 + 0]
    for task in (COPY_TASK, PREVIOUS_WORD_TASK, NEIGHBOR_PAIR_TASK):
        batch = task.make_sampler(1, 200)()
        assert len(batch.labels_T) == len(batch.source.tokens)
        assert batch.labels_T.max() < task.vocab_size
        assert not torch.equal(batch.labels_T[:50], task.make_eval_batch().labels_T[:50])


def test_the_gradient_is_that_of_the_mean_cross_entropy() -> None:
    """The gradient is that of the mean loss, and accuracy counts tokens."""
    model = build_model(replace(projections.SMALL, vocab_size=COPY_TASK.vocab_size))
    batch = COPY_TASK.make_sampler(1, 8)()
    loss = compute_gradient(model, batch, mh.TrainConfig(label_smoothing=0.0))
    logits = model.output(model.encode(batch.source).hidden)
    expected = torch.nn.functional.cross_entropy(logits, batch.labels_T)
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    (expected_gradient,) = torch.autograd.grad(expected, [model.output.weight])
    torch.testing.assert_close(model.output.weight.grad, expected_gradient, atol=1e-6, rtol=1e-4)
    accuracy = (logits.argmax(-1) == batch.labels_T).float().mean().item()
    assert measure_accuracy(model, batch) == pytest.approx(accuracy)


def test_the_worked_example_has_the_shapes_of_the_paper_and_a_causal_mask() -> None:
    results = example.measure()
    shapes = {(step.part, step.name): step.shape for step in results.steps}
    assert shapes["embedding", "sum"] == [5, 512]
    assert shapes["self", "query"] == shapes["self", "key"] == shapes["self", "value"] == [5, 8, 64]
    assert shapes["self", "scores"] == shapes["self", "weights"] == [8, 5, 5]
    assert shapes["self", "concat"] == shapes["self", "project"] == [5, 512]
    assert shapes["feed_forward", "hidden"] == [5, 2048]
    assert results.row_sums == pytest.approx([1, 1], abs=1e-5)
    assert results.visible == [[True] * (row + 1) + [False] * (3 - row) for row in range(4)]
    assert results.output_changes[0][1:] == [0, 0, 0]
    assert results.findings == {"causal": True, "cross": True}
    assert (results.decoder_input[0], results.decoder_output[-1]) == ("<s>", "</s>")
    assert results.decoder_input[1:] == results.decoder_output[:-1]


def test_a_decoder_that_sees_the_future_is_not_causal() -> None:
    results = example.measure()
    leaking = [[*row] for row in results.output_changes]
    leaking[0][3] = 1e-6
    assert not replace(results, output_changes=leaking).findings["causal"]
    assert not replace(results, visible=[[True] * 4] * 4).findings["causal"]


def test_separate_q_k_and_v_leave_the_diagonal_and_learn() -> None:
    results = projections.measure(steps=110)
    assert results.diagonal["raw"][-1] > 0.98
    assert results.diagonal["tied"][-1] > 0.98
    assert results.diagonal["apart"][-1] < 0.2
    assert results.diagonal["raw"] == sorted(results.diagonal["raw"])  # wider is worse
    assert max(results.asymmetry["raw"], results.asymmetry["tied"]) < 1e-5 < 0.5 < results.asymmetry["apart"]
    assert results.accuracy["apart"] > results.accuracy["tied"] + 0.15
    assert 0 <= results.parameters["apart"] - results.parameters["tied"] < 0.01 * results.parameters["apart"]


def test_tied_projections_share_one_matrix() -> None:
    attention = projections.get_first_attention(projections.build_variant(COPY_TASK, tied=True))
    assert attention.w_q.weight is attention.w_k.weight
    assert attention.w_q.weight is not attention.w_v.weight
    apart = projections.get_first_attention(projections.build_variant(COPY_TASK, tied=False))
    assert apart.w_q.weight is not apart.w_k.weight


def test_without_the_scale_variance_grows_and_the_softmax_saturates() -> None:
    results = scale.measure(steps=130)
    for d_k, variance in zip(results.widths, results.variance["dot"], strict=True):
        assert variance == pytest.approx(d_k, rel=0.2)
    assert results.variance["scaled-dot"] == pytest.approx([1] * len(results.widths), rel=0.2)
    assert results.entropy["dot"] == sorted(results.entropy["dot"], reverse=True)
    assert results.entropy["dot"][-1] < 0.5 < 4 < results.entropy["scaled-dot"][-1] < 5
    assert results.gradient["dot"][-1] < 0.4 * results.gradient["scaled-dot"][-1]
    assert results.accuracy["scaled-dot"] > results.accuracy["dot"] + 0.15


def test_the_gradient_through_a_softmax_is_that_of_its_jacobian() -> None:
    scores = torch.tensor([[0.0, 1.0, -2.0]]).repeat(20_000, 1).requires_grad_()
    results = scale.measure_softmax_gradient(scores.softmax(-1), scores).mean().item()
    p = scores.detach()[0].softmax(-1)
    jacobian = torch.diag(p) - p[:, None] * p[None, :]
    directions = torch.nn.functional.normalize(torch.randn(20_000, 3), dim=-1)
    assert results == pytest.approx((directions @ jacobian).norm(dim=-1).mean().item(), rel=0.03)


def test_several_heads_have_fewer_errors_than_one_at_equal_parameters() -> None:
    results = heads.measure(head_counts=(1, 4), seeds=1, steps=170)
    assert results.parameters[0] == results.parameters[1]
    assert results.errors[0] > 1.25 * results.errors[1]
    assert results.findings["several"]
    shares = torch.tensor(results.neighbor_shares[1])
    assert shares.shape == (4, 2)
    assert (shares.sum(-1) <= 1).all()


def test_without_positions_shuffling_words_only_shuffles_outputs() -> None:
    results = positions.measure(steps=60)
    assert results.permutation_change["none"] < 1e-5 < 0.1 < results.permutation_change["sinusoid"]
    assert results.dog_change["none"] < 1e-5 < 0.1 < results.dog_change["sinusoid"]
    assert results.accuracy["sinusoid"] > results.accuracy["none"] + 0.08
    assert results.losses["sinusoid"][-1] < results.losses["none"][-1] - 0.2
