"""A run folder: begun, or gone on with where it was left."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import torch

from manyheads import checkpoint
from manyheads.atomic_io import take_lock
from manyheads.config import Config
from manyheads.errors import CheckpointError, ConfigError, DataError
from manyheads.inference.torch_engine import known_device
from manyheads.train.distributed import World, joined
from manyheads.train.launcher import report_rank
from manyheads.train.log import Screen, screen
from manyheads.train.preemption import stop_asked
from manyheads.train.run_summary import is_run
from manyheads.train.trainer import Trainer

CONFIG = "config.toml"
NOTHING = -1


def train(config: Config, run: Path, *, change_config: bool = False, device: str | None = None) -> str:
    """Trains in a folder, from its newest sound checkpoint if it has one. Returns what ended it."""
    if config.train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA begins
    with (
        joined(known_device(device)) as world,
        owned(run, world),
        stop_asked() as asked,
        deterministic(config.train.deterministic),
    ):
        report_rank()
        shown = screen(config.train.steps) if world.is_first else Screen(None)
        try:
            trainer = Trainer(config, run, world, shown)
            begin_or_go_on(trainer, change_config)
            return trainer.train(asked)
        finally:
            shown.close()


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(wanted or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def owned(run: Path, world: World) -> Iterator[None]:
    """One run at a time in a folder: its first rank holds a lock on it."""
    if run.is_dir() and any(run.iterdir()) and not is_run(run):
        raise DataError(f"{run}: holds something that is no run of ours; choose another folder with --out")
    run.mkdir(parents=True, exist_ok=True)
    handle = os.open(run, os.O_RDONLY)
    try:
        if world.is_first:
            take_lock(handle, run)
        yield
    finally:
        os.close(handle)
        with suppress(OSError):  # nothing was begun: nothing is left
            run.rmdir()


def begin_or_go_on(trainer: Trainer, change_config: bool) -> None:
    """The first rank looks for a checkpoint, and all take the same one."""
    run, world = trainer.run, trainer.world
    step = world.first(newest_step(trainer) if world.is_first else NOTHING)
    if step == NOTHING:
        trainer.begin()
    else:
        folder = checkpoint.checkpoint_folder(run, step)
        if not folder.exists():
            raise CheckpointError(f"{folder}: not on this machine; the ranks of a run share its folder")
        told = checkpoint.describe(folder)
        check_unchanged(trainer, told, change_config)
        trainer.resume(told)
        trainer.screen.say(f"{run}: goes on after step {trainer.place.step:,}")
    world.wait()
    if world.is_first:
        trainer.config.save(run / CONFIG)


def newest_step(trainer: Trainer) -> int:
    for told in checkpoint.sweep(trainer.run):
        trainer.screen.say(told)
    found = checkpoint.checkpoints(trainer.run)
    return checkpoint.step_of(found[-1]) if found else NOTHING


def check_unchanged(trainer: Trainer, told: checkpoint.Description, change_config: bool) -> None:
    """A run goes on with the configuration and the data that it began with, unless someone insists."""
    now, then = asdict(trainer.config), asdict(told.config)
    changed = [
        f"{table}.{key} was {then[table][key]!r}, is {value!r}"
        for table, keys in now.items()
        for key, value in keys.items()
        if then[table].get(key) != value and key != "initial_gain"  # there are weights, and it means nothing
    ]
    if told.training.get("data") != trainer.store.sha256:
        changed.append(f"the data in {trainer.config.data.folder} were prepared anew")
    fixed = [
        f"model.{key} was {then['model'][key]!r}, is {value!r}"
        for key, value in now["model"].items()
        if then["model"].get(key) != value and key not in checkpoint.FREE_TO_CHANGE
    ]
    if fixed and change_config:
        raise ConfigError(
            f"{trainer.run}: the model of a run cannot change ({'; '.join(fixed)}); choose another folder"
        )
    if changed and not change_config:
        raise ConfigError(
            f"{trainer.run}: began with another configuration ({'; '.join(changed)}); change it back, choose "
            f"another folder, or go on with the new one by --change-config"
        )
