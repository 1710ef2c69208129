"""Checkpoints of a run: copied between two steps, written while the next ones are computed."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from manyheads import checkpoint
from manyheads.errors import CheckpointError
from manyheads.train.async_writer import AsyncWriter
from manyheads.train.distributed import DistributedContext
from manyheads.train.log import LOG_FILE
from manyheads.train.retention import remove_old_checkpoints
from manyheads.train.train_state import TrainState, read_progress


class Checkpointer:
    """Saves and restores the state of a run. Only the main rank writes."""

    def __init__(self, state: TrainState, run_folder: Path, dist: DistributedContext) -> None:
        self.state, self.run_folder, self.dist = state, run_folder, dist
        self.saved_step = -1  # of the newest checkpoint; the same on every rank
        self.start_step = 0  # from which this process continues the run
        self.writer = AsyncWriter()

    def save(self) -> None:
        """Start to write a checkpoint of this step, then remove those that are no longer needed."""
        progress = self.state.progress
        self.saved_step = progress.step
        if not self.dist.is_main:
            return
        self.writer.wait()  # so that there is never more than one copy in memory
        folder = checkpoint.checkpoint_path(self.run_folder, progress.step)
        write = self._prepare_write(folder, progress.step, self.state.training_record)
        best_step = progress.best_step

        def write_and_clean_up() -> None:
            self._check_run_folder()
            write()
            remove_old_checkpoints(self.run_folder, self.state.config.train, best_step)

        self.writer.submit(write_and_clean_up)

    def save_snapshot(self) -> None:
        """Start to write a small model of this step, which stays."""
        if self.dist.is_main:
            self.writer.wait()
            step = self.state.progress.step
            folder = checkpoint.snapshot_path(self.run_folder, step)
            write = self._prepare_write(folder, step, None, as_int8=True)
            self.writer.submit(write)

    def save_model(self, folder: Path, step: int) -> None:
        """Write the model without its training state, and wait for it."""
        self._check_run_folder()
        self._prepare_write(folder, step, None)()

    def _check_run_folder(self) -> None:
        """Refuse to create the folder again, without its log and configuration, if somebody has moved it."""
        if not (self.run_folder / LOG_FILE).exists():
            raise CheckpointError(
                f"{self.run_folder}: was moved or deleted while it was trained; no checkpoint of step "
                f"{self.state.progress.step:,} was written. Run the command again with the folder in its "
                f"place"
            )

    def _prepare_write(
        self, folder: Path, step: int, training_record: dict[str, Any] | None, as_int8: bool = False
    ) -> Callable[[], None]:
        """Copy the weights now; return a function that writes them."""
        state = self.state
        has_optimizer = training_record is not None
        return partial(
            checkpoint.save,
            folder,
            copy_to_cpu(checkpoint.collect_weights(state.model)),
            state.store.subwords,
            state.config,
            step=step,
            languages=state.store.manifest["languages"],
            training=training_record,
            optimizer=copy_to_cpu(state.optimizer.named_state()) if has_optimizer else None,
            supported_length=state.store.supported_length,
            as_int8=as_int8,
        )

    def restore(self, info: checkpoint.CheckpointInfo) -> None:
        """Load weights, optimizer and progress from a checkpoint."""
        state, folder = self.state, info.folder
        checkpoint.check_subwords(folder, state.store.subwords)
        checkpoint.load_weights(state.model, folder)
        state.optimizer.load_named_state(checkpoint.read_tensors(folder / checkpoint.OPTIMIZER), str(folder))
        state.progress = read_progress(info)
        self.saved_step = self.start_step = state.progress.step


def copy_to_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies in host memory, which later steps do not change."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
