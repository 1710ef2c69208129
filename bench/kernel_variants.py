"""Times of our kernels at the sizes of a base training step, for several launch parameters."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton

import manyheads as mh
from manyheads.ops import (
    add_norm_triton,
    attention_triton,
    cross_entropy_triton,
    feed_forward_triton,
    linear_triton,
)
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
    for block, warps in ((4096, 4), (8192, 8), (8192, 16)):
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
    for block, per_warp in itertools.product((512, 1024, 2048), (256, 512, 1024)):
        with constants(add_norm_triton, FORWARD_BLOCK=block, ELEMENTS_PER_WARP=per_warp):
            time(
                f"norm forward, block {block}, {per_warp} elements a warp",
                lambda: add_norm_triton.launch_forward(x, h, gain, bias, seed, 1e-5, 0.1),
            )
    _, *saved = add_norm_triton.launch_forward(x, h, gain, bias, seed, 1e-5, 0.1)
    for block, programs in ((512, 2112), (512, 1584), (512, 2640), (1024, 1056)):
        with constants(add_norm_triton, BACKWARD_BLOCK=block, BACKWARD_PROGRAMS=programs):
            time(
                f"norm backward, block {block}, {programs} programs",
                lambda: add_norm_triton.launch_backward(x, [*saved, gain, seed], 0.1, x.dtype),
            )


def time_feed_forward() -> None:
    d_out, weight, hidden = half(TOKENS, WIDTH), half(WIDTH, 2048), half(TOKENS, 2048)
    time("relu backward after cuBLAS", lambda: linear_triton.relu_backward_and_sum(d_out @ weight, hidden))
    for (rows, columns, inner), (warps, stages), early in itertools.product(
        ((128, 128, 64), (128, 256, 64), (64, 256, 64), (128, 128, 32), (256, 128, 64)),
        ((4, 3), (8, 3), (8, 4)),
        (True, False),
    ):
        with constants(
            feed_forward_triton,
            **{"BLOCK_ROWS": rows, "BLOCK_COLUMNS": columns, "BLOCK_INNER": inner, "LOADS_EARLY": early},
            **{"NUM_WARPS": warps, "NUM_STAGES": stages},
        ):
            time(
                f"relu backward in the product, {rows} x {columns} x {inner}, {warps} warps, {stages} stages, "
                f"{'early' if early else 'late'}",
                lambda: feed_forward_triton.matmul_relu_backward(d_out, weight, hidden),
            )


def time_attention() -> None:
    batches, _ = make_sorted_and_random(10, 25_000, CLASSES, 1)
    for batch, (warps, stages), programs in itertools.product(
        batches[1::4], ((4, 1), (4, 2), (4, 3), (8, 2)), (528, 1056, 2112)
    ):
        target = mh.Packed.of(batch.labels).to("cuda")
        tokens = len(target.tokens)
        q, k, v = (half(tokens, 3, 8, 64)[:, part].requires_grad_() for part in range(3))
        bounds = attention_triton.AttentionBounds.compute(target, target, AttentionSpec(), 64)
        d_out = half(tokens, 8, 64)
        settings = {"NUM_WARPS": warps, "NUM_STAGES": stages, "NUM_PROGRAMS": programs}
        title = f"{len(target)} sentences, {warps} warps, {stages} stages, {programs} programs"
        with constants(attention_triton, **settings):
            time(
                f"attention forward, {title}",
                lambda q=q, k=k, v=v, bounds=bounds: attention_triton.varlen_attention(
                    q, k, v, bounds, 0.125
                ),
            )
            result = attention_triton.varlen_attention(q, k, v, bounds, 0.125)
            time(
                f"attention backward, {title}",
                lambda q=q, k=k, v=v, result=result, d_out=d_out: torch.autograd.grad(
                    result, (q, k, v), d_out, retain_graph=True
                ),
            )
    time("attention tiles", lambda: attention_triton.divide_into_tiles(target, target, 64))


if __name__ == "__main__":
    with torch.no_grad():
        time_loss()
        time_norm()
        time_feed_forward()
    time_attention()
