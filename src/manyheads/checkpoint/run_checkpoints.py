"""The checkpoints of a run: RUN/checkpoints/step-00001000 and so on.

Snapshots are small: int8 models without training state, at steps 0, 25, 50, 100, 200 and so on, in
RUN/snapshots. They show how a run began, and are never removed.
"""

import shutil
from pathlib import Path

from manyheads.atomic_io import restore_interrupted_replacements
from manyheads.checkpoint.manifest import read_info
from manyheads.errors import CheckpointError

FIRST_SNAPSHOT = 25


def checkpoint_path(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08d}"


def snapshot_path(run: Path, step: int) -> Path:
    return run / "snapshots" / f"step-{step:08d}"


def is_snapshot_step(step: int) -> bool:
    """Whether a step is 0, or 25 times a power of two."""
    times, remainder = divmod(step, FIRST_SNAPSHOT)
    return not remainder and times & (times - 1) == 0


def list_snapshots(run: Path) -> list[Path]:
    """List complete snapshots, oldest first."""
    return sorted(path for path in (run / "snapshots").glob("step-????????") if path.is_dir())


def parse_step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def list_checkpoints(run: Path) -> list[Path]:
    """List complete checkpoints, oldest first."""
    return sorted(path for path in (run / "checkpoints").glob("step-????????") if path.is_dir())


def list_regular_checkpoints(run: Path, interval: int) -> list[Path]:
    """List the checkpoints of every `interval` steps, oldest first.

    Checkpoints that were written because a run was interrupted or for the best loss are left out: the average
    must not depend on them.
    """
    return [folder for folder in list_checkpoints(run) if parse_step(folder) % interval == 0]


def list_averaged_checkpoints(run: Path, interval: int) -> list[Path]:
    """List the regular checkpoints and the newest one, oldest first."""
    return sorted({*list_regular_checkpoints(run, interval), *list_checkpoints(run)[-1:]})


def clean_up_checkpoints(run: Path) -> list[str]:
    """Delete incomplete checkpoints of a killed run and set damaged ones aside; return messages about these.

    If all checkpoints are damaged, none is touched and an error is raised: a run must not start over them.
    """
    folder = run / "checkpoints"
    restore_interrupted_replacements(folder)
    for leftover in (
        *folder.glob("*.gone"),
        *folder.glob(".*.manyheads-part"),
        *folder.glob(".*.manyheads-old"),
    ):
        shutil.rmtree(leftover, ignore_errors=True)
    errors = {path: find_damage(path) for path in list_checkpoints(run)}
    damaged = {path: error for path, error in errors.items() if error}
    if damaged and len(damaged) == len(errors):
        raise CheckpointError(
            f"{run}: no checkpoint is intact ({'; '.join(map(str, damaged.values()))}); the run cannot "
            f"resume from them, and will not start over them: choose another folder, or move them away"
        )
    for path in damaged:
        aside = path.with_name(f"{path.name}.damaged")
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
    return [f"{error}; set aside" for error in damaged.values()]


def find_damage(folder: Path) -> CheckpointError | None:
    try:
        read_info(folder)
    except CheckpointError as error:
        return error
    return None
