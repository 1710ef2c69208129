"""The best logits of each row and the normalizer of its softmax: what a search needs at every step.

Shapes: R rows, K logits of each.
"""

import torch
from torch import Tensor

from manyheads.ops import dispatch

CACHED_ROWS = 16  # rows of logits that fit into a CPU's cache together


def topk_logsumexp(logits_RK: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the k greatest logits of each row, their indices, and log sum exp. [R, k], [R, k], [R]"""
    if dispatch.has_decode_kernels(logits_RK.device):
        from manyheads.ops import topk_triton

        return topk_triton.topk_logsumexp(logits_RK, k)
    values_Rk, indices_Rk = logits_RK.float().topk(k, dim=1)
    return values_Rk, indices_Rk, logsumexp(logits_RK.float())


def logsumexp(logits_RK: Tensor) -> Tensor:
    """Return log sum exp of each row. [R]"""
    if not dispatch.use_cached_rows(logits_RK):
        return logits_RK.logsumexp(-1)
    return torch.cat([rows.logsumexp(-1) for rows in logits_RK.split(CACHED_ROWS)])
