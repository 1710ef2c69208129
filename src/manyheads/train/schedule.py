"""The learning rate as a function of the step (5.3), counted from 1.

    lrate = d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)                           (3)

Computed as the peak, reached at the end of the warm-up, times a factor between 0 and 1.
"""

import math

from manyheads.config import TrainConfig


def learning_rate(step: int, train: TrainConfig, d_model: int) -> float:
    """Return the learning rate of an update; the first step is 1."""
    if step < 1:
        raise ValueError(f"steps are counted from 1, not {step}")
    paper_peak = (d_model * train.warmup) ** -0.5
    peak = paper_peak if train.learning_rate is None else train.learning_rate
    if step <= train.warmup:
        return peak * step / train.warmup
    return peak * decay_factor(step, train)


def decay_factor(step: int, train: TrainConfig) -> float:
    """Return the fraction of the peak after the warm-up."""
    if train.schedule == "constant":
        return 1.0
    if train.schedule == "paper":
        return math.sqrt(train.warmup / step)
    end = max(train.steps, train.warmup) + 1  # where it reaches 0, so that the last update still counts
    done = min(1.0, (step - train.warmup) / (end - train.warmup))
    return 1 - done if train.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
