"""The training loss (5.4): cross-entropy against smoothed labels, without ever holding all the logits.

A smoothed label gives the right word a and every word b, a + K b = 1 (K words, e = label_smoothing):

    over "all"     b = e / K        the right word has 1 - e + e/K, the others e/K
    over "others"  b = e / (K - 1)  the right word has 1 - e, the others share e

so that the loss of a token whose right word is y, and its gradient by the logits z, are

    - a log p_y - b sum_k log p_k            p_k - a [k = y] - b

Shapes: T tokens, C tokens of a chunk, D = d_model, K = vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from manyheads import kernels
from manyheads.config import TrainConfig
from manyheads.errors import DataError

CHUNK_LOGITS = 2**24  # numbers of [C, K] held at once, twice: 2 x 64 MiB in float32
CHUNK_LOGITS_OF_KERNEL = 5 * 2**26  # by the kernel, which needs them once: 640 MiB in bfloat16


@dataclass(frozen=True)
class Loss:
    """Sums, so that micro-batches and ranks add up; whoever updates divides by all their tokens."""

    total: Tensor  # the smoothed cross-entropy, summed over tokens; has the gradient
    nll: Tensor  # -log p of the right words: the negative log-likelihood, unsmoothed, summed
    tokens: int

    @property
    def perplexity(self) -> float:
        """Per subword, of the unsmoothed likelihood."""
        return self.nll.double().div(max(1, self.tokens)).exp().item()


def smoothing_weights(words: int, train: TrainConfig) -> tuple[float, float]:
    """(a, b): what the right word gets by itself, and what every word gets."""
    everyone = words if train.smoothing_over == "all" else words - 1
    b = train.label_smoothing / everyone
    return 1 - words * b, b


def smoothed(labels: Tensor, words: int, train: TrainConfig) -> Tensor:
    """The target distribution itself, as the paper describes it. [T, K]"""
    a, b = smoothing_weights(words, train)
    return a * nn.functional.one_hot(labels, words).double() + b


def plain_loss(logits_TK: Tensor, labels_T: Tensor, train: TrainConfig) -> Loss:
    """The definition: what chunked_loss is tested against, and what a reader reads first."""
    log_p_TK = logits_TK.log_softmax(-1)
    target_TK = smoothed(labels_T, logits_TK.shape[-1], train).to(log_p_TK.dtype)
    nll = -log_p_TK.gather(1, labels_T[:, None]).sum()
    return Loss(-(target_TK * log_p_TK).sum(), nll.detach(), len(labels_T))


def chunked_loss(
    hidden_TD: Tensor,
    output: nn.Linear,
    labels_T: Tensor,
    train: TrainConfig,
    *,
    chunk_logits: int | None = None,
) -> Loss:
    """The same over `model.hidden` and `model.output`, some tokens at a time."""
    if len(hidden_TD) != len(labels_T):
        raise DataError(f"{len(hidden_TD)} hidden states, but {len(labels_T)} labels: there is one for each")
    chunk = max(1, (chunk_logits or most_logits(hidden_TD)) // output.out_features)
    smoothing = smoothing_weights(output.out_features, train)
    learning = torch.is_grad_enabled() and (hidden_TD.requires_grad or output.weight.requires_grad)
    inputs = hidden_TD, output.weight, output.bias, labels_T
    total, nll = _ChunkedLoss.apply(*inputs, smoothing, chunk, learning)  # type: ignore[no-untyped-call]
    return Loss(total, nll, len(labels_T))


def most_logits(hidden_TD: Tensor) -> int:
    """That are held at once."""
    by_kernel = kernels.serve(hidden_TD.new_empty(0, dtype=product_dtype(hidden_TD)))
    return CHUNK_LOGITS_OF_KERNEL if by_kernel else CHUNK_LOGITS


class _ChunkedLoss(torch.autograd.Function):
    """A chunk's gradient is known as soon as its logits are: both are used and forgotten at once."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_TD: Tensor,
        weight_KD: Tensor,
        bias_K: Tensor | None,
        labels_T: Tensor,
        smoothing: tuple[float, float],
        chunk: int,
        learning: bool,
    ) -> tuple[Tensor, Tensor]:
        device, dtype = hidden_TD.device.type, product_dtype(hidden_TD)
        with torch.autocast(device, enabled=False):
            total, nll, *gradients = chunk_by_chunk(
                hidden_TD.to(dtype),
                weight_KD.to(dtype),
                None if bias_K is None else bias_K.to(dtype),
                labels_T,
                smoothing,
                chunk,
                learning,
            )
        ctx.save_for_backward(*gradients)
        ctx.dtypes = [one.dtype for one in (hidden_TD, weight_KD, bias_K) if one is not None]
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients: list[Tensor | None] = [
            (gradient * grad_total).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return *gradients, *[None] * (7 - len(gradients))  # seven inputs, and these are the first


def product_dtype(hidden_TD: Tensor) -> torch.dtype:
    """As autocast has it; but float64 stays, and float16 would lose gradients before anything scales them."""
    device, dtype = hidden_TD.device.type, hidden_TD.dtype
    if torch.is_autocast_enabled(device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    return torch.float32 if dtype == torch.float16 else dtype


def chunk_by_chunk(
    hidden_TD: Tensor,
    weight_KD: Tensor,
    bias_K: Tensor | None,
    labels_T: Tensor,
    smoothing: tuple[float, float],
    chunk: int,
    learning: bool,
) -> list[Tensor]:
    """The loss and the negative log-likelihood, summed; when learning, the gradients of the inputs too.

    Products are made in the dtype of the inputs, sums are kept in at least float32.
    """
    dtype = torch.promote_types(hidden_TD.dtype, torch.float32)
    total, nll = (hidden_TD.new_zeros((), dtype=dtype) for _ in range(2))
    gradients = []
    if learning:
        summed = [weight_KD] if bias_K is None else [weight_KD, bias_K]
        gradients = [torch.empty_like(hidden_TD), *(torch.zeros_like(one, dtype=dtype) for one in summed)]
    logits_CK = hidden_TD.new_empty(min(chunk, len(labels_T)), len(weight_KD))
    judge = by_kernel if kernels.serve(logits_CK) else by_definition(torch.empty_like(logits_CK, dtype=dtype))
    for first in range(0, len(labels_T), chunk):
        hidden_CD, labels_C = hidden_TD[first : first + chunk], labels_T[first : first + chunk]
        logits = torch.mm(hidden_CD, weight_KD.T, out=logits_CK[: len(labels_C)])
        if bias_K is not None:
            logits += bias_K
        chunk_total, chunk_nll, exact = judge(logits, labels_C, smoothing, learning)
        total += chunk_total
        nll += chunk_nll
        if learning:
            by_hidden_TD, by_weight_KD, *by_bias_K = gradients
            by_logits = exact.to(hidden_TD.dtype)
            torch.mm(by_logits, weight_KD, out=by_hidden_TD[first : first + chunk])
            add_product(by_weight_KD, by_logits.T, hidden_CD)
            for by_bias in by_bias_K:
                by_bias += exact.sum(0, dtype=dtype)
    return [total, nll, *gradients]


Judge = Callable[[Tensor, Tensor, tuple[float, float], bool], tuple[Tensor, Tensor, Tensor]]


def by_definition(log_p_CK: Tensor) -> Judge:
    """The loss, -log p of the right words and, when learning, the gradient by the logits; in a given room."""

    def judge(
        logits: Tensor, labels_C: Tensor, smoothing: tuple[float, float], learning: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        log_p = torch.log_softmax(logits, -1, dtype=log_p_CK.dtype, out=log_p_CK[: len(labels_C)])
        of_labels = -log_p.gather(1, labels_C[:, None]).sum()
        a, b = smoothing
        total = a * of_labels - b * log_p.sum()
        return total, of_labels, logit_gradient(log_p, labels_C, smoothing) if learning else log_p

    return judge


def logit_gradient(log_p_CK: Tensor, labels_C: Tensor, smoothing: tuple[float, float]) -> Tensor:
    """p - a [k = y] - b, written over the log-probabilities. [C, K]"""
    a, b = smoothing
    gradient_CK = log_p_CK.exp_().sub_(b)
    gradient_CK[torch.arange(len(labels_C), device=labels_C.device), labels_C] -= a
    return gradient_CK


def by_kernel(
    logits_CK: Tensor, labels_C: Tensor, smoothing: tuple[float, float], learning: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The same on a GPU, over the logits themselves. Labels of -1 do not count."""
    from manyheads.kernels.cross_entropy import cross_entropy_

    loss_C, nll_C = cross_entropy_(logits_CK, labels_C, smoothing)
    return loss_C.sum(), nll_C.sum(), logits_CK


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, without a temporary where the dtypes allow it."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right
