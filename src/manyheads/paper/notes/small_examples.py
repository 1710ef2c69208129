"""The small examples of notes C, D and E: numbers that can be checked by hand."""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.config import TrainConfig
from manyheads.model.layers import FeedForward
from manyheads.presets import BASE
from manyheads.train.loss import chunked_loss
from manyheads.train.schedule import learning_rate


def format_number(value: float) -> str:
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.5g}" if abs(value) < 1e-3 else f"{value:.4g}"


def measure_masking() -> dict[str, float]:
    """Masking after the softmax (zero and renormalize) against minus infinity before it."""
    scores = torch.randn(6, 6, dtype=torch.float64)
    visible = torch.ones(6, 6, dtype=torch.bool).tril()
    difference = (mask_before(scores, visible) - mask_after(scores, visible)).abs().max().item()
    far = torch.tensor([[0.0, 0.0, 120.0]])  # the hidden score is much larger
    seen = torch.tensor([[True, True, False]])
    before, after = mask_before(far, seen), mask_after(far, seen)
    learned = far.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(mask_after(learned, seen)[0, 0], learned)
    hidden = torch.zeros(1, 3, dtype=torch.bool)
    return {
        "mask_difference": difference,
        "mask_gap": 120.0,
        "before_weight": before[0, 0].item(),
        "after_is_nan": float(after.isnan().sum().item()),
        "after_gradient_nan": float(gradient.isnan().sum().item()),
        "hidden_rows_nan": float(mask_after(far, hidden).isnan().sum().item()),
        "row_size": float(far.numel()),
    }


def mask_before(scores: Tensor, visible: Tensor) -> Tensor:
    return scores.masked_fill(~visible, -math.inf).softmax(-1)


def mask_after(scores: Tensor, visible: Tensor) -> Tensor:
    weights = scores.softmax(-1) * visible
    return weights / weights.sum(-1, keepdim=True)


def format_small_examples() -> dict[str, str]:
    """The notes' examples that are numbers themselves."""
    left, right = torch.tensor([1.0, -4.0]), torch.tensor([2.0, 3.0])
    node = torch.tensor([3.0, 5.0, -2.0])
    normalized = (node - node.mean()) / node.var(correction=0).sqrt()
    vector = torch.tensor([3.0, 5.0, -2.0, 6.0])
    group = F.group_norm(vector[None, :, None], 2, eps=0)[0, :, 0]
    products = torch.tensor([112.0, 96.0])
    scores = products / BASE.head_dim_k**0.5
    weights, values = scores.softmax(-1), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    smoothed = {name: smoothing_target(name) for name in ("all", "others")}
    return {
        "left": format_vector(left), "right": format_vector(right), "sum": format_vector(left + right),
        "node": format_vector(node), "node_mean": f"{node.mean().item():g}",
        "node_normalized": format_vector(normalized, 2),
        "vector": format_vector(vector), "vector_layer": format_vector(F.layer_norm(vector, (4,), eps=0), 2),
        "vector_group": format_vector(group, 2),
        "thinking": f"{weights[0].item():.2f}", "machines": f"{weights[1].item():.2f}",
        "thinking_products": format_vector(products), "thinking_scores": format_vector(scores),
        "thinking_values": " ".join(map(format_vector, values)),
        "thinking_output": format_vector(weights @ values, 2),
        "target_all": format_vector(smoothed["all"], 3),
        "target_others": format_vector(smoothed["others"], 3),
    }  # fmt: skip


def format_vector(vector: Tensor, digits: int | None = None) -> str:
    numbers = (f"{value:g}" if digits is None else f"{value:.{digits}f}" for value in vector.tolist())
    return f"({', '.join(numbers)})"


def smoothing_target(over: str) -> Tensor:
    """Return the target of our loss for five words: softmax minus the gradient at the logits."""
    logits = torch.zeros(1, 5, dtype=torch.float64, requires_grad=True)
    output = nn.Linear(5, 5, bias=False, dtype=torch.float64)
    with torch.no_grad():
        output.weight.copy_(torch.eye(5))
    train = TrainConfig(label_smoothing=0.1, label_smoothing_over=over)  # type: ignore[arg-type]
    chunked_loss(logits, output, torch.tensor([0]), train).total.backward()
    assert logits.grad is not None
    return (logits.softmax(-1) - logits.grad).detach()[0]


def measure_positions_and_rate() -> dict[str, float]:
    """Wavelengths, the rate at two steps, FFN as convolutions, what embeddings lose without their factor."""
    d = BASE.d_model
    feed_forward, x = FeedForward(replace(BASE, d_model=16, d_ff=32)), torch.randn(7, 16)
    convolved = x.T[None]
    for index, linear in enumerate((feed_forward.w_1, feed_forward.w_2)):
        convolved = F.conv1d(convolved, linear.weight[..., None], linear.bias)
        convolved = convolved.relu() if index == 0 else convolved
    train, last = TrainConfig(), 100_000
    return {
        "beta_1": train.beta1,
        "beta_2": train.beta2,
        "epsilon": train.epsilon,
        "dropout": BASE.dropout,
        "smoothing": train.label_smoothing,
        "affine_numbers": 2.0 * d,
        "rate_factor": d**-0.5,
        "rate_first_fall": 1.0,
        "rate_first_rise": train.warmup**-1.5,
        "rate_last_fall": last**-0.5,
        "rate_last_rise": last * train.warmup**-1.5,
        "shortest_wave": 2 * math.pi,
        "longest_wave": 2 * math.pi * 10000 ** ((d - 2) / d),
        "wave_bound": 2 * math.pi * 10000,
        "convolution_difference": (feed_forward(x) - convolved[0].T).abs().max().item(),
        "embedding_factor": d**0.5,
        "embedding_without": d**-0.5,
        "position_size": 0.5**0.5,
        "rate_first": learning_rate(1, train, d),
        "rate_peak": learning_rate(train.warmup, train, d),
        "rate_last": learning_rate(last, train, d),
        "last_step": float(last),
        "peak_step": float(train.warmup),
    }
