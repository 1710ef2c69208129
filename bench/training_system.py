"""What bench/train_step.py measures: a model and its training step."""

from typing import Any

import manyheads as mh
import report
from workload import WorkloadBatch

TRAIN = mh.TrainConfig()
LEARNING_RATE = 1e-4


class TrainingSystem:
    """A row of the table: one model with its optimizer."""

    device: str
    note = ""  # a remark for the JSON
    warm_up_rounds = 1  # passes over the batches before the measurement

    def prepare(self, batch: WorkloadBatch) -> Any:
        """Return the batch on the device in the format of the system. Not measured."""
        raise NotImplementedError

    def step(self, batch: Any) -> None:
        """Run forward, loss, backward and update. Measured, without waiting for the device in between."""
        raise NotImplementedError

    def prepare_batches(self, batches: list[WorkloadBatch]) -> Any:
        """Return what `time_pass` takes."""
        return [self.prepare(batch) for batch in batches]

    def time_pass(self, prepared: Any) -> float:
        """Return the seconds of one step on each of the batches."""

        def run_steps() -> None:
            for batch in prepared:
                self.step(batch)

        return report.time_call(run_steps, self.device)
