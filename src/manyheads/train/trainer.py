"""The training loop: update, validate, save, and stop when the run is over or interrupted.

Everything that a step computes is a function of (config, step): the order of the data of (seed, epoch),
dropout of (seed, step, rank, micro-batch). So a run that was interrupted anywhere continues as if it had not
been.
"""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from manyheads import checkpoint
from manyheads.config import Config
from manyheads.cuda.device import describe_machine
from manyheads.data.batches import Batch, BatchStream
from manyheads.data.store import Store
from manyheads.errors import TrainingError
from manyheads.evaluate.perplexity import perplexity
from manyheads.model import build_model
from manyheads.progress import Progress, make_counter
from manyheads.text.subwords import count_cpus
from manyheads.train.captured_step import CapturedStep, can_capture
from manyheads.train.checkpointing import Checkpointer
from manyheads.train.distributed import DistributedContext
from manyheads.train.final_model import FinalModel
from manyheads.train.flops import peak_flops
from manyheads.train.general_data import create_batches, open_general_data
from manyheads.train.log import RunLog, read_log
from manyheads.train.metrics import format_metrics, format_validation
from manyheads.train.objective import Objective
from manyheads.train.optimizer import Optimizer
from manyheads.train.precision import uses_bfloat16
from manyheads.train.preflight import (
    check_adaptation,
    check_compile,
    check_max_positions,
    check_memory,
    check_r_drop,
)
from manyheads.train.retention import find_newest_intact
from manyheads.train.schedule import learning_rate
from manyheads.train.step import EagerStep, PendingStep, StepInput, UpdateStep, prepare_step
from manyheads.train.timing import StartupTimer, format_startup, format_time, summarize_time
from manyheads.train.train_state import TrainProgress, TrainState
from manyheads.train.trained_weights import make_trained_weights
from manyheads.train.validation import Validator

MAX_NONFINITE_STEPS = 5  # in a row, after which the run goes back to its last checkpoint
SAMPLE_TRANSLATIONS = 3  # printed at a validation
AUGMENTATION_ROOM = 8  # one part in this many: on average augmentation adds 2 %, 6 % to short sentences
MAX_AUGMENTERS = 6  # processes that change texts for a rank on a GPU
SWITCH_INTERVAL = 5e-4  # seconds that a thread may run Python while another waits; by default 5e-3
END_MESSAGES = {
    "steps": "all steps are done",
    "seconds": "the time limit is reached",
    "patience": "the validation loss has stopped improving",
}


class Trainer:
    """Run control for one rank."""

    def __init__(
        self,
        config: Config,
        run_folder: Path,
        dist: DistributedContext,
        console: Progress,
        startup: StartupTimer,
    ) -> None:
        self.run_folder, self.dist, self.console = run_folder, dist, console
        self.startup: StartupTimer | None = startup  # until the first step of this process is done
        self.store = Store.open(config.data.folder)
        self._verify_data(self.store)
        startup.mark("data")
        self.config = replace(config, model=checkpoint.fit_to_vocabulary(config.model, self.store.subwords))
        check_memory(self.config.model, dist.device)
        check_compile(self.config)
        check_r_drop(self.config)
        check_adaptation(self.config)
        torch.manual_seed(self.config.train.seed)
        self.model = build_model(self.config.model)
        check_max_positions(self.config)
        self.model.to(dist.device)
        weights = make_trained_weights(self.model, self.config.adaptation)
        optimizer = Optimizer(self.model, self.config.train, weights)
        self.state = TrainState(self.config, self.model, optimizer, self.store)
        self.checkpointer = Checkpointer(self.state, run_folder, dist)
        self.general = open_general_data(self.config, self.store)
        if self.general is not None:
            self._verify_data(self.general)
        self.validator = Validator(self.model, self.config, self.store, dist, self.general)
        startup.mark("model")
        self.batches = create_batches(self.config, self.store, self.general, dist)
        startup.mark("data")
        self.update_step: UpdateStep  # made when the weights are in place
        self.pending: PendingStep | None = None
        self.last_finalized_step = 0
        self.last_time = time.monotonic()  # up to which time is accounted for
        self.seconds_per_step = 0.0  # a moving average
        self.log: RunLog | None = None  # of the main rank

    @property
    def progress(self) -> TrainProgress:
        return self.state.progress

    def initialize(self) -> None:
        """Start a run that has no checkpoint yet, from the weights of `train.init_from` if it is set."""
        if self.config.train.init_from:
            checkpoint.load_initial_weights(
                self.model, self.store.subwords, Path(self.config.train.init_from)
            )
        self.state.optimizer.weights.set_base()

    def resume(self, info: checkpoint.CheckpointInfo) -> None:
        """Continue from a checkpoint."""
        if self.state.optimizer.weights.needs_base:
            self.initialize()
        self.checkpointer.restore(info)

    def _verify_data(self, store: Store) -> None:
        if self.dist.is_main:
            store.verify_once(make_counter(self.console.update, "verifying the data", store.total_bytes))
        self.dist.barrier()

    # ---- the loop

    def train(self, should_stop: Callable[[], bool]) -> str:
        """Train until something ends the run; return the reason: steps, seconds, patience or stopped."""
        if self.startup:
            self.startup.mark("restore")
        if len(self.batches.too_long):
            limit = min(self.config.data.max_length, self.config.data.batch_tokens)
            self.console.message(
                f"skipped {len(self.batches.too_long):,} pairs with more than {limit} tokens on a side"
            )
        if rates := self.config.augmentation.rates:
            shares = ", ".join(f"{name} {rate:.3g}" for name, rate in rates.items())
            self.console.message(f"augmentation, shares of the pairs: {shares}")
        self.update_step = self._make_update_step()
        if self.dist.is_main:
            self.log = RunLog(self.run_folder, self.progress.step, self.console.message)
        switch_interval = sys.getswitchinterval()
        if self.config.augmentation.rates:
            # The thread that prefetches batches changes texts in Python: give steps the interpreter sooner.
            sys.setswitchinterval(SWITCH_INTERVAL)
        try:
            return self._train(should_stop)
        finally:
            sys.setswitchinterval(switch_interval)
            self.checkpointer.writer.close()
            if self.log:
                self.log.close()

    def _make_update_step(self) -> UpdateStep:
        objective = Objective(self.model, self.config.train)
        optimizer, train, max_length = self.state.optimizer, self.config.train, self.config.data.max_length
        if not can_capture(self.config, self.dist.device):
            return EagerStep(objective, optimizer, train, self.dist)
        full_tokens = count_full_tokens(self.config, self.dist.world_size)
        return CapturedStep(
            objective, optimizer, train, self.dist, full_tokens=full_tokens, max_length=max_length
        )

    def _train(self, should_stop: Callable[[], bool]) -> str:
        self.last_time = time.monotonic()
        self.console.update("step", self.progress.step, self.config.train.steps)
        if self.config.train.init_from and self.progress.step == 0:
            self._validate(is_start=True)
        if self.config.train.snapshots and self.progress.step == 0:
            self.checkpointer.save_snapshot()
        while True:
            with self._stream_batches() as stream:
                for batch in stream:
                    if reason := self._reason_to_stop(should_stop):
                        self._finalize_step()
                        if self.progress.nonfinite_steps < MAX_NONFINITE_STEPS:
                            return self._end(reason)
                    else:
                        self._step(batch)
                    if self.progress.nonfinite_steps >= MAX_NONFINITE_STEPS:
                        self._roll_back()
                        break

    def _stream_batches(self) -> BatchStream:
        # A captured step copies batches to the GPU by itself.
        is_cuda = self.dist.device.type == "cuda"
        return self.batches.stream(
            self.progress.epoch,
            self.progress.batch_index,
            pin=is_cuda and not self.update_step.is_async,
            num_processes=self._count_augmenters() if is_cuda else 0,
        )

    def _count_augmenters(self) -> int:
        """Return how many processes change texts: steps on a CPU wait for none, those on a GPU may."""
        cpus = count_cpus() // self.dist.world_size
        return min(MAX_AUGMENTERS, cpus - 2) if self.config.augmentation.rates and cpus > 3 else 0

    def _reason_to_stop(self, should_stop: Callable[[], bool]) -> str | None:
        train, progress = self.config.train, self.progress
        if self.dist.any_rank(should_stop()):
            return "stopped"
        if progress.step >= train.steps:
            return "steps"
        if train.seconds is not None and self.dist.any_rank(progress.seconds >= train.seconds):
            return "seconds"
        if train.patience is not None and progress.validations_since_best >= train.patience:
            return "patience"
        return None

    def _step(self, batch: Batch) -> None:
        """Run one update, then validate and save if due.

        An asynchronous update runs on the GPU while the result of the one before is read.
        """
        train, progress = self.config.train, self.progress
        self.checkpointer.writer.raise_if_failed()
        started = self._start_update(batch)
        self._finalize_step()
        self.pending = started
        progress.epoch, progress.batch_index = batch.epoch, batch.index + 1
        if progress.batch_index == self.batches.count_batches(batch.epoch):
            progress.epoch, progress.batch_index = batch.epoch + 1, 0
        validates = progress.step % train.validate_every == 0
        saves = progress.step % train.checkpoint_every == 0
        is_snapshot = train.snapshots and checkpoint.is_snapshot_step(progress.step)
        if validates or saves or is_snapshot or not self.update_step.is_async:
            self._finalize_step()
        is_best = validates and not progress.nonfinite_steps and self._validate()
        self._account_time()
        if is_snapshot and not progress.nonfinite_steps:
            self.checkpointer.save_snapshot()
            self._account_time()
        if (is_best or saves) and not progress.nonfinite_steps:  # never save what a rollback would undo
            self._save()
            self._account_time()

    def _start_update(self, batch: Batch) -> PendingStep:
        inputs = prepare_step(batch, self.progress.step + 1, self.config, self.dist)
        if not self.model.training:  # after a validation
            self.model.train()
        result = self.update_step.run(inputs)
        self.progress.step = inputs.step
        return PendingStep(inputs, result)

    def _finalize_step(self) -> None:
        """Read the result of the pending update, count it and log it."""
        if self.pending is None:
            return
        pending, self.pending = self.pending, None
        progress, step = self.progress, pending.inputs.step
        norm, loss, nll = pending.result.read()
        self.last_finalized_step = step
        is_finite = math.isfinite(norm) and math.isfinite(loss)
        progress.nonfinite_steps = 0 if is_finite else progress.nonfinite_steps + 1
        progress.skipped_steps += not is_finite
        seconds = self._account_time()
        self._log_startup()
        average = self.seconds_per_step
        self.seconds_per_step = 0.9 * average + 0.1 * seconds if average else seconds
        self.console.update("step", step, self.config.train.steps)
        if self.log and (step % self.config.train.log_every == 0 or step == 1):
            metrics = {
                "loss": loss / pending.inputs.target_tokens,
                "perplexity": perplexity(nll / pending.inputs.target_tokens),
                "grad_norm": norm,
                "skipped_steps": progress.skipped_steps,
                **self._measure_speed(pending.inputs, seconds),
            }
            self.log.write("train", step, metrics)
            shown = metrics | {"bleu": progress.bleu, "seconds_left": self._estimate_seconds_left()}
            self.console.status("step", step, self.config.train.steps, format_metrics(shown))

    def _measure_speed(self, inputs: StepInput, seconds: float) -> dict[str, float]:
        """Return what the update computed, and how fast."""
        tokens = inputs.source_tokens + inputs.target_tokens
        metrics = {
            "learning_rate": inputs.learning_rate,
            "tokens": tokens,
            "flops": inputs.flops,
            "epoch": inputs.epoch,
            "seconds": seconds,
            "run_seconds": self.progress.seconds,
            "tokens_per_second": tokens / seconds,
        }
        limit = peak_flops(self.dist.device)
        if limit and uses_bfloat16(self.config.train, self.dist.device):
            metrics["mfu"] = inputs.flops / seconds / limit / self.dist.world_size
        return metrics

    # ---- time

    def _account_time(self) -> float:
        """Add the seconds since the last call to the run's time, waiting for data included; return them."""
        now = time.monotonic()
        seconds, self.last_time = now - self.last_time, now
        self.progress.seconds += seconds
        return seconds

    def _log_startup(self) -> None:
        """Log the time from the command to the first step of this process, once."""
        if self.startup is None:
            return
        startup, self.startup = self.startup, None
        startup.mark("first_step")
        if self.log:
            entry: dict[str, Any] = startup.to_entry() | {"compile": self.update_step.compile_seconds}
            entry |= {"device": describe_machine(self.dist.device.type), "ranks": self.dist.world_size}
            self.log.write("start", self.checkpointer.start_step, entry)
            self.console.message(format_startup(entry))

    def _estimate_seconds_left(self) -> float:
        """Return the seconds until the step limit or the time limit, whichever comes first."""
        train, progress = self.config.train, self.progress
        seconds = (train.steps - progress.step) * self.seconds_per_step
        return seconds if train.seconds is None else max(0.0, min(seconds, train.seconds - progress.seconds))

    # ---- validation and checkpoints

    def _validate(self, is_start: bool = False) -> bool:
        """Evaluate the model; return whether it is the best so far. Initial weights do not count."""
        if not self.validator.has_data:
            return False
        progress, start = self.progress, time.monotonic()
        loss = self.validator.loss()
        general = self.validator.measure_general(with_bleu=self.log is not None)
        is_best = not is_start and progress.record_validation(loss)
        if self.log:
            metrics: dict[str, Any] = {"loss": loss, "perplexity": perplexity(loss), **general}
            if sample := self.validator.translate_sample():
                progress.bleu = sample.score.value
                metrics |= {"bleu": sample.score.value, "signature": sample.score.signature}
                pairs = zip(sample.sources, sample.translations, strict=True)
                for source, translation in islice(pairs, SAMPLE_TRANSLATIONS):
                    self.console.message(f"  {source}\n  -> {translation}")
            metrics["seconds"] = time.monotonic() - start
            metrics["run_seconds"] = progress.seconds + time.monotonic() - self.last_time
            self.log.write("valid", progress.step, metrics)
            best = ", the best so far" if is_best else ""
            self.console.message(f"valid at step {progress.step:,}: {format_validation(metrics)}{best}")
        self.dist.barrier()
        return is_best

    def _save(self) -> None:
        """Start to write a checkpoint, and log how long training waited for it."""
        start = time.monotonic()
        if self.log:
            self.log.sync()  # the log must have every step that a checkpoint has
        self.checkpointer.save()
        if self.log:
            self.log.write("checkpoint", self.progress.step, {"seconds": time.monotonic() - start})

    def _roll_back(self) -> None:
        """Return to the last intact checkpoint after several nonfinite steps: once, then the run fails."""
        progress, step = self.progress, self.last_finalized_step
        self.checkpointer.writer.wait()
        rate = learning_rate(step, self.config.train, self.config.model.d_model)
        diagnosis = (
            f"{progress.nonfinite_steps} steps in a row had no finite gradient, the last was step {step} "
            f"(learning rate {rate:.2e})"
        )
        folder = find_newest_intact(self.run_folder, self.dist, self.console.message)
        if progress.rolled_back or folder is None:
            raise TrainingError(
                f"{diagnosis}: lower train.learning_rate, raise train.warmup, or set train.clip_norm = 1; "
                f'train.precision = "float32" shows whether rounding is the cause'
            )
        self.console.message(f"{diagnosis}: back to {folder.name}")
        skipped_steps = progress.skipped_steps
        self.resume(checkpoint.read_info(folder))
        self.pending = None
        del self.update_step  # its graphs and copies of the weights, before those of the next are allocated
        self.update_step = self._make_update_step()
        progress = self.progress
        progress.rolled_back, progress.nonfinite_steps, progress.skipped_steps = True, 0, skipped_steps
        if self.log:
            self.log.rewind(progress.step)
            entry = {"from_step": step, "skipped_steps": skipped_steps}
            self.log.write("rollback", progress.step, entry)
        self.dist.barrier()  # until all ranks have read the checkpoint that is now replaced
        self._save()  # or a run that is interrupted now would roll back a second time

    # ---- the end

    def _end(self, reason: str) -> str:
        """Save a last checkpoint and, if the run is over, its model."""
        if self.checkpointer.saved_step != self.progress.step:
            self._save()
        self._account_time()
        self.checkpointer.writer.wait()
        self.dist.barrier()
        if reason != "stopped":
            self.console.message(f"{END_MESSAGES[reason]} after step {self.progress.step:,}")
            final = FinalModel(self.state, self.run_folder, self.dist, self.console)
            entry = final.write(self.checkpointer, self.validator)
            if self.log:
                times = {"run_seconds": self.progress.seconds}
                times["finish_seconds"] = time.monotonic() - self.last_time
                times["compile_seconds"] = self.update_step.compile_seconds
                self.log.write("end", self.progress.step, entry | times)
            self.dist.barrier()
            final.write_card()
        if self.log:
            self.console.message(format_time(summarize_time(read_log(self.log.path))))
        return reason


def count_full_tokens(config: Config, world_size: int) -> int:
    """Return the tokens of a side of a full micro-batch, with room for what augmentation adds."""
    if config.train.micro_batch_tokens:
        return config.train.micro_batch_tokens
    share = -(-config.data.batch_tokens // world_size)
    return share + share // AUGMENTATION_ROOM if config.augmentation.rates else share
