"""The notes' questions about attention: each experiment, at a tiny size, shows its effect."""

from dataclasses import replace

import pytest
import torch

import manyheads as mh
from manyheads.paper.notes import example, heads, positions, projections, scale
from manyheads.paper.notes.learning import build_model, compute_gradient, measure_accuracy
from manyheads.paper.notes.tasks import COPY_TASK, NEIGHBOR_PAIR_TASK, PREVIOUS_WORD_TASK


def test_the_answers_of_the_tasks() -> None:
    assert COPY_TASK.label([5, 4, 3]) == [5, 4, 3]
    assert PREVIOUS_WORD_TASK.label([5, 4, 3]) == [2, 5, 4]
    assert NEIGHBOR_PAIR_TASK.label([5, 4, 3]) == [3 + 0 * 5 + 1, 3 + 2 * 5 + 0, 3 + 1 * 5 + 0]
    for task in (COPY_TASK, PREVIOUS_WORD_TASK, NEIGHBOR_PAIR_TASK):
        lesson = task.make_sampler(1, 200)()
        assert len(lesson.labels_T) == len(lesson.source.tokens)
        assert lesson.labels_T.max() < task.vocab_size
        assert not torch.equal(lesson.labels_T[:50], task.make_eval_batch().labels_T[:50])


def test_what_is_learned_by_hand_is_what_the_trainer_would_learn() -> None:
    """The gradient is that of the mean loss, and accuracy counts places."""
    model = build_model(replace(projections.SMALL, vocab_size=COPY_TASK.vocab_size))
    lesson = COPY_TASK.make_sampler(1, 8)()
    loss = compute_gradient(model, lesson, mh.TrainConfig(label_smoothing=0.0))
    logits = model.output(model.encode(lesson.source).hidden)
    judged = torch.nn.functional.cross_entropy(logits, lesson.labels_T)
    assert loss == pytest.approx(judged.item(), rel=1e-5)
    (by_hand,) = torch.autograd.grad(judged, [model.output.weight])
    torch.testing.assert_close(model.output.weight.grad, by_hand, atol=1e-6, rtol=1e-4)
    right = (logits.argmax(-1) == lesson.labels_T).float().mean().item()
    assert measure_accuracy(model, lesson) == pytest.approx(right)


def test_the_worked_example_has_the_shapes_of_the_paper_and_a_triangle() -> None:
    found = example.measure()
    shapes = {(one.part, one.name): one.shape for one in found.stages}
    assert shapes["embedding", "sum"] == [5, 512]
    assert shapes["self", "query"] == shapes["self", "key"] == shapes["self", "value"] == [5, 8, 64]
    assert shapes["self", "scores"] == shapes["self", "weights"] == [8, 5, 5]
    assert shapes["self", "concat"] == shapes["self", "project"] == [5, 512]
    assert shapes["feed_forward", "hidden"] == [5, 2048]
    assert found.row_sums == pytest.approx([1, 1], abs=1e-5)
    assert found.visible == [[True] * (row + 1) + [False] * (3 - row) for row in range(4)]
    assert found.changed[0][1:] == [0, 0, 0]
    assert found.findings == {"causal": True, "cross": True}
    assert (found.read[0], found.written[-1]) == ("<s>", "</s>")
    assert found.read[1:] == found.written[:-1]


def test_a_decoder_that_sees_the_future_is_not_called_causal() -> None:
    found = example.measure()
    leaking = [[*row] for row in found.changed]
    leaking[0][3] = 1e-6
    assert not replace(found, changed=leaking).findings["causal"]
    assert not replace(found, visible=[[True] * 4] * 4).findings["causal"]


def test_q_k_and_v_apart_leave_the_diagonal_and_learn() -> None:
    found = projections.measure(steps=110)
    assert found.diagonal["raw"][-1] > 0.98
    assert found.diagonal["tied"][-1] > 0.98
    assert found.diagonal["apart"][-1] < 0.2
    assert found.diagonal["raw"] == sorted(found.diagonal["raw"])  # wider is worse
    assert max(found.asymmetry["raw"], found.asymmetry["tied"]) < 1e-5 < 0.5 < found.asymmetry["apart"]
    assert found.accuracy["apart"] > found.accuracy["tied"] + 0.15
    assert 0 <= found.parameters["apart"] - found.parameters["tied"] < 0.01 * found.parameters["apart"]


def test_tied_projections_are_one_matrix() -> None:
    attention = projections.get_first_attention(projections.build_variant(COPY_TASK, tied=True))
    assert attention.w_q.weight is attention.w_k.weight is attention.w_v.weight
    apart = projections.get_first_attention(projections.build_variant(COPY_TASK, tied=False))
    assert apart.w_q.weight is not apart.w_k.weight


def test_without_the_scale_variance_grows_and_the_softmax_is_stuck() -> None:
    found = scale.measure(steps=130)
    for d_k, variance in zip(found.widths, found.variance["dot"], strict=True):
        assert variance == pytest.approx(d_k, rel=0.2)
    assert found.variance["scaled-dot"] == pytest.approx([1] * len(found.widths), rel=0.2)
    assert found.entropy["dot"] == sorted(found.entropy["dot"], reverse=True)
    assert found.entropy["dot"][-1] < 0.5 < 4 < found.entropy["scaled-dot"][-1] < 5
    assert found.gradient["dot"][-1] < 0.4 * found.gradient["scaled-dot"][-1]
    assert found.accuracy["scaled-dot"] > found.accuracy["dot"] + 0.15


def test_the_gradient_through_a_softmax_is_that_of_its_jacobian() -> None:
    scores = torch.tensor([[0.0, 1.0, -2.0]]).repeat(20_000, 1).requires_grad_()
    found = scale.measure_softmax_gradient(scores.softmax(-1), scores)
    p = scores.detach()[0].softmax(-1)
    jacobian = torch.diag(p) - p[:, None] * p[None, :]
    directions = torch.nn.functional.normalize(torch.randn(20_000, 3), dim=-1)
    assert found == pytest.approx((directions @ jacobian).norm(dim=-1).mean().item(), rel=0.03)


def test_several_heads_err_less_than_one_at_equal_parameters() -> None:
    found = heads.measure(heads=(1, 4), seeds=1, steps=170)
    assert found.parameters[0] == found.parameters[1]
    assert found.errors[0] > 1.25 * found.errors[1]
    assert found.findings["several"]
    shares = torch.tensor(found.shares[1])
    assert shares.shape == (4, 2)
    assert (shares.sum(-1) <= 1).all()


def test_without_positions_shuffling_words_only_shuffles_outputs() -> None:
    found = positions.measure(steps=60)
    assert found.permutation_change["none"] < 1e-5 < 0.1 < found.permutation_change["sinusoid"]
    assert found.dog_change["none"] < 1e-5 < 0.1 < found.dog_change["sinusoid"]
    assert found.accuracy["sinusoid"] > found.accuracy["none"] + 0.08
    assert found.losses["sinusoid"][-1] < found.losses["none"][-1] - 0.2
