"""Importing the Triton kernels of inference before their first use, while something else is waited for."""

from manyheads.ops import dispatch


def import_inference_kernels() -> None:
    if dispatch.has_triton():
        from manyheads.ops import (  # noqa: F401
            add_norm_triton,
            attention_triton,
            decode_attention_triton,
            feed_forward_triton,
            linear_triton,
            topk_triton,
        )
