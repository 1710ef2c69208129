"""The learned numbers of a layer, by the step of the walk that uses them.

A matrix has shape [out, in]: the step's number n is the product of its input with row n, plus bias n. A norm
has its scale and shift, and its epsilon; batch normalization its mean and variance too. Numbers are base64
of float32, little-endian, row-major.
"""

import base64
from typing import Any

from torch import Tensor, nn

from manyheads.model.attention import MultiHeadAttention
from manyheads.model.layers import DecoderLayer, EncoderLayer, FeedForward, Residual

Parameters = dict[str, dict[str, Any]]


def encode_numbers(values: Tensor) -> str:
    return base64.b64encode(values.detach().float().cpu().numpy().astype("<f4").tobytes()).decode("ascii")


def collect_parameters(layer: EncoderLayer | DecoderLayer) -> Parameters:
    """Return the parameters of a layer by the name of their step, such as `self.query`."""
    parameters: Parameters = {}
    for part in ("self", "cross"):
        attention = getattr(layer, f"{part}_attention", None)
        if isinstance(attention, MultiHeadAttention):
            parameters |= attention_parameters(part, attention, getattr(layer, f"{part}_attention_residual"))
    network = layer.feed_forward
    assert isinstance(network, FeedForward)
    parameters["feed_forward.hidden"] = encode_linear(network.w_1)
    parameters["feed_forward.output"] = encode_linear(network.w_2)
    parameters["feed_forward.norm"] = encode_norm(layer.feed_forward_residual.norm)
    return parameters


def attention_parameters(part: str, attention: MultiHeadAttention, residual: Residual) -> Parameters:
    parameters = {
        f"{part}.query": encode_linear(attention.w_q),
        f"{part}.key": encode_linear(attention.w_k),
        f"{part}.value": encode_linear(attention.w_v),
        f"{part}.project": encode_linear(attention.w_o),
        f"{part}.norm": encode_norm(residual.norm),
    }
    if attention.energy is not None:
        energy = attention.energy
        parameters[f"{part}.scores"] = {"shape": list(energy.shape), "weight": encode_numbers(energy)}
    return parameters


def encode_linear(linear: nn.Linear) -> dict[str, Any]:
    bias = None if linear.bias is None else encode_numbers(linear.bias)
    return {"shape": list(linear.weight.shape), "weight": encode_numbers(linear.weight), "bias": bias}


def encode_norm(norm: nn.Module) -> dict[str, Any]:
    weight, bias = norm.weight, norm.bias
    assert isinstance(weight, Tensor)
    assert isinstance(bias, Tensor)
    encoded = {"shape": list(weight.shape), "weight": encode_numbers(weight), "bias": encode_numbers(bias)}
    if isinstance(norm, nn.BatchNorm1d):
        assert norm.running_mean is not None
        assert norm.running_var is not None
        encoded |= {"mean": encode_numbers(norm.running_mean), "variance": encode_numbers(norm.running_var)}
    return {**encoded, "epsilon": norm.eps}
