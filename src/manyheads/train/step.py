"""The update step (5.3): forward, backward, gradient accumulation, clipping, optimizer.

A batch is computed in micro-batches whose gradients add up. The loss of an update is the sum over all target
tokens of all micro-batches and ranks, divided by their number, so that neither changes what is learned.
"""

import hashlib
import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from manyheads.config import Config, TrainConfig
from manyheads.cuda.transfer import AsyncCopy
from manyheads.data.batches import Batch
from manyheads.train.distributed import DistributedContext
from manyheads.train.flops import batch_flops
from manyheads.train.objective import Objective
from manyheads.train.optimizer import Optimizer, clip_grad_norm
from manyheads.train.precision import autocast
from manyheads.train.schedule import learning_rate


@dataclass(frozen=True)
class StepInput:
    """What one update is computed from."""

    step: int  # counted from 1
    epoch: int
    micro_batches: list[Batch]  # of this rank
    dropout_seeds: list[int]  # one for each micro-batch
    learning_rate: float
    source_tokens: float  # of all ranks together, as the two below
    target_tokens: float
    flops: float


@dataclass(frozen=True)
class StepResult:
    """The numbers of an update, which may still be on their way from the GPU."""

    values: AsyncCopy  # [3]: gradient norm, loss, negative log-likelihood; the last two are sums over tokens

    @classmethod
    def from_tensor(cls, values: Tensor) -> "StepResult":
        return cls(AsyncCopy.to_host([values]))

    def read(self) -> tuple[float, float, float]:
        """Wait for the gradient norm, the loss and the negative log-likelihood."""
        norm, loss, nll = self.values.wait()[0].tolist()
        return norm, loss, nll


@dataclass(frozen=True)
class PendingStep:
    """An update that was started and whose result was not read yet."""

    inputs: StepInput
    result: StepResult


class UpdateStep(Protocol):
    """Computes updates: eagerly, or as CUDA graphs (captured_step.py)."""

    is_async: bool  # whether run() returns before the update is done

    @property
    def compile_seconds(self) -> float: ...  # spent so far on kernels and graphs, where it is known

    def run(self, inputs: StepInput) -> StepResult: ...


def prepare_step(batch: Batch, step: int, config: Config, dist: DistributedContext) -> StepInput:
    """Split a batch into micro-batches, and count what all ranks compute."""
    train = config.train
    flops = train.forward_passes * batch_flops(config.model, batch)
    totals = dist.all_reduce_sum(len(batch.source.tokens), len(batch.labels.tokens), flops)
    micro_batches = list(batch.split_micro_batches(train.micro_batch_tokens))
    seeds = [dropout_seed(train.seed, step, dist.rank, number) for number in range(len(micro_batches))]
    rate = learning_rate(step, train, config.model.d_model)
    return StepInput(step, batch.epoch, micro_batches, seeds, rate, *totals)


def dropout_seed(seed: int, step: int, rank: int, micro_batch: int) -> int:
    """Return a seed that depends on nothing else, so that a resumed run drops the same numbers."""
    digest = hashlib.blake2b(f"{seed} {step} {rank} {micro_batch}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class EagerStep:
    """The update step, operation by operation."""

    is_async = False
    compile_seconds = 0.0

    def __init__(
        self, objective: Objective, optimizer: Optimizer, train: TrainConfig, dist: DistributedContext
    ) -> None:
        self.model = objective.model
        self.objective = dist.wrap_ddp(objective)
        self.optimizer, self.train, self.dist = optimizer, train, dist

    def run(self, inputs: StepInput) -> StepResult:
        """Update the weights; without a finite loss and gradient nothing changes."""
        buffers = [buffer.clone() for buffer in self.model.buffers()]  # running statistics of batch norm
        self.optimizer.zero_grad()
        loss = nll = torch.zeros((), device=self.dist.device)
        for number, (batch, seed) in enumerate(zip(inputs.micro_batches, inputs.dropout_seeds, strict=True)):
            torch.manual_seed(seed)
            with self._gradient_sync(is_last=number == len(inputs.micro_batches) - 1):
                batch_loss, batch_nll = self._loss(batch)
                # DDP averages over ranks: times world_size, the gradient is that of the sum.
                (batch_loss * (self.dist.world_size / inputs.target_tokens)).backward()
            loss, nll = loss + batch_loss.detach(), nll + batch_nll
        self.optimizer.weights.map_gradients()
        norm = clip_grad_norm(self.optimizer.parameters, self.train.clip_norm)
        total_loss, total_nll = self.dist.all_reduce_sum(loss.item(), nll.item())
        if math.isfinite(norm) and math.isfinite(total_loss):
            self.optimizer.set_learning_rate(inputs.learning_rate)
            self.optimizer.step()
        else:
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
        return StepResult.from_tensor(torch.tensor((norm, total_loss, total_nll), dtype=torch.float64))

    def _loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss and the negative log-likelihood of a micro-batch, summed over tokens."""
        batch = batch.to(self.dist.device)
        with autocast(self.train, self.dist.device):
            loss, nll = self.objective(batch.source, batch.inputs, batch.labels.tokens)
        return loss, nll

    def _gradient_sync(self, *, is_last: bool) -> AbstractContextManager[Any]:
        """Ranks exchange gradients once an update, after its last micro-batch."""
        if is_last or self.dist.world_size == 1:
            return nullcontext()
        return self.objective.no_sync()  # type: ignore[operator, no-any-return]
