"""Times of our kernels at the sizes of a base training step, for several launch parameters."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton

import manyheads as mh
from manyheads.ops import add_norm_triton, attention_triton, cross_entropy_triton, linear_triton
from manyheads.ops.attention_spec import AttentionSpec
from workload import make_sorted_and_random

TOKENS, WIDTH, CLASSES = 25_088, 512, 37_000


@contextmanager
def constants(module: Any, **values: Any) -> Iterator[None]:
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    yield
    for name, value in before.items():
        setattr(module, name, value)


def time(title: str, call: Callable[[], Any]) -> None:
    try:
        call()
        median = triton.testing.do_bench(call, warmup=5, rep=30, return_mode="median")
        print(f"{title:70} {1000 * median:8.1f} us", flush=True)
    except Exception as error:
        print(f"{title:70} {type(error).__name__} {str(error)[:80]}", flush=True)


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda").bfloat16()


def time_loss() -> None:
    logits, labels = half(1, 8448, CLASSES), torch.randint(0, CLASSES, (8448,), device="cuda")
    copy = torch.empty_like(logits)
    time("copy of the logits", lambda: copy.copy_(logits))
    for block, warps in itertools.product((2048, 4096, 8192, 16384), (4, 8, 16)):
        with constants(cross_entropy_triton, BLOCK_SIZE=block, NUM_WARPS=warps):
            time(
                f"loss, block {block}, {warps} warps",
                lambda: cross_entropy_triton.cross_entropy_(logits, labels, (0.9, 1e-6)),
            )
    weight_gradient = torch.zeros(CLASSES, WIDTH, device="cuda")
    hidden = half(8448, WIDTH)
    left = logits[0].T

    def add() -> None:
        weight_gradient.add_(left @ hidden)

    time("weight gradient, product and addition", add)
    time(
        "weight gradient, addmm",
        lambda: torch.addmm(weight_gradient, left, hidden, out_dtype=torch.float32, out=weight_gradient),
    )


def time_norm() -> None:
    x, h, gain, bias = half(TOKENS, WIDTH), half(TOKENS, WIDTH), half(WIDTH).float(), half(WIDTH).float()
    seed = add_norm_triton.dropout_seed(x.device, 0.1)
    out = torch.empty_like(x)
    time("copy of x", lambda: out.copy_(x))
    for block, warps in itertools.product((512, 1024, 2048), (1, 2, 4)):
        with constants(add_norm_triton, BLOCK_SIZE=block, NUM_WARPS=warps):
            time(
                f"norm forward, block {block}, {warps} warps",
                lambda: add_norm_triton.launch_forward(x, h, gain, bias, seed, 1e-5, 0.1),
            )
    _, *saved = add_norm_triton.launch_forward(x, h, gain, bias, seed, 1e-5, 0.1)
    for block, warps, programs in itertools.product((512, 1024), (1, 2), (528, 1056, 2112, 4224)):
        with constants(add_norm_triton, BLOCK_SIZE=block, NUM_WARPS=warps, BACKWARD_PROGRAMS=programs):
            time(
                f"norm backward, block {block}, {warps} warps, {programs} programs",
                lambda: add_norm_triton.launch_backward(x, [*saved, gain, seed], 0.1, x.dtype),
            )


def time_linear() -> None:
    gradient, out = half(TOKENS, 2048), half(TOKENS, 2048)
    for rows, columns, stripes in itertools.product((16, 32, 64), (64, 128, 256), (32, 64, 128)):
        with constants(linear_triton, BLOCK_ROWS=rows, BLOCK_COLUMNS=columns, STRIPES=stripes):
            time(
                f"relu backward, tile {rows} x {columns}, {stripes} stripes",
                lambda: linear_triton.relu_backward_and_sum(gradient, out),
            )


def time_attention() -> None:
    batches, _ = make_sorted_and_random(3, 25_000, CLASSES, 1)
    batch = mh.Packed.of(batches[1].labels).to("cuda")
    tokens = len(batch.tokens)
    print(f"attention: {len(batch)} sentences, {tokens} tokens, longest {batch.max_length}")
    q, k, v = (half(tokens, 3, 8, 64)[:, part].requires_grad_() for part in range(3))
    bounds = attention_triton.AttentionBounds.compute(batch, batch, AttentionSpec())
    d_out = half(tokens, 8, 64)
    for warps, stages in itertools.product((2, 4, 8), (1, 2, 3)):
        with constants(attention_triton, NUM_WARPS=warps, NUM_STAGES=stages):
            time(
                f"attention forward, {warps} warps, {stages} stages",
                lambda: attention_triton.varlen_attention(q, k, v, bounds, 0.125),
            )
            result = attention_triton.varlen_attention(q, k, v, bounds, 0.125)
            time(
                f"attention backward, {warps} warps, {stages} stages",
                lambda: torch.autograd.grad(result, (q, k, v), d_out, retain_graph=True),
            )


def time_products() -> None:
    for library in ("cublas", "cublaslt"):
        torch.backends.cuda.preferred_blas_library(library)
        for d_in, d_out in ((512, 512), (512, 1024), (512, 1536), (512, 2048), (2048, 512), (512, 6144)):
            x, weight, d_y, bias = half(TOKENS, d_in), half(d_out, d_in), half(TOKENS, d_out), half(d_out)
            d_x, total = half(TOKENS, d_in), torch.zeros(d_out, d_in, device="cuda")
            name = f"{library} {d_in} -> {d_out}"
            time(f"{name}: forward", lambda: torch.addmm(bias, x, weight.T))
            time(f"{name}: d_x", lambda: d_y @ weight)
            time(f"{name}: d_x added", lambda: d_x.addmm_(d_y, weight))
            time(f"{name}: d_weight", lambda: d_y.T @ x)
            time(
                f"{name}: d_weight added to float32",
                lambda: torch.addmm(total, d_y.T, x, out_dtype=torch.float32, out=total),
            )


if __name__ == "__main__":
    with torch.no_grad():
        time_loss()
        time_norm()
        time_linear()
        time_products()
    time_attention()
