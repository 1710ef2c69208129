"""The smoothed cross-entropy of logits (5.4) and its gradient, written over them.

A row of logits is read twice, the second time out of the GPU's cache, and only its gradient is left. A token
whose label is IGNORED adds nothing, and its gradient is zero.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from manyheads.kernels import IGNORED

WORDS = 8192  # that a program reads at once
WARPS = 16


def cross_entropy_(
    logits_TK: Tensor, labels_T: Tensor, smoothing: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """The loss and the negative log-likelihood of each token, [T]; logits become the gradient by them."""
    loss_T, nll_T = torch.empty(2, len(labels_T), dtype=torch.float32, device=logits_TK.device)
    words = logits_TK.shape[1]
    block = min(WORDS, triton.next_power_of_2(words))
    cross_entropy_row[(len(labels_T),)](
        *(logits_TK, labels_T, loss_T, nll_T, logits_TK.stride(0), *smoothing, words),
        *(IGNORED, block),
        num_warps=WARPS,
    )
    return loss_T, nll_T


@triton.jit
def cross_entropy_row(
    logits, labels, loss, nll, stride, a, b, words, IGNORED: tl.constexpr, BLOCK: tl.constexpr
):
    """-sum_k (a [k = y] + b) log p_k, and p_k - a [k = y] - b."""
    row = tl.program_id(0)
    logits += row.to(tl.int64) * stride
    label = tl.load(labels + row)
    counts = label != IGNORED
    greatest = float("-inf")
    total = 0.0
    summed = 0.0
    for start in range(0, words, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        value = tl.load(logits + columns, mask=columns < words, other=float("-inf")).to(tl.float32)
        now = tl.maximum(greatest, tl.max(value))
        total = total * tl.exp(greatest - now) + tl.sum(tl.exp(value - now))
        summed += tl.sum(tl.where(columns < words, value, 0.0))
        greatest = now
    log_sum = greatest + tl.log(total)
    right = tl.load(logits + tl.where(counts, label, 0)).to(tl.float32)
    missed = log_sum - right
    tl.store(nll + row, tl.where(counts, missed, 0.0))
    tl.store(loss + row, tl.where(counts, a * missed + b * (words * log_sum - summed), 0.0))
    tl.debug_barrier()  # the right word's logit is read before it is written over
    for start in range(0, words, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        value = tl.load(logits + columns, mask=columns < words, other=float("-inf")).to(tl.float32)
        gradient = tl.exp(value - log_sum) - b - tl.where(columns == label, a, 0.0)
        gradient = tl.where(counts, gradient, 0.0)
        tl.store(logits + columns, gradient.to(logits.dtype.element_ty), mask=columns < words)
