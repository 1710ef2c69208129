"""The layers that Table 1 compares, one function each: what mixes the positions, alone, and the whole layer.

The paper's complexity is of the mixing: the projections W_Q, W_K, W_V and W_O of attention cost n d^2
besides, and an RNN's input projection too.

    self-attention    softmax(q k^T) v over all pairs, through the model's door, heads of 64 as in the paper
    recurrent         h_t = tanh(x_t + U h_{t-1}), one step after the other
    convolution       d to d over k positions; contiguous, or in a stack that is dilated by k^0, k^1, k^2 ...
    restricted        self-attention of a window of r, as a band

Shapes: B sentences, N = n positions each, D = d; T = B N tokens end to end, H heads, K their width.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.config import ModelConfig
from manyheads.model.attention import AttentionSpec, attend
from manyheads.model.baselines.bytenet import ByteNetBlock
from manyheads.model.baselines.convolution import Convolution
from manyheads.model.baselines.convs2s import GatedConvolution
from manyheads.model.baselines.recurrent import RecurrentLayer, rnn_cell
from manyheads.model.layers import MultiHeadAttention
from manyheads.packed import Packed

HEAD = 64  # d_k and d_v of both models of the paper


@dataclass(frozen=True)
class Size:
    """n positions of width d in each of so many sentences; k is the kernel, or the window r."""

    n: int
    d: int
    k: int = 0
    batch: int = 1


@dataclass(frozen=True)
class Work:
    """Something to run, and the tensors that hold the positions which it mixes."""

    inputs: tuple[Tensor, ...]
    run: Callable[[], Tensor]


@dataclass(frozen=True)
class LayerType:
    """A row of Table 1: what the paper says of it, and how it is measured."""

    name: str
    complexity: str
    sequential: str
    path: str
    orders: Mapping[str, int]  # the exponents in n, d and k or r of the paper's complexity
    mixing: Callable[[Size], Work]
    whole: Callable[[Size], Work]
    hop: Callable[[Tensor, Tensor, int, int], Tensor]  # state, inputs [B, N, D], the hop's number, k
    path_order: int | None  # the exponent of the path in n; None: log_k n
    one_way: bool = False  # a position sees only those before it
    letter: str = ""  # what the paper calls the kernel or the window
    begin: Callable[[Tensor], Tensor] = field(default=lambda inputs: inputs)  # the state before the first hop


# ---- attention


def heads_of(d: int) -> int:
    return max(1, d // HEAD)


def text_of(size: Size) -> Packed:
    text = Packed.of([[0] * size.n] * size.batch)
    return text.to(torch.get_default_device()).computed()


def attention(size: Size, *, window: int | None = None, path: str | None = None) -> Work:
    heads, text = heads_of(size.d), text_of(size)
    q_THK, k_THK, v_THK = torch.randn(3, size.batch * size.n, heads, size.d // heads)
    rule = AttentionSpec(window=window)
    if window is not None and not q_THK.is_cuda:
        path = "banded"  # at any size: the door would take short sentences another way
    return Work(
        (q_THK, k_THK, v_THK),
        lambda: attend(q_THK, k_THK, v_THK, text, text, rule, implementation=path),  # type: ignore[arg-type]
    )


def attention_layer(size: Size, *, window: int | None = None) -> Work:
    """With its four projections, as in the model."""
    config = ModelConfig(d_model=size.d, heads=heads_of(size.d))
    layer, text = MultiHeadAttention(config, window=window).eval(), text_of(size)
    x_TD = torch.randn(size.batch * size.n, size.d)
    return Work((x_TD,), lambda: layer(x_TD, x_TD, text, text))


def attention_hop(x_BND: Tensor, window: int | None = None) -> Tensor:
    batch, n, d = x_BND.shape
    text, x_T1D = Packed.of([[0] * n] * batch), x_BND.reshape(batch * n, 1, d)
    mixed = attend(x_T1D, x_T1D, x_T1D, text, text, AttentionSpec(window=window))
    return mixed.view(batch, n, d)


# ---- recurrence


def recurrence(size: Size) -> Work:
    x_NBD, u_DD = torch.randn(size.n, size.batch, size.d), torch.randn(size.d, size.d) * size.d**-0.5
    zero_D = torch.zeros(size.d)
    return Work((x_NBD,), lambda: recur(x_NBD, u_DD, zero_D))


def recur(x_NBD: Tensor, u_DD: Tensor, bias_D: Tensor) -> Tensor:
    """The model's plain cell, step by step."""
    state, states = [torch.zeros(x_NBD.shape[1:])], []
    for x_BD in x_NBD:
        state = rnn_cell(x_BD, state, u_DD, bias_D)
        states += state
    return torch.stack(states)


def recurrent_layer(size: Size) -> Work:
    """Long short-term memory, with its input projection, step by step."""
    layer, text = RecurrentLayer("lstm", size.d, size.d).eval(), text_of(size)
    x_TD = torch.randn(size.batch * size.n, size.d)
    return Work((x_TD,), lambda: layer(x_TD, text, path="plain")[0])


def recurrent_hop(h_BND: Tensor, x_BND: Tensor, number: int, k: int) -> Tensor:
    """One step of every position at once, from what its left neighbor had before."""
    d = h_BND.shape[-1]
    before_BND = F.pad(h_BND, (0, 0, 1, -1))
    return rnn_cell(x_BND, [before_BND], fixed_weights(d, d), h_BND.new_zeros(d))[0]


# ---- convolution


def convolution(size: Size, *, dilated: bool = False) -> Work:
    layer = Convolution(size.d, size.d, size.k, dilation=size.k if dilated else 1, causal=True)
    layer.reset_parameters()
    return over_text(layer, size)


def over_text(layer: nn.Module, size: Size) -> Work:
    text, x_TD = text_of(size), torch.randn(size.batch * size.n, size.d)
    return Work((x_TD,), lambda: layer(x_TD, text))


def gated_layer(size: Size) -> Work:
    """ConvS2S's: twice as wide, with a gated linear unit."""
    layer = GatedConvolution(ModelConfig(d_ff=size.d, kernel_size=size.k), causal=True).eval()
    layer.convolution.reset_parameters()
    return over_text(layer, size)


def dilated_layer(size: Size) -> Work:
    """ByteNet's residual block: half as wide between two products."""
    config = ModelConfig(d_model=size.d, d_ff=size.d // 2, kernel_size=size.k)
    layer = ByteNetBlock(config, size.k, causal=True).eval()
    for part in (layer.reduce, layer.dilated, layer.expand):
        part.reset_parameters()
    return over_text(layer, size)


def convolution_hop(x_BND: Tensor, dilation: int, k: int) -> Tensor:
    """Causal: a position sees itself and k - 1 before it. So both kinds of stack reach all that came before.

    Were it centerd, a dilated stack would lose the ways that lead over an end of the sentence.
    """
    batch, n, d = x_BND.shape
    layer = Convolution(d, d, k, dilation=dilation, causal=True).double()
    layer.weight_v.data, layer.bias.data = fixed_weights(d, d * k), fixed_weights(d)
    mixed_TD = layer(x_BND.flatten(0, 1), Packed.of([[0] * n] * batch))
    return torch.tanh(mixed_TD).view_as(x_BND)


def fixed_weights(*shape: int) -> Tensor:
    """Of a hop, always the same: neither so small nor so large that a gradient would vanish."""
    seeded = torch.Generator().manual_seed(0)
    scale: float = shape[0] ** -0.5
    return torch.randn(*shape, generator=seeded, dtype=torch.float64) * scale


# ---- the rows of the table

LAYERS = (
    LayerType(
        name="self-attention",
        complexity="n² d",
        sequential="1",
        path="1",
        orders={"n": 2, "d": 1},
        mixing=attention,
        whole=attention_layer,
        hop=lambda x, inputs, number, k: attention_hop(x),
        path_order=0,
    ),
    LayerType(
        name="recurrent",
        complexity="n d²",
        sequential="n",
        path="n",
        orders={"n": 1, "d": 2},
        mixing=recurrence,
        whole=recurrent_layer,
        hop=recurrent_hop,
        path_order=1,
        one_way=True,
        begin=torch.zeros_like,
    ),
    LayerType(
        name="convolution, contiguous",
        complexity="k n d²",
        sequential="1",
        path="n/k",
        orders={"n": 1, "d": 2, "k": 1},
        mixing=convolution,
        whole=gated_layer,
        hop=lambda x, inputs, number, k: convolution_hop(x, 1, k),
        path_order=1,
        one_way=True,
        letter="k",
    ),
    LayerType(
        name="convolution, dilated",
        complexity="k n d²",
        sequential="1",
        path="log_k n",
        orders={"n": 1, "d": 2, "k": 1},
        mixing=lambda size: convolution(size, dilated=True),
        whole=dilated_layer,
        hop=lambda x, inputs, number, k: convolution_hop(x, k**number, k),
        path_order=None,
        one_way=True,
        letter="k",
    ),
    LayerType(
        name="self-attention, restricted",
        complexity="r n d",
        sequential="1",
        path="n/r",
        orders={"n": 1, "d": 1, "k": 1},
        mixing=lambda size: attention(size, window=size.k),
        whole=lambda size: attention_layer(size, window=size.k),
        hop=lambda x, inputs, number, k: attention_hop(x, k),
        path_order=1,
        letter="r",
    ),
)
