"""Checkpoint retention: which checkpoints stay, and which become the model of a finished run."""

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from torch import Tensor

from manyheads import checkpoint
from manyheads.config import TrainConfig
from manyheads.train.distributed import DistributedContext
from manyheads.train.train_state import TrainState

PrintMessage = Callable[[str], None]


def remove_old_checkpoints(run_folder: Path, train: TrainConfig, best_step: int) -> None:
    """Keep the last few regular checkpoints, the best and the newest.

    A folder is renamed before it is deleted: half a checkpoint must not look complete.
    """
    count = max(train.keep_checkpoints, train.average_checkpoints)
    kept = checkpoint.list_regular_checkpoints(run_folder, train.checkpoint_every)[-count:]
    kept.append(checkpoint.checkpoint_path(run_folder, best_step))
    for old in checkpoint.list_checkpoints(run_folder)[:-1]:
        if old not in kept:
            removed = old.with_name(f"{old.name}.gone")
            old.rename(removed)
            shutil.rmtree(removed, ignore_errors=True)


def select_intact(
    run_folder: Path, folders: list[Path], dist: DistributedContext, print_message: PrintMessage
) -> list[Path]:
    """Return the checkpoints that are not damaged, as the main rank finds them."""
    steps = []
    if dist.is_main:
        steps = [checkpoint.parse_step(folder) for folder in folders if is_intact(folder, print_message)]
    return [checkpoint.checkpoint_path(run_folder, step) for step in dist.broadcast(steps)]


def find_newest_intact(
    run_folder: Path, dist: DistributedContext, print_message: PrintMessage
) -> Path | None:
    """Return the newest checkpoint that is not damaged, as the main rank finds it."""
    newest: list[int] = []
    if dist.is_main:
        folders = reversed(checkpoint.list_checkpoints(run_folder))
        intact = (folder for folder in folders if is_intact(folder, print_message))
        newest = [checkpoint.parse_step(folder) for folder in islice(intact, 1)]
    newest = dist.broadcast(newest)
    return checkpoint.checkpoint_path(run_folder, newest[0]) if newest else None


def is_intact(folder: Path, print_message: PrintMessage) -> bool:
    """Whether every file is as it was written; damage is reported."""
    damage = checkpoint.find_damage(folder)
    if damage:
        print_message(f"{damage}; left out")
    return damage is None


@dataclass(frozen=True)
class Candidate:
    """Weights that may become the model of a run."""

    name: str
    weights: dict[str, Tensor]
    step: int


def list_candidates(
    state: TrainState, run_folder: Path, dist: DistributedContext, print_message: PrintMessage
) -> list[Candidate]:
    """Return the average of the last checkpoints (6.1) and the best single one."""
    train, progress = state.config.train, state.progress
    candidates = []
    last = checkpoint.list_averaged_checkpoints(run_folder, train.checkpoint_every)
    last = select_intact(run_folder, last[-train.average_checkpoints :], dist, print_message)
    if last:
        name = f"average of the last {len(last)} checkpoints" if len(last) > 1 else "the last checkpoint"
        candidates.append(Candidate(name, checkpoint.average_weights(last), progress.step))
    best = checkpoint.checkpoint_path(run_folder, progress.best_step)
    if progress.best_step and [best] != last and select_intact(run_folder, [best], dist, print_message):
        weights = checkpoint.read_weights(best / checkpoint.WEIGHTS)
        candidates.append(Candidate(f"best, {best.name}", weights, progress.best_step))
    if not candidates:  # the disk lost them all; the weights in memory are intact
        weights = {
            name: tensor.detach().clone() for name, tensor in checkpoint.collect_weights(state.model).items()
        }
        candidates.append(Candidate("last step", weights, progress.step))
    return candidates


def load_best_candidate(
    state: TrainState, candidates: list[Candidate], validation_loss: Callable[[], float]
) -> tuple[Candidate, float]:
    """Load the candidate with the lowest validation loss into the model; return it and its loss."""
    losses = []
    for candidate in candidates:
        checkpoint.copy_weights(state.model, candidate.weights, candidate.name)
        losses.append(validation_loss())
    ranks = [loss if math.isfinite(loss) else math.inf for loss in losses]
    index = ranks.index(min(ranks))
    checkpoint.copy_weights(state.model, candidates[index].weights, candidates[index].name)
    return candidates[index], losses[index]
