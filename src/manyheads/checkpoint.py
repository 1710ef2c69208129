"""Model folders: weights, configuration and subwords together, complete or absent, nothing pickled.

manyheads.json         format number, configuration, step, languages, versions, SHA-256 of the rest
weights.safetensors    every parameter once, by its name in the model
subwords.model         or subwords.source.model and subwords.target.model
optimizer.safetensors  in a checkpoint of a run only: what training needs to go on
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.atomic_io import (
    atomic_directory,
    hash_files,
    read_description,
    report_disk_full,
    restore_interrupted_replacements,
    verify_files,
)
from manyheads.config import Config, ModelConfig
from manyheads.errors import CheckpointError, ConfigError, DataError
from manyheads.model import build_model
from manyheads.model.encoder_decoder import EncoderDecoder
from manyheads.text.subwords import SubwordPair

FORMAT = 1
OVERHEAD_BYTES = 1 << 16  # bytes at most of the description, and of what a disk's blocks waste
MANIFEST, WEIGHTS, OPTIMIZER = "manyheads.json", "weights.safetensors", "optimizer.safetensors"


@dataclass(frozen=True)
class CheckpointInfo:
    """What a model folder says of itself."""

    config: Config
    step: int
    languages: dict[str, str]  # source and target
    training: dict[str, Any]  # where a run stands; empty where it is over
    folder: Path


def save(
    folder: Path,
    weights: Mapping[str, Tensor],
    subwords: SubwordPair,
    config: Config,
    *,
    step: int,
    languages: dict[str, str],
    training: dict[str, Any] | None = None,
    optimizer: Mapping[str, Tensor] | None = None,
) -> None:
    """Written aside, synced and renamed; one that is there is replaced."""
    tensors = (one.nbytes for part in (weights, optimizer or {}) for one in part.values())
    needed = sum(tensors) + sum(len(part.model) for part in subwords.files.values()) + OVERHEAD_BYTES
    with report_disk_full(folder, needed), atomic_directory(folder, MANIFEST, replace=True) as aside:
        write_tensors(aside / WEIGHTS, weights)
        if optimizer is not None:
            write_tensors(aside / OPTIMIZER, optimizer)
        subwords.save(aside)
        told = {
            "format": FORMAT,
            "step": step,
            "languages": languages,
            "training": training or {},
            "config": asdict(config),
            "versions": get_versions(),
            "files": hash_files(aside),
        }
        told["sha256"] = compute_checksum(told)
        (aside / MANIFEST).write_bytes(json.dumps(told, ensure_ascii=False, indent=1).encode() + b"\n")


def compute_checksum(told: dict[str, Any]) -> str:
    """Of all that a description says beside this."""
    rest = {key: value for key, value in told.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def get_versions() -> dict[str, str]:
    from manyheads import __version__

    return {"manyheads": __version__, "torch": torch.__version__}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """By safetensors, which lets other threads run meanwhile.

    It tells a system's errors in words, and its files are their owner's alone; ours are read by whoever may
    read the folder.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(plain, path, metadata)
    except SafetensorError as fault:
        if found := re.search(r"os error (\d+)", str(fault)):
            number = int(found[1])
            raise OSError(number, os.strerror(number), str(path)) from None
        raise
    with suppress(PermissionError):  # of a disk that knows no such rights
        path.chmod(path.parent.stat().st_mode & 0o666)


def collect_weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and running statistics, each once: tied matrices have one name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


# ---- reading


def read_info(folder: str | os.PathLike[str]) -> CheckpointInfo:
    """What the folder is; every file in it is compared with its checksum."""
    here = Path(folder)
    told = read_manifest(here)
    verify_files(here, told["files"], (WEIGHTS,), MANIFEST)
    try:
        config = Config.from_mapping(told["config"])
    except ConfigError as fault:
        raise CheckpointError(f"{here / MANIFEST}: {fault}") from None
    return CheckpointInfo(config, told["step"], told["languages"], told["training"], here)


def read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    inside = folder / "model"
    hint = f"; did you mean {inside}?" if (inside / MANIFEST).exists() else ""
    told = read_description(folder, MANIFEST, FORMAT, f"no model folder ({{why}}){hint}", "a model folder")
    kinds = {"step": int, "languages": dict, "training": dict, "config": dict, "files": dict}
    wrong = [key for key, kind in kinds.items() if type(told.get(key)) is not kind]
    if wrong:
        raise CheckpointError(f"{path}: has no sound {', '.join(wrong)}")
    if told.get("sha256", compute_checksum(told)) != compute_checksum(told):
        raise CheckpointError(f"{path}: damaged, or changed by hand: its SHA-256 is not its own")
    return told


def read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(path.read_bytes())
    except OSError as fault:
        raise CheckpointError(f"{path}: {fault.strerror}") from None
    except (SafetensorError, ValueError, KeyError) as fault:
        raise CheckpointError(f"{path}: not safetensors ({fault}); nothing else is read") from None


def read_subwords(folder: Path) -> SubwordPair:
    try:
        return SubwordPair.load(folder)
    except DataError as fault:
        raise CheckpointError(str(fault)) from None


def load_weights(model: nn.Module, folder: Path) -> None:
    """Into a model of the same shape, in place."""
    copy_weights(model, read_tensors(folder / WEIGHTS), str(folder / WEIGHTS))


@torch.no_grad()
def copy_weights(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    wanted = collect_weights(model)
    missing, foreign = wanted.keys() - weights.keys(), weights.keys() - wanted.keys()
    if missing or foreign:
        name = sorted(missing or foreign)[0]
        raise CheckpointError(
            f"{where}: {'lacks' if missing else 'has a foreign'} {name}: another model's weights"
        )
    for name, own in wanted.items():
        if own.shape != weights[name].shape:
            raise CheckpointError(
                f"{where}: {name} is {list(weights[name].shape)}, but the model's is {list(own.shape)}"
            )
        own.copy_(weights[name])


def load_model(
    folder: str | os.PathLike[str], device: str = "cpu"
) -> tuple[EncoderDecoder, SubwordPair, CheckpointInfo]:
    """The model of a folder, ready to translate."""
    told = read_info(folder)
    model = build_model(told.config.model)
    load_weights(model, told.folder)
    return model.to(device).eval(), read_subwords(told.folder), told


# ---- models and subwords that fit each other


def fit_to_vocabulary(model: ModelConfig, subwords: SubwordPair) -> ModelConfig:
    """The model with the vocabulary that the data has. Only ids that mean the same can share a matrix."""
    if subwords.has_shared_ids:
        return replace(model, vocab_size=len(subwords.source), source_vocab_size=None, target_vocab_size=None)
    ties = "two-way" if model.tie_embeddings == "three-way" else model.tie_embeddings
    sizes = {"source_vocab_size": len(subwords.source), "target_vocab_size": len(subwords.target)}
    return replace(model, tie_embeddings=ties, **sizes)  # type: ignore[arg-type]


def check_subwords(folder: Path, subwords: SubwordPair) -> None:
    """A run goes on with the subwords that its weights were learned with."""
    if not subwords.is_same_as(read_subwords(folder)):
        raise CheckpointError(
            f"{folder}: was trained with other subwords than the data's: prepare the data with "
            f"subwords.reuse_from={folder}, or begin another run"
        )


CHANGEABLE_KEYS = {
    "dropout",
    "attention_dropout",
    "experts_balance_weight",
    "init_gain",
}  # of a model that another one's weights begin


def load_initial_weights(model: EncoderDecoder, subwords: SubwordPair, folder: Path) -> None:
    """Another model's weights, whose subwords must be the data's: fine-tuning."""
    told = read_info(folder)
    if not subwords.is_same_as(read_subwords(told.folder)):
        raise ConfigError(
            f"train.init_from is {folder}, whose subwords are not the data's: "
            f"prepare the data with subwords.reuse_from={folder}"
        )
    now, then = asdict(model.config), asdict(told.config.model)
    changed = [key for key in now if now[key] != then[key] and key not in CHANGEABLE_KEYS]
    if changed:
        raise ConfigError(
            f"train.init_from is {folder}, another model: "
            + "; ".join(f"model.{key} was {then[key]!r}, is {now[key]!r}" for key in changed)
        )
    load_weights(model, folder)


# ---- averaging (6.1)


def average_weights(folders: Iterable[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints of one run, summed in float64."""
    sums: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    count = 0
    for folder in folders:
        weights = read_tensors(folder / WEIGHTS)
        if count and {name: one.shape for name, one in weights.items()} != {
            n: s.shape for n, s in sums.items()
        }:
            raise CheckpointError(f"{folder}: its weights have other names or shapes than those before it")
        for name, tensor in weights.items():
            dtypes[name] = tensor.dtype
            sums[name] = sums[name] + tensor.double() if count else tensor.double()
        count += 1
    if not count:
        raise CheckpointError("no checkpoint to average")
    return {name: (total / count).to(dtypes[name]) for name, total in sums.items()}


def average_checkpoints(run: Path, count: int, out: Path) -> list[str]:
    """The mean of a run's last checkpoints as a model folder; their names."""
    there = list_checkpoints(run)
    if not there:
        raise CheckpointError(f"{run}: no run with checkpoints; a run keeps them in its folder checkpoints")
    found = list_averaged_checkpoints(run, read_info(there[-1]).config.train.checkpoint_every)[-count:]
    if len(found) < count:
        raise CheckpointError(
            f"{run}: has {len(found)} checkpoints, but {count} are asked for: --last {len(found)}"
        )
    told = [read_info(folder) for folder in found]
    save(
        out,
        average_weights(found),
        read_subwords(found[-1]),
        told[-1].config,
        step=told[-1].step,
        languages=told[-1].languages,
    )
    return [folder.name for folder in found]


# ---- the checkpoints of a run


def checkpoint_path(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08d}"


def clean_up_checkpoints(run: Path) -> list[str]:
    """Clears away what a killed run left half done, and sets damaged checkpoints aside; says which and why.

    Where there are checkpoints and not one is sound, nothing is touched: a run must not begin over them.
    """
    here = run / "checkpoints"
    restore_interrupted_replacements(here)
    for left in (*here.glob("*.gone"), *here.glob(".*.manyheads-part"), *here.glob(".*.manyheads-old")):
        shutil.rmtree(left, ignore_errors=True)
    faults = {folder: find_damage(folder) for folder in list_checkpoints(run)}
    damaged = {folder: fault for folder, fault in faults.items() if fault}
    if damaged and len(damaged) == len(faults):
        raise CheckpointError(
            f"{run}: not one checkpoint is sound ({'; '.join(map(str, damaged.values()))}); the run cannot "
            f"go on from them, and will not begin anew over them: choose another folder, or move them away"
        )
    for folder in damaged:
        aside = folder.with_name(f"{folder.name}.damaged")
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
    return [f"{fault}; set aside" for fault in damaged.values()]


def find_damage(folder: Path) -> CheckpointError | None:
    try:
        read_info(folder)
    except CheckpointError as fault:
        return fault
    return None


def list_averaged_checkpoints(run: Path, every: int) -> list[Path]:
    """The regular ones and the newest, oldest first."""
    return sorted({*list_regular_checkpoints(run, every), *list_checkpoints(run)[-1:]})


def list_regular_checkpoints(run: Path, every: int) -> list[Path]:
    """Checkpoints of every so many steps, oldest first.

    Those that a run wrote on being asked to stop, or for the best alone, are not among them: the mean must
    not depend on who interrupted the run.
    """
    return [folder for folder in list_checkpoints(run) if parse_step(folder) % every == 0]


def parse_step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def list_checkpoints(run: Path) -> list[Path]:
    """Oldest first; what is still being written does not count."""
    return sorted(path for path in (run / "checkpoints").glob("step-????????") if path.is_dir())
