"""The smoothed cross-entropy of logits (5.4) and its gradient, written over them.

A row of logits is read twice, the second time out of the GPU's cache, and only its gradient is left. A token
whose label is IGNORED adds nothing, and its gradient is zero. The loss of two readings is defined in
train/loss.py.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from manyheads.ops.dispatch import IGNORE_INDEX

BLOCK_SIZE = 8192  # that a program reads at once, of all readings
NUM_WARPS = 16
LARGE_NEGATIVE = tl.constexpr(-1e30)


def cross_entropy_(
    logits_MTK: Tensor, labels_T: Tensor, smoothing: tuple[float, float], r_drop: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The loss and the negative log-likelihood of each token, [T]; logits become the gradient by them.

    Of two readings: the mean of both, and how far they disagree.
    """
    loss_T, nll_T = torch.empty(2, len(labels_T), dtype=torch.float32, device=logits_MTK.device)
    readings, _, words = logits_MTK.shape
    block = min(BLOCK_SIZE // readings, triton.next_power_of_2(words))
    of_row = logits_MTK, labels_T, loss_T, nll_T
    if readings == 1:
        cross_entropy_row[(len(labels_T),)](
            *(*of_row, logits_MTK.stride(1), *smoothing, words),
            *(IGNORE_INDEX, block),
            num_warps=NUM_WARPS,
        )
    else:
        cross_entropy_r_drop_row[(len(labels_T),)](
            *(*of_row, *logits_MTK.stride()[:2], *smoothing, r_drop, words),
            *(IGNORE_INDEX, block),
            num_warps=NUM_WARPS,
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


@triton.jit
def load_logits(row, columns, words):
    """Some logits; those beyond the last word are as good as -inf, and can be subtracted."""
    there = columns < words
    return tl.where(there, tl.load(row + columns, mask=there, other=0.0).to(tl.float32), LARGE_NEGATIVE)


@triton.jit
def cross_entropy_r_drop_row(
    logits, labels, loss, nll, stride_reading, stride, a, b, c, words,
    IGNORED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The mean of both readings' losses, and c times the mean of KL(p|q) and KL(q|p)."""
    row = tl.program_id(0)
    one = logits + row.to(tl.int64) * stride
    two = one + stride_reading
    label = tl.load(labels + row)
    counts = label != IGNORED
    most_p, most_q = float("-inf"), float("-inf")
    total_p, total_q = 0.0, 0.0
    summed = 0.0
    apart_p, apart_q = 0.0, 0.0  # sums of exp(x - most_p) (x - y) and of exp(y - most_q) (y - x)
    for start in range(0, words, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = load_logits(one, columns, words)
        y = load_logits(two, columns, words)
        apart = x - y
        now_p, now_q = tl.maximum(most_p, tl.max(x)), tl.maximum(most_q, tl.max(y))
        shrink_p, shrink_q = tl.exp(most_p - now_p), tl.exp(most_q - now_q)
        p, q = tl.exp(x - now_p), tl.exp(y - now_q)
        total_p = total_p * shrink_p + tl.sum(p)
        total_q = total_q * shrink_q + tl.sum(q)
        apart_p = apart_p * shrink_p + tl.sum(p * apart)
        apart_q = apart_q * shrink_q - tl.sum(q * apart)
        summed += tl.sum(tl.where(columns < words, x + y, 0.0))
        most_p, most_q = now_p, now_q
    log_p, log_q = most_p + tl.log(total_p), most_q + tl.log(total_q)
    far_p = apart_p / total_p - (log_p - log_q)  # KL(p|q)
    far_q = apart_q / total_q - (log_q - log_p)  # KL(q|p)
    right = tl.where(counts, label, 0)
    missed = (log_p + log_q - tl.load(one + right).to(tl.float32) - tl.load(two + right).to(tl.float32)) / 2
    others = (words * (log_p + log_q) - summed) / 2
    tl.store(nll + row, tl.where(counts, missed, 0.0))
    tl.store(loss + row, tl.where(counts, a * missed + b * others + c * (far_p + far_q) / 2, 0.0))
    tl.debug_barrier()  # the right word's logits are read before they are written over
    for start in range(0, words, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = load_logits(one, columns, words)
        y = load_logits(two, columns, words)
        p, q = tl.exp(x - log_p), tl.exp(y - log_q)
        apart = (x - log_p) - (y - log_q)
        wanted = b + tl.where(columns == label, a, 0.0)
        by_x = p - wanted + c * (p * (apart - far_p) + p - q)
        by_y = q - wanted + c * (q * (-apart - far_q) + q - p)
        by_x, by_y = tl.where(counts, by_x / 2, 0.0), tl.where(counts, by_y / 2, 0.0)
        tl.store(one + columns, by_x.to(logits.dtype.element_ty), mask=columns < words)
        tl.store(two + columns, by_y.to(logits.dtype.element_ty), mask=columns < words)
