"""A Transformer as two ONNX graphs, an encoder and a decoder step, in the order of the model's own files.

A row's past is right-aligned: its newest token fills the last slot. So a new token is always appended, and
rows of different age can share a batch.

Shapes: B sentences, W hypotheses of each, R = B W rows; N layers, H heads, K = d_k, V = d_v, D = d_model;
        S slots for the longest source, L slots for what was read; Q queries of a set of keys, I of either.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from manyheads.config import TransformerConfig
from manyheads.export.onnx_graph import GraphBuilder, Int8Weights, describe_ports
from manyheads.export.onnx_run import DECODER_PORTS, ENCODER_PORTS, import_optional
from manyheads.model.attention import MultiHeadAttention
from manyheads.model.layers import BatchNorm, FeedForward, Residual
from manyheads.model.positions import LearnedPositions, SinusoidalPositions
from manyheads.model.transformer import Transformer

MASKED = float(np.finfo(np.float32).min)  # finite, so that a row that sees nothing has no NaN

Sublayer = Callable[[str], str]


@torch.no_grad()
def build_encoder(model: Transformer, int8: Int8Weights | None = None) -> bytes:
    """Return the graph from source ids to the keys and values of each decoder layer, zero for padding."""
    g, config = GraphBuilder(model, int8), model.config
    slots_S = index_range(g, g.axis_size("source", 1))
    real_BS = source_mask(g, slots_S)
    ids_BS = g("Where", real_BS, "source", g.constant(0))  # padding may be any number
    x_BSD = embed(g, model, model.source_embedding, model.source_positions, ids_BS, slots_S)
    mask = g.unsqueeze(real_BS, 1, 2)
    if config.window is not None:
        mask = g("And", mask, window_mask(g, slots_S, config.window // 2))
    layer: Any
    for layer in model.encoder:
        x_BSD = residual(
            g, layer.self_attention_residual, x_BSD, encoder_self_attention(g, layer.self_attention, mask)
        )
        x_BSD = residual(g, layer.feed_forward_residual, x_BSD, feed_forward(g, layer.feed_forward, config))
    memory_BSD = normalize(g, model.encoder_norm, x_BSD)
    layers: Any = model.decoder
    keys_values = [project_keys_values(g, layer.cross_attention, memory_BSD) for layer in layers]
    real = g.unsqueeze(real_BS, 1, 3)
    zero = g.constant(0, np.float32)
    g.name_output("source_keys", g.stack([keys for keys, _ in keys_values]))
    g.name_output("source_values", g.stack([g("Where", real, values, zero) for _, values in keys_values]))
    return g.serialize("encoder", *(describe_ports(names, config) for names in ENCODER_PORTS))


@torch.no_grad()
def build_decoder(model: Transformer, int8: Int8Weights | None = None) -> bytes:
    """Return the graph that reads one token of each row: its logits, and the past with it."""
    g, config = GraphBuilder(model, int8), model.config
    x_RD = embed(g, model, model.target_embedding, model.target_positions, "tokens", "lengths")
    x_R1D = g.unsqueeze(x_RD, 1)
    past_visible = g.unsqueeze(past_mask(g, config.window), 1, 2)
    source_visible = g.unsqueeze(source_mask(g, index_range(g, g.axis_size("source_keys", 3))), 1, 2)
    past: list[tuple[str, str]] = []
    layer: Any
    for number, layer in enumerate(model.decoder):
        own = decoder_self_attention(g, layer.self_attention, past, past_visible)
        cross = cross_attention(g, layer.cross_attention, number, source_visible)
        x_R1D = residual(g, layer.self_attention_residual, x_R1D, own)
        x_R1D = residual(g, layer.cross_attention_residual, x_R1D, cross)
        x_R1D = residual(g, layer.feed_forward_residual, x_R1D, feed_forward(g, layer.feed_forward, config))
    x_RD = g("Squeeze", normalize(g, model.decoder_norm, x_R1D), g.constant([1]))
    bias = [] if model.output.bias is None else [g.weight(model.output.bias)]
    g.name_output("logits", g("Gemm", x_RD, g.weight(model.output.weight), *bias, transB=1))
    g.name_output("new_keys", g.stack([keys for keys, _ in past]))
    g.name_output("new_values", g.stack([values for _, values in past]))
    return g.serialize("decoder", *(describe_ports(names, config) for names in DECODER_PORTS))


# ---- attention masks


def index_range(g: GraphBuilder, count: str) -> str:
    """Return 0, 1, 2, ..., count - 1."""
    return g("Range", g.constant(0), count, g.constant(1))


def source_mask(g: GraphBuilder, slots_S: str) -> str:
    """Return which slots hold a token of the source. [B, S]"""
    return g("Less", slots_S, g.unsqueeze("source_lengths", 1))


def window_mask(g: GraphBuilder, slots_S: str, max_distance: int) -> str:
    """Return which slots lie within a window of each other (4). [S, S]"""
    distance = g("Abs", g("Sub", g.unsqueeze(slots_S, 1), slots_S))
    return g("LessOrEqual", distance, g.constant(max_distance))


def past_mask(g: GraphBuilder, window: int | None) -> str:
    """Return which slots hold what each row has read, the current token last. [R, L + 1]"""
    ages = g("Range", g.axis_size("past_keys", 3), g.constant(-1), g.constant(-1))  # L, ..., 1, 0
    max_age_R = "lengths" if window is None else g("Min", "lengths", g.constant(window // 2))
    return g("LessOrEqual", ages, g.unsqueeze(max_age_R, 1))


# ---- embeddings (3.4) and positions (3.5)


def embed(
    g: GraphBuilder,
    model: Transformer,
    embedding: nn.Embedding,
    encoding: SinusoidalPositions | LearnedPositions | None,
    ids: str,
    positions: str,
) -> str:
    """Return embeddings times sqrt(d_model) plus the positional encoding. [..., D]"""
    factor = g.constant(math.sqrt(model.config.d_model), np.float32)
    x = g("Mul", g.gather_rows(embedding.weight, ids), factor)
    if isinstance(encoding, LearnedPositions):
        return g("Add", x, g("Gather", g.weight(encoding.table.weight), positions))
    return x if encoding is None else g("Add", x, sinusoids(g, positions, model.config.d_model))


def sinusoids(g: GraphBuilder, positions: str, d_model: int) -> str:
    """Return sinusoids computed in float64, so that far positions are exact. A cosine is a shifted sine."""
    types = import_optional("onnx").TensorProto
    even = np.arange(0, d_model, 2, dtype=np.float64)
    frequencies = g.add_initializer("frequencies", np.repeat(10000 ** (-even / d_model), 2))
    phases = g.add_initializer("phases", np.tile([0.0, math.pi / 2], d_model // 2))
    angles = g("Mul", g.unsqueeze(g("Cast", positions, to=types.DOUBLE), 1), frequencies)
    return g("Cast", g("Sin", g("Add", angles, phases)), to=types.FLOAT)


# ---- attention (3.2)


def linear(g: GraphBuilder, module: nn.Linear, x: str) -> str:
    return g("Add", g("MatMul", x, g.transposed_weight(module.weight)), g.weight(module.bias))


def split_heads(g: GraphBuilder, x_BID: str, heads: int, width: int) -> str:
    """Return [B, I, H width] as [B, H, I, width]."""
    return g("Transpose", g.reshape(x_BID, 0, 0, heads, width), perm=[0, 2, 1, 3])


def project_keys_values(g: GraphBuilder, module: MultiHeadAttention, memory_BID: str) -> tuple[str, str]:
    """Return keys [B, H, I, K] and values [B, H, I, V]."""
    heads = module.heads
    return (
        split_heads(g, linear(g, module.w_k, memory_BID), heads, module.w_k.out_features // heads),
        split_heads(g, linear(g, module.w_v, memory_BID), heads, module.w_v.out_features // heads),
    )


def attention(
    g: GraphBuilder, module: MultiHeadAttention, x_BQD: str, k_BHIK: str, v_BHIV: str, mask: str
) -> str:
    """Return softmax(Q K^T / sqrt(d_k)) V (1), the heads concatenated. [B, Q, D]"""
    heads, width = module.heads, module.w_q.out_features // module.heads
    q_BHQK = split_heads(g, linear(g, module.w_q, x_BQD), heads, width)
    scores_BHQI = g(
        "Where", mask, attention_scores(g, module, q_BHQK, k_BHIK), g.constant(MASKED, np.float32)
    )
    gathered_BHQV = g("MatMul", g("Softmax", scores_BHQI, axis=-1), v_BHIV)
    concatenated = g("Transpose", gathered_BHQV, perm=[0, 2, 1, 3])
    return linear(g, module.w_o, g.reshape(concatenated, 0, 0, module.w_o.in_features))


def attention_scores(g: GraphBuilder, module: MultiHeadAttention, q_BHQK: str, k_BHIK: str) -> str:
    """Return the attention scores of model/attention.py. [B, H, Q, I]"""
    if module.energy is not None:
        hidden = g("Tanh", g("Add", g.unsqueeze(q_BHQK, 3), g.unsqueeze(k_BHIK, 2)))
        energy = g.unsqueeze(g.weight(module.energy), 1, 2)
        return g("ReduceSum", g("Mul", hidden, energy), g.constant([-1]), keepdims=0)
    scale = module.spec.scale(module.w_q.out_features // module.heads)
    scores = g("MatMul", q_BHQK, g("Transpose", k_BHIK, perm=[0, 1, 3, 2]))
    return scores if scale == 1 else g("Mul", scores, g.constant(scale, np.float32))


# ---- the sub-layers (3.1, 3.3), as functions of a value


def encoder_self_attention(g: GraphBuilder, module: MultiHeadAttention, mask: str) -> Sublayer:
    """Return the encoder's self-attention."""
    return lambda x_BSD: attention(g, module, x_BSD, *project_keys_values(g, module, x_BSD), mask)


def decoder_self_attention(
    g: GraphBuilder, module: MultiHeadAttention, past: list[tuple[str, str]], mask: str
) -> Sublayer:
    """Return self-attention of a new token over its row's past. The extended past is appended to `past`."""

    def sublayer(x_R1D: str) -> str:
        layer = g.constant(len(past))
        new = project_keys_values(g, module, x_R1D)
        keys, values = (
            g("Concat", g("Gather", old, layer, axis=0), current, axis=2)
            for old, current in zip(("past_keys", "past_values"), new, strict=True)
        )
        past.append((keys, values))
        return attention(g, module, x_R1D, keys, values, mask)

    return sublayer


def cross_attention(g: GraphBuilder, module: MultiHeadAttention, number: int, mask: str) -> Sublayer:
    """Return attention over the encoder's output, which the W hypotheses of a sentence share."""

    def sublayer(x_R1D: str) -> str:
        shape_BWD = g(
            "Concat", g("Shape", "source_lengths"), g.constant([-1, module.w_q.in_features]), axis=0
        )
        keys = g("Gather", "source_keys", g.constant(number), axis=0)
        values = g("Gather", "source_values", g.constant(number), axis=0)
        out_BWD = attention(g, module, g("Reshape", x_R1D, shape_BWD), keys, values, mask)
        return g("Reshape", out_BWD, g("Shape", x_R1D))

    return sublayer


def gelu(g: GraphBuilder, x: str) -> str:
    """Return x times the normal distribution function of x."""
    error_function = g("Erf", g("Mul", x, g.constant(math.sqrt(0.5), np.float32)))
    return g(
        "Mul", x, g("Mul", g("Add", error_function, g.constant(1, np.float32)), g.constant(0.5, np.float32))
    )


ACTIVATIONS: dict[str, Callable[[GraphBuilder, str], str]] = {
    "relu": lambda g, x: g("Relu", x),
    "gelu": gelu,
    "swish": lambda g, x: g("Mul", x, g("Sigmoid", x)),
}


def feed_forward(g: GraphBuilder, module: FeedForward, config: TransformerConfig) -> Sublayer:
    activation = ACTIVATIONS[config.activation]
    return lambda x: linear(g, module.w_2, activation(g, linear(g, module.w_1, x)))


# ---- residual connections and norms (3.1)


def residual(g: GraphBuilder, module: Residual, x: str, sublayer: Sublayer) -> str:
    """Return the sub-layer with its norm, before or after, and its residual connection."""
    out = sublayer(normalize(g, module.norm, x) if module.pre_norm else x)
    if module.residuals:
        out = g("Add", x, out)
    return out if module.pre_norm else normalize(g, module.norm, out)


def normalize(g: GraphBuilder, module: nn.Module, x: str) -> str:
    """Return a LayerNorm as an operator, a batch norm with its statistics as a product and a sum."""
    if isinstance(module, nn.LayerNorm):
        weights = g.weight(module.weight), g.weight(module.bias)
        return g("LayerNormalization", x, *weights, axis=-1, epsilon=module.eps)
    if isinstance(module, BatchNorm):
        assert module.running_mean is not None
        assert module.running_var is not None
        name, factor = g.names[module.weight], module.weight / (module.running_var + module.eps).sqrt()
        shift = module.bias - module.running_mean * factor
        scaled = g("Mul", x, g.add_initializer(f"{name}.scaled", factor.numpy()))
        return g("Add", scaled, g.add_initializer(f"{name}.shifted", shift.numpy()))
    assert isinstance(module, nn.Identity)
    return x
