"""A run folder: begun, or gone on with where it was left."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import torch

from manyheads import checkpoint
from manyheads.atomic_io import acquire_lock
from manyheads.config import Config
from manyheads.errors import CheckpointError, ConfigError, DataError
from manyheads.inference.torch_engine import resolve_device
from manyheads.train.distributed import DistributedContext, init_distributed
from manyheads.train.launcher import register_rank
from manyheads.train.log import TrainingConsole, screen
from manyheads.train.preemption import watch_stop_signals
from manyheads.train.run_summary import is_run
from manyheads.train.trainer import Trainer

CONFIG_FILE = "config.toml"
NO_CHECKPOINT = -1


def train(config: Config, run: Path, *, change_config: bool = False, device: str | None = None) -> str:
    """Trains in a folder, from its newest sound checkpoint if it has one. Returns what ended it."""
    if config.train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA begins
    with (
        init_distributed(resolve_device(device)) as world,
        lock_run(run, world),
        watch_stop_signals() as asked,
        deterministic_algorithms(config.train.deterministic),
    ):
        register_rank()
        shown = screen(config.train.steps) if world.is_main else TrainingConsole(None)
        try:
            trainer = Trainer(config, run, world, shown)
            start_or_resume(trainer, change_config)
            return trainer.train(asked)
        finally:
            shown.close()


@contextmanager
def deterministic_algorithms(enabled: bool) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(enabled or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def lock_run(run: Path, world: DistributedContext) -> Iterator[None]:
    """One run at a time in a folder: its first rank holds a lock on it."""
    if run.is_dir() and any(run.iterdir()) and not is_run(run):
        raise DataError(f"{run}: holds something that is no run of ours; choose another folder with --out")
    run.mkdir(parents=True, exist_ok=True)
    handle = os.open(run, os.O_RDONLY)
    try:
        if world.is_main:
            acquire_lock(handle, run)
        yield
    finally:
        os.close(handle)
        with suppress(OSError):  # nothing was begun: nothing is left
            run.rmdir()


def start_or_resume(trainer: Trainer, change_config: bool) -> None:
    """The first rank looks for a checkpoint, and all take the same one."""
    run, world = trainer.run_folder, trainer.dist
    step = world.broadcast(find_newest_step(trainer) if world.is_main else NO_CHECKPOINT)
    if step == NO_CHECKPOINT:
        trainer.initialize()
    else:
        folder = checkpoint.checkpoint_path(run, step)
        if not folder.exists():
            raise CheckpointError(f"{folder}: not on this machine; the ranks of a run share its folder")
        told = checkpoint.read_info(folder)
        check_config_unchanged(trainer, told, change_config)
        trainer.resume(told)
        trainer.console.message(f"{run}: goes on after step {trainer.progress.step:,}")
    world.barrier()
    if world.is_main:
        trainer.config.save(run / CONFIG_FILE)


def find_newest_step(trainer: Trainer) -> int:
    for told in checkpoint.clean_up_checkpoints(trainer.run_folder):
        trainer.console.message(told)
    found = checkpoint.list_checkpoints(trainer.run_folder)
    return checkpoint.parse_step(found[-1]) if found else NO_CHECKPOINT


def check_config_unchanged(trainer: Trainer, told: checkpoint.CheckpointInfo, change_config: bool) -> None:
    """A run goes on with the configuration and the data that it began with, unless someone insists."""
    now, then = asdict(trainer.config), asdict(told.config)
    changed = [
        f"{table}.{key} was {then[table][key]!r}, is {value!r}"
        for table, keys in now.items()
        for key, value in keys.items()
        if then[table].get(key) != value and key != "init_gain"  # there are weights, and it means nothing
    ]
    if told.training.get("data") != trainer.store.sha256:
        changed.append(f"the data in {trainer.config.data.folder} were prepared anew")
    fixed = [
        f"model.{key} was {then['model'][key]!r}, is {value!r}"
        for key, value in now["model"].items()
        if then["model"].get(key) != value and key not in checkpoint.CHANGEABLE_KEYS
    ]
    if fixed and change_config:
        raise ConfigError(
            f"{trainer.run_folder}: the model of a run cannot change ({'; '.join(fixed)}); choose another folder"
        )
    if changed and not change_config:
        raise ConfigError(
            f"{trainer.run_folder}: began with another configuration ({'; '.join(changed)}); change it back, choose "
            f"another folder, or go on with the new one by --change-config"
        )
