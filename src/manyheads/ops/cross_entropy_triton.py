"""The smoothed cross-entropy of logits (5.4) and its gradient, written over them.

A row of logits is read twice, the second time from the GPU's cache, and only its gradient is left. A token
whose label is ignore_index adds nothing, and its gradient is zero. The formulas are in cross_entropy.py.

The sizes of a row are compile-time constants: a vocabulary that is a multiple of 8 is then read 16 bytes at a
time. Triton would know it of a variable only for multiples of 16.

Shapes: M forward passes, T tokens, K classes.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK_SIZE = 8192  # logits that a program reads at once, of all forward passes
NUM_WARPS, R_DROP_NUM_WARPS = 8, 4  # for one forward pass, and for two
LARGE_NEGATIVE = tl.constexpr(-1e30)


def cross_entropy_(
    logits_MTK: Tensor,
    labels_T: Tensor,
    smoothing: tuple[float, float],
    r_drop: float = 0.0,
    ignore_index: int = -1,
    *,
    loss_gradient: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the loss and the negative log-likelihood of each token, [T]; overwrite logits by their gradient.

    Of two forward passes: the mean of both, and how far they disagree. The gradient is times `loss_gradient`,
    a float32 number on the same device, if it is given.
    """
    loss_T, nll_T = torch.empty(2, len(labels_T), dtype=torch.float32, device=logits_MTK.device)
    passes, _, classes = logits_MTK.shape
    block = min(BLOCK_SIZE // passes, triton.next_power_of_2(classes))
    tensors = logits_MTK, labels_T, loss_T, nll_T, loss_T if loss_gradient is None else loss_gradient
    is_scaled = loss_gradient is not None
    stride = logits_MTK.stride(1)
    if passes == 1:
        cross_entropy_row[(len(labels_T),)](
            *(*tensors, *smoothing, stride, classes, ignore_index, block, is_scaled), num_warps=NUM_WARPS
        )
    else:
        rows = logits_MTK.stride(0) // stride
        cross_entropy_r_drop_row[(len(labels_T),)](
            *(*tensors, rows, *smoothing, r_drop, stride, classes, ignore_index, block, is_scaled),
            num_warps=R_DROP_NUM_WARPS,
        )
    return loss_T, nll_T


@triton.jit
def cross_entropy_row(
    logits, labels, loss, nll, loss_gradient, a, b,
    STRIDE: tl.constexpr, CLASSES: tl.constexpr, IGNORE_INDEX: tl.constexpr, BLOCK: tl.constexpr,
    IS_SCALED: tl.constexpr,
):  # fmt: skip
    """-sum_k (a [k = y] + b) log p_k, and p_k - a [k = y] - b."""
    row = tl.program_id(0)
    logits += row.to(tl.int64) * STRIDE
    label = tl.load(labels + row)
    is_counted = label != IGNORE_INDEX
    maximum = float("-inf")
    total = 0.0
    logit_sum = 0.0
    for start in range(0, CLASSES, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        value = tl.load(logits + columns, mask=columns < CLASSES, other=float("-inf")).to(tl.float32)
        new_maximum = tl.maximum(maximum, tl.max(value))
        total = total * tl.exp(maximum - new_maximum) + tl.sum(tl.exp(value - new_maximum))
        logit_sum += tl.sum(tl.where(columns < CLASSES, value, 0.0))
        maximum = new_maximum
    log_sum = maximum + tl.log(total)
    label_logit = tl.load(logits + tl.where(is_counted, label, 0)).to(tl.float32)
    nll_value = log_sum - label_logit
    tl.store(nll + row, tl.where(is_counted, nll_value, 0.0))
    tl.store(loss + row, tl.where(is_counted, a * nll_value + b * (CLASSES * log_sum - logit_sum), 0.0))
    scale = 1.0
    if IS_SCALED:
        scale = tl.load(loss_gradient)
    tl.debug_barrier()  # the label's logit is read before it is overwritten
    for start in range(0, CLASSES, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        value = tl.load(logits + columns, mask=columns < CLASSES, other=float("-inf")).to(tl.float32)
        gradient = tl.exp(value - log_sum) - b - tl.where(columns == label, a, 0.0)
        gradient = tl.where(is_counted, gradient * scale, 0.0)
        tl.store(logits + columns, gradient.to(logits.dtype.element_ty), mask=columns < CLASSES)


@triton.jit
def load_logits(row, columns, CLASSES: tl.constexpr):
    """Load logits; those beyond the last class are so negative that they count as -inf in a difference."""
    inside = columns < CLASSES
    return tl.where(inside, tl.load(row + columns, mask=inside, other=0.0).to(tl.float32), LARGE_NEGATIVE)


@triton.jit
def cross_entropy_r_drop_row(
    logits, labels, loss, nll, loss_gradient, rows, a, b, c,
    STRIDE: tl.constexpr, CLASSES: tl.constexpr, IGNORE_INDEX: tl.constexpr, BLOCK: tl.constexpr,
    IS_SCALED: tl.constexpr,
):  # fmt: skip
    """The mean of the losses of both passes, and c times the mean of KL(p|q) and KL(q|p)."""
    row = tl.program_id(0)
    logits_p = logits + row.to(tl.int64) * STRIDE
    logits_q = logits + (row + rows).to(tl.int64) * STRIDE
    label = tl.load(labels + row)
    is_counted = label != IGNORE_INDEX
    max_p, max_q = float("-inf"), float("-inf")
    total_p, total_q = 0.0, 0.0
    logit_sum = 0.0
    difference_p, difference_q = 0.0, 0.0  # sums of exp(x - max_p) (x - y) and of exp(y - max_q) (y - x)
    for start in range(0, CLASSES, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = load_logits(logits_p, columns, CLASSES)
        y = load_logits(logits_q, columns, CLASSES)
        difference = x - y
        new_max_p, new_max_q = tl.maximum(max_p, tl.max(x)), tl.maximum(max_q, tl.max(y))
        rescale_p, rescale_q = tl.exp(max_p - new_max_p), tl.exp(max_q - new_max_q)
        p, q = tl.exp(x - new_max_p), tl.exp(y - new_max_q)
        total_p = total_p * rescale_p + tl.sum(p)
        total_q = total_q * rescale_q + tl.sum(q)
        difference_p = difference_p * rescale_p + tl.sum(p * difference)
        difference_q = difference_q * rescale_q - tl.sum(q * difference)
        logit_sum += tl.sum(tl.where(columns < CLASSES, x + y, 0.0))
        max_p, max_q = new_max_p, new_max_q
    log_p, log_q = max_p + tl.log(total_p), max_q + tl.log(total_q)
    kl_p = difference_p / total_p - (log_p - log_q)  # KL(p|q)
    kl_q = difference_q / total_q - (log_q - log_p)  # KL(q|p)
    safe_label = tl.where(is_counted, label, 0)
    nll_value = (
        log_p
        + log_q
        - tl.load(logits_p + safe_label).to(tl.float32)
        - tl.load(logits_q + safe_label).to(tl.float32)
    ) / 2
    uniform = (CLASSES * (log_p + log_q) - logit_sum) / 2
    tl.store(nll + row, tl.where(is_counted, nll_value, 0.0))
    tl.store(loss + row, tl.where(is_counted, a * nll_value + b * uniform + c * (kl_p + kl_q) / 2, 0.0))
    scale = 0.5
    if IS_SCALED:
        scale *= tl.load(loss_gradient)
    tl.debug_barrier()  # the label's logits are read before they are overwritten
    for start in range(0, CLASSES, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = load_logits(logits_p, columns, CLASSES)
        y = load_logits(logits_q, columns, CLASSES)
        p, q = tl.exp(x - log_p), tl.exp(y - log_q)
        difference = (x - log_p) - (y - log_q)
        target = b + tl.where(columns == label, a, 0.0)
        d_x = p - target + c * (p * (difference - kl_p) + p - q)
        d_y = q - target + c * (q * (-difference - kl_q) + q - p)
        d_x, d_y = tl.where(is_counted, d_x * scale, 0.0), tl.where(is_counted, d_y * scale, 0.0)
        tl.store(logits_p + columns, d_x.to(logits.dtype.element_ty), mask=columns < CLASSES)
        tl.store(logits_q + columns, d_y.to(logits.dtype.element_ty), mask=columns < CLASSES)
