"""How the small models of the experiments learn: with the project's own loss, optimizer and schedule.

Shapes: T tokens of all sentences, D = d_model, K = vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from manyheads.config import TrainConfig, TransformerConfig
from manyheads.model.transformer import Transformer
from manyheads.packed import Packed
from manyheads.train.loss import chunked_loss
from manyheads.train.optimizer import Optimizer, clip_grad_norm
from manyheads.train.schedule import learning_rate

Advance = Callable[[int], None]  # so many more steps are done
FINAL_STEPS = 10  # steps whose mean is the loss in the end
TRAINING = TrainConfig(warmup=30, learning_rate=3e-3, schedule="constant", label_smoothing=0.0)


def ignore_progress(_stage: str, _done: int, _total: int | None) -> None:
    """For who measures without watching."""


def ignore_step(_: int) -> None:
    pass


@dataclass(frozen=True)
class LabeledBatch:
    """Sentences, and the right word at each place.

    With `inputs` a decoder writes them; without, the encoder answers alone, one word for each word it reads.
    """

    source: Packed
    labels_T: Tensor
    inputs: Packed | None = None


@dataclass(frozen=True)
class TrainingHistory:
    """What each step showed."""

    losses: list[float]  # -log p of the right word, before the update
    gradient_norms: list[float]  # norm of the whole gradient
    update_ratios: list[float]  # norm of the update as a share of the norm of the weights it changes

    @property
    def final_loss(self) -> float:
        return mean(self.losses[-FINAL_STEPS:])


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def format_short(value: float) -> str:
    """Two decimals; what is tiny by its power of ten."""
    return f"{value:.1e}" if 0 < value < 0.01 else f"{value:.2f}"


def build_model(config: TransformerConfig, seed: int = 0) -> Transformer:
    """Untrained; two of the same shape and seed are the same.

    Its initial weights are Xavier's: with the default's half of them a model first bets that each word
    follows itself, and some hundred steps are too few to unlearn that and to learn the task.
    """
    torch.manual_seed(seed)
    return Transformer(replace(config, init_gain=1.0))


def compute_hidden(model: Transformer, lesson: LabeledBatch) -> Tensor:
    """What is projected to words. [T, D]"""
    if lesson.inputs is None:
        return model.encode(lesson.source).hidden
    return model.hidden(lesson.source, lesson.inputs)


def compute_gradient(model: Transformer, lesson: LabeledBatch, train: TrainConfig) -> float:
    """Leaves the gradient of the mean loss in the parameters; -log p of the right word, on average."""
    model.zero_grad(set_to_none=True)
    loss = chunked_loss(compute_hidden(model, lesson), model.output, lesson.labels_T, train)
    (loss.total / loss.tokens).backward()
    return loss.nll.item() / loss.tokens


def train_model(
    model: Transformer,
    next_batch: Callable[[], LabeledBatch],
    train: TrainConfig,
    advance: Advance = ignore_step,
) -> TrainingHistory:
    """So many steps as `train` says (5.3), each with a new lesson."""
    optimizer = Optimizer(model, train)
    model.train()
    course = TrainingHistory([], [], [])
    for step in range(1, train.steps + 1):
        course.losses.append(compute_gradient(model, next_batch(), train))
        course.gradient_norms.append(clip_grad_norm(model, train.clip_norm))
        before = flatten_trained_weights(model)
        optimizer.set_learning_rate(learning_rate(step, train, model.config.d_model))
        optimizer.step()
        moved = (flatten_trained_weights(model) - before).norm() / before.norm()
        course.update_ratios.append(moved.item())
        advance(1)
    return course


def flatten_trained_weights(model: Transformer) -> Tensor:
    """In one row; of an encoder that answers alone, the decoder is left out."""
    learning = [one.detach().flatten() for one in model.parameters() if one.grad is not None]
    return torch.cat(learning)


@torch.no_grad()
def measure_accuracy(model: Transformer, lesson: LabeledBatch) -> float:
    """The share of places whose likeliest word is the right one."""
    model.eval()
    guessed_T = model.output(compute_hidden(model, lesson)).argmax(-1)
    right_T: Tensor = guessed_T == lesson.labels_T
    return right_T.double().mean().item()
