"""torch.nn's encoder and decoder, given our weights, give our numbers."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import manyheads as mh
from manyheads.model.attention import MultiHeadAttention
from support.strategies import randomize_weights

CONFIG = mh.TransformerConfig(vocab_size=50, layers=3, d_model=24, d_ff=40, heads=4, dropout=0.0)
SOURCES = [[3, 4, 5, 6, 2], [7, 2], [8, 9, 10, 2]]
TARGETS = [[1, 11, 12], [1, 13, 14, 15, 16, 17], [1]]


class Judge(nn.Module):
    """The stacks of torch.nn without its final norms, which the paper does not have after post-norm."""

    def __init__(self, ours: mh.Transformer):
        super().__init__()
        c = ours.config
        sizes = {"d_model": c.d_model, "nhead": c.heads, "dim_feedforward": c.d_ff, "dropout": 0.0}
        style = {"batch_first": True, "norm_first": c.norm == "pre", "activation": c.activation}
        final = [nn.LayerNorm(c.d_model) if c.norm == "pre" else None for _ in range(2)]
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**sizes, **style),
            c.encoder_layers,
            final[0],
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(**sizes, **style), c.decoder_layers, final[1]
        )
        self.parts = list(pair_up(ours, self))

    def forward(self, ours: mh.Transformer, source: mh.Packed, target: mh.Packed) -> Tensor:
        embedded = []
        for text, embedding in ((source, ours.source_embedding), (target, ours.target_embedding)):
            x = embedding(text.tokens) * ours.config.d_model**0.5
            order = interleaved(text.positions, ours.config.d_model)
            embedded.append(text.pad(x + order.to(x.dtype)))
        hidden = [torch.arange(text.max_length)[None] >= text.lengths[:, None] for text in (source, target)]
        causal = nn.Transformer.generate_square_subsequent_mask(target.max_length).isinf()
        memory = self.encoder(embedded[0], src_key_padding_mask=hidden[0])
        out = self.decoder(
            embedded[1],
            memory,
            tgt_mask=causal,
            tgt_key_padding_mask=hidden[1],
            memory_key_padding_mask=hidden[0],
        )
        return ours.output(target.unpad(out))


def interleaved(positions: Tensor, d_model: int) -> Tensor:
    """The formula of section 3.5, number by number."""
    table = torch.zeros(len(positions), d_model, dtype=torch.float64)
    for row, position in enumerate(positions.tolist()):
        for i in range(d_model // 2):
            angle = torch.tensor(position / 10000 ** (2 * i / d_model), dtype=torch.float64)
            table[row, 2 * i], table[row, 2 * i + 1] = angle.sin(), angle.cos()
    return table


def pair_up(ours: Any, judge: Any) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Our modules beside theirs."""
    for mine, theirs in zip(ours.encoder, judge.encoder.layers, strict=True):
        yield mine.self_attention, theirs.self_attn
        yield mine.self_attention_residual.norm, theirs.norm1
        yield mine.feed_forward_residual.norm, theirs.norm2
        yield from ((mine.feed_forward.w_1, theirs.linear1), (mine.feed_forward.w_2, theirs.linear2))
    for mine, theirs in zip(ours.decoder, judge.decoder.layers, strict=True):
        yield mine.self_attention, theirs.self_attn
        yield mine.cross_attention, theirs.multihead_attn
        yield mine.self_attention_residual.norm, theirs.norm1
        yield mine.cross_attention_residual.norm, theirs.norm2
        yield mine.feed_forward_residual.norm, theirs.norm3
        yield from ((mine.feed_forward.w_1, theirs.linear1), (mine.feed_forward.w_2, theirs.linear2))
    if ours.config.norm == "pre":
        yield ours.encoder_norm, judge.encoder.norm
        yield ours.decoder_norm, judge.decoder.norm


def as_theirs(mine: nn.Module, *, gradients: bool = False) -> dict[str, Tensor]:
    """Our parameters, or their gradients, under torch.nn's names: q, k and v stacked into one."""

    def take(parameter: nn.Parameter) -> Tensor:
        return parameter.grad if gradients else parameter.detach()

    if not isinstance(mine, MultiHeadAttention):
        return {name: take(parameter) for name, parameter in mine.named_parameters()}
    stacked = [mine.w_q, mine.w_k, mine.w_v]
    return {
        "in_proj_weight": torch.cat([take(w.weight) for w in stacked]),
        "in_proj_bias": torch.cat([take(w.bias) for w in stacked]),
        "out_proj.weight": take(mine.w_o.weight),
        "out_proj.bias": take(mine.w_o.bias),
    }


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_same_weights_same_logits_same_gradients(
    activation: str, norm: str, dtype: torch.dtype, tolerance: float
) -> None:
    config = replace(CONFIG, activation=activation, norm=norm)
    ours = mh.Transformer(config).to(dtype)
    randomize_weights(ours)
    judge = Judge(ours).to(dtype)
    for mine, theirs in judge.parts:
        theirs.load_state_dict(as_theirs(mine))
    source, target = mh.Packed.of(SOURCES), mh.Packed.of(TARGETS)
    coefficients = torch.randn(len(target.tokens), config.vocab_size, dtype=dtype)

    logits = ours(source, target)
    (logits * coefficients).sum().backward()
    embedding_gradient = ours.output.weight.grad.clone()
    ours.output.weight.grad = None
    judged = judge(ours, source, target)
    assert logits.std(0).mean() > 0.3  # logits depend on the tokens, so that agreement means something
    torch.testing.assert_close(logits, judged, atol=tolerance, rtol=tolerance)

    (judged * coefficients).sum().backward()
    slack = (
        {"atol": 10 * tolerance, "rtol": tolerance}
        if dtype == torch.float32
        else {"atol": 1e-10, "rtol": 1e-10}
    )
    torch.testing.assert_close(embedding_gradient, ours.output.weight.grad, **slack)
    for mine, theirs in judge.parts:
        gradients = as_theirs(mine, gradients=True)
        for name, parameter in theirs.named_parameters():
            torch.testing.assert_close(gradients[name], parameter.grad, **slack)
