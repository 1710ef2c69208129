"""Additive attention: energy . tanh(W q + U k), as a hand formula says it and as JoeyNMT has it."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

import manyheads as mh
from manyheads.model.attention import MultiHeadAttention
from manyheads.ops.attention import attend
from manyheads.ops.attention_spec import AttentionSpec

CONFIG = mh.TransformerConfig(
    vocab_size=5, d_model=6, heads=1, d_k=4, d_v=6, attention="additive", attention_dropout=0.0
)


def test_additive_attention_equals_its_formula() -> None:
    """Number by number: two heads, d_k 3, every weight exp(score) / sum exp(score)."""
    q, k = torch.randn(2, 2, 2, 3, dtype=torch.float64)  # two tokens each
    v, energy = torch.randn(2, 2, 1, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    text, rule = mh.Packed.of([[0, 0]]), AttentionSpec("additive", energy_HK=energy)
    for path in ("reference", "padded"):
        out = attend(q, k, v, text, text, rule, implementation=path)
        for i, h in product(range(2), range(2)):
            scores = [
                sum(energy[h, c].item() * math.tanh(q[i, h, c].item() + k[j, h, c].item()) for c in range(3))
                for j in range(2)
            ]
            shares = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
            expected = sum(share * v[j, h, 0].item() for j, share in enumerate(shares))
            assert out[i, h, 0].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.heavy
def test_additive_attention_equals_joeynmts() -> None:
    from joeynmt.attention import BahdanauAttention

    ours = MultiHeadAttention(CONFIG).double()
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter)
    with torch.no_grad():
        for bias in (ours.w_q.bias, ours.w_k.bias):
            bias.zero_()  # JoeyNMT has none
    judge = BahdanauAttention(hidden_size=4, key_size=6, query_size=6).double()
    judge.query_layer.weight = ours.w_q.weight
    judge.key_layer.weight = ours.w_k.weight
    judge.energy_layer.weight.data = ours.energy.detach()
    source, target = mh.Packed.of([[1, 2, 3], [4]]), mh.Packed.of([[1], [1]])
    memory = torch.randn(4, 6, dtype=torch.float64)
    x = torch.randn(2, 6, dtype=torch.float64)

    judge.compute_proj_keys(source.pad(memory))
    mask = (torch.arange(3)[None] < source.lengths[:, None])[:, None]
    values: Tensor = source.pad(ours.w_v(memory))
    context, weights = judge(query=x[:, None], mask=mask, values=values)

    maps: list[Tensor] = []
    out = ours(x, memory, target, source, maps)
    torch.testing.assert_close(out, ours.w_o(context[:, 0]), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(maps[0][0], weights[0], atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(maps[1][0], weights[1][:, :1], atol=1e-12, rtol=1e-12)
