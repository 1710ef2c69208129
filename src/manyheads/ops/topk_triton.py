"""Rows of logits reduced by chunks, so that one pass gives both their best classes and their softmax.

The k best logits of a row lie in the k chunks with the greatest maxima; the sum of its exponentials is that
of the sums of the chunks. What is left to search is a small part of the row. The sizes of a row are
compile-time constants, so that a vocabulary that is a multiple of 4 is read 16 bytes at a time.

Shapes: R rows, K logits of each, C chunks, X candidates.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK_SIZE = 128  # logits
BLOCK_CHUNKS = 64  # of a program
NUM_WARPS = 8


def reduce_chunks(logits_RK: Tensor) -> tuple[Tensor, Tensor]:
    """Return the maximum of each chunk, and the sum of exp(logit - maximum). [R, C] float32 each"""
    chunks = triton.cdiv(logits_RK.shape[1], CHUNK_SIZE)
    maximum_RC, total_RC = torch.empty(
        2, len(logits_RK), chunks, dtype=torch.float32, device=logits_RK.device
    )
    reduce_chunks_kernel[(len(logits_RK), triton.cdiv(chunks, BLOCK_CHUNKS))](
        *(logits_RK, maximum_RC, total_RC, logits_RK.stride(0), logits_RK.shape[1], chunks),
        *(CHUNK_SIZE, BLOCK_CHUNKS),
        num_warps=NUM_WARPS,
    )
    return maximum_RC, total_RC


def topk_logsumexp(logits_RK: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the k greatest logits of each row, their indices, and log sum exp. [R, k], [R, k], [R]"""
    maximum_RC, total_RC = reduce_chunks(logits_RK)
    maximum_R1 = maximum_RC.amax(1, keepdim=True)
    log_sum_R = maximum_R1[:, 0] + ((maximum_RC - maximum_R1).exp() * total_RC).sum(1).log()
    chunks_Rk = maximum_RC.topk(min(k, maximum_RC.shape[1]), dim=1).indices
    indices_RX = (
        chunks_Rk[..., None] * CHUNK_SIZE + torch.arange(CHUNK_SIZE, device=logits_RK.device)
    ).flatten(1)
    inside_RX = indices_RX < logits_RK.shape[1]
    indices_RX = indices_RX.clamp(max=logits_RK.shape[1] - 1)
    values_RX = logits_RK.gather(1, indices_RX).float()
    values_Rk, chosen_Rk = values_RX.masked_fill(~inside_RX, float("-inf")).topk(k, dim=1)
    return values_Rk, indices_RX.gather(1, chosen_Rk), log_sum_R


@triton.jit
def reduce_chunks_kernel(
    logits, maximum, total,
    STRIDE: tl.constexpr, CLASSES: tl.constexpr, NUM_CHUNKS: tl.constexpr,
    CHUNK_WIDTH: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    row, chunk_ids = tl.program_id(0), tl.program_id(1) * CHUNKS + tl.arange(0, CHUNKS)
    columns = chunk_ids[:, None] * CHUNK_WIDTH + tl.arange(0, CHUNK_WIDTH)[None, :]
    base = logits + row.to(tl.int64) * STRIDE
    values = tl.load(base + columns, mask=columns < CLASSES, other=float("-inf")).to(tl.float32)
    maxima = tl.max(values, 1)
    sums = tl.sum(tl.exp(values - tl.where(maxima == float("-inf"), 0.0, maxima)[:, None]), 1)
    tl.store(maximum + row * NUM_CHUNKS + chunk_ids, maxima, mask=chunk_ids < NUM_CHUNKS)
    tl.store(total + row * NUM_CHUNKS + chunk_ids, sums, mask=chunk_ids < NUM_CHUNKS)
