"""The end of a run: its model, the calibration of it, its adapter and its card."""

import math
import time
from pathlib import Path
from typing import Any

from manyheads import checkpoint
from manyheads.confidence.calibration import format_measures
from manyheads.errors import DataError, ManyheadsError, is_out_of_memory
from manyheads.progress import Progress
from manyheads.train.checkpointing import Checkpointer
from manyheads.train.distributed import DistributedContext
from manyheads.train.retention import Candidate, list_candidates, load_best_candidate
from manyheads.train.train_state import TrainState
from manyheads.train.trained_weights import LowRankWeights
from manyheads.train.validation import Validator

ADAPTER_FILE = "adapter.safetensors"  # in the run folder


class FinalModel:
    """Writes what a finished run leaves."""

    def __init__(
        self, state: TrainState, run_folder: Path, dist: DistributedContext, console: Progress
    ) -> None:
        self.state, self.run_folder, self.dist, self.console = state, run_folder, dist, console
        self.folder = run_folder / "model"

    def write(self, checkpointer: Checkpointer, validator: Validator) -> dict[str, Any]:
        """Write the average of the last checkpoints (6.1), or the best one if that has a lower loss.

        Return what the log says of it.
        """

        def validation_loss() -> float:
            return validator.loss() if validator.has_data else math.inf

        candidates = list_candidates(self.state, self.run_folder, self.dist, self.console.message)
        chosen, loss = load_best_candidate(self.state, candidates, validation_loss)
        entry: dict[str, Any] = {"model": chosen.name, "loss": loss}
        if not self.dist.is_main:
            return entry
        checkpointer.save_model(self.folder, chosen.step)
        self.console.message(f"{self.folder}: {chosen.name}")
        entry |= self._calibrate(validator)
        self._write_adapter(chosen)
        return entry

    def _calibrate(self, validator: Validator) -> dict[str, float]:
        """Add the calibration of its confidence to the model folder; return what the log says of it.

        The model is complete without it: a run that is killed meanwhile ends again when it is resumed.
        """
        if not self.state.config.train.calibrate or not validator.has_data:
            return {}
        start = time.monotonic()
        try:
            calibration = validator.calibrate(self.console.update)
        except DataError as error:
            self.console.message(f"{self.folder}: not calibrated: {error}")
            return {}
        checkpoint.write_confidence(self.folder, calibration.to_bytes())
        seconds = time.monotonic() - start
        self.console.message(f"{self.folder}: {format_measures(calibration.measures)} ({seconds:.1f} s)")
        return {
            "calibration_seconds": seconds,
            **{f"calibration_{name}": value for name, value in calibration.measures.items()},
        }

    def _write_adapter(self, chosen: Candidate) -> None:
        """Write the adapter of the chosen checkpoint, if the run trained one."""
        weights, config = self.state.optimizer.weights, self.state.config
        if not isinstance(weights, LowRankWeights):
            return
        folder = checkpoint.checkpoint_path(self.run_folder, chosen.step)
        if chosen.step != self.state.progress.step and folder.exists():
            weights.load_named_state(checkpoint.read_tensors(folder / checkpoint.OPTIMIZER), str(folder))
        path, calibration = self.run_folder / ADAPTER_FILE, self.folder / checkpoint.CONFIDENCE
        info = {
            "rank": weights.rank,
            "step": chosen.step,
            "data": self.state.store.sha256,
            "languages": self.state.store.manifest["languages"],
            "versions": checkpoint.get_versions(),
        }
        adapter = checkpoint.Adapter(
            path.stem,
            weights.scaled_factors(),
            checkpoint.hash_base(Path(config.train.init_from or "")),
            info,
            calibration.read_bytes() if calibration.exists() else None,
        )
        checkpoint.write_adapter(path, adapter)
        self.console.message(f"{path}: rank {adapter.rank}, {adapter.num_parameters:,} parameters")

    def write_card(self) -> None:
        """Write the model card. The model is complete without it, so that a failure is only reported."""
        if self.dist.is_main and self.state.config.train.card:
            from manyheads.train.model_card import write_model_card  # whose imports training does not need

            start, device = time.monotonic(), self.dist.device.type
            try:
                path = write_model_card(self.folder, self.state.store, self.run_folder, device=device)
                self.console.message(f"{path}: written in {time.monotonic() - start:.1f} s")
            except (ManyheadsError, OSError, RuntimeError) as error:
                if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                    raise
                reason = str(error).partition("\n")[0]
                self.console.message(f"no model card ({reason}): `manyheads card {self.folder}` writes it")
        self.dist.barrier()
