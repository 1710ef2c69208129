"""Our model as a CTranslate2 specification, from the arrays of a model folder and without torch."""

import importlib
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from manyheads.checkpoint.quantization import take_scales
from manyheads.config import BOS_ID, EOS_ID, UNK_ID, ModelConfig, TransformerConfig
from manyheads.errors import CheckpointError
from manyheads.inference.ctranslate2_engine import import_ctranslate2
from manyheads.text.subwords import SubwordPair, SubwordTokenizer

SINUSOID_POSITIONS = 4096  # CTranslate2 stores sinusoids in a table
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH"}  # CTranslate2's names
LAYER_NORM_EPSILON = 1e-5  # that of the model's norms

Array = NDArray[np.float32]


class Matrix(NamedTuple):
    """A matrix as CTranslate2 stores it: float32, or int8 with scales."""

    weight: NDArray[Any]
    scale: Array | None = None  # of each row of an int8 matrix; CTranslate2 divides by it

    def write(self, layer: Any) -> None:
        layer.weight = self.weight
        if self.scale is not None:
            layer.weight_scale = self.scale

    def multiply(self, factor: float) -> "Matrix":
        """Return the matrix times a factor; int8 numbers stay as they are."""
        if self.scale is None:
            return Matrix(self.weight * np.float32(factor))
        return Matrix(self.weight, self.scale / np.float32(factor))

    @staticmethod
    def concat(parts: "Sequence[Matrix]") -> "Matrix":
        """Return the rows of several matrices as one."""
        weight = np.concatenate([part.weight for part in parts])
        scales = [part.scale for part in parts if part.scale is not None]
        return Matrix(weight, np.concatenate(scales) if scales else None)


class ModelArrays:
    """The weights of a model by name. Each must have its shape, and all must be read."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], where: str) -> None:
        self.arrays, self.where = arrays, where
        self.scales = take_scales(arrays, where)
        self.unread = set(arrays)

    def read(self, name: str, *shape: int) -> Array:
        """Return an array that is never quantized."""
        return self._take(name, shape).astype(np.float32)

    def read_matrix(self, name: str, *shape: int) -> Matrix:
        """Return the matrix of a layer; the int8 numbers of a quantized model as they are."""
        array = self._take(name, shape)
        if name not in self.scales:
            return Matrix(array.astype(np.float32))
        self.unread.discard(self.scales[name])
        return Matrix(array, np.reciprocal(self.arrays[self.scales[name]].astype(np.float32)))

    def _take(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        if name not in self.arrays:
            raise CheckpointError(f"{self.where}: lacks {name}: these are the weights of another model")
        array = self.arrays[name]
        if array.shape != shape:
            raise CheckpointError(
                f"{self.where}: {name} is {list(array.shape)}, but the model's is {list(shape)}"
            )
        self.unread.discard(name)
        return array

    def check_all_read(self) -> None:
        if self.unread:
            raise CheckpointError(
                f"{self.where}: has an unknown {min(self.unread)}: these are the weights of another model"
            )


def count_positions(config: ModelConfig) -> int:
    return config.position_limit or SINUSOID_POSITIONS


def build_spec(
    config: TransformerConfig, arrays: Mapping[str, NDArray[Any]], subwords: SubwordPair, where: str
) -> Any:
    """Return a model as a CTranslate2 specification. `where` names the weights in messages."""
    with import_specs() as specs:
        spec = specs.TransformerSpec.from_config(
            (config.encoder_layers, config.decoder_layers),
            config.heads,
            pre_norm=config.norm == "pre",
            activation=getattr(specs.Activation, ACTIVATIONS[config.activation]),
            alignment_heads=config.heads,  # averaged, of the last layer
        )
        writer = SpecWriter(config, ModelArrays(arrays, where))
        writer.write_embeddings(spec)
        writer.write_layers(spec)
        writer.arrays.check_all_read()
        register_vocabularies(spec, subwords, config)
        spec.validate()
        spec.optimize()  # tied matrices are stored once
    return spec


@contextmanager
def import_specs() -> Iterator[Any]:
    """Yield ctranslate2.specs. It imports torch wherever it finds it, though arrays need none.

    Unless torch is loaded already, its import is refused meanwhile, and what was imported without it is
    forgotten afterwards, so that others can convert torch tensors in the same process.
    """
    package = import_ctranslate2()
    if "torch" in sys.modules:
        yield package.specs
        return
    before = set(sys.modules)
    sys.modules["torch"] = None  # type: ignore[assignment]  # this makes an import fail
    try:
        yield importlib.import_module("ctranslate2.specs")
    finally:
        del sys.modules["torch"]
        for name in set(sys.modules) - before:
            if name.startswith("ctranslate2."):
                del sys.modules[name]
        vars(package).pop("specs", None)


class SpecWriter:
    """Writes the weights of a model into a specification."""

    def __init__(self, config: TransformerConfig, arrays: ModelArrays) -> None:
        self.config, self.arrays = config, arrays

    def write_embeddings(self, spec: Any) -> None:
        config, read = self.config, self.arrays.read_matrix
        source = read("source_embedding.weight", config.input_vocab_size, config.d_model)
        target = output = source
        if config.tie_embeddings != "three-way":
            target = output = read("target_embedding.weight", config.output_vocab_size, config.d_model)
        if config.tie_embeddings == "none":
            output = read("output.weight", config.output_vocab_size, config.d_model)
        source.write(spec.encoder.embeddings[0])
        target.write(spec.decoder.embeddings)
        output.write(spec.decoder.projection)
        if config.output_bias:
            spec.decoder.projection.bias = self.arrays.read("output.bias", config.output_vocab_size)
        spec.encoder.position_encodings.encodings = self.build_position_table("source_positions")
        spec.decoder.position_encodings.encodings = self.build_position_table("target_positions")

    def write_layers(self, spec: Any) -> None:
        if self.config.norm == "pre":
            self.write_norm("encoder_norm", spec.encoder.layer_norm)
            self.write_norm("decoder_norm", spec.decoder.layer_norm)
        for number, layer in enumerate(spec.encoder.layer):
            self.write_layer(f"encoder.{number}", layer)
        for number, layer in enumerate(spec.decoder.layer):
            name = f"decoder.{number}"
            self.write_layer(name, layer)
            self.write_linear([f"{name}.cross_attention.w_q"], layer.attention.linear[0])
            self.write_linear(
                [f"{name}.cross_attention.w_k", f"{name}.cross_attention.w_v"], layer.attention.linear[1]
            )
            self.write_linear([f"{name}.cross_attention.w_o"], layer.attention.linear[2])
            self.write_norm(f"{name}.cross_attention_residual.norm", layer.attention.layer_norm)

    def write_layer(self, name: str, layer: Any) -> None:
        """Write what encoder and decoder layers have in common."""
        d_model, d_ff = self.config.d_model, self.config.d_ff
        attention = f"{name}.self_attention"
        self.write_linear([f"{attention}.w_{part}" for part in "qkv"], layer.self_attention.linear[0])
        self.write_linear([f"{attention}.w_o"], layer.self_attention.linear[1])
        self.write_norm(f"{attention}_residual.norm", layer.self_attention.layer_norm)
        self.write_linear([f"{name}.feed_forward.w_1"], layer.ffn.linear_0, d_ff, d_model)
        self.write_linear([f"{name}.feed_forward.w_2"], layer.ffn.linear_1, d_model, d_ff)
        self.write_norm(f"{name}.feed_forward_residual.norm", layer.ffn.layer_norm)

    def write_linear(
        self,
        names: Sequence[str],
        layer: Any,
        out_features: int | None = None,
        in_features: int | None = None,
    ) -> None:
        """Write a layer, or several that share their input as one; d_model by d_model unless stated."""
        rows, columns = out_features or self.config.d_model, in_features or self.config.d_model
        parts, biases = [], []
        for name in names:
            factor = self.query_scale if name.endswith(".w_q") else 1.0
            parts.append(self.arrays.read_matrix(f"{name}.weight", rows, columns).multiply(factor))
            biases.append(self.arrays.read(f"{name}.bias", rows) * np.float32(factor))
        Matrix.concat(parts).write(layer)
        layer.bias = np.concatenate(biases)

    @property
    def query_scale(self) -> float:
        """The factor of queries: CTranslate2 always divides by sqrt(d_k), our model may not."""
        return 1.0 if self.config.attention == "scaled-dot" else math.sqrt(self.config.head_dim_k)

    def write_norm(self, name: str, layer: Any) -> None:
        layer.gamma = self.arrays.read(f"{name}.weight", self.config.d_model)
        layer.beta = self.arrays.read(f"{name}.bias", self.config.d_model)

    def build_position_table(self, name: str) -> Array:
        """Return what is added to the embedding at each position. [positions, d_model]"""
        config = self.config
        if config.positions == "learned":
            return self.arrays.read(f"{name}.table.weight", config.max_positions, config.d_model)
        if config.positions == "none":
            return np.zeros((SINUSOID_POSITIONS, config.d_model), np.float32)
        return sinusoid_table(SINUSOID_POSITIONS, config.d_model)


def sinusoid_table(positions: int, d_model: int) -> Array:
    """Return the sinusoids of the paper (3.5), as model/positions.py computes them. [positions, d_model]"""
    angles = np.arange(positions)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    return np.stack((np.sin(angles), np.cos(angles)), -1).reshape(positions, d_model).astype(np.float32)


def register_vocabularies(spec: Any, subwords: SubwordPair, config: ModelConfig) -> None:
    """Give CTranslate2 the texts of pieces, which it takes and returns."""
    source = unique_pieces(subwords.source, config.input_vocab_size)
    target = unique_pieces(subwords.target, config.output_vocab_size)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.unk_token, spec.config.eos_token = target[UNK_ID], target[EOS_ID]
    spec.config.bos_token = spec.config.decoder_start_token = target[BOS_ID]
    spec.config.layer_norm_epsilon = LAYER_NORM_EPSILON


def unique_pieces(subwords: SubwordTokenizer, size: int) -> list[str]:
    """Return a different text for each id: the piece, where there is one and no other id has it."""
    pieces: dict[str, None] = {}
    for token in range(size):
        piece = subwords.id_to_piece(token) if token < len(subwords) else f"<{token}>"
        while piece in pieces:
            piece = f"{piece}<{token}>"
        pieces[piece] = None
    return list(pieces)
