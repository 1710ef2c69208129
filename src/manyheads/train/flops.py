"""The FLOPs of a training step, and the peak FLOPs of devices."""

import re
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from manyheads.config import ByteNetConfig, ConvS2SConfig, ModelConfig, RecurrentConfig, TransformerConfig
from manyheads.data.batches import Batch
from manyheads.model.baselines.bytenet import unfold_length

# Dense bfloat16 FLOPs a second, as the vendors state them.
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


Lengths = NDArray[np.int64]  # of the sentences of a batch, in tokens


@dataclass(frozen=True)
class ForwardFlops:
    """The FLOPs of a forward pass without the output layer."""

    per_source_token: float
    per_target_token: float
    attention: float  # scores and weighted sums of all attention layers together


def training_flops(config: ModelConfig, sources: Lengths, targets: Lengths) -> int:
    """Return the FLOPs of a training step over sentences of these lengths.

    A multiply-add counts as 2, causal attention as half, and the backward pass as twice the forward.
    """
    forward = forward_flops(config, sources, targets)
    output = 2 * config.d_model * config.output_vocab_size
    source_flops = forward.per_source_token * int(sources.sum())
    target_flops = (forward.per_target_token + output) * int(targets.sum())
    return round(3 * (source_flops + target_flops + forward.attention))


def transformer_flops(config: TransformerConfig, sources: Lengths, targets: Lengths) -> ForwardFlops:
    head_dims = config.head_dim_k + config.head_dim_v
    projections = 2 * config.d_model * config.heads * head_dims  # W_Q and W_O; W_K and W_V cost the same
    feed_forward = 2 * 2 * config.d_model * config.d_ff
    if config.experts is not None:
        feed_forward = config.experts_per_token * feed_forward + 2 * config.d_model * config.experts
    encoder_layer = 2 * projections + feed_forward
    decoder_layer = 3 * projections + feed_forward  # without W_K, W_V of cross-attention: by source token
    encoder_pairs = self_attention_pairs(sources, config.window, causal=False)
    decoder_pairs = self_attention_pairs(targets, config.window, causal=True)
    decoder_pairs += cross_attention_pairs(sources, targets)
    pairs = config.encoder_layers * encoder_pairs + config.decoder_layers * decoder_pairs
    return ForwardFlops(
        config.encoder_layers * encoder_layer + config.decoder_layers * projections,
        config.decoder_layers * decoder_layer,
        2 * config.heads * head_dims * pairs,
    )


def self_attention_pairs(lengths: Lengths, window: int | None, *, causal: bool) -> float:
    """Return the number of query-key pairs, restricted to a window if there is one."""
    keys = lengths / 2 if causal else lengths.astype(np.float64)
    if window is not None:
        keys = np.minimum(keys, window // 2 + 1 if causal else 2 * (window // 2) + 1)
    return float((lengths * keys).sum())


def cross_attention_pairs(sources: Lengths, targets: Lengths) -> float:
    return float((targets * sources).sum())


GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def recurrent_flops(config: RecurrentConfig, sources: Lengths, targets: Lengths) -> ForwardFlops:
    width, gates, has_attention = config.d_ff, GATES[config.cell], config.attention != "none"
    encoder_inputs = [config.d_model, *[width] * (config.encoder_layers - 1)]
    context = width if has_attention else 0
    decoder_inputs = [config.d_model, *[width + context] * (config.decoder_layers - 1)]
    source = sum(2 * gates * width * (inputs + width // 2) for inputs in encoder_inputs)
    target = sum(2 * gates * width * (inputs + width) for inputs in decoder_inputs)
    target += 2 * width * (2 if has_attention else 1) * config.d_model
    if not has_attention:
        return ForwardFlops(source, target, 0)
    projection = 2 * width * config.d_model  # W_Q by target token, W_K by source token
    attention = 2 * (config.d_model + width) * cross_attention_pairs(sources, targets)
    return ForwardFlops(source + projection, target + projection, attention)


def convs2s_flops(config: ConvS2SConfig, sources: Lengths, targets: Lengths) -> ForwardFlops:
    projections = 2 * 2 * config.d_model * config.d_ff  # into the stack and out of it
    layer = 2 * config.kernel_size * config.d_ff * 2 * config.d_ff
    attention_projections = 2 * 2 * config.d_model * config.d_ff
    attention = config.decoder_layers * 2 * 2 * config.d_model * cross_attention_pairs(sources, targets)
    return ForwardFlops(
        projections + config.encoder_layers * layer,
        projections + config.decoder_layers * (layer + attention_projections),
        attention,
    )


def bytenet_flops(config: ByteNetConfig, sources: Lengths, targets: Lengths) -> ForwardFlops:
    block = 2 * (2 * config.d_model * config.d_ff + config.kernel_size * config.d_ff**2)
    columns = unfold_length(sources).sum() / max(1, sources.sum())  # per source token
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
    """Return the peak FLOPs of the device a second, if it is known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((rate for model, rate in PEAK_FLOPS.items() if re.search(rf"\b{model}\b", name)), None)
