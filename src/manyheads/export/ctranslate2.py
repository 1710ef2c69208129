"""Conversion of models to CTranslate2, in float32, with the subwords beside the weights.

`to_ctranslate2` is the export, verified by scores. `ensure_converted` keeps a conversion beside a model
folder for the engine (inference/ctranslate2_engine.py), and renews it when the model changes.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from manyheads import checkpoint
from manyheads.atomic_io import atomic_directory, hash_file, report_disk_full, write_manifest
from manyheads.config import BOS_ID, EOS_ID, UNK_ID, ModelConfig, TransformerConfig
from manyheads.errors import CheckpointError, RequestError
from manyheads.export.verify import ScoreComparison, compare_scores, sample_pairs, score_pairs
from manyheads.inference.conversion import CONVERSION_MANIFEST, CONVERSION_SCHEMA, read_conversion
from manyheads.inference.ctranslate2_engine import CTranslate2Engine, import_ctranslate2
from manyheads.inference.torch_engine import TorchEngine
from manyheads.model.attention import MultiHeadAttention
from manyheads.model.positions import LearnedPositions, SinusoidalPositions, sinusoidal_encoding
from manyheads.model.transformer import Transformer
from manyheads.text.subwords import SubwordPair, SubwordTokenizer

SINUSOID_POSITIONS = 4096  # CTranslate2 stores sinusoids in a table
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH"}  # CTranslate2's names


def to_ctranslate2(folder: Path, out: Path, replace: bool = False) -> list[ScoreComparison]:
    """Write a model folder as a CTranslate2 folder, if it scores samples as our model does."""
    model, subwords, info = load_convertible_model(folder)
    with (
        report_disk_full(out, count_parameter_bytes(model)),
        atomic_directory(out, CONVERSION_MANIFEST, replace) as temporary,
    ):
        write_conversion(model, subwords, info, temporary)
        engine = CTranslate2Engine(temporary)
        pairs = [pair for pair in sample_pairs(subwords) if max(map(len, pair)) < engine.max_positions]
        sources = [[*source, EOS_ID] for source, _ in pairs]
        theirs = [sum(scores) for scores in engine.score(sources, [target for _, target in pairs])]
        return compare_scores(str(out), subwords, pairs, score_pairs(TorchEngine(model), pairs), theirs)


def convert(folder: Path, out: Path) -> None:
    """Write a model folder as a CTranslate2 folder without verifying it."""
    model, subwords, info = load_convertible_model(folder)
    with (
        report_disk_full(out, count_parameter_bytes(model)),
        atomic_directory(out, CONVERSION_MANIFEST) as temporary,
    ):
        write_conversion(model, subwords, info, temporary)


def ensure_converted(folder: Path) -> Path:
    """Return the conversion beside a model folder, written anew if there is none of exactly this model.

    A folder that is itself a conversion is returned as it is.
    """
    if (folder / CONVERSION_MANIFEST).exists():
        return folder
    folder = Path(os.path.realpath(folder))
    out = folder.with_name(f"{folder.name}.ctranslate2")
    if not is_conversion_of(out, folder):
        replace_conversion(out, folder)
    return out


def is_conversion_of(out: Path, folder: Path) -> bool:
    """Return whether `out` is an undamaged conversion of exactly this model."""
    identity = model_identity(folder)
    try:
        return bool(read_conversion(out)["model"] == identity)
    except CheckpointError:
        return False


def replace_conversion(out: Path, folder: Path) -> None:
    model, subwords, info = load_convertible_model(folder)
    try:
        with (
            report_disk_full(out, count_parameter_bytes(model)),
            atomic_directory(out, CONVERSION_MANIFEST, replace=True) as temporary,
        ):
            write_conversion(model, subwords, info, temporary)
    except OSError as error:
        raise RequestError(
            f"{out}: cannot be written ({error.strerror}), but the conversion is kept there: convert the "
            f"model to a writable folder (manyheads export {folder} --to ctranslate2) and use that folder"
        ) from None


def load_convertible_model(folder: Path) -> tuple[Transformer, SubwordPair, checkpoint.CheckpointInfo]:
    model, subwords, info = checkpoint.load_model(folder)
    check_convertible(model.config)
    assert isinstance(model, Transformer)
    return model, subwords, info


def check_convertible(config: ModelConfig) -> None:
    """Refuse what CTranslate2 cannot represent, by its key."""
    if not isinstance(config, TransformerConfig):
        raise RequestError(
            f"model.architecture is {config.architecture!r}, which CTranslate2 cannot represent: "
            f"use the torch engine"
        )
    head_dim = config.d_model // config.heads if config.d_model % config.heads == 0 else None
    for key, value, is_supported in (
        ("experts", config.experts, config.experts is None),
        ("window", config.window, config.window is None),
        ("attention", config.attention, config.attention in ("scaled-dot", "dot")),
        ("normalization", config.normalization, config.normalization == "layer"),
        ("residuals", config.residuals, config.residuals),
        ("activation", config.activation, config.activation in ACTIVATIONS),
        ("d_k", config.head_dim_k, config.head_dim_k == head_dim),
        ("d_v", config.head_dim_v, config.head_dim_v == head_dim),
    ):
        if not is_supported:
            raise RequestError(
                f"model.{key} is {value!r}, which CTranslate2 cannot represent: use the torch engine"
            )


# ---- the folder


def model_identity(folder: Path) -> str:
    """Return the SHA-256 of the model folder's manifest, which holds those of the other files."""
    checkpoint.read_model_manifest(folder)
    return str(hash_file(folder / checkpoint.MANIFEST)["sha256"])


def count_parameter_bytes(model: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in model.parameters())


def count_positions(config: ModelConfig) -> int:
    return config.position_limit or SINUSOID_POSITIONS


def write_conversion(
    model: Transformer, subwords: SubwordPair, info: checkpoint.CheckpointInfo, out: Path
) -> None:
    """Write the files of a conversion into an existing folder."""
    build_spec(model, subwords).save(os.fspath(out))
    subwords.save(out)
    manifest = {
        "model": model_identity(info.folder),
        "max_positions": count_positions(model.config),
        "step": info.step,
        "languages": info.languages,
        "config": asdict(info.config),
        "versions": {**checkpoint.get_versions(), "ctranslate2": import_ctranslate2().__version__},
    }
    write_manifest(out, CONVERSION_SCHEMA, manifest)


# ---- the weights


def build_spec(model: Transformer, subwords: SubwordPair) -> Any:
    """Return our model as a CTranslate2 specification."""
    specs = import_ctranslate2().specs
    config = model.config
    spec = specs.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.heads,
        pre_norm=config.norm == "pre",
        activation=getattr(specs.Activation, ACTIVATIONS[config.activation]),
    )
    spec.encoder.embeddings[0].weight = to_numpy(model.source_embedding.weight)
    spec.decoder.embeddings.weight = to_numpy(model.target_embedding.weight)
    spec.decoder.projection.weight = to_numpy(model.output.weight)
    if model.output.bias is not None:
        spec.decoder.projection.bias = to_numpy(model.output.bias)
    for theirs, positions in (
        (spec.encoder, model.source_positions),
        (spec.decoder, model.target_positions),
    ):
        theirs.position_encodings.encodings = build_position_table(positions, config)
    if config.norm == "pre":
        copy_norm(model.encoder_norm, spec.encoder.layer_norm)
        copy_norm(model.decoder_norm, spec.decoder.layer_norm)
    for ours, theirs in zip(model.encoder, spec.encoder.layer, strict=True):
        copy_layer(ours, theirs)
    for ours, theirs in zip(model.decoder, spec.decoder.layer, strict=True):
        copy_layer(ours, theirs)
        copy_cross_attention(ours.cross_attention, theirs.attention)  # type: ignore[arg-type]
        copy_norm(ours.cross_attention_residual.norm, theirs.attention.layer_norm)
    register_vocabularies(spec, subwords, config)
    spec.validate()
    spec.optimize()  # tied matrices are stored once
    return spec


def register_vocabularies(spec: Any, subwords: SubwordPair, config: ModelConfig) -> None:
    """Give CTranslate2 the texts of pieces, which it takes and returns."""
    source = unique_pieces(subwords.source, config.input_vocab_size)
    target = unique_pieces(subwords.target, config.output_vocab_size)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.unk_token, spec.config.eos_token = target[UNK_ID], target[EOS_ID]
    spec.config.bos_token = spec.config.decoder_start_token = target[BOS_ID]
    spec.config.layer_norm_epsilon = nn.LayerNorm(1).eps


def unique_pieces(subwords: SubwordTokenizer, size: int) -> list[str]:
    """Return a different text for each id: the piece, where there is one and no other id has it."""
    pieces: dict[str, None] = {}
    for token in range(size):
        piece = subwords.id_to_piece(token) if token < len(subwords) else f"<{token}>"
        while piece in pieces:
            piece = f"{piece}<{token}>"
        pieces[piece] = None
    return list(pieces)


def build_position_table(
    positions: SinusoidalPositions | LearnedPositions | None, config: ModelConfig
) -> NDArray[Any]:
    """Return what is added to the embedding at each position. [positions, d_model]"""
    if isinstance(positions, LearnedPositions):
        return to_numpy(positions.table.weight)
    if positions is None:
        return np.zeros((SINUSOID_POSITIONS, config.d_model), np.float32)
    return to_numpy(sinusoidal_encoding(torch.arange(SINUSOID_POSITIONS), config.d_model))


def copy_layer(ours: Any, theirs: Any) -> None:
    """Copy what encoder and decoder layers have in common."""
    attention = ours.self_attention
    copy_linear([scale_queries(attention), attention.w_k, attention.w_v], theirs.self_attention.linear[0])
    copy_linear([attention.w_o], theirs.self_attention.linear[1])
    copy_norm(ours.self_attention_residual.norm, theirs.self_attention.layer_norm)
    copy_linear([ours.feed_forward.w_1], theirs.ffn.linear_0)
    copy_linear([ours.feed_forward.w_2], theirs.ffn.linear_1)
    copy_norm(ours.feed_forward_residual.norm, theirs.ffn.layer_norm)


def copy_cross_attention(ours: MultiHeadAttention, theirs: Any) -> None:
    copy_linear([scale_queries(ours)], theirs.linear[0])
    copy_linear([ours.w_k, ours.w_v], theirs.linear[1])
    copy_linear([ours.w_o], theirs.linear[2])


def scale_queries(attention: MultiHeadAttention) -> nn.Linear:
    """Return the query projection, scaled: CTranslate2 always divides by sqrt(d_k), our model may not."""
    d_k = attention.w_q.out_features // attention.heads
    scale = attention.spec.scale(d_k) * math.sqrt(d_k)
    if scale == 1:
        return attention.w_q
    scaled = nn.Linear(attention.w_q.in_features, attention.w_q.out_features)
    scaled.weight.data, scaled.bias.data = attention.w_q.weight * scale, attention.w_q.bias * scale
    return scaled


def copy_linear(ours: Sequence[nn.Linear], theirs: Any) -> None:
    """Copy a layer, or several that share their input as one."""
    theirs.weight = np.concatenate([to_numpy(layer.weight) for layer in ours])
    theirs.bias = np.concatenate([to_numpy(layer.bias) for layer in ours])


def copy_norm(ours: Any, theirs: Any) -> None:
    theirs.gamma, theirs.beta = to_numpy(ours.weight), to_numpy(ours.bias)


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().float().cpu().numpy()
