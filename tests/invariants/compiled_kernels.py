"""Compile every kernel for a GPU, present or not, and print their names: run by test_ops.py."""

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from manyheads.ops import (
    add_norm_triton,
    attention_triton,
    cross_entropy_triton,
    decode_attention_triton,
    embedding_triton,
    feed_forward_triton,
    linear_triton,
    stripes_triton,
    topk_triton,
)

HOPPER = GPUTarget("cuda", 90, 32)
BF16, FP32, INT32, INT64, FLOAT = "*bf16", "*fp32", "*i32", "*i64", "fp32"
HEADS = {"D_K": 64, "D_V": 64, "K": 64, "V": 64}
GRADIENT = {**HEADS, "HAS_SUMS": True}
ATTENTION = {**dict.fromkeys(("q", "k", "v", "out", "d_out", "d_q", "d_k", "d_v"), BF16), "scale": FLOAT}
ATTENTION |= {"log_sums": FP32, "deltas": FP32, "starts": INT32, "ends": INT32}
ATTENTION |= dict.fromkeys(("d_q_sums", "d_k_sums", "d_v_sums"), FP32)
DECODE = {**dict.fromkeys(("q", "k", "v", "keys", "values", "out"), BF16), "scale": FLOAT}
DECODE |= {"ancestors": INT32, "lengths": INT64, "starts": INT64}
ADD_NORM = {**dict.fromkeys(("x", "h", "y", "total", "d_y", "d_x", "d_h"), BF16), "seed": INT32}
ADD_NORM |= dict.fromkeys(("weight", "bias", "mean", "rstd", "d_weight", "d_bias", "d_h_sum"), FP32)
ADD_NORM |= {"eps": FLOAT, "dropout": FLOAT}
NORM_SHAPE = {"D": 512, "BLOCK": 512, "ROWS": 2, "HAS_DROPOUT": True}
EMBEDDING = {**dict.fromkeys(("tokens", "positions"), INT64), "out": BF16, "d_out": BF16, "seed": INT32}
EMBEDDING |= {**dict.fromkeys(("weight", "encoding", "gradient"), FP32), "scale": FLOAT, "dropout": FLOAT}
LOSS = {"logits": BF16, "labels": INT64, **dict.fromkeys(("loss", "nll", "loss_gradient"), FP32)}
LOSS |= {"a": FLOAT, "b": FLOAT, "c": FLOAT}
LOSS_SHAPE = {"STRIDE": 37000, "CLASSES": 37000, "IGNORE_INDEX": -1, "BLOCK": 4096, "IS_SCALED": True}
LINEAR = {**dict.fromkeys(("d_out", "out", "d_product", "weight", "hidden", "d_hidden"), BF16), "sums": FP32}
MATMUL = {"INNER": 512, "WIDTH": 2048, "ROWS": 128, "COLUMNS": 128, "BLOCK": 64, "GROUP": 8}
STRIPES = {"sums": FP32, "exact": FP32, "rounded": BF16}
TOPK_SHAPE = {"STRIDE": 37000, "CLASSES": 37000, "NUM_CHUNKS": 290}
TOPK = {"logits": FP32, "maximum": FP32, "total": FP32}

KERNELS = [
    (attention_triton.attention_forward, ATTENTION, {**HEADS, "QUERIES": 64, "KEYS": 64}),
    (attention_triton.attention_backward_queries, ATTENTION, {**GRADIENT, "QUERIES": 64, "KEYS": 64}),
    (attention_triton.attention_backward_keys, ATTENTION, {**GRADIENT, "QUERIES": 32, "KEYS": 64}),
    (decode_attention_triton.self_attention_row, DECODE, {**HEADS, "KEYS": 32}),
    (decode_attention_triton.cross_attention_row, DECODE, {**HEADS, "KEYS": 32}),
    (add_norm_triton.add_norm_forward, ADD_NORM, NORM_SHAPE),
    (add_norm_triton.add_norm_backward, ADD_NORM, NORM_SHAPE),
    (cross_entropy_triton.cross_entropy_row, LOSS, LOSS_SHAPE),
    (cross_entropy_triton.cross_entropy_r_drop_row, LOSS, LOSS_SHAPE),
    (linear_triton.linear_backward, LINEAR, {"HAS_RELU": True, "ROWS": 32, "COLUMNS": 128}),
    (stripes_triton.sum_stripes_kernel, STRIPES, {"WIDTH": 512, "ROWS": 512, "COLUMNS": 16}),
    (feed_forward_triton.matmul_relu_backward_kernel, LINEAR, MATMUL),
    (embedding_triton.embed_forward, EMBEDDING, NORM_SHAPE),
    (embedding_triton.embed_backward, EMBEDDING, NORM_SHAPE),
    (topk_triton.reduce_chunks_kernel, TOPK, {**TOPK_SHAPE, "CHUNK_WIDTH": 128, "CHUNKS": 16}),
]

for kernel, types, constants in KERNELS:
    signature = {
        name: "constexpr" if name in constants else types.get(name, "i32") for name in kernel.arg_names
    }
    compiled = triton.compile(ASTSource(kernel, signature=signature, constexprs=constants), target=HOPPER)
    assert compiled.asm["cubin"]
    print(kernel.fn.__name__)
