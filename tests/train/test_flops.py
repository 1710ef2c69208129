"""The FLOPs of a training step are what torch counts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch.utils.flop_counter import FlopCounterMode

import manyheads as mh
from manyheads.config import RecurrentConfig
from manyheads.model import build_model
from manyheads.model.baselines.recurrent_layer import RecurrentLayer
from manyheads.ops import dispatch
from manyheads.train.flops import GATES, self_attention_pairs, training_flops

SIZES: dict[str, Any] = {
    "vocab_size": 11,
    "layers": 3,
    "d_model": 8,
    "d_ff": 6,
    "dropout": 0.0,
    "tie_embeddings": "none",
}
CONFIGS = {
    **{
        f"{cell}-{attention}": mh.RecurrentConfig(cell=cell, attention=attention, **SIZES)
        for cell, attention in (("rnn", "dot"), ("gru", "none"), ("lstm", "scaled-dot"))
    },
    "convs2s": mh.ConvS2SConfig(attention="dot", **SIZES),
    "bytenet": mh.ByteNetConfig(**SIZES),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_flops_of_each_baseline_are_what_torch_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CONFIGS[name]
    monkeypatch.setattr(dispatch, "choose_attention", lambda *_: "reference")
    monkeypatch.setattr(
        RecurrentLayer, "forward_fused", RecurrentLayer.forward_reference
    )  # torch does not count fused kernels
    lengths = np.array([5, 5]), np.array([4, 4])
    source, target = (mh.Packed.of([[3] * length for length in side]) for side in lengths)
    model = build_model(config)
    with FlopCounterMode(display=False) as counter:
        model(source, target).sum().backward()
    first_state_flops = 0  # zeros without a gradient, which the formula counts as any other
    if isinstance(config, RecurrentConfig):
        first_state_flops = config.encoder_layers * 2 * 2 * 2 * GATES[config.cell] * (config.d_ff // 2) ** 2
    assert training_flops(config, *lengths) == counter.get_total_flops() + first_state_flops


def test_flops_count_the_used_experts_and_the_window() -> None:
    base = mh.TransformerConfig(vocab_size=11, layers=1, d_model=8, d_ff=8, heads=2)
    lengths = np.array([10]), np.array([10])
    whole = training_flops(base, *lengths)
    mixed = training_flops(replace(base, d_ff=4, experts=4, experts_per_token=2), *lengths)
    assert mixed - whole == 3 * 20 * 2 * 8 * 4  # the gate
    assert self_attention_pairs(np.array([10]), None, causal=False) == 100
    assert self_attention_pairs(np.array([10]), 4, causal=False) == 50
    assert self_attention_pairs(np.array([10, 2]), 4, causal=True) == 30 + 2
    assert training_flops(replace(base, window=4), *lengths) < whole


def test_the_flops_of_the_transformer_are_what_torch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference also computes masked pairs, which torch counts and the formula does not."""
    monkeypatch.setattr(dispatch, "choose_attention", lambda *_: "reference")
    config = mh.TransformerConfig(heads=2, d_k=3, d_v=5, **SIZES)
    lengths = np.array([5, 5]), np.array([4, 4])
    source, target = (mh.Packed.of([[3] * length for length in side]) for side in lengths)
    with FlopCounterMode(display=False) as counter:
        build_model(config)(source, target).sum().backward()
    masked = int((lengths[1] ** 2).sum()) - self_attention_pairs(lengths[1], None, causal=True)
    masked_flops = (
        3 * config.decoder_layers * masked * 2 * config.heads * (config.head_dim_k + config.head_dim_v)
    )
    assert training_flops(config, *lengths) + masked_flops == counter.get_total_flops()


@pytest.mark.parametrize("architecture", ["recurrent", "convs2s", "bytenet"])
def test_an_empty_batch_has_no_flops(architecture: str) -> None:
    empty = np.zeros(0, np.int64)
    changes = {"attention": "dot"} if architecture == "convs2s" else {}
    assert (
        training_flops(mh.ModelConfig.from_mapping({"architecture": architecture, **changes}), empty, empty)
        == 0
    )
