"""LayerNorm(x + Dropout(h)) (3.1, 5.4), alone and together with the linear map or network that gives h.

The functions take modules, and the plain torch path calls them, so that forward hooks see every value.

Shapes: T tokens, D = d_model, F numbers into the linear map.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.ops import dispatch
from manyheads.ops.linear import linear_relu


def layer_norm(x_TD: Tensor, norm: nn.LayerNorm) -> Tensor:
    """Return each token normalized, computed in the dtype of the weight: a rounded model keeps it exact."""
    if dispatch.norm_casts(x_TD, norm.weight):
        return layer_norm(x_TD.to(norm.weight.dtype), norm).to(x_TD.dtype)
    return F.layer_norm(x_TD, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def add_norm(x_TD: Tensor, h_TD: Tensor, norm: nn.LayerNorm, dropout: nn.Dropout) -> Tensor:
    """Return LayerNorm(x + Dropout(h)). [T, D]"""
    if dispatch.use_kernels(h_TD):
        from manyheads.ops import add_norm_triton

        rate = dropout.p if dropout.training else 0.0
        return add_norm_triton.add_norm(x_TD, h_TD, norm.weight, norm.bias, norm.eps, rate)
    out: Tensor = norm(x_TD + dropout(h_TD))
    return out


def linear_add_norm(
    x_TD: Tensor, h_TF: Tensor, linear: nn.Linear, norm: nn.LayerNorm, dropout: nn.Dropout
) -> Tensor:
    """Return LayerNorm(x + Dropout(h W^T + b)). [T, D]

    One op, because the kernel of the norm's backward pass sums up the gradient of b on its way.
    """
    if dispatch.use_kernels(h_TF):
        from manyheads.ops import add_norm_triton

        rate = dropout.p if dropout.training else 0.0
        return add_norm_triton.linear_add_norm(
            *(x_TD, h_TF, linear.weight, linear.bias, norm.weight, norm.bias), norm.eps, rate
        )
    return add_norm(x_TD, linear(h_TF), norm, dropout)


def feed_forward_add_norm(
    x_TD: Tensor, first: nn.Linear, second: nn.Linear, norm: nn.LayerNorm, dropout: nn.Dropout
) -> Tensor:
    """Return LayerNorm(x + Dropout(max(0, x W_1 + b_1) W_2 + b_2)). [T, D]"""
    if dispatch.use_kernels(x_TD):
        from manyheads.ops import feed_forward_triton

        rate = dropout.p if dropout.training else 0.0
        linear_1, linear_2 = (first.weight, first.bias), (second.weight, second.bias)
        return feed_forward_triton.feed_forward_add_norm(
            x_TD, linear_1, linear_2, (norm.weight, norm.bias), norm.eps, rate
        )
    return linear_add_norm(x_TD, linear_relu(x_TD, first), second, norm, dropout)
