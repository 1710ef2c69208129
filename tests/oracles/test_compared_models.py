"""ConvS2S and the recurrent model beside their formulas, written out for one sentence, token by token."""

from typing import Any

import pytest
import torch
from torch import Tensor

import manyheads as mh
from manyheads.model.baselines.convolution import Convolution
from support.strategies import VOCAB_SIZE, build_test_model, randomize_weights

SOURCE, TARGET = [3, 4, 5, 6], [1, 7, 8]


def stirred(**keys: Any) -> Any:
    model = build_test_model(
        mh.ModelConfig.from_mapping({"vocab_size": VOCAB_SIZE, "d_model": 6, "d_ff": 4, **keys})
    )
    randomize_weights(model)
    return model


def same(model: Any, expected: Tensor) -> None:
    found = model(mh.Packed.of([SOURCE, [9, 10]]), mh.Packed.of([TARGET, [1]]))[: len(TARGET)]
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


def looked_up(model: Any, side: str, text: list[int]) -> Tensor:
    rows = getattr(model, f"{side}_embedding").weight[text]
    if model.config.architecture == "recurrent":
        return rows * 6**0.5
    return rows + getattr(model, f"{side}_positions").table.weight[: len(text)]


# ---- ConvS2S


def convolved(layer: Convolution, x: Tensor, place: int, offsets: list[int]) -> Tensor:
    total = layer.bias
    for kernel, offset in zip(layer.weight.chunk(len(offsets), 1), offsets, strict=True):
        if 0 <= place + offset < len(x):
            total = total + kernel @ x[place + offset]
    return total


def gated(layer: Convolution, x: Tensor, offsets: list[int]) -> Tensor:
    rows = [convolved(layer, x, place, offsets).chunk(2) for place in range(len(x))]
    return torch.stack([value * torch.sigmoid(gate) for value, gate in rows])


def straight(layer: Convolution, x: Tensor) -> Tensor:
    return torch.stack([convolved(layer, x, place, [0]) for place in range(len(x))])


def test_convs2s_is_its_formula() -> None:
    model = stirred(architecture="convs2s", layers=2, attention="dot", positions="learned", max_positions=9)
    root = 0.5**0.5
    embedded = looked_up(model, "source", SOURCE)
    x = straight(model.encoder_input, embedded)
    for layer in model.encoder:
        x = (x + gated(layer.convolution, x, [-1, 0, 1])) * root
    keys = straight(model.encoder_output, x)
    values = (keys + embedded) * root
    read = looked_up(model, "target", TARGET)
    y = straight(model.decoder_input, read)
    for layer in model.decoder:
        h = gated(layer.gated.convolution, y, [-2, -1, 0])
        queries = (straight(layer.w_q, h) + read) * root
        context = torch.stack([(keys @ query).softmax(0) @ values for query in queries])
        h = (h + straight(layer.w_o, context * len(SOURCE) ** 0.5)) * root
        y = (y + h) * root
    same(model, straight(model.decoder_output, y) @ model.output.weight.T)


# ---- cells


@pytest.mark.parametrize("attention", ["additive", "dot", "scaled-dot", "none"])
@pytest.mark.parametrize("residuals", [True, False])
def test_the_recurrent_model_is_its_formula(attention: str, residuals: bool) -> None:
    model = stirred(architecture="recurrent", layers=3, attention=attention, residuals=residuals)
    x, ended = looked_up(model, "source", SOURCE), []
    for number, layer in enumerate(model.encoder):
        out, last = layer.rnn(x)
        ended.append([part.flatten()[None] for part in last])  # h and c, forwards and backwards side by side
        x = x + out if number and residuals else out
    memory, y, context = x, looked_up(model, "target", TARGET), None
    for number, layer in enumerate(model.decoder):
        below = y if context is None else torch.cat((y, context), 1)
        out, _ = layer.rnn(below, tuple(ended[number]))
        y = y + out if number and residuals else out
        if number == 0 and attention != "none":
            context = torch.stack([gathered(model.decoder_attention, one, memory, attention) for one in y])
    whole = y if context is None else torch.cat((y, context), 1)
    hidden = torch.tanh(whole @ model.decoder_output.weight.T + model.decoder_output.bias)
    same(model, hidden @ model.output.weight.T)


def gathered(layer: Any, query: Tensor, memory: Tensor, attention: str) -> Tensor:
    q = layer.w_q.weight @ query + layer.w_q.bias
    keys = memory @ layer.w_k.weight.T + layer.w_k.bias
    if attention == "additive":
        scores = torch.stack([layer.energy[0] @ torch.tanh(q + key) for key in keys])
    else:
        scores = keys @ q / (6**0.5 if attention == "scaled-dot" else 1)
    return scores.softmax(0) @ memory
