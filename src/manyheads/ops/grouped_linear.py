"""Linear maps of groups of rows, one map for each group, as a mixture of experts needs them.

On a GPU all groups are one product whose group sizes stay on the device: the host does not wait for them.

Shapes: R rows sorted by their group, E groups, D numbers of a row in, F out.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.ops import dispatch


def count_members(groups: Tensor, num_groups: int) -> Tensor:
    """Return how often each group occurs. Unlike bincount it does not wait for a GPU. [E]"""
    return (groups.flatten()[:, None] == torch.arange(num_groups, device=groups.device)).sum(0)


def grouped_linear(x_RD: Tensor, layers: Sequence[nn.Linear], group_R: Tensor) -> Tensor:
    """Return x W^T + b of each row, by the layer of its group. Rows are sorted by their group. [R, F]

    A layer without rows has a gradient of zeros, which ranks can sum.
    """
    x_RD = dispatch.cast_for_autocast(x_RD)
    if dispatch.use_grouped_products(x_RD, layers[0].out_features):
        return grouped_products(x_RD, layers, group_R)
    counts = count_members(group_R, len(layers)).tolist()
    return torch.cat([layer(part) for layer, part in zip(layers, x_RD.split(counts), strict=True)])


def grouped_products(x_RD: Tensor, layers: Sequence[nn.Linear], group_R: Tensor) -> Tensor:
    """As `grouped_linear`, in one product, without a number that the host would have to know."""
    dtype = x_RD.dtype
    weight_EDF = torch.stack([layer.weight for layer in layers]).to(dtype).mT
    bias_EF = torch.stack([layer.bias for layer in layers]).to(dtype)
    offsets_E = count_members(group_R, len(layers)).cumsum(0, dtype=torch.int32)
    is_member_RE = (group_R[:, None] == torch.arange(len(layers), device=x_RD.device)).to(dtype)
    product_RF: Tensor = F.grouped_mm(x_RD.contiguous(), weight_EDF, offs=offsets_E)
    return torch.addmm(product_RF, is_member_RE, bias_EF)
