"""Conditional computation: a mixture of feed-forward layers, of which each token takes a few."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import manyheads as mh
from manyheads.model.layers import Experts, load_balance_loss
from manyheads.ops import dispatch
from manyheads.ops.grouped_linear import grouped_linear, grouped_products
from manyheads.ops.linear import linear_float32
from manyheads.train.loss import chunked_loss
from manyheads.train.objective import Objective
from support.strategies import VOCAB_SIZE, build_test_model, random_tensor

SMALL = mh.TransformerConfig(
    vocab_size=VOCAB_SIZE, layers=2, d_model=8, d_ff=6, heads=2, dropout=0.0, experts=4, experts_per_token=2
)
SOURCE, TARGET = mh.Packed.of([[3, 4, 5, 6], [7], []]), mh.Packed.of([[1, 8], [1, 9, 10, 3], [1]])


def plain_loop(layer: Experts, x_TD: Tensor) -> Tensor:
    """One token after the other."""
    outputs = []
    for x_D in x_TD:
        scores_E = layer.gate.weight @ x_D + layer.gate.bias
        best = scores_E.argsort(descending=True)[: layer.experts_per_token]
        gates = scores_E[best].exp() / scores_E[best].exp().sum()
        outputs.append(
            sum(gate * layer.experts[e](x_D[None])[0] for gate, e in zip(gates, best, strict=True))
        )
    return torch.stack(outputs)


@pytest.mark.parametrize("used", [1, 2, 4])
def test_experts_equal_a_loop_over_tokens(used: int) -> None:
    layer = build_test_model(replace(SMALL, experts_per_token=used)).encoder[0].feed_forward
    x = random_tensor(9, 8)
    out, expected = layer(x), plain_loop(layer, x)
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=1e-12)
    inputs = [x, *layer.parameters()]
    ours, theirs = (
        torch.autograd.grad(result.sin().sum(), inputs, allow_unused=True, materialize_grads=True)
        for result in (out, expected)
    )
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


def test_identical_experts_equal_one_feed_forward_network() -> None:
    layer = build_test_model(SMALL).encoder[0].feed_forward
    for expert in layer.experts:
        expert.load_state_dict(layer.experts[0].state_dict())
    x = random_tensor(5, 8)
    torch.testing.assert_close(layer(x), layer.experts[0](x), atol=1e-12, rtol=1e-12)


def test_an_unused_expert_has_a_gradient_of_zeros() -> None:
    """Ranks that share a model sum up the gradient of every parameter."""
    layer = build_test_model(SMALL).encoder[0].feed_forward
    layer.gate.bias.data[0] = -1e9
    layer(random_tensor(5, 8)).sum().backward()
    assert all((p.grad == 0).all() for p in layer.experts[0].parameters())
    assert all(p.grad is not None for p in layer.parameters())
    assert layer(random_tensor(0, 8)).shape == (0, 8)


def test_one_grouped_product_equals_a_product_for_each_group() -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 16) for _ in range(4)]
    groups, x = torch.tensor([0, 0, 1, 1, 1, 3]), torch.randn(6, 8, requires_grad=True)
    inputs = [x, *(parameter for layer in layers for parameter in layer.parameters())]
    outputs = [function(x, layers, groups) for function in (grouped_linear, grouped_products)]
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(*(torch.autograd.grad(out.sin().sum(), inputs) for out in outputs))


def test_the_grouped_product_never_asks_the_device_for_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake tensors have no values: an operation that needs one on the host raises."""
    monkeypatch.setattr(dispatch, "use_grouped_products", lambda *_: True)
    layer = Experts(replace(SMALL, d_model=8, d_ff=16)).bfloat16()
    with FakeTensorMode(allow_non_fake_inputs=True):
        aux_losses: list[Tensor] = []
        x = torch.randn(5, 8, dtype=torch.bfloat16)
        assert layer(x, aux_losses).shape == (5, 8)
        monkeypatch.undo()
        with pytest.raises(DataDependentOutputException):
            layer(x)


def test_the_load_balance_loss_has_its_known_values() -> None:
    even = torch.zeros(8, 4)
    assert load_balance_loss(even, torch.arange(8)[:, None] % 4).item() == pytest.approx(1)
    alone = torch.tensor([[50.0, 0, 0, 0]]).expand(8, 4)
    assert load_balance_loss(alone, torch.zeros(8, 1, dtype=torch.int64)).item() == pytest.approx(4)
    pair = torch.tensor([[50.0, 50.0, 0, 0]]).expand(8, 4)
    assert load_balance_loss(pair, torch.tensor([[0, 1]]).expand(8, 2)).item() == pytest.approx(2)
    assert load_balance_loss(torch.zeros(0, 4), torch.zeros(0, 2, dtype=torch.int64)).item() == 0


def test_the_load_balance_loss_lowers_scores_of_overused_experts() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0]] * 4, requires_grad=True)
    load_balance_loss(scores, torch.zeros(4, 1, dtype=torch.int64)).backward()
    assert (scores.grad[:, 0] > 0).all()
    assert (scores.grad[:, 1:] < 0).all()


def test_training_adds_the_load_balance_loss_of_every_layer() -> None:
    config = replace(SMALL, experts_balance_weight=0.5)
    model, train, labels = build_test_model(config), mh.TrainConfig(), torch.tensor([3, 4, 5, 6, 7, 8, 9])
    aux_losses: list[Tensor] = []
    hidden = model.hidden(SOURCE, TARGET, aux_losses=aux_losses)
    plain = chunked_loss(hidden, model.output, labels, train)
    assert len(aux_losses) == config.encoder_layers + config.decoder_layers
    total, nll = Objective(model, train)(SOURCE, TARGET, labels)
    torch.testing.assert_close(total, plain.total + 0.5 * 7 * sum(aux_losses))
    torch.testing.assert_close(nll, plain.nll)
    assert torch.equal(hidden, model.hidden(SOURCE, TARGET))  # collecting changes nothing


def test_batch_composition_changes_nothing_and_a_cached_step_equals_the_full_forward() -> None:
    model = build_test_model(SMALL)
    together = TARGET.split(model(SOURCE, TARGET))
    state = model.start(model.encode(SOURCE))
    logits, _ = model.step(torch.tensor([1, 1, 1]), state)
    for number, (source, target) in enumerate(zip(SOURCE.split(), TARGET.split(), strict=True)):
        alone = model(mh.Packed.of([source.tolist()]), mh.Packed.of([target.tolist()]))
        torch.testing.assert_close(alone, together[number], atol=1e-10, rtol=1e-10)
        torch.testing.assert_close(logits[number], together[number][0], atol=1e-10, rtol=1e-10)


def test_gates_stay_in_full_precision_under_autocast() -> None:
    layer = Experts(SMALL)
    x = torch.randn(6, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(linear_float32(x, layer.gate), layer.gate(x).float()) is False
        assert linear_float32(x, layer.gate).dtype == torch.float32
        assert layer(x).dtype == torch.bfloat16
