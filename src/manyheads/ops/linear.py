"""Linear maps: one, one with ReLU, several of the same input, and the output projection of a step.

Shapes: T tokens or R rows, D numbers of each in, F out.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.ops import dispatch
from manyheads.ops.int8 import Int8Linear, int8_linears
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


def stacked_linear(x_TD: Tensor, layers: Sequence[nn.Linear | Int8Linear]) -> Sequence[Tensor]:
    """Return the output of each layer for the same x."""
    int8_layers = [layer for layer in layers if isinstance(layer, Int8Linear)]
    if int8_layers:
        return int8_linears(x_TD, int8_layers)
    float_layers = [layer for layer in layers if isinstance(layer, nn.Linear)]
    if len(layers) == 1 or not dispatch.stack_projections(x_TD):
        return [layer(x_TD) for layer in float_layers]
    weight = concat([layer.weight for layer in float_layers])
    bias = concat([layer.bias for layer in float_layers])
    return split(linear(x_TD, weight, bias), [layer.out_features for layer in float_layers])


class ShortlistOutput(nn.Module):
    """An output projection of some rows of the vocabulary; the logits of the others are -inf."""

    def __init__(self, output: nn.Linear | Int8Linear, rows: Tensor) -> None:
        super().__init__()
        self.rows, self.vocab_size = rows, output.out_features
        self.selected = (
            output.select_rows(rows) if isinstance(output, Int8Linear) else select_rows(output, rows)
        )

    def forward(self, x_RD: Tensor) -> Tensor:
        logits = project_logits(x_RD, self.selected)
        whole = logits.new_full((len(x_RD), self.vocab_size), -torch.inf)
        whole[:, self.rows] = logits
        return whole


def select_rows(layer: nn.Linear, rows: Tensor) -> nn.Linear:
    """Return the layer of some output features."""
    selected = nn.Linear(layer.in_features, len(rows), bias=layer.bias is not None, device="meta")
    selected.weight = nn.Parameter(layer.weight[rows], requires_grad=False)
    if layer.bias is not None:
        selected.bias = nn.Parameter(layer.bias[rows], requires_grad=False)
    return selected


def project_logits(x_RD: Tensor, output: nn.Linear | Int8Linear | ShortlistOutput) -> Tensor:
    """Return the logits of a decoding step, in float32 where x is half: rounding would decide close calls.

    [R, vocabulary]
    """
    if isinstance(output, ShortlistOutput | Int8Linear):
        return output.forward(x_RD)
    if dispatch.use_kernels(x_RD):
        logits = torch.mm(x_RD, output.weight.T.to(x_RD.dtype), out_dtype=torch.float32)
    elif dispatch.project_by_columns(x_RD):
        logits = (output.weight @ x_RD.T).T.contiguous()
    else:
        whole: Tensor = output(x_RD)
        return whole
    return logits if output.bias is None else logits + output.bias
