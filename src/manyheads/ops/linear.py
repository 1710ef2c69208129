"""Linear maps: one, one with ReLU, several of the same input, and the output projection of a step.

Shapes: T tokens or R rows, D numbers of each in, F out.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.ops import dispatch
from manyheads.ops.split import concat, split


class Linear(nn.Linear):
    """x W^T + b, by the fastest implementation."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """Return x W^T + b. [T, F]"""
    if not dispatch.use_kernels(x_TD):
        return F.linear(x_TD, weight_FD, bias_F)
    from manyheads.ops import linear_triton

    return linear_triton.linear(x_TD, weight_FD, bias_F)


def linear_relu(x_TD: Tensor, layer: nn.Linear) -> Tensor:
    """Return max(0, x W^T + b). [T, F]"""
    if not dispatch.use_kernels(x_TD):
        return F.relu(layer(x_TD))
    from manyheads.ops import linear_triton

    return linear_triton.linear_relu(x_TD, layer.weight, layer.bias)


def linear_float32(x_TD: Tensor, layer: nn.Linear) -> Tensor:
    """Return x W^T + b in at least float32, under autocast too. [T, F]"""
    dtype = torch.promote_types(x_TD.dtype, torch.float32)
    with dispatch.autocast_disabled(x_TD):
        return F.linear(x_TD.to(dtype), layer.weight.to(dtype), layer.bias.to(dtype))


def stacked_linear(x_TD: Tensor, layers: Sequence[nn.Linear]) -> Sequence[Tensor]:
    """Return the output of each layer for the same x."""
    if len(layers) == 1 or not dispatch.stack_projections(x_TD):
        return [layer(x_TD) for layer in layers]
    weight, bias = concat([layer.weight for layer in layers]), concat([layer.bias for layer in layers])
    return split(linear(x_TD, weight, bias), [layer.out_features for layer in layers])


def project_logits(x_RD: Tensor, output: nn.Linear) -> Tensor:
    """Return the logits of a decoding step, in float32 where x is half: rounding would decide close calls.

    [R, vocabulary]
    """
    if dispatch.use_kernels(x_RD):
        logits = torch.mm(x_RD, output.weight.T.to(x_RD.dtype), out_dtype=torch.float32)
    elif dispatch.project_by_columns(x_RD):
        logits = (output.weight @ x_RD.T).T.contiguous()
    else:
        whole: Tensor = output(x_RD)
        return whole
    return logits if output.bias is None else logits + output.bias
