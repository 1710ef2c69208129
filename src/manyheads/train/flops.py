"""How much arithmetic a step is, and what share of the device's peak it reaches."""

import re
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from manyheads.config import ByteNetConfig, ConvS2SConfig, ModelConfig, RecurrentConfig, TransformerConfig
from manyheads.data.batches import Batch
from manyheads.model.baselines.bytenet import unfold_length

# Dense bfloat16 products a second, as the makers state them.
PEAK_FLOPS = {
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
    "V100": 125e12,
}


Lengths = NDArray[np.int64]


@dataclass(frozen=True)
class ForwardFlops:
    """What a forward pass multiplies and adds up: for each source token, target token and pair that meet."""

    per_source_token: float
    per_target_token: float
    attention: float  # all of them, of encoder, decoder and across


def training_flops(config: ModelConfig, sources: Lengths, targets: Lengths) -> int:
    """Of a step over sentences of these lengths, real tokens only.

    Matrix parameters x 2, attention with the causal half, and the backward pass twice the forward.
    """
    work = forward_flops(config, sources, targets)
    output = 2 * config.d_model * config.output_vocab_size
    return round(
        3
        * (
            work.per_source_token * int(sources.sum())
            + (work.per_target_token + output) * int(targets.sum())
            + work.attention
        )
    )


def transformer_flops(config: TransformerConfig, sources: Lengths, targets: Lengths) -> ForwardFlops:
    head_widths = config.head_dim_k + config.head_dim_v
    query_side = 2 * config.d_model * config.heads * head_widths  # W_Q and W_O; W_K and W_V cost the same
    feed_forward = 2 * 2 * config.d_model * config.d_ff
    if config.experts is not None:
        feed_forward = config.experts_per_token * feed_forward + 2 * config.d_model * config.experts
    encoder_layer = 2 * query_side + feed_forward
    decoder_layer = 3 * query_side + feed_forward  # and W_K, W_V of its cross-attention, by source token
    encoder_pairs = self_attention_pairs(sources, config.window, causal=False)
    decoder_pairs = self_attention_pairs(targets, config.window, causal=True) + float(
        (targets * sources).sum()
    )
    pairs = config.encoder_layers * encoder_pairs + config.decoder_layers * decoder_pairs
    return ForwardFlops(
        config.encoder_layers * encoder_layer + config.decoder_layers * query_side,
        config.decoder_layers * decoder_layer,
        2 * config.heads * head_widths * pairs,
    )


def self_attention_pairs(lengths: Lengths, window: int | None, *, causal: bool) -> float:
    """Pairs of places of one text that see each other, in a window of r if there is one."""
    seen = lengths / 2 if causal else lengths.astype(np.float64)
    if window is not None:
        seen = np.minimum(seen, window // 2 + 1 if causal else 2 * (window // 2) + 1)
    return float((lengths * seen).sum())


GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def recurrent_flops(config: RecurrentConfig, sources: Lengths, targets: Lengths) -> ForwardFlops:
    width, gates, attends = config.d_ff, GATES[config.cell], config.attention != "none"
    below = [config.d_model, *[width] * (config.encoder_layers - 1)]
    context = [0, *[width if attends else 0] * (config.decoder_layers - 1)]
    source = sum(2 * gates * width * (x + width // 2) for x in below)
    target = sum(2 * gates * width * (x + c + width) for x, c in zip(below, context, strict=True))
    target += 2 * width * (2 if attends else 1) * config.d_model
    if not attends:
        return ForwardFlops(source, target, 0)
    look_up = 2 * width * config.d_model  # W_Q by target, W_K by source
    met = 2 * (config.d_model + width) * float((targets * sources).sum())
    return ForwardFlops(source + look_up, target + look_up, met)


def convs2s_flops(config: ConvS2SConfig, sources: Lengths, targets: Lengths) -> ForwardFlops:
    ends = 2 * 2 * config.d_model * config.d_ff  # in and out
    layer = 2 * config.kernel_size * config.d_ff * 2 * config.d_ff
    attention = 2 * 2 * config.d_model * config.d_ff
    met = config.decoder_layers * 2 * 2 * config.d_model * float((targets * sources).sum())
    return ForwardFlops(
        ends + config.encoder_layers * layer, ends + config.decoder_layers * (layer + attention), met
    )


def bytenet_flops(config: ByteNetConfig, sources: Lengths, targets: Lengths) -> ForwardFlops:
    block = 2 * (2 * config.d_model * config.d_ff + config.kernel_size * config.d_ff**2)
    columns = unfold_length(sources).sum() / max(1, sources.sum())  # for each token
    return ForwardFlops(
        config.encoder_layers * block * columns, 2 * 2 * config.d_model**2 + config.decoder_layers * block, 0
    )


def forward_flops(config: ModelConfig, sources: Lengths, targets: Lengths) -> ForwardFlops:
    match config:
        case TransformerConfig():
            return transformer_flops(config, sources, targets)
        case RecurrentConfig():
            return recurrent_flops(config, sources, targets)
        case ConvS2SConfig():
            return convs2s_flops(config, sources, targets)
        case ByteNetConfig():
            return bytenet_flops(config, sources, targets)
    raise NotImplementedError(type(config).__name__)


def batch_flops(config: ModelConfig, batch: Batch) -> int:
    source, target = (np.diff(side.offsets.numpy()).astype(np.int64) for side in (batch.source, batch.labels))
    return training_flops(config, source, target)


def peak_flops(device: torch.device) -> float | None:
    """What the device could do at most, where it is known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((rate for part, rate in PEAK_FLOPS.items() if re.search(rf"\b{part}\b", name)), None)
