"""Our models as ONNX: an encoder and a decoder step, which onnxruntime runs without torch.

The graphs are built operator by operator, in the order of the model's own files, and hold the weights. What
runs them, and the folder that holds them, is export/onnx_run.py's matter.

A row's past stands right-aligned: its newest token in the last slot, what came before to the left of it. So a
new token is always put behind the last slot, and rows of different age can lie in one batch.

Shapes: B sentences, W hypotheses of each, R = B W rows; N layers, H heads, K = d_k, V = d_v, D = d_model;
        S slots for the longest source, L slots for what was read; Q queries of a set of keys, I of either.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, DTypeLike, NDArray
from torch import Tensor, nn

from manyheads.atomic_io import fingerprints, room_for, written_aside
from manyheads.checkpoint import Description, load_model
from manyheads.config import BEGIN, END, UNKNOWN, ModelConfig
from manyheads.errors import RequestError
from manyheads.export.onnx_run import (
    DECODER,
    DECODER_PORTS,
    ENCODER,
    ENCODER_PORTS,
    FORMAT,
    MANIFEST,
    OnnxModel,
    needed,
)
from manyheads.export.verify import Check, compared, our_scores, sample_pairs
from manyheads.inference.torch_engine import TorchEngine
from manyheads.model.layers import BatchNorm, FeedForward, MultiHeadAttention, Residual
from manyheads.model.positions import LearnedPositions, Sinusoids
from manyheads.model.transformer import Transformer
from manyheads.text.subwords import SubwordPair

OPSET, IR_VERSION = 17, 8  # the first with LayerNormalization, and the file format of its day
LARGEST_FILE = 2**31 - 1  # bytes, that protobuf can carry
NEVER = float(np.finfo(np.float32).min)  # finite: where nothing may be seen there is still no NaN

Sublayer = Callable[[str], str]

# The keys of ModelConfig that a graph can follow. One that is not here must have its default.
KNOWN = {
    *("vocabulary", "source_vocabulary", "target_vocabulary", "ties", "output_bias"),
    *("layers", "d_model", "d_ff", "heads", "d_k", "d_v", "dropout", "attention_dropout"),
    *("attention", "window", "positions", "learned_length"),
    *("activation", "norm", "normalization", "residuals", "initial_gain"),
}


def to_onnx(folder: Path, out: Path, *, replace: bool = False) -> list[Check]:
    """A model folder made into one for onnxruntime; the scores that show that both are the same model."""
    needed("onnx")
    needed("onnxruntime")
    model, subwords, told = load_model(folder)
    check_known(model.config)
    assert isinstance(model, Transformer)
    weights = sum(one.nbytes for one in model.parameters())
    with room_for(out, 2 * weights), written_aside(out, MANIFEST, replace=replace) as aside:
        (aside / ENCODER).write_bytes(encoder_file(model))
        (aside / DECODER).write_bytes(decoder_file(model))
        subwords.save(aside)
        description = {**manifest(model.config, told), "files": fingerprints(aside)}
        written = json.dumps(description, ensure_ascii=False, indent=1) + "\n"
        (aside / MANIFEST).write_text(written, encoding="utf-8")
        return verified(model, subwords, aside)


def check_known(config: ModelConfig) -> None:
    """Refuses by its key what has no operators here."""
    for key in fields(config):
        value = getattr(config, key.name)
        if key.name not in KNOWN and value != key.default:
            raise RequestError(
                f"model.{key.name} is {value!r}, but ONNX export knows {key.default!r} only: "
                f"run this model with the torch engine"
            )
    if config.activation not in ACTIVATIONS:
        raise RequestError(
            f"model.activation is {config.activation!r}, but ONNX export knows {', '.join(ACTIVATIONS)} only"
        )


def manifest(config: ModelConfig, told: Description) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "opset": OPSET,
        "step": told.step,
        "languages": told.languages,
        "sizes": {
            "source_vocabulary": config.source_size,
            "target_vocabulary": config.target_size,
            "layers": config.layers,
            "d_model": config.d_model,
            "heads": config.heads,
            "d_k": config.key_width,
            "d_v": config.value_width,
        },
        "special": {"unknown": UNKNOWN, "begin": BEGIN, "end": END},
        "longest": told.config.data.longest,
        "positions": config.learned_length if config.positions == "learned" else None,
        "extra_length": told.config.search.extra_length,
    }


def verified(model: Transformer, subwords: SubwordPair, folder: Path) -> list[Check]:
    """Both models' scores of the same translations; unlike ones are an error."""
    most = model.config.learned_length - 1 if model.config.positions == "learned" else None
    pairs = [(source[:most], target[:most]) for source, target in sample_pairs(subwords)]
    theirs = OnnxModel(folder).score([[*source, END] for source, _ in pairs], [target for _, target in pairs])
    return compared(
        "the ONNX export", subwords, pairs, our_scores(TorchEngine(model), pairs), [*map(sum, theirs)]
    )


# ---- a graph as it grows


class Graph:
    """Operators and weights. Calling it adds an operator; a value is known by its name."""

    def __init__(self, model: nn.Module) -> None:
        self.nodes: list[Any] = []
        self.kept: dict[str, NDArray[Any]] = {}
        self.names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The value that an operator gives."""
        name = f"{operator}.{len(self.nodes)}"
        self.nodes.append(needed("onnx.helper").make_node(operator, inputs, [name], name, **attributes))
        return name

    def keep(self, name: str, values: ArrayLike) -> str:
        """An array that the file holds, once for each name."""
        if name not in self.kept:
            self.kept[name] = np.asarray(values, order="C")
        return name

    def number(self, value: ArrayLike, dtype: DTypeLike = np.int64) -> str:
        """A constant, of any shape."""
        array = np.array(value, dtype)
        return self.keep(f"{array.dtype} {array.tolist()}", array)

    def weight(self, parameter: Tensor) -> str:
        """A parameter as it is; tied ones are one."""
        return self.keep(self.names[parameter], parameter.detach().numpy())

    def matrix(self, parameter: Tensor) -> str:
        """A parameter [out, in] as MatMul wants it, [in, out]."""
        return self.keep(f"{self.names[parameter]}.transposed", parameter.detach().numpy().T)

    def length(self, value: str, axis: int) -> str:
        """The size of one axis, a scalar."""
        return self("Squeeze", self("Shape", value, start=axis, end=axis + 1))

    def reshaped(self, value: str, *shape: int) -> str:
        """0 stands for an axis that stays as it is."""
        return self("Reshape", value, self.number(shape))

    def unsqueezed(self, value: str, *axes: int) -> str:
        return self("Unsqueeze", value, self.number(axes))

    def stacked(self, values: Sequence[str]) -> str:
        """Along a new first axis."""
        return self("Concat", *(self.unsqueezed(value, 0) for value in values), axis=0)

    def file(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> bytes:
        """The graph as an ONNX file."""
        helper, from_array = needed("onnx.helper"), needed("onnx.numpy_helper").from_array
        size = sum(array.nbytes for array in self.kept.values())
        if size > LARGEST_FILE:
            raise RequestError(f"{name}: {size:,} bytes of weights, but an ONNX file holds {LARGEST_FILE:,}")
        kept = [from_array(array, label) for label, array in self.kept.items()]
        graph = helper.make_graph(self.nodes, name, inputs, outputs, kept)
        opset = helper.make_opsetid("", OPSET)
        made = helper.make_model(
            graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="manyheads"
        )
        written: bytes = made.SerializeToString()
        return written

    def result(self, name: str, value: str) -> None:
        """Gives a value the name by which the file's reader asks for it."""
        self.nodes.append(needed("onnx.helper").make_node("Identity", [value], [name], name))


def ports(names: Sequence[str], config: ModelConfig) -> list[Any]:
    """Inputs or outputs with their types, and the letters of their axes."""
    of_layers = [config.layers, "R", config.heads]
    from_source = [config.layers, "B", config.heads, "S"]
    shapes = {
        "source": ["B", "S"],
        "source_lengths": ["B"],
        "source_keys": [*from_source, config.key_width],
        "source_values": [*from_source, config.value_width],
        "tokens": ["R"],
        "lengths": ["R"],
        "past_keys": [*of_layers, "L", config.key_width],
        "past_values": [*of_layers, "L", config.value_width],
        "new_keys": [*of_layers, "L + 1", config.key_width],
        "new_values": [*of_layers, "L + 1", config.value_width],
        "logits": ["R", config.target_size],
    }
    types, made = needed("onnx").TensorProto, needed("onnx.helper").make_tensor_value_info
    integers = {"source", "source_lengths", "tokens", "lengths"}
    return [made(name, types.INT64 if name in integers else types.FLOAT, shapes[name]) for name in names]


# ---- the two graphs


@torch.no_grad()
def encoder_file(model: Transformer) -> bytes:
    """From source ids to the keys and values that each decoder layer looks at; filler's values are zeros."""
    g, config = Graph(model), model.config
    slots_S = counted(g, g.length("source", 1))
    real_BS = before_length(g, slots_S)
    ids_BS = g("Where", real_BS, "source", g.number(0))  # filler may be anything, so it is never looked up
    x_BSD = embedded(g, model, model.source_embedding, model.source_positions, ids_BS, slots_S)
    seen = g.unsqueezed(real_BS, 1, 2)
    if config.window is not None:
        seen = g("And", seen, near(g, slots_S, config.window // 2))
    layer: Any
    for layer in model.encoder:
        x_BSD = around(g, layer.around_self_attention, x_BSD, see_itself(g, layer.self_attention, seen))
        x_BSD = around(g, layer.around_feed_forward, x_BSD, feed_forward(g, layer.feed_forward, config))
    memory_BSD = normed(g, model.encoder_norm, x_BSD)
    layers: Any = model.decoder
    both = [keys_and_values(g, layer.cross_attention, memory_BSD) for layer in layers]
    real = g.unsqueezed(real_BS, 1, 3)
    zero = g.number(0, np.float32)
    g.result("source_keys", g.stacked([keys for keys, _ in both]))
    g.result("source_values", g.stacked([g("Where", real, values, zero) for _, values in both]))
    return g.file("encoder", *(ports(names, config) for names in ENCODER_PORTS))


@torch.no_grad()
def decoder_file(model: Transformer) -> bytes:
    """One token more of each row: its logits, and the past with it."""
    g, config = Graph(model), model.config
    x_RD = embedded(g, model, model.target_embedding, model.target_positions, "tokens", "lengths")
    x_R1D = g.unsqueezed(x_RD, 1)
    seen_past = g.unsqueezed(recent(g, config.window), 1, 2)
    seen_source = g.unsqueezed(before_length(g, counted(g, g.length("source_keys", 3))), 1, 2)
    past: list[tuple[str, str]] = []
    layer: Any
    for number, layer in enumerate(model.decoder):
        own = see_the_past(g, layer.self_attention, past, seen_past)
        cross = see_the_source(g, layer.cross_attention, number, seen_source)
        x_R1D = around(g, layer.around_self_attention, x_R1D, own)
        x_R1D = around(g, layer.around_cross_attention, x_R1D, cross)
        x_R1D = around(g, layer.around_feed_forward, x_R1D, feed_forward(g, layer.feed_forward, config))
    x_RD = g("Squeeze", normed(g, model.decoder_norm, x_R1D), g.number([1]))
    bias = [] if model.output.bias is None else [g.weight(model.output.bias)]
    g.result("logits", g("Gemm", x_RD, g.weight(model.output.weight), *bias, transB=1))
    g.result("new_keys", g.stacked([keys for keys, _ in past]))
    g.result("new_values", g.stacked([values for _, values in past]))
    return g.file("decoder", *(ports(names, config) for names in DECODER_PORTS))


# ---- who sees what


def counted(g: Graph, count: str) -> str:
    """0, 1, 2 and so on, so many."""
    return g("Range", g.number(0), count, g.number(1))


def before_length(g: Graph, slots_S: str) -> str:
    """Which slots hold a token of the source. [B, S]"""
    return g("Less", slots_S, g.unsqueezed("source_lengths", 1))


def near(g: Graph, slots_S: str, reach: int) -> str:
    """Which slots lie within a window of each other (4). [S, S]"""
    distance = g("Abs", g("Sub", g.unsqueezed(slots_S, 1), slots_S))
    return g("LessOrEqual", distance, g.number(reach))


def recent(g: Graph, window: int | None) -> str:
    """Which slots hold what each row has read; the last one is the token that it reads now. [R, L + 1]"""
    ages = g("Range", g.length("past_keys", 3), g.number(-1), g.number(-1))  # L, ..., 1, 0
    reach_R = "lengths" if window is None else g("Min", "lengths", g.number(window // 2))
    return g("LessOrEqual", ages, g.unsqueezed(reach_R, 1))


# ---- embeddings (3.4) and positions (3.5)


def embedded(
    g: Graph,
    model: Transformer,
    embedding: nn.Embedding,
    encoding: Sinusoids | LearnedPositions | None,
    ids: str,
    places: str,
) -> str:
    """Embeddings times sqrt(d_model), plus the encoding of the places. [..., D]"""
    factor = g.number(math.sqrt(model.config.d_model), np.float32)
    x = g("Mul", g("Gather", g.weight(embedding.weight), ids), factor)
    if isinstance(encoding, LearnedPositions):
        return g("Add", x, g("Gather", g.weight(encoding.table.weight), places))
    return x if encoding is None else g("Add", x, sinusoids(g, places, model.config.d_model))


def sinusoids(g: Graph, places: str, d_model: int) -> str:
    """Computed in float64, so that far positions are as exact as near ones; a cosine is a sine moved on."""
    types = needed("onnx").TensorProto
    even = np.arange(0, d_model, 2, dtype=np.float64)
    frequencies = g.keep("frequencies", np.repeat(10000 ** (-even / d_model), 2))
    phases = g.keep("phases", np.tile([0.0, math.pi / 2], d_model // 2))
    angles = g("Mul", g.unsqueezed(g("Cast", places, to=types.DOUBLE), 1), frequencies)
    return g("Cast", g("Sin", g("Add", angles, phases)), to=types.FLOAT)


# ---- attention (3.2)


def linear(g: Graph, module: nn.Linear, x: str) -> str:
    return g("Add", g("MatMul", x, g.matrix(module.weight)), g.weight(module.bias))


def split_heads(g: Graph, x_BID: str, heads: int, width: int) -> str:
    """[B, I, H width] as [B, H, I, width]"""
    return g("Transpose", g.reshaped(x_BID, 0, 0, heads, width), perm=[0, 2, 1, 3])


def keys_and_values(g: Graph, module: MultiHeadAttention, memory_BID: str) -> tuple[str, str]:
    """[B, H, I, K] and [B, H, I, V]"""
    heads = module.heads
    return (
        split_heads(g, linear(g, module.w_k, memory_BID), heads, module.w_k.out_features // heads),
        split_heads(g, linear(g, module.w_v, memory_BID), heads, module.w_v.out_features // heads),
    )


def attention(g: Graph, module: MultiHeadAttention, x_BQD: str, k_BHIK: str, v_BHIV: str, seen: str) -> str:
    """softmax(Q K^T / sqrt(d_k)) V (1), its heads joined. [B, Q, D]"""
    heads, width = module.heads, module.w_q.out_features // module.heads
    q_BHQK = split_heads(g, linear(g, module.w_q, x_BQD), heads, width)
    scores_BHQI = g("Where", seen, compatibility(g, module, q_BHQK, k_BHIK), g.number(NEVER, np.float32))
    gathered_BHQV = g("MatMul", g("Softmax", scores_BHQI, axis=-1), v_BHIV)
    joined = g("Transpose", gathered_BHQV, perm=[0, 2, 1, 3])
    return linear(g, module.w_o, g.reshaped(joined, 0, 0, module.w_o.in_features))


def compatibility(g: Graph, module: MultiHeadAttention, q_BHQK: str, k_BHIK: str) -> str:
    """How well each query and each key go together, as model/attention.py has it. [B, H, Q, I]"""
    if module.energy is not None:
        hidden = g("Tanh", g("Add", g.unsqueezed(q_BHQK, 3), g.unsqueezed(k_BHIK, 2)))
        energy = g.unsqueezed(g.weight(module.energy), 1, 2)
        return g("ReduceSum", g("Mul", hidden, energy), g.number([-1]), keepdims=0)
    scale = module.rule.scale(module.w_q.out_features // module.heads)
    scores = g("MatMul", q_BHQK, g("Transpose", k_BHIK, perm=[0, 1, 3, 2]))
    return scores if scale == 1 else g("Mul", scores, g.number(scale, np.float32))


# ---- the sub-layers (3.1, 3.3): each takes a value and gives one


def see_itself(g: Graph, module: MultiHeadAttention, seen: str) -> Sublayer:
    """The encoder's self-attention."""
    return lambda x_BSD: attention(g, module, x_BSD, *keys_and_values(g, module, x_BSD), seen)


def see_the_past(g: Graph, module: MultiHeadAttention, past: list[tuple[str, str]], seen: str) -> Sublayer:
    """Self-attention of a new token over what its row has read; `past` gets the layer's, with the new one."""

    def sublayer(x_R1D: str) -> str:
        number = g.number(len(past))
        new = keys_and_values(g, module, x_R1D)
        keys, values = (
            g("Concat", g("Gather", old, number, axis=0), one, axis=2)
            for old, one in zip(("past_keys", "past_values"), new, strict=True)
        )
        past.append((keys, values))
        return attention(g, module, x_R1D, keys, values, seen)

    return sublayer


def see_the_source(g: Graph, module: MultiHeadAttention, number: int, seen: str) -> Sublayer:
    """Attention over the encoder's output, which the W hypotheses of a sentence share."""

    def sublayer(x_R1D: str) -> str:
        shape_BWD = g("Concat", g("Shape", "source_lengths"), g.number([-1, module.w_q.in_features]), axis=0)
        keys = g("Gather", "source_keys", g.number(number), axis=0)
        values = g("Gather", "source_values", g.number(number), axis=0)
        out_BWD = attention(g, module, g("Reshape", x_R1D, shape_BWD), keys, values, seen)
        return g("Reshape", out_BWD, g("Shape", x_R1D))

    return sublayer


def gelu(g: Graph, x: str) -> str:
    """x times the normal distribution's share below x."""
    share = g("Erf", g("Mul", x, g.number(math.sqrt(0.5), np.float32)))
    return g("Mul", x, g("Mul", g("Add", share, g.number(1, np.float32)), g.number(0.5, np.float32)))


ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {
    "relu": lambda g, x: g("Relu", x),
    "gelu": gelu,
    "swish": lambda g, x: g("Mul", x, g("Sigmoid", x)),
}


def feed_forward(g: Graph, module: FeedForward, config: ModelConfig) -> Sublayer:
    activation = ACTIVATIONS[config.activation]
    return lambda x: linear(g, module.w_2, activation(g, linear(g, module.w_1, x)))


# ---- what stands around them (3.1)


def around(g: Graph, module: Residual, x: str, sublayer: Sublayer) -> str:
    """The norm before or after, and the residual sum where there is one."""
    out = sublayer(normed(g, module.norm, x) if module.pre else x)
    if module.residuals:
        out = g("Add", x, out)
    return out if module.pre else normed(g, module.norm, out)


def normed(g: Graph, module: nn.Module, x: str) -> str:
    """LayerNorm as an operator; a batch norm that has learned its statistics is a product and a sum."""
    if isinstance(module, nn.LayerNorm):
        weights = g.weight(module.weight), g.weight(module.bias)
        return g("LayerNormalization", x, *weights, axis=-1, epsilon=module.eps)
    if isinstance(module, BatchNorm):
        assert module.running_mean is not None
        assert module.running_var is not None
        name, factor = g.names[module.weight], module.weight / (module.running_var + module.eps).sqrt()
        shift = module.bias - module.running_mean * factor
        scaled = g("Mul", x, g.keep(f"{name}.scaled", factor.numpy()))
        return g("Add", scaled, g.keep(f"{name}.shifted", shift.numpy()))
    assert isinstance(module, nn.Identity)
    return x
