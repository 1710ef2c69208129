"""Averaging checkpoints (6.1)."""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from manyheads.checkpoint.manifest import WEIGHTS, read_info, read_subwords
from manyheads.checkpoint.model_folder import save
from manyheads.checkpoint.run_checkpoints import list_averaged_checkpoints, list_checkpoints
from manyheads.checkpoint.tensors import read_weights
from manyheads.errors import CheckpointError


def average_weights(folders: Iterable[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of several checkpoints, summed in float64."""
    sums: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    count = 0
    for folder in folders:
        weights = read_weights(folder / WEIGHTS)
        shapes = {name: tensor.shape for name, tensor in weights.items()}
        if count and shapes != {name: tensor.shape for name, tensor in sums.items()}:
            raise CheckpointError(f"{folder}: its weights have other names or shapes than the earlier ones")
        for name, tensor in weights.items():
            dtypes[name] = tensor.dtype
            sums[name] = sums[name] + tensor.double() if count else tensor.double()
        count += 1
    if not count:
        raise CheckpointError("no checkpoint to average")
    return {name: (total / count).to(dtypes[name]) for name, total in sums.items()}


def average_checkpoints(run: Path, count: int, out: Path) -> list[str]:
    """Write the average of a run's last checkpoints as a model folder; return their names."""
    available = list_checkpoints(run)
    if not available:
        raise CheckpointError(f"{run}: no run with checkpoints; a run keeps them in its folder checkpoints")
    interval = read_info(available[-1]).config.train.checkpoint_every
    folders = list_averaged_checkpoints(run, interval)[-count:]
    if len(folders) < count:
        raise CheckpointError(
            f"{run}: {count} checkpoints are requested, but it has {len(folders)}: use --last {len(folders)}"
        )
    infos = [read_info(folder) for folder in folders]
    save(
        out,
        average_weights(folders),
        read_subwords(folders[-1]),
        infos[-1].config,
        step=infos[-1].step,
        languages=infos[-1].languages,
        supported_length=infos[-1].supported_length,
    )
    return [folder.name for folder in folders]
