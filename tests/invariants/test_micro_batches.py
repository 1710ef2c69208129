"""The micro-batches of a captured update step, run eagerly: a batch of a static shape needs no kernel."""

import numpy as np
import pytest
import torch
from torch import Tensor

import manyheads as mh
from manyheads.cuda.static_batch import StaticBatchShape, pack_static_batch
from manyheads.ops.cross_entropy import IGNORE_INDEX
from manyheads.train.captured_step import CapturedStep, MicroBatchGraph
from manyheads.train.distributed import DistributedContext
from manyheads.train.objective import Objective
from manyheads.train.optimizer import Optimizer
from manyheads.train.trained_weights import LowRankWeights

CONFIG = mh.TransformerConfig(vocab_size=50, layers=1, d_model=24, d_ff=40, heads=2, dropout=0.0)
SHAPE = StaticBatchShape(128, 128)


class Learner:
    """A model and its captured step, whose functions are called without graphs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: float) -> None:
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
        torch.manual_seed(3)
        train = mh.TrainConfig(**settings)  # type: ignore[arg-type]
        self.model = mh.Transformer(CONFIG).train()
        self.objective = Objective(self.model, train)
        self.step = CapturedStep(
            self.objective,
            Optimizer(self.model, train),
            train,
            DistributedContext(0, 1, torch.device("cpu")),
            full_tokens=128,
            max_length=64,
        )

    def accumulate(self, batch: tuple[mh.Packed, mh.Packed, mh.Packed], *, is_first: bool) -> None:
        row = pack_static_batch(*batch, SHAPE, filler_length=64, ignore_index=IGNORE_INDEX)
        self.step._forward_backward(MicroBatchGraph(SHAPE, is_first), row)

    def gradients(self) -> dict[str, Tensor]:
        parameters = self.model.named_parameters()
        return {name: p.grad.clone() for name, p in parameters if p.grad is not None}

    def plain_gradients(
        self, batches: list[tuple[mh.Packed, mh.Packed, mh.Packed]], scale: float
    ) -> dict[str, Tensor]:
        """Return the sums of the gradients of autocast, micro-batch by micro-batch."""
        totals = {name: torch.zeros_like(p) for name, p in self.model.named_parameters()}
        for source, inputs, labels in batches:
            with torch.autocast("cpu", torch.bfloat16):
                loss, _ = self.objective(source, inputs, labels.tokens)
            parts = torch.autograd.grad(loss * scale, list(self.model.parameters()))
            for total, part in zip(totals.values(), parts, strict=True):
                total += part
        return totals


def make_batch(seed: int) -> tuple[mh.Packed, mh.Packed, mh.Packed]:
    rng = np.random.default_rng(seed)

    def text(lengths: list[int]) -> mh.Packed:
        return mh.Packed.of([rng.integers(3, 50, length).tolist() for length in lengths])

    labels = text([50, 14, 1, 63])
    inputs = mh.Packed(labels.tokens.roll(1), labels.offsets, labels.max_length)
    return text([64, 0, 60, 4]), inputs, labels


def test_the_first_micro_batch_overwrites_the_gradient_and_the_others_add(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner, batches = Learner(monkeypatch), [make_batch(seed) for seed in (1, 2, 3)]
    learner.step.loss_scale.fill_(0.25)
    learner.accumulate(batches[2], is_first=True)  # an earlier update
    losses = []
    for number, batch in enumerate(batches[:2]):
        learner.accumulate(batch, is_first=number == 0)
        losses.append(learner.step.flat_gradient.loss.item())
    assert losses[1] > 1.5 * losses[0] > 0
    expected = learner.plain_gradients(batches[:2], 0.25)
    for name, gradient in learner.gradients().items():
        assert (gradient - expected[name]).norm() < 1e-2 * expected[name].norm() + 1e-4, name


def test_a_step_that_is_not_finite_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the weights nor in the gaps between the gradients, which no micro-batch writes."""
    learner, batch = Learner(monkeypatch, clip_norm=0.5), make_batch(1)
    before = [parameter.detach().clone() for parameter in learner.model.parameters()]
    learner.step.optimizer.set_learning_rate(1e-3)
    norms = []
    for scale in (float("nan"), 1.0):
        learner.step.loss_scale.fill_(scale)
        learner.accumulate(batch, is_first=True)
        norms.append(learner.step._clip_and_step(None, torch.empty(0))[0].item())
        same = [torch.equal(a, b) for a, b in zip(before, learner.model.parameters(), strict=True)]
        assert all(same) if scale != scale else not all(same)
    assert norms[0] != norms[0]
    assert norms[1] == norms[1]
    assert learner.step.flat_gradient.gradients.norm().item() == pytest.approx(0.5, rel=1e-3)


def test_a_rank_without_a_micro_batch_has_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner(monkeypatch)
    learner.accumulate(make_batch(1), is_first=True)
    learner.step.zero_grad()
    monkeypatch.setattr(learner.step.update_graph, "run", lambda *_: learner.step.flat_gradient.sums)
    learner.step.apply_update(1e-3)
    assert learner.step.flat_gradient.buffer.count_nonzero() == 0


def test_a_captured_step_trains_adapters_as_their_formula_says(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner(monkeypatch, clip_norm=1e-3)
    weights = LowRankWeights(learner.model, rank=2, scale=2.0)
    weights.set_base()
    learner.step.optimizer = Optimizer(learner.model, learner.step.train, weights)
    learner.step.optimizer.set_learning_rate(0.01)
    learner.step.loss_scale.fill_(0.1)
    for _ in range(2):
        learner.accumulate(make_batch(1), is_first=True)
        before = {name: b_Fr.clone() for name, (_, b_Fr) in weights.factors.items()}
        norm = learner.step._clip_and_step(None, torch.empty(0))[0]
        gradients = [
            parameter.grad for parameter in weights.parameters.values() if parameter.grad is not None
        ]
        clipped = torch.linalg.vector_norm(torch.cat([part.flatten() for part in gradients]))
        assert norm > clipped
        assert clipped == pytest.approx(1e-3, rel=1e-3)
        for name, (a_rD, b_Fr) in weights.factors.items():
            assert not torch.equal(b_Fr, before[name])
            expected = weights.initial[name] + 2.0 * b_Fr @ a_rD
            assert torch.allclose(learner.model.get_parameter(name), expected, atol=1e-6)
    pairs = [(name, weights.weights[name], initial) for name, initial in weights.initial.items()]
    assert all(not torch.equal(weight, initial) for _, weight, initial in pairs)
