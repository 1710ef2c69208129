"""Our cells and layers of cells beside torch.nn's own: the same weights, the same numbers and gradients."""

import pytest
import torch
from torch import Tensor, nn

import manyheads as mh
from manyheads.model.baselines.recurrent_layer import CELLS, RecurrentLayer

MODULES = {"rnn": (nn.RNNCell, nn.RNN), "gru": (nn.GRUCell, nn.GRU), "lstm": (nn.LSTMCell, nn.LSTM)}
TEXTS = [[3, 4, 5], [], [6], [7, 8, 9, 10]]
of_each_cell = pytest.mark.parametrize("cell", CELLS)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


def gradients(outputs: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Of a sum that weighs every number otherwise."""
    total = sum((one * torch.arange(1, one.numel() + 1).view_as(one).sin()).sum() for one in outputs)
    return list(torch.autograd.grad(total, inputs))


@of_each_cell
def test_a_step_is_torchs_cell(cell: str) -> None:
    layer = RecurrentLayer(cell, 5, 6).double()
    judge = MODULES[cell][0](5, 6).double()
    for theirs, ours in zip(judge.parameters(), layer.rnn.parameters(), strict=True):
        theirs.data.copy_(ours)
    x, state = random(3, 5), [random(3, 6) for _ in range(2 if cell == "lstm" else 1)]
    found = layer.step(x, state)
    expected = judge(x, tuple(state) if cell == "lstm" else state[0])
    expected = list(expected) if cell == "lstm" else [expected]
    same(found, expected)
    same(
        gradients(found, [x, *state, *layer.parameters()]),
        gradients(expected, [x, *state, *judge.parameters()]),
    )


@of_each_cell
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("implementation", ["fused", "reference"])
def test_a_layer_over_packed_texts_is_torchs_layer_over_each_sentence(
    cell: str, bidirectional: bool, implementation: str
) -> None:
    """An empty sentence among them, which leaves its state as it was."""
    text = mh.Packed.of(TEXTS)
    layer = RecurrentLayer(cell, 5, 6, bidirectional=bidirectional).double()
    judge = layer.rnn
    x, first = random(len(text.tokens), 5), [random(len(text), 6) for _ in range(2 if cell == "lstm" else 1)]
    found, last = layer(x, text, first, implementation=implementation)
    outs, lasts = [], []
    for number, x_LX in enumerate(text.split(x)):
        began = [torch.stack(one[number].chunk(layer.num_directions))[:, None] for one in first]
        if not len(x_LX):
            lasts.append([one[number] for one in first])
            continue
        out, ended = judge(x_LX[:, None], tuple(began) if cell == "lstm" else began[0])
        outs.append(out[:, 0])
        lasts.append([one.flatten() for one in (ended if cell == "lstm" else (ended,))])
    expected = torch.cat(outs)
    expected_last = [torch.stack(part) for part in zip(*lasts, strict=True)]
    same([found, *last], [expected, *expected_last])
    inputs = [x, *first, *layer.parameters()]
    same(gradients([found, *last], inputs), gradients([expected, *expected_last], inputs))


@of_each_cell
def test_without_a_state_to_begin_with_it_is_zero(cell: str) -> None:
    text, layer = mh.Packed.of(TEXTS), RecurrentLayer(cell, 5, 6).double()
    x = random(len(text.tokens), 5)
    zeros = [torch.zeros(len(text), 6, dtype=torch.float64) for _ in range(2 if cell == "lstm" else 1)]
    same([layer(x, text)[0]], [layer(x, text, zeros)[0]])
