"""Conversion of models to CTranslate2, in float32 or as int8 as they are, with the subwords beside them.

`to_ctranslate2` is the export, verified by scores. `ensure_converted` keeps a conversion beside a model
folder for the engine (inference/ctranslate2_engine.py), and renews it when the model changes.
"""

import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads import checkpoint
from manyheads.atomic_io import atomic_directory, hash_file, report_disk_full, write_manifest
from manyheads.checkpoint.arrays import read_arrays
from manyheads.checkpoint.shortlist import SHORTLIST, Shortlist, read_shortlist
from manyheads.config import EOS_ID, ModelConfig, TransformerConfig
from manyheads.errors import CheckpointError, RequestError
from manyheads.export.ctranslate2_spec import ACTIVATIONS, build_spec, count_positions
from manyheads.inference.conversion import (
    CONVERSION_MANIFEST,
    CONVERSION_SCHEMA,
    VOCABULARY_MAP,
    read_conversion,
    read_pieces,
)
from manyheads.inference.ctranslate2_engine import CTranslate2Engine, import_ctranslate2
from manyheads.text.subwords import SubwordPair

if TYPE_CHECKING:
    from manyheads.export.verify import ScoreComparison

WHITE_SPACE = re.compile(r"[ \t\r\n]")


@dataclass(frozen=True)
class ConvertibleModel:
    """A model folder that CTranslate2 can represent, read without torch."""

    config: TransformerConfig
    arrays: dict[str, Any]
    subwords: SubwordPair
    info: checkpoint.CheckpointInfo

    @classmethod
    def load(cls, folder: Path) -> "ConvertibleModel":
        info = checkpoint.read_info(folder)
        config = check_convertible(info.config.model)
        return cls(config, read_arrays(folder / checkpoint.WEIGHTS), checkpoint.read_subwords(folder), info)

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def write(self, out: Path) -> None:
        """Write the files of a conversion into an existing folder."""
        weights = str(self.info.folder / checkpoint.WEIGHTS)
        build_spec(self.config, self.arrays, self.subwords, weights).save(os.fspath(out))
        self.subwords.save(out)
        for name in (checkpoint.CONFIDENCE, SHORTLIST):
            if (self.info.folder / name).exists():
                shutil.copyfile(self.info.folder / name, out / name)
        vocab_sizes = self.config.input_vocab_size, self.config.output_vocab_size
        if shortlist := read_shortlist(out, *vocab_sizes):
            write_vocabulary_map(out, shortlist)
        manifest = {
            "model": model_identity(self.info.folder),
            "max_positions": count_positions(self.config),
            "step": self.info.step,
            "languages": self.info.languages,
            "supported_length": self.info.supported_length,
            "quantization": self.info.quantization,
            "config": asdict(self.info.config),
            "versions": {**checkpoint.get_versions(), "ctranslate2": import_ctranslate2().__version__},
        }
        write_manifest(out, CONVERSION_SCHEMA, manifest)


def write_vocabulary_map(out: Path, shortlist: Shortlist) -> None:
    """Write a shortlist as CTranslate2 reads it: a line per source piece, and one of the frequent pieces.

    It separates pieces by spaces. If a piece has a space itself, there is no map, and no shortlist is used.
    """
    sources, targets = read_pieces(out, "source"), read_pieces(out, "target")
    if any(WHITE_SPACE.search(piece) for piece in (*sources, *targets)):
        return
    lines = [f"\t{' '.join(targets[piece] for piece in shortlist.frequent)}\n"]
    for number, source in enumerate(sources):
        if len(candidates := shortlist[number]):
            lines.append(f"{source}\t{' '.join(targets[piece] for piece in candidates)}\n")
    (out / VOCABULARY_MAP).write_text("".join(lines), encoding="utf-8")


def to_ctranslate2(folder: Path, out: Path, replace: bool = False) -> "list[ScoreComparison]":
    """Write a model folder as a CTranslate2 folder, if it scores samples as our model does."""
    from manyheads.export.verify import compare_scores, sample_pairs, score_pairs
    from manyheads.inference.torch_engine import TorchEngine

    model = ConvertibleModel.load(folder)
    with (
        report_disk_full(out, model.num_bytes),
        atomic_directory(out, CONVERSION_MANIFEST, replace) as temporary,
    ):
        model.write(temporary)
        engine = CTranslate2Engine(temporary)
        pairs = [pair for pair in sample_pairs(model.subwords) if max(map(len, pair)) < engine.max_positions]
        sources = [[*source, EOS_ID] for source, _ in pairs]
        theirs = [sum(scores) for scores in engine.score(sources, [target for _, target in pairs])]
        ours = score_pairs(TorchEngine(checkpoint.load_model(folder)[0]), pairs)
        return compare_scores(str(out), model.subwords, pairs, ours, theirs)


def convert(folder: Path, out: Path) -> None:
    """Write a model folder as a CTranslate2 folder without verifying it."""
    model = ConvertibleModel.load(folder)
    with (
        report_disk_full(out, model.num_bytes),
        atomic_directory(out, CONVERSION_MANIFEST) as temporary,
    ):
        model.write(temporary)


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
    model = ConvertibleModel.load(folder)
    try:
        with (
            report_disk_full(out, model.num_bytes),
            atomic_directory(out, CONVERSION_MANIFEST, replace=True) as temporary,
        ):
            model.write(temporary)
    except OSError as error:
        raise RequestError(
            f"{out}: cannot be written ({error.strerror}), but the conversion is kept there: convert the "
            f"model to a writable folder (manyheads export {folder} --to ctranslate2) and use that folder"
        ) from None


def check_convertible(config: ModelConfig) -> TransformerConfig:
    """Return the config. Refuse what CTranslate2 cannot represent, by its key."""
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
    return config


def model_identity(folder: Path) -> str:
    """Return the SHA-256 of the model folder's manifest, which holds those of the other files."""
    checkpoint.read_model_manifest(folder)
    return str(hash_file(folder / checkpoint.MANIFEST)["sha256"])
