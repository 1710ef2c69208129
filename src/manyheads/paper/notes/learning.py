"""Training of the small models of the experiments with the project's own loss, optimizer and schedule.

Shapes: T tokens of all sentences, D = d_model, K = vocabulary.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from manyheads.config import TrainConfig, TransformerConfig
from manyheads.model.transformer import Transformer
from manyheads.packed import Packed
from manyheads.presets import BASE
from manyheads.train.loss import chunked_loss
from manyheads.train.optimizer import Optimizer, clip_grad_norm
from manyheads.train.schedule import learning_rate

Advance = Callable[[int], None]  # argument: number of steps done
XAVIER_GAIN = 1.0  # Xavier's initial weights; the default of the project is half of them
INIT_GAIN: ContextVar[float] = ContextVar("init_gain", default=BASE.init_gain)
FINAL_STEPS = 10  # whose mean is the final loss
TRAINING = TrainConfig(warmup=30, learning_rate=3e-3, schedule="constant", label_smoothing=0.0)


def ignore_progress(_stage: str, _done: int, _total: int | None) -> None:
    """Report nothing."""


def ignore_step(_: int) -> None:
    pass


@dataclass(frozen=True)
class LabeledBatch:
    """Sentences and the label of each token.

    With `inputs` the decoder predicts the labels; without, the encoder alone predicts one label per token.
    """

    source: Packed
    labels_T: Tensor
    inputs: Packed | None = None


@dataclass(frozen=True)
class TrainingHistory:
    """The measurements of each step."""

    losses: list[float]  # -log p of the label, before the update
    gradient_norms: list[float]  # of all parameters
    update_ratios: list[float]  # norm of the update divided by the norm of the updated weights

    @property
    def final_loss(self) -> float:
        return mean(self.losses[-FINAL_STEPS:])


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def format_short(value: float) -> str:
    """Format with two decimals, tiny values in scientific notation."""
    return f"{value:.1e}" if 0 < value < 0.01 else f"{value:.2f}"


@contextmanager
def initial_gain(gain: float) -> Iterator[None]:
    """Build models with this gain of their initial weights, instead of the default."""
    token = INIT_GAIN.set(gain)
    try:
        yield
    finally:
        INIT_GAIN.reset(token)


def build_model(config: TransformerConfig, seed: int = 0) -> Transformer:
    """Build an untrained model; equal configs and seeds give equal weights."""
    torch.manual_seed(seed)
    return Transformer(replace(config, init_gain=INIT_GAIN.get()))


def compute_hidden(model: Transformer, batch: LabeledBatch) -> Tensor:
    """Return the hidden states that are projected to logits. [T, D]"""
    if batch.inputs is None:
        return model.encode(batch.source).hidden
    return model.hidden(batch.source, batch.inputs)


def compute_gradient(model: Transformer, batch: LabeledBatch, train: TrainConfig) -> float:
    """Compute the gradient of the mean loss in the parameters, and return the mean -log p of the labels."""
    model.zero_grad(set_to_none=True)
    loss = chunked_loss(compute_hidden(model, batch), model.output, batch.labels_T, train)
    (loss.total / loss.tokens).backward()
    return loss.nll.item() / loss.tokens


def train_model(
    model: Transformer,
    next_batch: Callable[[], LabeledBatch],
    train: TrainConfig,
    advance: Advance = ignore_step,
) -> TrainingHistory:
    """Train for `train.steps` steps (5.3), each on a new batch."""
    optimizer = Optimizer(model, train)
    model.train()
    history = TrainingHistory([], [], [])
    for step in range(1, train.steps + 1):
        history.losses.append(compute_gradient(model, next_batch(), train))
        history.gradient_norms.append(clip_grad_norm(model.parameters(), train.clip_norm))
        before = flatten_trained_weights(model)
        optimizer.set_learning_rate(learning_rate(step, train, model.config.d_model))
        optimizer.step()
        ratio = (flatten_trained_weights(model) - before).norm() / before.norm()
        history.update_ratios.append(ratio.item())
        advance(1)
    return history


def flatten_trained_weights(model: Transformer) -> Tensor:
    """Return all weights that have a gradient as one vector."""
    trained = [parameter.detach().flatten() for parameter in model.parameters() if parameter.grad is not None]
    return torch.cat(trained)


@torch.no_grad()
def measure_accuracy(model: Transformer, batch: LabeledBatch) -> float:
    """Return the share of tokens whose most likely label is correct."""
    model.eval()
    predicted_T = model.output(compute_hidden(model, batch)).argmax(-1)
    correct_T: Tensor = predicted_T == batch.labels_T
    return correct_T.double().mean().item()
