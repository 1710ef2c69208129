"""The systems of bench/train_step.py: our training step, and those of the peers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import manyheads as mh
from jax_system import JaxSystem
from manyheads.data import batches as data
from manyheads.train.captured_step import CapturedStep, can_capture
from manyheads.train.distributed import DistributedContext
from manyheads.train.objective import Objective
from manyheads.train.optimizer import Optimizer
from manyheads.train.step import StepResult
from packed_transformer import PackedSystem
from peers import Marian, TorchTransformer, TorchTransformerOwnDropout, pad_sentences
from training_system import LEARNING_RATE, TRAIN, TrainingSystem
from workload import WorkloadBatch

OURS = "manyheads"


# ---- ours


class EagerSystem(TrainingSystem):
    """The eager step of `manyheads train`."""

    def __init__(self, config: mh.TransformerConfig, device: str, micro_tokens: int | None = None) -> None:
        self.device, self.micro_tokens = device, micro_tokens
        self.model = mh.Transformer(config).to(device).train()
        self.objective = Objective(self.model, TRAIN)
        self.optimizer = Optimizer(self.model, TRAIN)

    def prepare(self, batch: WorkloadBatch) -> list[data.Batch]:
        """Return the micro-batches of the step."""
        return [part.to(self.device) for part in pack_batch(batch).split_micro_batches(self.micro_tokens)]

    def step(self, batch: list[data.Batch]) -> None:
        self.optimizer.zero_grad()
        for part in batch:
            with autocast(self.device):
                total, _ = self.objective(part.source, part.inputs, part.labels.tokens)
            (total / count_target_tokens(batch)).backward()
        self.optimizer.set_learning_rate(LEARNING_RATE)
        self.optimizer.step()


class CapturedSystem(EagerSystem):
    """The step on a GPU: CUDA graphs, a batch copied by each step, the loss read one step later."""

    warm_up_rounds = 2  # a graph is captured when a size appears for the second time

    def __init__(self, config: mh.TransformerConfig, device: str, micro_tokens: int | None = None) -> None:
        super().__init__(config, device, micro_tokens)
        context = DistributedContext(0, 1, torch.device(device))
        self.captured = CapturedStep(
            self.objective,
            self.optimizer,
            TRAIN,
            context,
            full_tokens=micro_tokens or mh.DataConfig().batch_tokens,
            max_length=mh.DataConfig().max_length,
        )
        self.result: StepResult | None = None
        self.steps = 0

    def prepare(self, batch: WorkloadBatch) -> list[data.Batch]:
        return list(pack_batch(batch).split_micro_batches(self.micro_tokens))

    def step(self, batch: list[data.Batch]) -> None:
        self.steps += 1
        self.captured.zero_grad()
        for part in batch:
            self.captured.accumulate(part, 1 / count_target_tokens(batch), self.steps)
        result = self.captured.apply_update(LEARNING_RATE)
        if self.result:
            self.result.read()
        self.result = result


def make_ours(config: mh.TransformerConfig, device: str, micro_tokens: int | None = None) -> EagerSystem:
    captures = can_capture(mh.Config(model=config, train=TRAIN), torch.device(device))
    return (CapturedSystem if captures else EagerSystem)(config, device, micro_tokens)


def pack_batch(batch: WorkloadBatch) -> data.Batch:
    source, inputs, labels = map(mh.Packed.of, (batch.sources, batch.inputs, batch.labels))
    return data.Batch(source, inputs, labels, np.zeros(0, np.int64), 0, 0)


def count_target_tokens(parts: list[data.Batch]) -> int:
    return sum(len(part.labels.tokens) for part in parts)


def autocast(device: str) -> torch.autocast:
    return torch.autocast(device, torch.bfloat16, enabled=device == "cuda")


# ---- peers


class PeerSystem(TrainingSystem):
    """A peer whose forward pass returns the loss, trained by fused Adam with the paper's settings."""

    def __init__(
        self, peer: Callable[..., Any], compiled: bool, config: mh.TransformerConfig, device: str
    ) -> None:
        self.device, self.multiple = device, 8 if compiled else 1
        self.model = peer(config, TRAIN).to(device).train()
        self.adam = torch.optim.Adam(
            self.model.parameters(),
            lr=LEARNING_RATE,
            betas=(TRAIN.beta1, TRAIN.beta2),
            eps=TRAIN.epsilon,
            fused=True,
        )
        if compiled:
            self.model.compile_layers()

    def prepare(self, batch: WorkloadBatch) -> list[Tensor]:
        self.note = f"padded to multiples of {self.multiple}"
        sides = batch.sources, batch.inputs, batch.labels
        return [pad_sentences(side, self.model.pad, self.multiple).to(self.device) for side in sides]

    def step(self, batch: list[Tensor]) -> None:
        self.adam.zero_grad(set_to_none=True)
        with autocast(self.device):
            loss = self.model(*batch)
        loss.backward()
        self.adam.step()

    def choose_multiple(self, batches: list[WorkloadBatch]) -> None:
        """Choose the faster rounding of padded lengths."""
        seconds = {}
        for self.multiple in (1, 8):
            prepared = [self.prepare(batch) for batch in batches]
            self.time_pass(prepared)
            seconds[self.multiple] = min(self.time_pass(prepared) for _ in range(2))
        self.multiple = min(seconds, key=lambda multiple: seconds[multiple])


SYSTEMS: dict[str, Callable[[mh.TransformerConfig, str], TrainingSystem]] = {
    OURS: make_ours,
    "PyTorch without padding": partial(PackedSystem, "flex"),
    "PyTorch without padding, varlen_attn": partial(PackedSystem, "varlen"),
    "JAX, packed rows": JaxSystem,
    "torch.nn.Transformer": partial(PeerSystem, TorchTransformer, False),
    "torch.nn.Transformer, compiled": partial(PeerSystem, TorchTransformer, True),
    "torch.nn.Transformer, its own dropout": partial(PeerSystem, TorchTransformerOwnDropout, False),
    "Hugging Face Marian": partial(PeerSystem, Marian, False),
    "Hugging Face Marian, compiled": partial(PeerSystem, Marian, True),
}
