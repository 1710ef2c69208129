"""The training loss (5.4): cross-entropy with label smoothing, and R-Drop.

Label smoothing gives the right word the weight a and every word b, a + K b = 1 (K words, e the smoothing):

    label_smoothing_over = "all"     b = e / K        the right word has 1 - e + e/K, the others e/K
    label_smoothing_over = "others"  b = e / (K - 1)  the right word has 1 - e, the others share e

So the loss of a token whose right word is y, and its gradient by the logits, are

    - a log p_y - b sum_k log p_k            p_k - a [k = y] - b

R-Drop (Liang et al. 2021) runs two forward passes with different dropout masks. With c = r_drop and the
probabilities p and q of the two passes, the loss of a token is the mean of both losses, plus c times the mean
of KL(p|q) = sum_k p_k (log p_k - log q_k) and KL(q|p). The alpha of that paper is 2 c: it adds the losses.

`reference_loss` is the definition. `chunked_loss` computes the same without holding all logits at once
(ops/cross_entropy.py).

Shapes: M forward passes, T tokens, D = d_model, K = vocabulary.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from manyheads.config import TrainConfig
from manyheads.errors import DataError
from manyheads.ops.cross_entropy import LossWeights, linear_cross_entropy


@dataclass(frozen=True)
class Loss:
    """Sums over tokens, so that micro-batches and ranks add up; the update step divides by their number."""

    total: Tensor  # smoothed cross-entropy and R-Drop divergence; has the gradient
    nll: Tensor  # negative log-likelihood of the right words, unsmoothed
    tokens: int


def smoothing_weights(vocab_size: int, train: TrainConfig) -> tuple[float, float]:
    """Return a, the weight of the right word alone, and b, that of every word."""
    smoothed_words = vocab_size if train.label_smoothing_over == "all" else vocab_size - 1
    b = train.label_smoothing / smoothed_words
    return 1 - vocab_size * b, b


def smoothed_targets(labels: Tensor, vocab_size: int, train: TrainConfig) -> Tensor:
    """Return the target distribution. [T, K]"""
    a, b = smoothing_weights(vocab_size, train)
    return a * nn.functional.one_hot(labels, vocab_size).double() + b


def reference_loss(logits_TK: Tensor, labels_T: Tensor, train: TrainConfig) -> Loss:
    """Return the loss by its definition, against which chunked_loss is tested."""
    log_p_TK = logits_TK.log_softmax(-1)
    target_TK = smoothed_targets(labels_T, logits_TK.shape[-1], train).to(log_p_TK.dtype)
    nll = -log_p_TK.gather(1, labels_T[:, None]).sum()
    return Loss(-(target_TK * log_p_TK).sum(), nll.detach(), len(labels_T))


def reference_r_drop_loss(logits_2TK: Tensor, labels_T: Tensor, train: TrainConfig) -> Loss:
    """Return the R-Drop loss of two forward passes by its definition."""
    first, second = (reference_loss(logits_TK, labels_T, train) for logits_TK in logits_2TK)
    log_p_TK, log_q_TK = logits_2TK.log_softmax(-1)
    divergence = ((log_p_TK.exp() - log_q_TK.exp()) * (log_p_TK - log_q_TK)).sum() / 2
    total = (first.total + second.total) / 2 + train.r_drop * divergence
    return Loss(total, (first.nll + second.nll) / 2, len(labels_T))


def chunked_loss(
    hidden_TD: Tensor,
    output: nn.Linear,
    labels_T: Tensor,
    train: TrainConfig,
    *,
    forward_passes: int = 1,
    chunk_logits: int | None = None,
    loss_gradient: Tensor | None = None,
) -> Loss:
    """Return the same loss from `model.hidden` and `model.output`, some tokens at a time.

    With two forward passes, the hidden states of the second follow those of the first. A `loss_gradient`
    is the number from which the backward pass of the total will start, known in advance.
    """
    if len(hidden_TD) != forward_passes * len(labels_T):
        raise DataError(
            f"{len(hidden_TD)} hidden states, but {len(labels_T)} labels: their numbers must be equal"
            + (" in each forward pass" if forward_passes > 1 else "")
        )
    weights = LossWeights(*smoothing_weights(output.out_features, train), train.r_drop)
    hidden_MTD = hidden_TD.view(forward_passes, len(labels_T), hidden_TD.shape[1])
    total, nll = linear_cross_entropy(
        hidden_MTD, output.weight, output.bias, labels_T, weights, chunk_logits, loss_gradient
    )
    return Loss(total, nll, len(labels_T))
