"""Initial weights of every architecture, which the paper does not give."""

import math

import torch
from torch import nn

from manyheads.config import TransformerConfig
from manyheads.model.attention import MultiHeadAttention
from manyheads.model.baselines.convolution import Convolution
from manyheads.model.encoder_decoder import EncoderDecoder

# tensor2tensor, torch.nn and fairseq initialize W_Q, W_K and W_V as one matrix of 3 d_model rows: Xavier's
# bound is then sqrt(6 / (4 d_model)) instead of sqrt(6 / (2 d_model)).
AUTHORS_QKV_GAIN = 0.5**0.5


def init_weights(model: EncoderDecoder) -> None:
    """Initialize every weight.

    Linear maps: Xavier times config.init_gain, or as in the authors' code (init = "authors"). A gain below 1
    keeps the sublayers from drowning the embeddings. Embeddings: a standard deviation of d_model^-0.5, which
    the factor sqrt(d_model) of 3.4 brings to 1.
    """
    gain = model.config.init_gain
    gains: dict[nn.Module, float] = {}
    if isinstance(model.config, TransformerConfig) and model.config.init == "authors":
        gain = 1.0
        attentions = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
        gains = {
            linear: AUTHORS_QKV_GAIN for layer in attentions for linear in (layer.w_q, layer.w_k, layer.w_v)
        }
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not model.output:
            nn.init.xavier_uniform_(module.weight, gains.get(module, gain))
            nn.init.zeros_(module.bias)
        if isinstance(energy := getattr(module, "energy", None), nn.Parameter):
            nn.init.normal_(energy, std=energy.shape[1] ** -0.5)
        if isinstance(module, nn.RNNBase):
            init_recurrent_weights(module, gain)
        if isinstance(module, Convolution):
            init_convolution(module, gain)
        if isinstance(module, nn.LayerNorm | nn.BatchNorm1d):
            module.reset_parameters()  # ones and zeros
    if model.output.bias is not None:
        nn.init.zeros_(model.output.bias)
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    for table in dict.fromkeys([*tables, model.output.weight]):  # once each, tied or not
        nn.init.normal_(table, std=model.config.d_model**-0.5)


def init_recurrent_weights(rnn: nn.RNNBase, scale: float) -> None:
    """Gate by gate: Xavier for the input, orthogonal for the state, both times `scale`.

    The forget bias of an LSTM is 1.
    """
    for name, parameter in rnn.named_parameters():
        for gate in parameter.detach().split(rnn.hidden_size):
            if name.startswith("bias"):
                nn.init.zeros_(gate)
            elif name.startswith("weight_ih"):
                nn.init.xavier_uniform_(gate, scale)
            else:
                nn.init.orthogonal_(gate, scale)
        if isinstance(rnn, nn.LSTM) and name.startswith("bias_ih"):
            nn.init.ones_(parameter.detach()[rnn.hidden_size : 2 * rnn.hidden_size])


@torch.no_grad()
def init_convolution(convolution: Convolution, scale: float = 1.0) -> None:
    """Normal weights that scale the variance by init_variance * scale^2; a gain that leaves them so."""
    weight_v = convolution.weight_v
    nn.init.normal_(weight_v, std=scale * math.sqrt(convolution.init_variance / weight_v.shape[1]))
    nn.init.zeros_(convolution.bias)
    if convolution.weight_g is not None:
        convolution.weight_g.copy_(weight_v.norm(dim=1))
