"""ConvS2S and the recurrent model against their formulas, written out for one sentence, token by token."""

from typing import Any

import pytest
import torch
from torch import Tensor

import manyheads as mh
from manyheads.model.baselines.convolution import Convolution
from support.strategies import VOCAB_SIZE, build_test_model, randomize_weights

SOURCE, TARGET = [3, 4, 5, 6], [1, 7, 8]


def build_random_model(**keys: Any) -> Any:
    model = build_test_model(
        mh.ModelConfig.from_mapping({"vocab_size": VOCAB_SIZE, "d_model": 6, "d_ff": 4, **keys})
    )
    randomize_weights(model)
    return model


def assert_same(model: Any, expected: Tensor) -> None:
    logits = model(mh.Packed.of([SOURCE, [9, 10]]), mh.Packed.of([TARGET, [1]]))[: len(TARGET)]
    torch.testing.assert_close(logits, expected, atol=1e-10, rtol=1e-10)


def embed(model: Any, side: str, text: list[int]) -> Tensor:
    rows = getattr(model, f"{side}_embedding").weight[text]
    if model.config.architecture == "recurrent":
        return rows * 6**0.5
    return rows + getattr(model, f"{side}_positions").table.weight[: len(text)]


# ---- ConvS2S


def convolve(layer: Convolution, x: Tensor, position: int, offsets: list[int]) -> Tensor:
    total: Tensor = layer.bias
    for kernel, offset in zip(layer.weight.chunk(len(offsets), 1), offsets, strict=True):
        if 0 <= position + offset < len(x):
            total = total + kernel @ x[position + offset]
    return total


def gated_convolution(layer: Convolution, x: Tensor, offsets: list[int]) -> Tensor:
    rows = [convolve(layer, x, position, offsets).chunk(2) for position in range(len(x))]
    return torch.stack([value * torch.sigmoid(gate) for value, gate in rows])


def linear(layer: Convolution, x: Tensor) -> Tensor:
    return torch.stack([convolve(layer, x, position, [0]) for position in range(len(x))])


def test_convs2s_equals_its_formula() -> None:
    model = build_random_model(
        architecture="convs2s", layers=2, attention="dot", positions="learned", max_positions=9
    )
    root = 0.5**0.5
    embedded = embed(model, "source", SOURCE)
    x = linear(model.encoder_input, embedded)
    for layer in model.encoder:
        x = (x + gated_convolution(layer.convolution, x, [-1, 0, 1])) * root
    keys = linear(model.encoder_output, x)
    values = (keys + embedded) * root
    read = embed(model, "target", TARGET)
    y = linear(model.decoder_input, read)
    for layer in model.decoder:
        h = gated_convolution(layer.gated.convolution, y, [-2, -1, 0])
        queries = (linear(layer.w_q, h) + read) * root
        context = torch.stack([(keys @ query).softmax(0) @ values for query in queries])
        h = (h + linear(layer.w_o, context * len(SOURCE) ** 0.5)) * root
        y = (y + h) * root
    assert_same(model, linear(model.decoder_output, y) @ model.output.weight.T)


# ---- cells


@pytest.mark.parametrize("attention", ["additive", "dot", "scaled-dot", "none"])
@pytest.mark.parametrize("residuals", [True, False])
def test_the_recurrent_model_equals_its_formula(attention: str, residuals: bool) -> None:
    model = build_random_model(architecture="recurrent", layers=3, attention=attention, residuals=residuals)
    x, final_states = embed(model, "source", SOURCE), []
    for number, layer in enumerate(model.encoder):
        out, last = layer.rnn(x)
        final_states.append(
            [part.flatten()[None] for part in last]
        )  # h and c, forwards and backwards side by side
        x = x + out if number and residuals else out
    memory, y, context = x, embed(model, "target", TARGET), None
    for number, layer in enumerate(model.decoder):
        below = y if context is None else torch.cat((y, context), 1)
        out, _ = layer.rnn(below, tuple(final_states[number]))
        y = y + out if number and residuals else out
        if number == 0 and attention != "none":
            context = torch.stack([attend(model.decoder_attention, state, memory, attention) for state in y])
    whole = y if context is None else torch.cat((y, context), 1)
    hidden = torch.tanh(whole @ model.decoder_output.weight.T + model.decoder_output.bias)
    assert_same(model, hidden @ model.output.weight.T)


def attend(layer: Any, query: Tensor, memory: Tensor, attention: str) -> Tensor:
    q = layer.w_q.weight @ query + layer.w_q.bias
    keys = memory @ layer.w_k.weight.T + layer.w_k.bias
    if attention == "additive":
        scores = torch.stack([layer.energy[0] @ torch.tanh(q + key) for key in keys])
    else:
        scores = keys @ q / (6**0.5 if attention == "scaled-dot" else 1)
    return scores.softmax(0) @ memory
