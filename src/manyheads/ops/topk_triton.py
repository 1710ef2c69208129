"""Rows of logits summed up by chunks, so that their best words and their softmax are found in one reading.

A row's n best words lie in the n chunks with the greatest maxima; the sum of its exponentials is that of the
chunks' sums. What is left to look at is a small part of the row.

Shapes: R rows, K words, C chunks.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK_SIZE = 128  # of a chunk
BLOCK_CHUNKS = 64  # that a program takes
NUM_WARPS = 8


def reduce_chunks(logits_RK: Tensor) -> tuple[Tensor, Tensor]:
    """Of each chunk the greatest logit, and the sum of exp(logit - greatest). [R, C] float32 each"""
    chunks = triton.cdiv(logits_RK.shape[1], CHUNK_SIZE)
    greatest_RC, total_RC = torch.empty(
        2, len(logits_RK), chunks, dtype=torch.float32, device=logits_RK.device
    )
    reduce_chunks_kernel[(len(logits_RK), triton.cdiv(chunks, BLOCK_CHUNKS))](
        *(logits_RK, greatest_RC, total_RC, logits_RK.stride(0), logits_RK.shape[1], chunks),
        *(CHUNK_SIZE, BLOCK_CHUNKS),
        num_warps=NUM_WARPS,
    )
    return greatest_RC, total_RC


def topk_logsumexp(logits_RK: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The greatest logits of each row, their words, and log sum exp of the row. [R, count] twice, [R]"""
    greatest_RC, total_RC = reduce_chunks(logits_RK)
    top_R1 = greatest_RC.amax(1, keepdim=True)
    log_total_R = top_R1[:, 0] + ((greatest_RC - top_R1).exp() * total_RC).sum(1).log()
    chosen_Rc = greatest_RC.topk(min(k, greatest_RC.shape[1]), dim=1).indices
    words_RX = (
        chosen_Rc[..., None] * CHUNK_SIZE + torch.arange(CHUNK_SIZE, device=logits_RK.device)
    ).flatten(1)
    there_RX = words_RX < logits_RK.shape[1]
    words_RX = words_RX.clamp(max=logits_RK.shape[1] - 1)
    values_RX = logits_RK.gather(1, words_RX).float()
    values_Re, places_Re = values_RX.masked_fill(~there_RX, float("-inf")).topk(k, dim=1)
    return values_Re, words_RX.gather(1, places_Re), log_total_R


@triton.jit
def reduce_chunks_kernel(
    logits, greatest, total, stride, words, chunks, WORDS: tl.constexpr, CHUNKS: tl.constexpr
):
    row, own = tl.program_id(0), tl.program_id(1) * CHUNKS + tl.arange(0, CHUNKS)
    columns = own[:, None] * WORDS + tl.arange(0, WORDS)[None, :]
    base = logits + row.to(tl.int64) * stride
    values = tl.load(base + columns, mask=columns < words, other=float("-inf")).to(tl.float32)
    tops = tl.max(values, 1)
    sums = tl.sum(tl.exp(values - tl.where(tops == float("-inf"), 0.0, tops)[:, None]), 1)
    tl.store(greatest + row * chunks + own, tops, mask=own < chunks)
    tl.store(total + row * chunks + own, sums, mask=own < chunks)
