"""Cross-entropy of an output projection against smoothed labels (5.4), without holding all the logits.

With K classes, the label y and the weights a, b, c of LossWeights, the loss of a token and its gradient by
the logits z are

    - a log p_y - b sum_k log p_k            p_k - a [k = y] - b

Of two forward passes (R-Drop, Liang et al. 2021) with the probabilities p and q, the loss is the mean of both
and c times the mean of KL(p|q) = sum_k p_k (log p_k - log q_k) and KL(q|p). By the logits of p

    KL(p|q) has the gradient  p_k (log p_k - log q_k - KL(p|q)),     KL(q|p)  p_k - q_k

Shapes: M forward passes, T tokens, C tokens of a chunk, D = d_model, K = vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyheads.ops import dispatch

IGNORE_INDEX = -1  # the label of a token that does not count; on a CUDA device in half precision only
CHUNK_LOGITS = 2**24  # elements of [M, C, K] held at once, twice (R-Drop: more often): 64 MiB each
KERNEL_CHUNK_LOGITS = 5 * 2**26  # for the kernel, which needs them once: 640 MiB in bfloat16


@dataclass(frozen=True)
class LossWeights:
    """The letters above."""

    a: float  # of the label
    b: float  # of every class
    c: float  # of the disagreement of two forward passes


def linear_cross_entropy(
    hidden_MTD: Tensor,
    weight_KD: Tensor,
    bias_K: Tensor | None,
    labels_T: Tensor,
    weights: LossWeights,
    chunk_logits: int | None = None,
    loss_gradient: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the sums of the loss, which has a gradient, and of the negative log-likelihood.

    Where the backward pass will start from a `loss_gradient` that is known now, the kernel multiplies by it
    on its way. The backward pass must then be called with just that one.
    """
    chunk = (chunk_logits or max_chunk_logits(hidden_MTD)) // len(weight_KD) // len(hidden_MTD)
    needs_gradient = torch.is_grad_enabled() and (hidden_MTD.requires_grad or weight_KD.requires_grad)
    total, nll = _LinearCrossEntropy.apply(
        hidden_MTD, weight_KD, bias_K, labels_T, weights, max(1, chunk), needs_gradient, loss_gradient
    )
    return total, nll


def max_chunk_logits(hidden: Tensor) -> int:
    """Return how many logits are held at once."""
    has_kernel = dispatch.use_kernels(hidden.new_empty(0, dtype=dispatch.loss_dtype(hidden)))
    return KERNEL_CHUNK_LOGITS if has_kernel else CHUNK_LOGITS


class _LinearCrossEntropy(torch.autograd.Function):
    """The gradient of a chunk is known as soon as its logits are, so the forward pass computes both."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_MTD: Tensor,
        weight_KD: Tensor,
        bias_K: Tensor | None,
        labels_T: Tensor,
        weights: LossWeights,
        chunk: int,
        needs_gradient: bool,
        loss_gradient: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        dtype = dispatch.loss_dtype(hidden_MTD)
        with dispatch.autocast_disabled(hidden_MTD):
            total, nll, *gradients = chunked_cross_entropy(
                hidden_MTD.to(dtype),
                weight_KD.to(dtype),
                None if bias_K is None else bias_K.to(dtype),
                labels_T,
                weights,
                chunk,
                needs_gradient,
                loss_gradient,
            )
        ctx.save_for_backward(*gradients)
        ctx.dtypes = [x.dtype for x in (hidden_MTD, weight_KD, bias_K) if x is not None]
        ctx.is_scaled = loss_gradient is not None
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients: list[Tensor | None] = [
            (gradient if ctx.is_scaled else gradient * grad_total).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return *gradients, *[None] * (8 - len(gradients))  # eight inputs, and these are the first


def chunked_cross_entropy(
    hidden_MTD: Tensor,
    weight_KD: Tensor,
    bias_K: Tensor | None,
    labels_T: Tensor,
    weights: LossWeights,
    chunk: int,
    needs_gradient: bool,
    loss_gradient: Tensor | None = None,
) -> list[Tensor]:
    """Return the loss, the negative log-likelihood and, if needed, the gradients of hidden, weight and bias.

    The gradients are times `loss_gradient`, if it is given, the others are not.
    Matrix products are in the dtype of the inputs, sums in at least float32.
    """
    dtype = torch.promote_types(hidden_MTD.dtype, torch.float32)
    total, nll = (hidden_MTD.new_zeros((), dtype=dtype) for _ in range(2))
    gradients = []
    if needs_gradient:
        summed = [weight_KD] if bias_K is None else [weight_KD, bias_K]
        gradients = [torch.empty_like(hidden_MTD), *(torch.zeros_like(x, dtype=dtype) for x in summed)]
    logits_MCK = hidden_MTD.new_empty(len(hidden_MTD), min(chunk, len(labels_T)), len(weight_KD))
    cross_entropy = choose_cross_entropy(logits_MCK, dtype, loss_gradient)
    for start in range(0, len(labels_T), chunk):
        hidden_MCD, labels_C = hidden_MTD[:, start : start + chunk], labels_T[start : start + chunk]
        logits = logits_MCK[:, : len(labels_C)]
        for hidden_CD, logits_CK in zip(hidden_MCD, logits, strict=True):
            torch.mm(hidden_CD, weight_KD.T, out=logits_CK)
        if bias_K is not None:
            logits += bias_K
        chunk_total, chunk_nll, d_logits_exact = cross_entropy(logits, labels_C, weights, needs_gradient)
        total += chunk_total
        nll += chunk_nll
        if needs_gradient:
            d_hidden_MTD, d_weight_KD, *d_biases = gradients
            d_hidden_MCD = d_hidden_MTD[:, start : start + chunk]
            d_logits = d_logits_exact.to(hidden_MTD.dtype)
            for d_logits_CK, hidden_CD, d_hidden_CD in zip(d_logits, hidden_MCD, d_hidden_MCD, strict=True):
                torch.mm(d_logits_CK, weight_KD, out=d_hidden_CD)
                add_matmul(d_weight_KD, d_logits_CK.T, hidden_CD)
            for d_bias_K in d_biases:
                d_bias_K += d_logits_exact.sum((0, 1), dtype=dtype)
    return [total, nll, *gradients]


# Takes logits [M, C, K], labels, weights and whether the gradient is needed; returns the loss, the negative
# log-likelihood and the gradient by the logits [M, C, K].
CrossEntropy = Callable[[Tensor, Tensor, LossWeights, bool], tuple[Tensor, Tensor, Tensor]]


def choose_cross_entropy(
    logits_MCK: Tensor, dtype: torch.dtype, loss_gradient: Tensor | None
) -> CrossEntropy:
    """Return the kernel, or the reference with a buffer of its own for every chunk of these logits."""
    if dispatch.use_kernels(logits_MCK):
        return partial(triton_cross_entropy, loss_gradient=loss_gradient)
    buffer_MCK = torch.empty_like(logits_MCK, dtype=dtype)

    def cross_entropy(
        logits: Tensor, labels_C: Tensor, weights: LossWeights, needs_gradient: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        total, nll, gradient = reference_cross_entropy(logits, labels_C, weights, needs_gradient, buffer_MCK)
        return total, nll, gradient if loss_gradient is None else gradient.mul_(loss_gradient)

    return cross_entropy


def reference_cross_entropy(
    logits: Tensor, labels_C: Tensor, weights: LossWeights, needs_gradient: bool, buffer_MCK: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The formulas above in plain torch. The gradient is written into the buffer."""
    passes = len(logits)
    log_p = torch.log_softmax(logits, -1, dtype=buffer_MCK.dtype, out=buffer_MCK[:, : len(labels_C)])
    nll = -log_p.gather(2, labels_C.expand(passes, -1)[..., None]).sum() / passes
    total = weights.a * nll - weights.b * log_p.sum() / passes
    if passes == 1:
        return total, nll, logit_gradient(log_p, labels_C, weights) if needs_gradient else log_p
    divergence, d_divergence = symmetric_kl(log_p)
    total += weights.c * divergence
    if not needs_gradient:
        return total, nll, log_p
    gradient = logit_gradient(log_p, labels_C, weights).div_(passes).add_(d_divergence, alpha=weights.c)
    return total, nll, gradient


def logit_gradient(log_p_MCK: Tensor, labels_C: Tensor, weights: LossWeights) -> Tensor:
    """Return p - a [k = y] - b, written over the log-probabilities. [M, C, K]"""
    gradient_MCK = log_p_MCK.exp_().sub_(weights.b)
    gradient_MCK[:, torch.arange(len(labels_C), device=labels_C.device), labels_C] -= weights.a
    return gradient_MCK


def symmetric_kl(log_p_2CK: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of KL(p|q) and KL(q|p), summed over tokens, and its gradient. [2, C, K]"""
    p_2CK, ratio_2CK = log_p_2CK.exp(), log_p_2CK - log_p_2CK.flip(0)
    divergence_2C1 = (p_2CK * ratio_2CK).sum(-1, keepdim=True)
    gradient_2CK = ratio_2CK.sub_(divergence_2C1 - 1).mul_(p_2CK).sub_(p_2CK.flip(0)).div_(2)
    return divergence_2C1.sum() / 2, gradient_2CK


def triton_cross_entropy(
    logits_MCK: Tensor,
    labels_C: Tensor,
    weights: LossWeights,
    needs_gradient: bool,
    loss_gradient: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The kernel. The gradient is written over the logits; labels of IGNORE_INDEX do not count."""
    from manyheads.ops.cross_entropy_triton import cross_entropy_

    smoothing = weights.a, weights.b
    loss_C, nll_C = cross_entropy_(
        logits_MCK, labels_C, smoothing, weights.c, IGNORE_INDEX, loss_gradient=loss_gradient
    )
    return loss_C.sum(), nll_C.sum(), logits_MCK


def add_matmul(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left @ right to total, without a temporary where the dtypes allow it."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    elif dispatch.use_kernels(left):
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    else:
        total += left @ right
