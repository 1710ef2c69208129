"""Compiles every kernel for a GPU that need not be there, and prints their names: run by test_kernels.py."""

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from manyheads.ops import add_norm_triton as residual
from manyheads.ops import attention_triton as spans
from manyheads.ops import cross_entropy_triton as cross_entropy
from manyheads.ops import decode_attention_triton as rows
from manyheads.ops import linear_triton as products
from manyheads.ops import topk_triton as summary

HOPPER = GPUTarget("cuda", 90, 32)
HALF, REAL, WHOLE, LONG, NUMBER = "*bf16", "*fp32", "*i32", "*i64", "fp32"
HEADS = {"D_K": 64, "D_V": 64, "K": 64, "V": 64}
SPANS = {**dict.fromkeys(("q", "k", "v", "out", "d_out", "d_q", "d_k", "d_v"), HALF), "scale": NUMBER}
SPANS |= {"log_sums": REAL, "deltas": REAL, "first": WHOLE, "last": WHOLE}
ROWS = {**dict.fromkeys(("q", "k", "v", "keys", "values", "out"), HALF), "scale": NUMBER}
ROWS |= {"origins": WHOLE, "lengths": LONG, "first": LONG}
RESIDUAL = {**dict.fromkeys(("x", "h", "y", "total", "d_y", "d_x", "d_h"), HALF), "seed": WHOLE}
RESIDUAL |= dict.fromkeys(("gain", "bias", "mean", "deviation", "d_gain", "d_bias", "sum_of_d_h"), REAL)
RESIDUAL |= {"epsilon": NUMBER, "dropout": NUMBER}
NORM = {"D": 512, "BLOCK": 512, "ROWS": 2, "DROPS": True}
LOSS = {"logits": HALF, "labels": LONG, "loss": REAL, "nll": REAL, "a": NUMBER, "b": NUMBER, "c": NUMBER}
PRODUCT = {"d_out": HALF, "out": HALF, "d_product": HALF, "sums": REAL}
SUMMARY = {"logits": REAL, "greatest": REAL, "total": REAL}

KERNELS = [
    (spans.attention_forward, SPANS, {**HEADS, "QUERIES": 64, "KEYS": 64}),
    (spans.attention_backward_queries, SPANS, {**HEADS, "QUERIES": 64, "KEYS": 64}),
    (spans.attention_backward_keys, SPANS, {**HEADS, "QUERIES": 32, "KEYS": 64}),
    (rows.self_attention_row, ROWS, {**HEADS, "KEYS": 32}),
    (rows.cross_attention_row, ROWS, {**HEADS, "KEYS": 32}),
    (residual.add_norm_forward, RESIDUAL, NORM),
    (residual.add_norm_backward, RESIDUAL, NORM),
    (cross_entropy.cross_entropy_row, LOSS, {"IGNORED": -1, "BLOCK": 4096}),
    (cross_entropy.cross_entropy_r_drop_row, LOSS, {"IGNORED": -1, "BLOCK": 4096}),
    (products.linear_backward, PRODUCT, {"CLOSES": True, "ROWS": 32, "COLUMNS": 128}),
    (summary.reduce_chunks_kernel, SUMMARY, {"WORDS": 128, "CHUNKS": 16}),
]

for kernel, types, constants in KERNELS:
    signature = {
        name: "constexpr" if name in constants else types.get(name, "i32") for name in kernel.arg_names
    }
    compiled = triton.compile(ASTSource(kernel, signature=signature, constexprs=constants), target=HOPPER)
    assert compiled.asm["cubin"]
    print(kernel.fn.__name__)
