"""The training loss (5.4): cross-entropy against smoothed labels, without ever holding all the logits.

A smoothed label gives the right word a and every word b, a + K b = 1 (K words, e = label_smoothing):

    over "all"     b = e / K        the right word has 1 - e + e/K, the others e/K
    over "others"  b = e / (K - 1)  the right word has 1 - e, the others share e

so that the loss of a token whose right word is y, and its gradient by the logits z, are

    - a log p_y - b sum_k log p_k            p_k - a [k = y] - b

With R-Drop (Liang et al. 2021) a batch passes twice, each time with another dropout mask. With c = r_drop and
the probabilities p and q of the two passes, the loss of a token is the mean of both, and c times the mean of
KL(p|q) = sum_k p_k (log p_k - log q_k) and KL(q|p). Their alpha is 2 c, for they add the losses up.

`reference_loss` is the definition. `chunked_loss` computes the same in ops/cross_entropy.py.

Shapes: M forward passes, T tokens, D = d_model, K = vocabulary.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from manyheads.config import TrainConfig
from manyheads.errors import DataError
from manyheads.ops.cross_entropy import LossWeights, linear_cross_entropy


@dataclass(frozen=True)
class Loss:
    """Sums, so that micro-batches and ranks add up; whoever updates divides by all their tokens."""

    total: Tensor  # the smoothed cross-entropy and what readings disagree on, summed; has the gradient
    nll: Tensor  # -log p of the right words: the negative log-likelihood, unsmoothed, summed
    tokens: int

    @property
    def perplexity(self) -> float:
        """Per subword, of the unsmoothed likelihood."""
        return self.nll.double().div(max(1, self.tokens)).exp().item()


def smoothing_weights(vocab_size: int, train: TrainConfig) -> tuple[float, float]:
    """(a, b): what the right word gets by itself, and what every word gets."""
    everyone = vocab_size if train.smoothing == "all" else vocab_size - 1
    b = train.label_smoothing / everyone
    return 1 - vocab_size * b, b


def smoothed_targets(labels: Tensor, vocab_size: int, train: TrainConfig) -> Tensor:
    """The target distribution itself, as the paper describes it. [T, K]"""
    a, b = smoothing_weights(vocab_size, train)
    return a * nn.functional.one_hot(labels, vocab_size).double() + b


def reference_loss(logits_TK: Tensor, labels_T: Tensor, train: TrainConfig) -> Loss:
    """The definition: what chunked_loss is tested against, and what a reader reads first."""
    log_p_TK = logits_TK.log_softmax(-1)
    target_TK = smoothed_targets(labels_T, logits_TK.shape[-1], train).to(log_p_TK.dtype)
    nll = -log_p_TK.gather(1, labels_T[:, None]).sum()
    return Loss(-(target_TK * log_p_TK).sum(), nll.detach(), len(labels_T))


def reference_r_drop_loss(logits_2TK: Tensor, labels_T: Tensor, train: TrainConfig) -> Loss:
    """The same of two readings: the mean of their losses, and how far they disagree."""
    first, second = (reference_loss(logits_TK, labels_T, train) for logits_TK in logits_2TK)
    log_p_TK, log_q_TK = logits_2TK.log_softmax(-1)
    apart = ((log_p_TK.exp() - log_q_TK.exp()) * (log_p_TK - log_q_TK)).sum() / 2
    total = (first.total + second.total) / 2 + train.r_drop * apart
    return Loss(total, (first.nll + second.nll) / 2, len(labels_T))


def chunked_loss(
    hidden_TD: Tensor,
    output: nn.Linear,
    labels_T: Tensor,
    train: TrainConfig,
    *,
    forward_passes: int = 1,
    chunk_logits: int | None = None,
) -> Loss:
    """Return the same loss from `model.hidden` and `model.output`, some tokens at a time.

    With two forward passes, the hidden states of the second follow those of the first.
    """
    if len(hidden_TD) != forward_passes * len(labels_T):
        raise DataError(
            f"{len(hidden_TD)} hidden states, but {len(labels_T)} labels: there is one for each"
            + (" in each forward pass" if forward_passes > 1 else "")
        )
    weights = LossWeights(*smoothing_weights(output.out_features, train), train.r_drop)
    hidden_MTD = hidden_TD.view(forward_passes, len(labels_T), hidden_TD.shape[1])
    total, nll = linear_cross_entropy(hidden_MTD, output.weight, output.bias, labels_T, weights, chunk_logits)
    return Loss(total, nll, len(labels_T))
