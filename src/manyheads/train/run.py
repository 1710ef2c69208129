"""Train in a run folder: start a run, or resume it from its newest checkpoint."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import torch

from manyheads import checkpoint
from manyheads.atomic_io import is_same_directory, open_locked
from manyheads.config import Config
from manyheads.cuda.device import resolve_device
from manyheads.errors import CheckpointError, ConfigError, DataError
from manyheads.progress import Progress, create_progress
from manyheads.train.distributed import DistributedContext, init_distributed
from manyheads.train.preemption import watch_stop_signals
from manyheads.train.run_summary import is_run
from manyheads.train.timing import StartupTimer
from manyheads.train.trainer import Trainer

CONFIG_FILE = "config.toml"
INIT_KEYS = ("init", "init_gain")  # which resumed weights do not use


def train(
    config: Config,
    run: Path,
    *,
    change_config: bool = False,
    device: str | None = None,
    start: float | None = None,
) -> str:
    """Train in a folder, from its newest intact checkpoint if it has one.

    `start` is when the command was called, by time.monotonic(), for the log; by default now. Returns what
    ended the run: "steps", "seconds", "patience", or "stopped" by a signal.
    """
    startup = StartupTimer(start)
    startup.mark("imports")
    if config.train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts
    with (
        init_distributed(resolve_device(device)) as dist,
        lock_run(run, dist),
        watch_stop_signals() as should_stop,
        deterministic_algorithms(config.train.deterministic),
    ):
        startup.mark("setup")
        with create_progress(sys.stderr, "steps") if dist.is_main else Progress() as console:
            trainer = Trainer(config, run, dist, console, startup)
            start_or_resume(trainer, change_config)
            return trainer.train(should_stop)


@contextmanager
def deterministic_algorithms(enabled: bool) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(enabled or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def lock_run(run: Path, dist: DistributedContext) -> Iterator[None]:
    """Hold a lock on the run folder, so that two runs do not write to it."""
    if run.is_dir() and any(run.iterdir()) and not is_run(run):
        raise DataError(f"{run}: is not empty and not a run folder; choose another folder with --out")
    run.mkdir(parents=True, exist_ok=True)
    if not dist.is_main:
        yield
        return
    folder = Path(os.path.realpath(run))
    with open_locked(folder) as handle:
        try:
            yield
        finally:
            if is_same_directory(handle, folder):
                with suppress(OSError):  # remove the folder if nothing was written to it
                    folder.rmdir()


def start_or_resume(trainer: Trainer, change_config: bool) -> None:
    """Initialize the trainer, or restore the newest checkpoint that the main rank finds."""
    run, dist = trainer.run_folder, trainer.dist
    steps = dist.broadcast(find_newest_step(trainer) if dist.is_main else [])
    if not steps:
        trainer.initialize()
    else:
        folder = checkpoint.checkpoint_path(run, steps[0])
        if not folder.exists():
            raise CheckpointError(f"{folder}: not on this machine; all ranks of a run must share its folder")
        info = checkpoint.read_info(folder)
        check_config_unchanged(trainer, info, change_config)
        trainer.resume(info)
        trainer.console.message(f"{run}: resumed after step {trainer.progress.step:,}")
    dist.barrier()
    if dist.is_main:
        trainer.config.save(run / CONFIG_FILE)


def find_newest_step(trainer: Trainer) -> list[int]:
    """Clean up what a killed run left; return the step of the newest intact checkpoint, if there is one."""
    for message in checkpoint.clean_up_checkpoints(trainer.run_folder):
        trainer.console.message(message)
    folders = checkpoint.list_checkpoints(trainer.run_folder)
    return [checkpoint.parse_step(folder) for folder in folders[-1:]]


def check_config_unchanged(trainer: Trainer, info: checkpoint.CheckpointInfo, change_config: bool) -> None:
    """Refuse to resume with another configuration or other data, unless --change-config allows it."""
    run, now, then = trainer.run_folder, asdict(trainer.config), asdict(info.config)
    changed = [
        checkpoint.describe_change(f"{table}.{key}", then[table].get(key), value)
        for table, keys in now.items()
        for key, value in keys.items()
        if then[table].get(key) != value and key not in INIT_KEYS
    ]
    if info.training.get("data") != trainer.store.sha256:
        changed.append(f"the data in {trainer.config.data.folder} was prepared again")
    fixed = [
        checkpoint.describe_change(f"model.{key}", then["model"].get(key), value)
        for key, value in now["model"].items()
        if then["model"].get(key) != value and key not in checkpoint.CHANGEABLE_KEYS
    ]
    if fixed and change_config:
        raise ConfigError(
            f"{run}: the model of a run cannot change ({'; '.join(fixed)}); choose another folder with --out"
        )
    if changed and not change_config:
        raise ConfigError(
            f"{run}: started with another configuration ({'; '.join(changed)}); change it back, choose "
            f"another folder with --out, or continue with the new one by --change-config"
        )
