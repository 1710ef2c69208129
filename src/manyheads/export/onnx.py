"""Our models as ONNX: an encoder and a decoder step, which onnxruntime runs without torch.

The graphs are built operator by operator, in the order of the model's own files, and hold the weights. What
runs them, and the folder that holds them, is export/onnx_run.py's matter.

A row's past stands right-aligned: its newest token in the last slot, what came before to the left of it. So a
new token is always put behind the last slot, and rows of different age can lie in one batch.

Shapes: B sentences, W hypotheses of each, R = B W rows; N layers, H heads, K = d_k, V = d_v, D = d_model;
        S slots for the longest source, L slots for what was read; Q queries of a set of keys, I of either.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, DTypeLike, NDArray
from torch import Tensor, nn

from manyheads.atomic_io import atomic_directory, report_disk_full, write_manifest
from manyheads.checkpoint import CheckpointInfo, load_model
from manyheads.config import EOS_ID, ModelConfig, TransformerConfig
from manyheads.errors import RequestError
from manyheads.export.onnx_run import (
    DECODER,
    DECODER_PORTS,
    ENCODER,
    ENCODER_PORTS,
    MANIFEST,
    ONNX_SCHEMA,
    SPECIAL_IDS,
    OnnxModel,
    import_optional,
)
from manyheads.export.verify import ScoreComparison, compare_scores, sample_pairs, score_pairs
from manyheads.inference.torch_engine import TorchEngine
from manyheads.model.attention import MultiHeadAttention
from manyheads.model.layers import BatchNorm, FeedForward, Residual
from manyheads.model.positions import LearnedPositions, SinusoidalPositions
from manyheads.model.transformer import Transformer
from manyheads.text.subwords import SubwordPair

OPSET, IR_VERSION = 17, 8  # the first with LayerNormalization, and the file format of its day
LARGEST_FILE = 2**31 - 1  # bytes, that protobuf can carry
MASKED = float(np.finfo(np.float32).min)  # finite: where nothing may be seen there is still no NaN

Sublayer = Callable[[str], str]

# The keys of TransformerConfig that a graph can follow. One that is not here must have its default.
SUPPORTED_KEYS = {
    *("vocab_size", "source_vocab_size", "target_vocab_size", "tie_embeddings", "output_bias"),
    *(
        "encoder_layers",
        "decoder_layers",
        "d_model",
        "d_ff",
        "heads",
        "d_k",
        "d_v",
        "dropout",
        "attention_dropout",
    ),
    *("attention", "window", "positions", "max_positions"),
    *("activation", "norm", "normalization", "residuals", "init_gain"),
}


def to_onnx(folder: Path, out: Path, *, replace: bool = False) -> list[ScoreComparison]:
    """A model folder made into one for onnxruntime; the scores that show that both are the same model."""
    import_optional("onnx")
    import_optional("onnxruntime")
    model, subwords, told = load_model(folder)
    check_exportable(model.config)
    assert isinstance(model, Transformer)
    weights = sum(one.nbytes for one in model.parameters())
    with report_disk_full(out, 2 * weights), atomic_directory(out, MANIFEST, replace=replace) as aside:
        (aside / ENCODER).write_bytes(build_encoder(model))
        (aside / DECODER).write_bytes(build_decoder(model))
        subwords.save(aside)
        write_manifest(aside, ONNX_SCHEMA, build_manifest(model.config, told))
        return verify_export(model, subwords, aside)


def check_exportable(config: ModelConfig) -> None:
    """Refuses by its key what has no operators here."""
    if not isinstance(config, TransformerConfig):
        raise RequestError(
            f"model.architecture is {config.architecture!r}, but ONNX export knows 'transformer' only: "
            f"run this model with the torch engine"
        )
    for key in fields(config):
        value = getattr(config, key.name)
        if key.name not in SUPPORTED_KEYS and value != key.default:
            raise RequestError(
                f"model.{key.name} is {value!r}, but ONNX export knows {key.default!r} only: "
                f"run this model with the torch engine"
            )
    if config.activation not in ACTIVATIONS:
        raise RequestError(
            f"model.activation is {config.activation!r}, but ONNX export knows {', '.join(ACTIVATIONS)} only"
        )


def build_manifest(config: TransformerConfig, told: CheckpointInfo) -> dict[str, Any]:
    return {
        "opset": OPSET,
        "step": told.step,
        "languages": told.languages,
        "sizes": {
            "source_vocab_size": config.input_vocab_size,
            "target_vocab_size": config.output_vocab_size,
            "encoder_layers": config.encoder_layers,
            "decoder_layers": config.decoder_layers,
            "d_model": config.d_model,
            "heads": config.heads,
            "d_k": config.head_dim_k,
            "d_v": config.head_dim_v,
        },
        "special": SPECIAL_IDS,
        "max_length": told.config.data.max_length,
        "positions": config.position_limit,
        "max_extra_length": told.config.decoding.max_extra_length,
    }


def verify_export(model: Transformer, subwords: SubwordPair, folder: Path) -> list[ScoreComparison]:
    """Both models' scores of the same translations; unlike ones are an error."""
    most = None if model.config.position_limit is None else model.config.position_limit - 1
    pairs = [(source[:most], target[:most]) for source, target in sample_pairs(subwords)]
    theirs = OnnxModel(folder).score(
        [[*source, EOS_ID] for source, _ in pairs], [target for _, target in pairs]
    )
    return compare_scores(
        "the ONNX export", subwords, pairs, score_pairs(TorchEngine(model), pairs), [*map(sum, theirs)]
    )


# ---- a graph as it grows


class GraphBuilder:
    """Operators and weights. Calling it adds an operator; a value is known by its name."""

    def __init__(self, model: nn.Module) -> None:
        self.nodes: list[Any] = []
        self.initializers: dict[str, NDArray[Any]] = {}
        self.names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The value that an operator gives."""
        name = f"{operator}.{len(self.nodes)}"
        self.nodes.append(
            import_optional("onnx.helper").make_node(operator, inputs, [name], name, **attributes)
        )
        return name

    def add_initializer(self, name: str, values: ArrayLike) -> str:
        """An array that the file holds, once for each name."""
        if name not in self.initializers:
            self.initializers[name] = np.asarray(values, order="C")
        return name

    def constant(self, value: ArrayLike, dtype: DTypeLike = np.int64) -> str:
        """A constant, of any shape."""
        array = np.array(value, dtype)
        return self.add_initializer(f"{array.dtype} {array.tolist()}", array)

    def weight(self, parameter: Tensor) -> str:
        """A parameter as it is; tied ones are one."""
        return self.add_initializer(self.names[parameter], parameter.detach().numpy())

    def transposed_weight(self, parameter: Tensor) -> str:
        """A parameter [out, in] as MatMul wants it, [in, out]."""
        return self.add_initializer(f"{self.names[parameter]}.transposed", parameter.detach().numpy().T)

    def axis_size(self, value: str, axis: int) -> str:
        """The size of one axis, a scalar."""
        return self("Squeeze", self("Shape", value, start=axis, end=axis + 1))

    def reshape(self, value: str, *shape: int) -> str:
        """0 stands for an axis that stays as it is."""
        return self("Reshape", value, self.constant(shape))

    def unsqueeze(self, value: str, *axes: int) -> str:
        return self("Unsqueeze", value, self.constant(axes))

    def stack(self, values: Sequence[str]) -> str:
        """Along a new first axis."""
        return self("Concat", *(self.unsqueeze(value, 0) for value in values), axis=0)

    def serialize(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> bytes:
        """The graph as an ONNX file."""
        helper, from_array = import_optional("onnx.helper"), import_optional("onnx.numpy_helper").from_array
        size = sum(array.nbytes for array in self.initializers.values())
        if size > LARGEST_FILE:
            raise RequestError(f"{name}: {size:,} bytes of weights, but an ONNX file holds {LARGEST_FILE:,}")
        kept = [from_array(array, label) for label, array in self.initializers.items()]
        graph = helper.make_graph(self.nodes, name, inputs, outputs, kept)
        opset = helper.make_opsetid("", OPSET)
        made = helper.make_model(
            graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="manyheads"
        )
        written: bytes = made.SerializeToString()
        return written

    def name_output(self, name: str, value: str) -> None:
        """Gives a value the name by which the file's reader asks for it."""
        self.nodes.append(import_optional("onnx.helper").make_node("Identity", [value], [name], name))


def describe_ports(names: Sequence[str], config: TransformerConfig) -> list[Any]:
    """Inputs or outputs with their types, and the letters of their axes."""
    of_layers = [config.decoder_layers, "R", config.heads]
    from_source = [config.decoder_layers, "B", config.heads, "S"]
    shapes = {
        "source": ["B", "S"],
        "source_lengths": ["B"],
        "source_keys": [*from_source, config.head_dim_k],
        "source_values": [*from_source, config.head_dim_v],
        "tokens": ["R"],
        "lengths": ["R"],
        "past_keys": [*of_layers, "L", config.head_dim_k],
        "past_values": [*of_layers, "L", config.head_dim_v],
        "new_keys": [*of_layers, "L + 1", config.head_dim_k],
        "new_values": [*of_layers, "L + 1", config.head_dim_v],
        "logits": ["R", config.output_vocab_size],
    }
    types, made = import_optional("onnx").TensorProto, import_optional("onnx.helper").make_tensor_value_info
    integers = {"source", "source_lengths", "tokens", "lengths"}
    return [made(name, types.INT64 if name in integers else types.FLOAT, shapes[name]) for name in names]


# ---- the two graphs


@torch.no_grad()
def build_encoder(model: Transformer) -> bytes:
    """From source ids to the keys and values that each decoder layer looks at; filler's values are zeros."""
    g, config = GraphBuilder(model), model.config
    slots_S = index_range(g, g.axis_size("source", 1))
    real_BS = source_mask(g, slots_S)
    ids_BS = g("Where", real_BS, "source", g.constant(0))  # filler may be anything, so it is never looked up
    x_BSD = embed(g, model, model.source_embedding, model.source_positions, ids_BS, slots_S)
    seen = g.unsqueeze(real_BS, 1, 2)
    if config.window is not None:
        seen = g("And", seen, window_mask(g, slots_S, config.window // 2))
    layer: Any
    for layer in model.encoder:
        x_BSD = residual(
            g, layer.self_attention_residual, x_BSD, encoder_self_attention(g, layer.self_attention, seen)
        )
        x_BSD = residual(g, layer.feed_forward_residual, x_BSD, feed_forward(g, layer.feed_forward, config))
    memory_BSD = normalize(g, model.encoder_norm, x_BSD)
    layers: Any = model.decoder
    both = [project_keys_values(g, layer.cross_attention, memory_BSD) for layer in layers]
    real = g.unsqueeze(real_BS, 1, 3)
    zero = g.constant(0, np.float32)
    g.name_output("source_keys", g.stack([keys for keys, _ in both]))
    g.name_output("source_values", g.stack([g("Where", real, values, zero) for _, values in both]))
    return g.serialize("encoder", *(describe_ports(names, config) for names in ENCODER_PORTS))


@torch.no_grad()
def build_decoder(model: Transformer) -> bytes:
    """One token more of each row: its logits, and the past with it."""
    g, config = GraphBuilder(model), model.config
    x_RD = embed(g, model, model.target_embedding, model.target_positions, "tokens", "lengths")
    x_R1D = g.unsqueeze(x_RD, 1)
    seen_past = g.unsqueeze(past_mask(g, config.window), 1, 2)
    seen_source = g.unsqueeze(source_mask(g, index_range(g, g.axis_size("source_keys", 3))), 1, 2)
    past: list[tuple[str, str]] = []
    layer: Any
    for number, layer in enumerate(model.decoder):
        own = decoder_self_attention(g, layer.self_attention, past, seen_past)
        cross = cross_attention(g, layer.cross_attention, number, seen_source)
        x_R1D = residual(g, layer.self_attention_residual, x_R1D, own)
        x_R1D = residual(g, layer.cross_attention_residual, x_R1D, cross)
        x_R1D = residual(g, layer.feed_forward_residual, x_R1D, feed_forward(g, layer.feed_forward, config))
    x_RD = g("Squeeze", normalize(g, model.decoder_norm, x_R1D), g.constant([1]))
    bias = [] if model.output.bias is None else [g.weight(model.output.bias)]
    g.name_output("logits", g("Gemm", x_RD, g.weight(model.output.weight), *bias, transB=1))
    g.name_output("new_keys", g.stack([keys for keys, _ in past]))
    g.name_output("new_values", g.stack([values for _, values in past]))
    return g.serialize("decoder", *(describe_ports(names, config) for names in DECODER_PORTS))


# ---- who sees what


def index_range(g: GraphBuilder, count: str) -> str:
    """0, 1, 2 and so on, so many."""
    return g("Range", g.constant(0), count, g.constant(1))


def source_mask(g: GraphBuilder, slots_S: str) -> str:
    """Which slots hold a token of the source. [B, S]"""
    return g("Less", slots_S, g.unsqueeze("source_lengths", 1))


def window_mask(g: GraphBuilder, slots_S: str, reach: int) -> str:
    """Which slots lie within a window of each other (4). [S, S]"""
    distance = g("Abs", g("Sub", g.unsqueeze(slots_S, 1), slots_S))
    return g("LessOrEqual", distance, g.constant(reach))


def past_mask(g: GraphBuilder, window: int | None) -> str:
    """Which slots hold what each row has read; the last one is the token that it reads now. [R, L + 1]"""
    ages = g("Range", g.axis_size("past_keys", 3), g.constant(-1), g.constant(-1))  # L, ..., 1, 0
    reach_R = "lengths" if window is None else g("Min", "lengths", g.constant(window // 2))
    return g("LessOrEqual", ages, g.unsqueeze(reach_R, 1))


# ---- embeddings (3.4) and positions (3.5)


def embed(
    g: GraphBuilder,
    model: Transformer,
    embedding: nn.Embedding,
    encoding: SinusoidalPositions | LearnedPositions | None,
    ids: str,
    places: str,
) -> str:
    """Embeddings times sqrt(d_model), plus the encoding of the places. [..., D]"""
    factor = g.constant(math.sqrt(model.config.d_model), np.float32)
    x = g("Mul", g("Gather", g.weight(embedding.weight), ids), factor)
    if isinstance(encoding, LearnedPositions):
        return g("Add", x, g("Gather", g.weight(encoding.table.weight), places))
    return x if encoding is None else g("Add", x, sinusoids(g, places, model.config.d_model))


def sinusoids(g: GraphBuilder, places: str, d_model: int) -> str:
    """Computed in float64, so that far positions are as exact as near ones; a cosine is a sine moved on."""
    types = import_optional("onnx").TensorProto
    even = np.arange(0, d_model, 2, dtype=np.float64)
    frequencies = g.add_initializer("frequencies", np.repeat(10000 ** (-even / d_model), 2))
    phases = g.add_initializer("phases", np.tile([0.0, math.pi / 2], d_model // 2))
    angles = g("Mul", g.unsqueeze(g("Cast", places, to=types.DOUBLE), 1), frequencies)
    return g("Cast", g("Sin", g("Add", angles, phases)), to=types.FLOAT)


# ---- attention (3.2)


def linear(g: GraphBuilder, module: nn.Linear, x: str) -> str:
    return g("Add", g("MatMul", x, g.transposed_weight(module.weight)), g.weight(module.bias))


def split_heads(g: GraphBuilder, x_BID: str, heads: int, width: int) -> str:
    """[B, I, H width] as [B, H, I, width]"""
    return g("Transpose", g.reshape(x_BID, 0, 0, heads, width), perm=[0, 2, 1, 3])


def project_keys_values(g: GraphBuilder, module: MultiHeadAttention, memory_BID: str) -> tuple[str, str]:
    """[B, H, I, K] and [B, H, I, V]"""
    heads = module.heads
    return (
        split_heads(g, linear(g, module.w_k, memory_BID), heads, module.w_k.out_features // heads),
        split_heads(g, linear(g, module.w_v, memory_BID), heads, module.w_v.out_features // heads),
    )


def attention(
    g: GraphBuilder, module: MultiHeadAttention, x_BQD: str, k_BHIK: str, v_BHIV: str, seen: str
) -> str:
    """softmax(Q K^T / sqrt(d_k)) V (1), its heads joined. [B, Q, D]"""
    heads, width = module.heads, module.w_q.out_features // module.heads
    q_BHQK = split_heads(g, linear(g, module.w_q, x_BQD), heads, width)
    scores_BHQI = g(
        "Where", seen, attention_scores(g, module, q_BHQK, k_BHIK), g.constant(MASKED, np.float32)
    )
    gathered_BHQV = g("MatMul", g("Softmax", scores_BHQI, axis=-1), v_BHIV)
    joined = g("Transpose", gathered_BHQV, perm=[0, 2, 1, 3])
    return linear(g, module.w_o, g.reshape(joined, 0, 0, module.w_o.in_features))


def attention_scores(g: GraphBuilder, module: MultiHeadAttention, q_BHQK: str, k_BHIK: str) -> str:
    """How well each query and each key go together, as model/attention.py has it. [B, H, Q, I]"""
    if module.energy is not None:
        hidden = g("Tanh", g("Add", g.unsqueeze(q_BHQK, 3), g.unsqueeze(k_BHIK, 2)))
        energy = g.unsqueeze(g.weight(module.energy), 1, 2)
        return g("ReduceSum", g("Mul", hidden, energy), g.constant([-1]), keepdims=0)
    scale = module.spec.scale(module.w_q.out_features // module.heads)
    scores = g("MatMul", q_BHQK, g("Transpose", k_BHIK, perm=[0, 1, 3, 2]))
    return scores if scale == 1 else g("Mul", scores, g.constant(scale, np.float32))


# ---- the sub-layers (3.1, 3.3): each takes a value and gives one


def encoder_self_attention(g: GraphBuilder, module: MultiHeadAttention, seen: str) -> Sublayer:
    """The encoder's self-attention."""
    return lambda x_BSD: attention(g, module, x_BSD, *project_keys_values(g, module, x_BSD), seen)


def decoder_self_attention(
    g: GraphBuilder, module: MultiHeadAttention, past: list[tuple[str, str]], seen: str
) -> Sublayer:
    """Self-attention of a new token over what its row has read; `past` gets the layer's, with the new one."""

    def sublayer(x_R1D: str) -> str:
        number = g.constant(len(past))
        new = project_keys_values(g, module, x_R1D)
        keys, values = (
            g("Concat", g("Gather", old, number, axis=0), one, axis=2)
            for old, one in zip(("past_keys", "past_values"), new, strict=True)
        )
        past.append((keys, values))
        return attention(g, module, x_R1D, keys, values, seen)

    return sublayer


def cross_attention(g: GraphBuilder, module: MultiHeadAttention, number: int, seen: str) -> Sublayer:
    """Attention over the encoder's output, which the W hypotheses of a sentence share."""

    def sublayer(x_R1D: str) -> str:
        shape_BWD = g(
            "Concat", g("Shape", "source_lengths"), g.constant([-1, module.w_q.in_features]), axis=0
        )
        keys = g("Gather", "source_keys", g.constant(number), axis=0)
        values = g("Gather", "source_values", g.constant(number), axis=0)
        out_BWD = attention(g, module, g("Reshape", x_R1D, shape_BWD), keys, values, seen)
        return g("Reshape", out_BWD, g("Shape", x_R1D))

    return sublayer


def gelu(g: GraphBuilder, x: str) -> str:
    """x times the normal distribution's share below x."""
    share = g("Erf", g("Mul", x, g.constant(math.sqrt(0.5), np.float32)))
    return g("Mul", x, g("Mul", g("Add", share, g.constant(1, np.float32)), g.constant(0.5, np.float32)))


ACTIVATIONS: dict[str, Callable[[GraphBuilder, str], str]] = {
    "relu": lambda g, x: g("Relu", x),
    "gelu": gelu,
    "swish": lambda g, x: g("Mul", x, g("Sigmoid", x)),
}


def feed_forward(g: GraphBuilder, module: FeedForward, config: TransformerConfig) -> Sublayer:
    activation = ACTIVATIONS[config.activation]
    return lambda x: linear(g, module.w_2, activation(g, linear(g, module.w_1, x)))


# ---- what stands around them (3.1)


def residual(g: GraphBuilder, module: Residual, x: str, sublayer: Sublayer) -> str:
    """The norm before or after, and the residual sum where there is one."""
    out = sublayer(normalize(g, module.norm, x) if module.pre_norm else x)
    if module.residuals:
        out = g("Add", x, out)
    return out if module.pre_norm else normalize(g, module.norm, out)


def normalize(g: GraphBuilder, module: nn.Module, x: str) -> str:
    """LayerNorm as an operator; a batch norm that has learned its statistics is a product and a sum."""
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
