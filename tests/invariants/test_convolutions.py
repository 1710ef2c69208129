"""Packed convolutions against a loop over tokens, and the receptive fields of stacks of them."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import conv1d, layer_norm, relu
from torch.nn.utils.parametrizations import weight_norm

import manyheads as mh
from manyheads.model.baselines.bytenet import ByteNet, dilation_rates, unfold_source
from manyheads.model.baselines.convolution import Convolution
from manyheads.model.initialization import init_convolution
from support.strategies import VOCAB_SIZE, build_test_model, random_tensor, sentences


def make_convolution(inputs: int, outputs: int, kernel: int, **options: Any) -> Convolution:
    """Return a convolution with random weights, none of them initial."""
    layer = Convolution(inputs, outputs, kernel, **options).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def plain_loop(layer: Convolution, x_LX: Tensor) -> Tensor:
    """out_t = b + sum_j W_j x_{t + o_j}, one token and one offset after the other."""
    kernels = layer.weight.chunk(len(layer.offsets), dim=1)
    outputs = []
    for position in range(len(x_LX)):
        total: Tensor = layer.bias
        for kernel, offset in zip(kernels, layer.offsets, strict=True):
            if 0 <= position + offset < len(x_LX):
                total = total + kernel @ x_LX[position + offset]
        outputs.append(total)
    return torch.stack(outputs) if outputs else x_LX.new_zeros(0, len(layer.bias))


@given(sentences(), st.sampled_from([1, 3, 5]), st.sampled_from([1, 2, 4]), st.booleans(), st.booleans())
def test_a_packed_convolution_equals_a_loop_over_each_sentence(
    texts: list[list[int]], kernel: int, dilation: int, causal: bool, weight_norm: bool
) -> None:
    text = mh.Packed.of(texts)
    layer = make_convolution(3, 4, kernel, dilation=dilation, causal=causal, weight_norm=weight_norm)
    x = random_tensor(len(text.tokens), 3)
    expected = torch.cat([x.new_zeros(0, 4), *(plain_loop(layer, part) for part in text.split(x))])
    out = layer(x, text)
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=1e-12)
    if len(x):
        inputs = [x, *layer.parameters()]
        ours, theirs = (torch.autograd.grad(result.sin().sum(), inputs) for result in (out, expected))
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dilation", [1, 3])
def test_a_packed_convolution_equals_conv1d(causal: bool, dilation: int) -> None:
    text = mh.Packed.of([[3] * 9])
    layer, x = make_convolution(3, 4, 5, dilation=dilation, causal=causal), random_tensor(9, 3)
    kernels = layer.weight.view(4, 5, 3).transpose(1, 2)  # theirs is [out, in, k]
    both, ahead = 4 * dilation, 0 if causal else 2 * dilation
    around = torch.nn.functional.pad(x.T, (both - ahead, ahead))
    expected = conv1d(around[None], kernels, layer.bias, dilation=dilation)[0].T
    torch.testing.assert_close(layer(x, text), expected, atol=1e-12, rtol=1e-12)


def test_weight_norm_equals_torchs_and_starts_neutral() -> None:
    layer = Convolution(3, 4, 5, weight_norm=True).double()
    init_convolution(layer)
    torch.testing.assert_close(layer.weight, layer.weight_v.detach())
    judge = torch.nn.Linear(15, 4).double()
    judge.weight.data.copy_(layer.weight_v)
    weight_norm(judge)
    torch.nn.init.normal_(layer.weight_g)
    judge.parametrizations.weight.original0.data.copy_(layer.weight_g[:, None])
    torch.testing.assert_close(layer.weight, judge.weight, atol=1e-12, rtol=1e-12)


def test_initial_convolutions_have_the_configured_variance() -> None:
    layer = Convolution(400, 300, 3, init_variance=2.0)
    init_convolution(layer)
    out = layer(torch.randn(200, 400), mh.Packed.of([[3] * 200]))
    assert out[1:-1].var().item() == pytest.approx(2, rel=0.1)


# ---- ByteNet


def test_a_bytenet_block_equals_its_formula() -> None:
    model = build_test_model(mh.ByteNetConfig(vocab_size=VOCAB_SIZE, layers=1, d_model=6, d_ff=4))
    block, text, x = model.decoder[0], mh.Packed.of([[3, 4, 5], [6]]), random_tensor(4, 6)

    def normalize_and_relu(h: Tensor, norm: Any) -> Tensor:
        return relu(layer_norm(h, h.shape[-1:], norm.weight, norm.bias))

    narrow = normalize_and_relu(x, block.norms[0]) @ block.reduce.weight.T + block.reduce.bias
    seen = normalize_and_relu(narrow, block.norms[1])
    across = torch.cat([plain_loop(block.dilated, part) for part in text.split(seen)])
    expected = x + normalize_and_relu(across, block.norms[2]) @ block.expand.weight.T + block.expand.bias
    torch.testing.assert_close(block(x, text), expected, atol=1e-12, rtol=1e-12)


def test_dilations_double_and_start_again() -> None:
    assert dilation_rates(7, 16) == [1, 2, 4, 8, 16, 1, 2]
    assert dilation_rates(3, 1) == [1, 1, 1]
    assert dilation_rates(4, 5) == [1, 2, 4, 1]


@pytest.mark.parametrize(("layers", "kernel", "dilation"), [(1, 3, 16), (3, 3, 4), (4, 3, 2), (2, 5, 2)])
def test_the_receptive_field_of_bytenet_is_the_sum_of_its_dilations(
    layers: int, kernel: int, dilation: int
) -> None:
    """By gradient: the decoder so far back, the encoder half as far to either side."""
    config = mh.ByteNetConfig(
        vocab_size=VOCAB_SIZE,
        layers=layers,
        d_model=8,
        d_ff=8,
        kernel_size=kernel,
        dilation=dilation,
    )
    model: ByteNet = build_test_model(config)
    max_distance = (kernel - 1) * sum(dilation_rates(layers, dilation))
    text = mh.Packed.of([[3] * 60])
    x = random_tensor(60, 8)
    h = x
    for block in model.decoder:
        h = block(h, text)
    seen = torch.autograd.grad(h[40].sin().sum(), x)[0].abs().sum(1).nonzero().flatten().tolist()
    assert seen[0] == max(0, 40 - max_distance)
    assert seen[-1] == 40
    h = x
    for block in model.encoder:
        h = block(h, text)
    seen = torch.autograd.grad(h[30].sin().sum(), x)[0].abs().sum(1).nonzero().flatten().tolist()
    assert (seen[0], seen[-1]) == (30 - max_distance // 2, 30 + max_distance // 2)


def test_the_decoder_reads_source_columns_and_continues_after_the_last() -> None:
    """The t-th token sees what the encoder make_convolution of the first t columns, and no column beyond."""
    config = mh.ByteNetConfig(vocab_size=VOCAB_SIZE, layers=1, d_model=8, d_ff=8, kernel_size=1)
    model: ByteNet = build_test_model(config)
    source, target = mh.Packed.of([[3, 4, 5, 6, 7]]), mh.Packed.of([[1] * 9])
    assert unfold_source(source).lengths.tolist() == [6]
    assert unfold_source(mh.Packed.of([[], [3], [3] * 10])).lengths.tolist() == [0, 2, 12]
    memory = model.encode(source)
    columns = memory.hidden.detach().requires_grad_()
    hidden = model.decode(target, type(memory)(columns, memory.source))
    for position in range(9):
        (by_columns,) = torch.autograd.grad(hidden[position].sin().sum(), columns, retain_graph=True)
        seen = by_columns.abs().sum(1).nonzero().flatten().tolist()
        assert seen == ([position] if position < 6 else [])
