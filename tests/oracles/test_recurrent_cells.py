"""Recurrent cells and layers against torch.nn: the same weights give the same values and gradients."""

import pytest
import torch
from torch import Tensor, nn

import manyheads as mh
from manyheads.model.baselines.recurrent_layer import CELLS, RecurrentLayer

MODULES = {"rnn": (nn.RNNCell, nn.RNN), "gru": (nn.GRUCell, nn.GRU), "lstm": (nn.LSTMCell, nn.LSTM)}
TEXTS = [[3, 4, 5], [], [6], [7, 8, 9, 10]]
all_cells = pytest.mark.parametrize("cell", CELLS)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def assert_same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


def gradients(outputs: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Of a sum that weighs every number otherwise."""
    total = sum((x * torch.arange(1, x.numel() + 1).view_as(x).sin()).sum() for x in outputs)
    return list(torch.autograd.grad(total, inputs))


@all_cells
def test_a_step_equals_torchs_cell(cell: str) -> None:
    layer = RecurrentLayer(cell, 5, 6).double()
    reference = MODULES[cell][0](5, 6).double()
    for theirs, ours in zip(reference.parameters(), layer.rnn.parameters(), strict=True):
        theirs.data.copy_(ours)
    x, state = random(3, 5), [random(3, 6) for _ in range(2 if cell == "lstm" else 1)]
    stepped = layer.step(x, state)
    expected = reference(x, tuple(state) if cell == "lstm" else state[0])
    expected = list(expected) if cell == "lstm" else [expected]
    assert_same(stepped, expected)
    assert_same(
        gradients(stepped, [x, *state, *layer.parameters()]),
        gradients(expected, [x, *state, *reference.parameters()]),
    )


@all_cells
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("implementation", ["fused", "reference"])
def test_a_layer_over_packed_sentences_equals_torchs_over_each(
    cell: str, bidirectional: bool, implementation: str
) -> None:
    """An empty sentence among them, which leaves its state as it was."""
    text = mh.Packed.of(TEXTS)
    layer = RecurrentLayer(cell, 5, 6, bidirectional=bidirectional).double()
    reference = layer.rnn
    x, first = random(len(text.tokens), 5), [random(len(text), 6) for _ in range(2 if cell == "lstm" else 1)]
    out_TH, last = layer(x, text, first, implementation=implementation)
    outs, lasts = [], []
    for number, x_LX in enumerate(text.split(x)):
        initial = [torch.stack(part[number].chunk(layer.num_directions))[:, None] for part in first]
        if not len(x_LX):
            lasts.append([part[number] for part in first])
            continue
        out, final = reference(x_LX[:, None], tuple(initial) if cell == "lstm" else initial[0])
        outs.append(out[:, 0])
        lasts.append([part.flatten() for part in (final if cell == "lstm" else (final,))])
    expected = torch.cat(outs)
    expected_last = [torch.stack(part) for part in zip(*lasts, strict=True)]
    assert_same([out_TH, *last], [expected, *expected_last])
    inputs = [x, *first, *layer.parameters()]
    assert_same(gradients([out_TH, *last], inputs), gradients([expected, *expected_last], inputs))


@all_cells
def test_the_initial_state_defaults_to_zeros(cell: str) -> None:
    text, layer = mh.Packed.of(TEXTS), RecurrentLayer(cell, 5, 6).double()
    x = random(len(text.tokens), 5)
    zeros = [torch.zeros(len(text), 6, dtype=torch.float64) for _ in range(2 if cell == "lstm" else 1)]
    assert_same([layer(x, text)[0]], [layer(x, text, zeros)[0]])
