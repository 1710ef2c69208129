"""Export to ONNX: an encoder and a decoder step, which export/onnx_run.py runs without torch."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.atomic_io import atomic_directory, report_disk_full, write_manifest
from manyheads.checkpoint import WEIGHTS, CheckpointInfo, load_model
from manyheads.checkpoint.arrays import read_arrays
from manyheads.checkpoint.quantization import take_scales
from manyheads.config import EOS_ID, ModelConfig, TransformerConfig
from manyheads.errors import RequestError
from manyheads.export.onnx_graph import OPSET, Int8Weights
from manyheads.export.onnx_model import ACTIVATIONS, build_decoder, build_encoder
from manyheads.export.onnx_run import (
    DECODER,
    ENCODER,
    MANIFEST,
    ONNX_SCHEMA,
    SPECIAL_IDS,
    OnnxModel,
    import_optional,
)
from manyheads.export.verify import ScoreComparison, compare_scores, sample_pairs, score_pairs
from manyheads.inference.torch_engine import TorchEngine
from manyheads.model.transformer import Transformer
from manyheads.text.subwords import SubwordPair

# The keys of TransformerConfig that the graphs implement. Others must have their defaults.
SUPPORTED_KEYS = {
    *("vocab_size", "source_vocab_size", "target_vocab_size", "tie_embeddings", "output_bias"),
    *("encoder_layers", "decoder_layers", "d_model", "d_ff", "heads", "d_k", "d_v"),
    *("dropout", "attention_dropout"),
    *("attention", "window", "positions", "max_positions"),
    *("activation", "norm", "normalization", "residuals", "init", "init_gain"),
}


def to_onnx(folder: Path, out: Path, *, replace: bool = False) -> list[ScoreComparison]:
    """Write a model folder for onnxruntime. Return the scores of both, which show that they are equal."""
    import_optional("onnx")
    import_optional("onnxruntime")
    model, subwords, info = load_model(folder)
    check_exportable(model.config)
    assert isinstance(model, Transformer)
    num_bytes = 2 * sum(parameter.nbytes for parameter in model.parameters())
    with report_disk_full(out, num_bytes), atomic_directory(out, MANIFEST, replace=replace) as temporary:
        int8 = read_int8_weights(folder) if info.quantization else None
        (temporary / ENCODER).write_bytes(build_encoder(model, int8))
        (temporary / DECODER).write_bytes(build_decoder(model, int8))
        subwords.save(temporary)
        write_manifest(temporary, ONNX_SCHEMA, build_manifest(model.config, info))
        return verify_export(model, subwords, temporary)


def read_int8_weights(folder: Path) -> Int8Weights:
    """Return the int8 matrices of a model folder and their scales."""
    path = folder / WEIGHTS
    arrays = read_arrays(path)
    return {
        name: (arrays[name], arrays[scales].astype(np.float32))
        for name, scales in take_scales(arrays, str(path)).items()
    }


def check_exportable(config: ModelConfig) -> None:
    """Refuse what the graphs do not implement, by its key."""
    if not isinstance(config, TransformerConfig):
        raise RequestError(
            f"model.architecture is {config.architecture!r}, but ONNX export supports 'transformer' only: "
            f"run this model with the torch engine"
        )
    for key in fields(config):
        value = getattr(config, key.name)
        if key.name not in SUPPORTED_KEYS and value != key.default:
            raise RequestError(
                f"model.{key.name} is {value!r}, but ONNX export supports {key.default!r} only: "
                f"run this model with the torch engine"
            )
    if config.activation not in ACTIVATIONS:
        raise RequestError(
            f"model.activation is {config.activation!r}, "
            f"but ONNX export supports {', '.join(ACTIVATIONS)} only"
        )


def build_manifest(config: TransformerConfig, info: CheckpointInfo) -> dict[str, Any]:
    return {
        "opset": OPSET,
        "step": info.step,
        "languages": info.languages,
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
        "max_length": info.max_length,
        "max_positions": config.position_limit,
        "max_extra_length": info.config.decoding.max_extra_length,
    }


def verify_export(model: Transformer, subwords: SubwordPair, folder: Path) -> list[ScoreComparison]:
    """Compare the scores of both models; different scores are an error."""
    max_length = None if model.config.position_limit is None else model.config.position_limit - 1
    pairs = [(source[:max_length], target[:max_length]) for source, target in sample_pairs(subwords)]
    theirs = OnnxModel(folder).score(
        [[*source, EOS_ID] for source, _ in pairs], [target for _, target in pairs]
    )
    return compare_scores(
        "the ONNX export", subwords, pairs, score_pairs(TorchEngine(model), pairs), [*map(sum, theirs)]
    )
