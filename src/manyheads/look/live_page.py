"""A translator as a single HTML file: the model with int8 weights, and an engine in JavaScript that runs it.

The data of the page:

    format    1
    models    one, or two to compare:
        name, step, languages, config (of the model), decoding, max_length
        tensors   [{name, dtype, shape, offset}], int8 matrices with their scales (checkpoint/quantization.py)
        weights   base64 of all of them
        subwords  base64 of the SentencePiece models: source, and target if it is another
        known_words  base64: `pieces`, 1 for each piece that the training sources have, and `checks`, the
                  table that recognizes pairs of pieces (confidence/source_model.py), or null
        colors    of the heads; `code` by stack the line of the source of each step of a walk
    text      what the page translates first
    examples  sentences to try
"""

import base64
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads import checkpoint
from manyheads.checkpoint.arrays import read_arrays
from manyheads.checkpoint.quantization import INT8, quantize_arrays
from manyheads.confidence.known_words import KnownWords
from manyheads.config import ModelConfig, TransformerConfig
from manyheads.errors import CheckpointError, RequestError
from manyheads.loading import read_calibration
from manyheads.look.colors import head_colors
from manyheads.look.example_sentences import list_examples
from manyheads.look.html import render_template, write_html
from manyheads.look.source_lines import find_source_lines
from manyheads.text.subwords import SubwordTokenizer

FORMAT = 1
DEFAULT_TEXTS = {"en": "I go home.", "ko": "나는 집에 간다.", "de": "Ich gehe nach Hause."}
LIVE_PAGE = ("live.html", "live_main.js", ("attention.css", "walk.css", "live.css"))
MAX_WEIGHTS = 60_000_000  # of all models: a page of about 80 MB, which a browser opens in seconds
WEBASSEMBLY = "'wasm-unsafe-eval'"  # what a policy calls compiling WebAssembly; it allows no other code

Arrays = dict[str, NDArray[Any]]


def build_live_data(folder: Path, other: Path | None = None, text: str | None = None) -> dict[str, Any]:
    """Return the data of the page for a model folder, and for another to compare it with."""
    folders = [folder] if other is None else [folder, other]
    infos = [checkpoint.read_info(path) for path in folders]
    for path, info in zip(folders, infos, strict=True):
        check_model(path, info.config.model)
    if len({tuple(sorted(info.languages.items())) for info in infos}) > 1:
        pairs = ["-".join((info.languages["source"], info.languages["target"])) for info in infos]
        raise RequestError(f"{other}: translates {pairs[1]}, but {folder} translates {pairs[0]}")
    weights = [read_quantized(info) for info in infos]
    total = sum(array.size for arrays in weights for array in arrays.values())
    if total > MAX_WEIGHTS:
        raise RequestError(
            f"the page would have {total:,} weights, a file of {estimate_size(total)}, but the maximum is "
            f"{MAX_WEIGHTS:,} ({estimate_size(MAX_WEIGHTS)}): train a student (docs/students.md), or use "
            f"manyheads serve"
        )
    examples = list_examples(infos[0])
    names = [path.resolve().name for path in folders]
    return {
        "format": FORMAT,
        "models": [
            build_model_data(info, arrays, name)
            for info, arrays, name in zip(infos, weights, distinguish(names, folders), strict=True)
        ],
        "text": text if text is not None else choose_text(examples, infos[0].languages["source"]),
        "examples": examples,
    }


def estimate_size(weights: int) -> str:
    """Return the size of a page: int8 weights in base64."""
    return f"{weights * 4 / 3 / 1e6:,.0f} MB"


def choose_text(examples: list[str], language: str) -> str:
    """Return what the page translates first: an example, or a sentence that most models know."""
    return examples[len(examples) // 2] if examples else DEFAULT_TEXTS.get(language, "")


def write_live_page(data: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write the page to a temporary file, and rename it when it is complete."""
    languages = data["models"][0]["languages"]
    title = f"{languages['source']} → {languages['target']}"
    return write_html(render_template(LIVE_PAGE, title, data, script_source=f" {WEBASSEMBLY}"), path)


def check_model(folder: Path, config: ModelConfig) -> None:
    """Refuse models that the engine of the page does not run."""
    if not isinstance(config, TransformerConfig) or config.experts is not None:
        key = "experts" if isinstance(config, TransformerConfig) else "architecture"
        raise RequestError(
            f"{folder}: model.{key} is {getattr(config, key)!r}, but the page runs Transformers without "
            f"experts only: use manyheads serve"
        )


def read_quantized(info: checkpoint.CheckpointInfo) -> Arrays:
    """Return the weights of an int8 folder as they are, and those of others rounded in the same way."""
    path = info.folder / checkpoint.WEIGHTS
    arrays = read_arrays(path)
    if info.quantization != INT8:
        try:
            arrays = quantize_arrays(arrays)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from None
    kept = {
        name: array for name, array in arrays.items() if array.dtype.kind == "f" or array.dtype == np.int8
    }
    return {
        name: array if array.dtype == np.int8 else array.astype(np.float32) for name, array in kept.items()
    }


def build_model_data(info: checkpoint.CheckpointInfo, arrays: Arrays, name: str) -> dict[str, Any]:
    config = info.config
    assert isinstance(config.model, TransformerConfig)
    subwords = checkpoint.read_subwords(info.folder)
    tensors, content = pack_arrays(arrays)
    return {
        "name": name,
        "step": info.step,
        "languages": info.languages,
        "config": asdict(config.model),
        "decoding": asdict(config.decoding),
        "max_length": info.max_length,
        "colors": head_colors(config.model.heads),
        "code": {stack: find_source_lines(config.model, stack) for stack in ("encoder", "decoder")},
        "tensors": tensors,
        "weights": encode_base64(content),
        "known_words": pack_known_words(read_known_words(info, subwords.source)),
        "subwords": {
            "source": encode_base64(subwords.source.model),
            "target": None if subwords.is_joint else encode_base64(subwords.target.model),
        },
    }


def read_known_words(info: checkpoint.CheckpointInfo, subwords: SubwordTokenizer) -> KnownWords:
    calibration = read_calibration(info.folder)
    source_model = None if calibration is None else calibration.source_model
    return KnownWords.of(subwords, info.languages["source"], source_model)


def pack_known_words(known: KnownWords) -> dict[str, Any]:
    """Return what tells words of the training sources from others, for look/live/known_words.js."""
    checks = None if known.source_model is None else encode_base64(known.source_model.checks.tobytes())
    return {"pieces": encode_base64(known.list_known_pieces().tobytes()), "checks": checks}


def pack_arrays(arrays: Arrays) -> tuple[list[dict[str, Any]], bytes]:
    """Return where each array is, and the bytes of all. float32 comes first, so that all are aligned."""
    entries: list[dict[str, Any]] = []
    parts: list[bytes] = []
    offset = 0
    for name, array in sorted(arrays.items(), key=lambda item: (item[1].dtype == np.int8, item[0])):
        entries.append(
            {"name": name, "dtype": array.dtype.name, "shape": list(array.shape), "offset": offset}
        )
        parts.append(array.astype(array.dtype.newbyteorder("<")).tobytes())
        offset += len(parts[-1])
    return entries, b"".join(parts)


def encode_base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def distinguish(names: list[str], folders: list[Path]) -> list[str]:
    """Return names that differ: with their parent folders where two models have the same."""
    if len(set(names)) == len(names):
        return names
    return [f"{path.resolve().parent.name}/{name}" for name, path in zip(names, folders, strict=True)]
