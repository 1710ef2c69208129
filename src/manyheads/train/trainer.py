"""Training (section 5): read a batch, sum up its gradient, update; now and then validate and save.

Everything that a step does is a function of (config, step): the order of the data of (seed, epoch), dropout
of (seed, step, rank, part of the batch). So a run that was cut anywhere goes on as if nothing had happened.
"""

import contextlib
import hashlib
import math
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyheads import checkpoint
from manyheads.config import Config, DataConfig
from manyheads.data.batches import Batch, Batches, BatchStream
from manyheads.data.store import Store
from manyheads.errors import CheckpointError, TrainingError
from manyheads.evaluate.report import Score, greedy_bleu
from manyheads.inference.torch_engine import TorchEngine
from manyheads.model import build_model
from manyheads.train.async_writer import AsyncWriter
from manyheads.train.captured_step import CapturedStep, StepResult, can_capture
from manyheads.train.distributed import DistributedContext
from manyheads.train.flops import batch_flops, peak_flops
from manyheads.train.log import RunLog, TrainingConsole
from manyheads.train.loss import chunked_loss
from manyheads.train.objective import Objective
from manyheads.train.optimizer import Optimizer, clip_grad_norm
from manyheads.train.preflight import (
    check_compile,
    check_max_positions,
    check_memory,
    check_r_drop,
    limit_to_positions,
)
from manyheads.train.schedule import learning_rate
from manyheads.translator import Translator

MAX_NONFINITE_STEPS = 5  # steps without a finite gradient, after which something is wrong
SAMPLE_TRANSLATIONS = 3  # translations printed at a validation
END_MESSAGES = {
    "steps": "all steps done",
    "seconds": "time is up",
    "patience": "no better for a while: it ends",
}


@dataclass
class TrainProgress:
    """Where a run stands: what a checkpoint keeps beside weights and moments."""

    step: int = 0  # updates done
    epoch: int = 0
    batch_index: int = 0  # of the next batch
    seconds: float = 0.0
    skipped_steps: int = 0  # steps without a finite gradient
    nonfinite_steps: int = 0  # of these, the latest in a row
    rolled_back: bool = False
    best_loss: float | None = None
    best_step: int = 0
    validations_since_best: int = 0  # validations since the best
    bleu: float | None = None  # of the latest validation


@dataclass(frozen=True)
class PendingStep:
    """An update that was begun, and what is known of it without waiting for it."""

    step: int
    result: StepResult
    target_tokens: float  # of the target
    metrics: dict[str, Any]


class Trainer:
    """One rank of a run."""

    def __init__(self, config: Config, run: Path, world: DistributedContext, screen: TrainingConsole) -> None:
        self.run_folder, self.dist, self.console = run, world, screen
        self.store = Store.open(config.data.folder)
        self.subwords = self.store.subwords
        self.config = replace(config, model=checkpoint.fit_to_vocabulary(config.model, self.subwords))
        check_memory(self.config.model, world.device)
        check_compile(self.config)
        check_r_drop(self.config)
        torch.manual_seed(self.config.train.seed)
        self.model = build_model(self.config.model)
        check_max_positions(self.config)
        self.model.to(world.device)
        self.optimizer = Optimizer(self.model, self.config.train)
        self.batches = self._batches("train", self.config.data)
        self.progress = TrainProgress()
        self.saved_step = -1  # of the newest checkpoint; the same on every rank
        self.mark = time.monotonic()  # up to which time is accounted for
        self.seconds_per_step = 0.0  # seconds a step, lately
        self.engine: TorchEngine | None = None  # that translates at validations
        self.captured: CapturedStep | None = None  # updates as graphs, where they can be
        self.pending: PendingStep | None = None  # an update whose outcome nobody has read yet
        self.settled = 0  # the latest step whose outcome was read
        self.log: RunLog | None = None  # the first rank's
        self.writer = AsyncWriter()  # in which checkpoints are written

    def initialize(self) -> None:
        """A run that has no checkpoint yet, with another model's weights if it is told to."""
        if self.config.train.init_from:
            checkpoint.load_initial_weights(self.model, self.subwords, Path(self.config.train.init_from))

    def _batches(self, split: str, data: DataConfig) -> Batches:
        return Batches(
            self.store.load_split(split),
            data,
            seed=self.config.train.seed,
            rank=self.dist.rank,
            world_size=self.dist.world_size,
            subwords=self.subwords,
        )

    # ---- the run

    def train(self, should_stop: Callable[[], bool]) -> str:
        """Until something ends it, such as being asked to stop; what that was."""
        if len(self.batches.too_long):
            limit = min(self.config.data.max_length, self.config.data.batch_tokens)
            self.console.message(
                f"{len(self.batches.too_long):,} pairs of more than {limit} tokens a side are left out"
            )
        self._prepare_updates()
        self.log = RunLog(self.run_folder, self.progress.step) if self.dist.is_main else None
        try:
            return self._train(should_stop)
        finally:
            self.writer.close()
            if self.log:
                self.log.close()

    def _prepare_updates(self) -> None:
        objective = Objective(self.model, self.config.train)
        self.pending, self.captured = None, None
        if not can_capture(self.config, self.dist.device):
            self.objective = self.dist.wrap_ddp(objective)
            return
        data, size = self.config.data, self.dist.world_size
        full = self.config.train.micro_batch_tokens or -(-data.batch_tokens // size)
        self.captured = CapturedStep(
            objective,
            self.optimizer,
            self.config.train,
            self.dist,
            full_tokens=full,
            max_length=data.max_length,
        )

    def _train(self, asked: Callable[[], bool]) -> str:
        self.mark = time.monotonic()
        self.console.step(self.progress.step, self.config.train.steps)
        while True:
            with self._stream() as stream:
                for batch in stream:
                    if reason := self._reason_to_stop(asked):
                        self._finalize_step()
                        if self.progress.nonfinite_steps < MAX_NONFINITE_STEPS:
                            return self._end(reason)
                    else:
                        self._step(batch)
                    if self.progress.nonfinite_steps >= MAX_NONFINITE_STEPS:
                        self._go_back()
                        break

    def _stream(self) -> BatchStream:
        pin = self.dist.device.type == "cuda" and not self.captured  # which copies batches on its own
        return self.batches.stream(self.progress.epoch, self.progress.batch_index, pin=pin)

    def _reason_to_stop(self, asked: Callable[[], bool]) -> str | None:
        train, place = self.config.train, self.progress
        if self.dist.any_rank(asked()):
            return "asked"
        if place.step >= train.steps:
            return "steps"
        if train.seconds is not None and self.dist.any_rank(place.seconds >= train.seconds):
            return "seconds"
        if train.patience is not None and place.validations_since_best >= train.patience:
            return "patience"
        return None

    def _step(self, batch: Batch) -> None:
        """One update, and what is due after it. A GPU is at work on it while the one before is looked at."""
        train, place = self.config.train, self.progress
        self.writer.raise_if_failed()
        launched = self._update(batch)
        self._finalize_step()
        self.pending = launched
        place.epoch, place.batch_index = batch.epoch, batch.index + 1
        if place.batch_index == self.batches.count_batches(batch.epoch):
            place.epoch, place.batch_index = batch.epoch + 1, 0
        validates, saves = (
            place.step % every == 0 for every in (train.validate_every, train.checkpoint_every)
        )
        if validates or saves or not self.captured:
            self._finalize_step()
        better = validates and not place.nonfinite_steps and self._validate()
        self._account_time()
        if (better or saves) and not place.nonfinite_steps:
            self.save()  # never in the middle of faults, to which nobody wants to go back

    def _account_time(self) -> float:
        """Seconds since the last time, now counted as the run's: waiting for data too."""
        now = time.monotonic()
        passed, self.mark = now - self.mark, now
        self.progress.seconds += passed
        return passed

    def _finalize_step(self) -> None:
        """The outcome of the update under way, read and told."""
        if self.pending is None:
            return
        launched, self.pending = self.pending, None
        train, place = self.config.train, self.progress
        norm, total, nll = launched.result.read()
        self.settled = launched.step
        finite = math.isfinite(norm) and math.isfinite(total)
        place.nonfinite_steps = 0 if finite else place.nonfinite_steps + 1
        place.skipped_steps += not finite
        seconds = self._account_time()
        self.seconds_per_step = (
            0.9 * self.seconds_per_step + 0.1 * seconds if self.seconds_per_step else seconds
        )
        self.console.step(launched.step, train.steps)
        if self.log and (launched.step % train.log_every == 0 or launched.step == 1):
            numbers = {
                "loss": total / launched.target_tokens,
                "perplexity": perplexity(nll / launched.target_tokens),
                "gradient_norm": norm,
                "skipped": place.skipped_steps,
                **launched.metrics,
                **self._speed(launched, seconds),
            }
            self.log.write("train", launched.step, numbers)
            self.console.show_metrics(
                launched.step, train.steps, numbers | {"bleu": place.bleu, "left": self._left()}
            )

    def _speed(self, launched: PendingStep, seconds: float) -> dict[str, float]:
        numbers = {"seconds": seconds, "tokens_per_second": launched.metrics["tokens"] / seconds}
        if self._low_precision() and (limit := peak_flops(self.dist.device)):
            numbers["share_of_peak"] = launched.metrics["flops"] / seconds / limit / self.dist.world_size
        return numbers

    def _left(self) -> float:
        """Seconds until steps or time end the run, at its latest pace."""
        train, place = self.config.train, self.progress
        steps = (train.steps - place.step) * self.seconds_per_step
        return steps if train.seconds is None else max(0.0, min(steps, train.seconds - place.seconds))

    def _update(self, batch: Batch) -> PendingStep:
        """The gradient of the whole batch, over its parts and all ranks, then the optimizer's step (5.3)."""
        train, place = self.config.train, self.progress
        flops_here = train.forward_passes * batch_flops(self.config.model, batch)
        told = len(batch.source.tokens), len(batch.labels.tokens), flops_here
        source_tokens, tokens, flops = self.dist.all_reduce_sum(*told)
        step = place.step + 1
        rate = learning_rate(step, train, self.config.model.d_model)
        parts = list(batch.split_micro_batches(train.micro_batch_tokens))
        seeds = [dropout_seed(train.seed, step, self.dist.rank, number) for number in range(len(parts))]
        if not self.model.training:
            self.model.train()
        if self.captured:
            outcome = self._captured_update(self.captured, parts, seeds, tokens, rate)
        else:
            outcome = self._plain_update(parts, seeds, tokens, rate)
        place.step = step
        numbers = {"tokens": source_tokens + tokens, "flops": flops}
        return PendingStep(step, outcome, tokens, {"learning_rate": rate, **numbers, "epoch": batch.epoch})

    def _captured_update(
        self, captured: CapturedStep, parts: list[Batch], seeds: list[int], tokens: float, rate: float
    ) -> StepResult:
        captured.zero_grad()
        for part, seed in zip(parts, seeds, strict=True):
            captured.accumulate(part, 1 / tokens, seed)
        return captured.apply_update(rate)

    def _plain_update(self, parts: list[Batch], seeds: list[int], tokens: float, rate: float) -> StepResult:
        kept = [buffer.clone() for buffer in self.model.buffers()]  # running statistics, where there are any
        self.optimizer.zero_grad()
        total = nll = torch.zeros((), device=self.dist.device)
        for number, (part, seed) in enumerate(zip(parts, seeds, strict=True)):
            torch.manual_seed(seed)
            with self._synced(number == len(parts) - 1):
                part_total, part_nll = self._loss(part)
                (part_total * (self.dist.world_size / tokens)).backward()
            total, nll = total + part_total.detach(), nll + part_nll
        norm = clip_grad_norm(self.model, self.config.train.clip_norm)
        all_total, all_nll = self.dist.all_reduce_sum(total.item(), nll.item())
        if math.isfinite(norm) and math.isfinite(all_total):
            self.optimizer.set_learning_rate(rate)
            self.optimizer.step()
        else:
            for buffer, before in zip(self.model.buffers(), kept, strict=True):
                buffer.copy_(before)
        return StepResult.from_tensor(torch.tensor((norm, all_total, all_nll), dtype=torch.float64))

    def _synced(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Gradients travel between ranks once an update, with its last part."""
        if last or self.dist.world_size == 1:
            return contextlib.nullcontext()
        return self.objective.no_sync()  # type: ignore[operator, no-any-return]

    def _loss(self, part: Batch) -> tuple[Tensor, Tensor]:
        moved = part.to(self.dist.device)
        with self._precision():
            total, nll = self.objective(moved.source, moved.inputs, moved.labels.tokens)
        return total, nll

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.dist.device.type, torch.bfloat16, enabled=self._low_precision())

    def _low_precision(self) -> bool:
        wanted = self.config.train.precision
        return wanted == "bfloat16" or (wanted == "auto" and self.dist.device.type == "cuda")

    # ---- validation

    def _validate(self) -> bool:
        """Whether it is the best so far."""
        if "valid" not in self.store.splits:
            return False
        place = self.progress
        loss = self.valid_loss()
        better = math.isfinite(loss) and (place.best_loss is None or loss < place.best_loss)
        if better:
            place.best_loss, place.best_step, place.validations_since_best = loss, place.step, 0
        else:
            place.validations_since_best += 1
        if self.log:
            numbers: dict[str, Any] = {"loss": loss, "perplexity": perplexity(loss)}
            if score := self._bleu():
                place.bleu = score.value
                numbers |= {"bleu": score.value, "signature": score.signature}
            self.log.write("valid", place.step, numbers)
            best = ", the best so far" if better else ""
            self.console.message(f"valid at step {place.step:,}: {format_validation(numbers)}{best}")
        self.dist.barrier()
        return better

    @torch.no_grad()
    def valid_loss(self) -> float:
        """The mean negative log-likelihood of valid's tokens, unsmoothed."""
        self.model.eval()
        valid = self._batches("valid", self._whole_sentences())
        nll, tokens = 0.0, 0
        for index in range(valid.count_batches(0)):
            batch = valid.get_batch(0, index).to(self.dist.device)
            with self._precision():
                hidden = self.model.hidden(batch.source, batch.inputs)
                nll += chunked_loss(
                    hidden, self.model.output, batch.labels.tokens, self.config.train
                ).nll.item()
            tokens += len(batch.labels.tokens)
        total, count = self.dist.all_reduce_sum(nll, tokens)
        return total / max(1.0, count)

    def _whole_sentences(self) -> DataConfig:
        """Of valid nothing is left out but what learned positions do not reach; nor is it split anew."""
        longest = limit_to_positions(self.config.model, self.config.data.batch_tokens)
        return replace(self.config.data, subword_regularization=0.0, max_length=longest)

    def _bleu(self) -> Score | None:
        """Of some sentences of valid, by greedy search; a few are shown."""
        count = self.config.train.bleu_sentences
        if not count:
            return None
        fits = self._batches("valid", self._whole_sentences()).usable[:count]
        sources, references = ([lines[number] for number in fits] for lines in self.store.read_text("valid"))
        self.model.eval()
        if self.engine is None:
            precision = self.config.train.precision
            self.engine = TorchEngine(self.model, self.dist.device, precision)
        self.engine.refresh_weights()
        languages = self.store.manifest["languages"]
        translator = Translator(
            self.engine, self.subwords, languages, max_length=self.config.data.batch_tokens
        )
        score, translations = greedy_bleu(translator, sources, references)
        for source, translation in list(zip(sources, translations, strict=True))[:SAMPLE_TRANSLATIONS]:
            self.console.message(f"  {source}\n  -> {translation}")
        return score

    # ---- checkpoints

    def save(self) -> None:
        """A checkpoint of this step, by the first rank: copied now, written while the next steps run."""
        self.saved_step = self.progress.step
        if not self.dist.is_main:
            return
        if self.log:
            self.log.sync()  # no step that is saved may be missing in the log
        self.writer.wait()  # so that there is never more than one copy
        folder, best_step = (
            checkpoint.checkpoint_path(self.run_folder, self.progress.step),
            self.progress.best_step,
        )
        write = self._writer(folder, self._standing())

        def write_and_forget() -> None:
            write()
            self._forget_old(best_step)

        self.writer.submit(write_and_forget)

    def _standing(self) -> dict[str, Any]:
        """The place, and of which data it is one."""
        return {"place": asdict(self.progress), "data": self.store.sha256}

    def _writer(
        self, folder: Path, training: dict[str, Any] | None, step: int | None = None
    ) -> Callable[[], None]:
        """What writes the model as it is now, whenever it is called."""
        return partial(
            checkpoint.save,
            folder,
            copy_to_cpu(checkpoint.collect_weights(self.model)),
            self.subwords,
            self.config,
            step=self.progress.step if step is None else step,
            languages=self.store.manifest["languages"],
            training=training,
            optimizer=copy_to_cpu(self.optimizer.named_state()) if training is not None else None,
        )

    def _forget_old(self, best_step: int) -> None:
        """All but the last few, the best and the newest. Renamed first: half a folder must not look whole."""
        train = self.config.train
        kept = checkpoint.list_regular_checkpoints(self.run_folder, train.checkpoint_every)[
            -max(train.keep_checkpoints, train.average_checkpoints) :
        ]
        kept.append(checkpoint.checkpoint_path(self.run_folder, best_step))
        for old in checkpoint.list_checkpoints(self.run_folder)[:-1]:
            if old not in kept:
                gone = old.with_name(f"{old.name}.gone")
                old.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)

    def resume(self, told: checkpoint.CheckpointInfo) -> None:
        """As the checkpoint left it."""
        folder = told.folder
        checkpoint.check_subwords(folder, self.subwords)
        checkpoint.load_weights(self.model, folder)
        self.optimizer.load_named_state(checkpoint.read_tensors(folder / checkpoint.OPTIMIZER), str(folder))
        self.progress = read_progress(told)
        self.saved_step = self.progress.step

    def _go_back(self) -> None:
        """Several faults in a row: once to the last sound checkpoint, then the end."""
        place = self.progress
        self.writer.wait()
        diagnosis = (
            f"{place.nonfinite_steps} steps in a row had no finite gradient, the last of them step {self.settled} "
            f"(learning rate {learning_rate(self.settled, self.config.train, self.config.model.d_model):.2e})"
        )
        back = self._newest_sound()
        if place.rolled_back or back is None:
            raise TrainingError(
                f"{diagnosis}: lower train.learning_rate or raise train.warmup, set train.clip_norm=1, "
                f'or look at the batch; train.precision="float32" tells whether rounding is at fault'
            )
        self.console.message(f"{diagnosis}: back to {back.name}")
        skipped, last = place.skipped_steps, self.settled
        self.resume(checkpoint.read_info(back))
        self._prepare_updates()
        self.progress.rolled_back, self.progress.nonfinite_steps, self.progress.skipped_steps = (
            True,
            0,
            skipped,
        )
        if self.log:
            self.log.rewind(self.progress.step)
            self.log.write("back", self.progress.step, {"from": last, "skipped": skipped})
        self.dist.barrier()  # until all have read what is now written anew
        self.save()  # or a run that is cut now would go back a second time

    def _newest_sound(self) -> Path | None:
        """As the first rank sees it."""
        step = -1
        if self.dist.is_main:
            sound = (
                one for one in reversed(checkpoint.list_checkpoints(self.run_folder)) if not self._fault(one)
            )
            step = next(map(checkpoint.parse_step, sound), -1)
        step = self.dist.broadcast(step)
        return None if step < 0 else checkpoint.checkpoint_path(self.run_folder, step)

    def _end(self, reason: str) -> str:
        """A last checkpoint; when the run is over, the model that came of it."""
        if self.saved_step != self.progress.step:
            self.save()
        self.writer.wait()
        self.dist.barrier()
        if reason != "asked":
            self.console.message(f"{END_MESSAGES[reason]} after step {self.progress.step:,}")
            self._choose_model()
        return reason

    def _choose_model(self) -> None:
        """The mean of the last checkpoints (6.1), or the best single one, whichever valid prefers."""
        train = self.config.train
        last = self._sound(
            checkpoint.list_averaged_checkpoints(self.run_folder, train.checkpoint_every)[
                -train.average_checkpoints :
            ]
        )
        candidates = {f"mean of {len(last)}": checkpoint.average_weights(last)} if last else {}
        best = checkpoint.checkpoint_path(self.run_folder, self.progress.best_step)
        if self.progress.best_step and [best] != last and self._sound([best]):
            candidates[f"best, {best.name}"] = checkpoint.read_tensors(best / checkpoint.WEIGHTS)
        if not candidates:  # a disk that keeps nothing; what is in memory is sound
            weights = checkpoint.collect_weights(self.model)
            candidates["last step"] = {name: one.detach().clone() for name, one in weights.items()}
        losses = dict.fromkeys(candidates, math.inf)
        for name, weights in candidates.items():
            checkpoint.copy_weights(self.model, weights, name)
            if "valid" in self.store.splits:
                losses[name] = self.valid_loss()
        chosen = min(losses, key=lambda name: losses[name] if math.isfinite(losses[name]) else math.inf)
        checkpoint.copy_weights(self.model, candidates[chosen], chosen)
        if self.dist.is_main:
            self._writer(
                self.run_folder / "model", None, self.progress.best_step if "best" in chosen else None
            )()
            self.console.message(f"{self.run_folder / 'model'}: {chosen}")
        if self.log:
            self.log.write("end", self.progress.step, {"model": chosen, "loss": losses[chosen]})
        self.dist.barrier()

    def _sound(self, folders: list[Path]) -> list[Path]:
        """Those whose every byte is as it was written, by the first rank's word."""
        is_sound = sum(
            (not self._fault(folder)) << place for place, folder in enumerate(folders) if self.dist.is_main
        )
        is_sound = self.dist.broadcast(is_sound)
        return [folder for place, folder in enumerate(folders) if is_sound >> place & 1]

    def _fault(self, folder: Path) -> bool:
        """Whether it is damaged, which is then said."""
        fault = checkpoint.find_damage(folder)
        if fault:
            self.console.message(f"{fault}; left out")
        return fault is not None


def copy_to_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """In the host's memory, whatever becomes of them now."""
    return {name: one.detach().to("cpu", copy=True) for name, one in tensors.items()}


def perplexity(nll: float) -> float:
    """Per subword, of the mean negative log-likelihood; infinite rather than an overflow."""
    return math.exp(nll) if nll < 700 else math.inf if nll == nll else math.nan


def format_validation(numbers: dict[str, Any]) -> str:
    text = f"perplexity {numbers['perplexity']:.2f}"
    return f"{text}, BLEU {numbers['bleu']:.2f} ({numbers['signature']})" if "bleu" in numbers else text


def dropout_seed(seed: int, step: int, rank: int, part: int) -> int:
    digest = hashlib.blake2b(f"{seed} {step} {rank} {part}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def read_progress(told: checkpoint.CheckpointInfo) -> TrainProgress:
    try:
        return TrainProgress(**told.training["place"])
    except (KeyError, TypeError):
        raise CheckpointError(
            f"{told.folder}: does not say where its run stood; it is a model to start from"
        ) from None
