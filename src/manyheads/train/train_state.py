"""The state of a run: what is trained, how far it is, and what a checkpoint records of it."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from manyheads.checkpoint import CheckpointInfo
from manyheads.config import Config
from manyheads.data.store import Store
from manyheads.errors import CheckpointError
from manyheads.model.encoder_decoder import EncoderDecoder
from manyheads.train.optimizer import Optimizer


@dataclass
class TrainProgress:
    """How far a run is. A checkpoint keeps it beside the weights and the optimizer's moments."""

    step: int = 0  # updates done
    epoch: int = 0
    batch_index: int = 0  # of the next batch
    seconds: float = 0.0
    skipped_steps: int = 0  # without a finite gradient
    nonfinite_steps: int = 0  # of these, the latest in a row
    rolled_back: bool = False
    best_loss: float | None = None
    best_step: int = 0
    validations_since_best: int = 0
    bleu: float | None = None  # of the latest validation

    def record_validation(self, loss: float) -> bool:
        """Update the best validation loss; return whether this one is the best so far."""
        is_best = math.isfinite(loss) and (self.best_loss is None or loss < self.best_loss)
        if is_best:
            self.best_loss, self.best_step, self.validations_since_best = loss, self.step, 0
        else:
            self.validations_since_best += 1
        return is_best


@dataclass
class TrainState:
    """What an update changes, and what describes it in a checkpoint."""

    config: Config
    model: EncoderDecoder
    optimizer: Optimizer
    store: Store
    progress: TrainProgress = field(default_factory=TrainProgress)

    @property
    def training_record(self) -> dict[str, Any]:
        """The `training` entry of a checkpoint's manifest: the progress, and the checksum of the data."""
        return {"progress": asdict(self.progress), "data": self.store.sha256}


def read_progress(info: CheckpointInfo) -> TrainProgress:
    """Return the progress that a checkpoint records."""
    try:
        return TrainProgress(**info.training["progress"])
    except (KeyError, TypeError):
        raise CheckpointError(
            f"{info.folder}: has no training progress, so a run cannot resume from it; "
            f"use it with train.init_from"
        ) from None
