"""The layer types of Table 1: for each the operation that mixes positions, alone, and the full layer.

The paper's complexity is that of the mixing. The projections W_Q, W_K, W_V and W_O of attention, and the
input projection of an RNN, cost another n d^2.

    self-attention    softmax(q k^T) v over all pairs, the model's own attention, heads of 64 as in the paper
    recurrent         h_t = tanh(x_t + U h_{t-1}), step by step
    convolution       d to d over k positions; contiguous, or in a stack dilated by k^0, k^1, k^2 ...
    restricted        self-attention within a window of r, computed as a band

Shapes: B sentences of N = n positions, D = d; T = B N packed tokens, H heads of width K.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.config import ByteNetConfig, ConvS2SConfig, TransformerConfig
from manyheads.model.attention import MultiHeadAttention
from manyheads.model.baselines.bytenet import ByteNetBlock
from manyheads.model.baselines.convolution import Convolution
from manyheads.model.baselines.convs2s import GatedConvolution
from manyheads.model.baselines.recurrent_layer import RecurrentLayer, rnn_cell
from manyheads.model.initialization import init_convolution
from manyheads.ops.attention import attend
from manyheads.ops.attention_spec import AttentionSpec
from manyheads.ops.batch_cache import precompute_layout
from manyheads.packed import Packed

HEAD_DIM = 64  # d_k and d_v of both models of the paper


@dataclass(frozen=True)
class LayerSize:
    """`batch` sentences of n positions of width d; k is the kernel size, or the window r."""

    n: int
    d: int
    k: int = 0
    batch: int = 1


@dataclass(frozen=True)
class LayerCall:
    """A callable and the tensors of the positions that it mixes."""

    inputs: tuple[Tensor, ...]
    run: Callable[[], Tensor]


@dataclass(frozen=True)
class LayerType:
    """A row of Table 1: the paper's orders, and how the layer is measured."""

    name: str
    complexity: str
    sequential: str
    path: str
    exponents: Mapping[str, int]  # of the paper's complexity, in n, d and k (k or r)
    make_mixing: Callable[[LayerSize], LayerCall]
    make_layer: Callable[[LayerSize], LayerCall]
    apply_hop: Callable[[Tensor, Tensor, int, int], Tensor]  # state, inputs [B, N, D], index of the hop, k
    path_exponent: int | None  # of the path length in n; None: log_k n
    is_causal: bool = False  # a position sees only earlier ones
    kernel_symbol: str = ""  # of the kernel size or the window in the paper
    initial_state: Callable[[Tensor], Tensor] = field(default=lambda inputs: inputs)  # before the first hop


# ---- attention


def count_heads(d: int) -> int:
    return max(1, d // HEAD_DIM)


def make_packed(size: LayerSize) -> Packed:
    text = Packed.of([[0] * size.n] * size.batch)
    return precompute_layout(text.to(torch.get_default_device()))


def make_attention(size: LayerSize, *, window: int | None = None, path: str | None = None) -> LayerCall:
    heads, text = count_heads(size.d), make_packed(size)
    q_THK, k_THK, v_THK = torch.randn(3, size.batch * size.n, heads, size.d // heads)
    spec = AttentionSpec(window=window)
    if window is not None and not q_THK.is_cuda:
        path = "banded"  # short sentences would otherwise take another path
    return LayerCall(
        (q_THK, k_THK, v_THK),
        lambda: attend(q_THK, k_THK, v_THK, text, text, spec, implementation=path),  # type: ignore[arg-type]
    )


def make_attention_layer(size: LayerSize, *, window: int | None = None) -> LayerCall:
    """Make the layer of the model, with its four projections."""
    config = TransformerConfig(d_model=size.d, heads=count_heads(size.d))
    layer, text = MultiHeadAttention(config, window=window).eval(), make_packed(size)
    x_TD = torch.randn(size.batch * size.n, size.d)
    return LayerCall((x_TD,), lambda: layer(x_TD, x_TD, text, text))


def apply_attention_hop(x_BND: Tensor, window: int | None = None) -> Tensor:
    batch, n, d = x_BND.shape
    text, x_T1D = Packed.of([[0] * n] * batch), x_BND.reshape(batch * n, 1, d)
    mixed = attend(x_T1D, x_T1D, x_T1D, text, text, AttentionSpec(window=window))
    return mixed.view(batch, n, d)


# ---- recurrence


def make_recurrence(size: LayerSize) -> LayerCall:
    x_NBD, u_DD = torch.randn(size.n, size.batch, size.d), torch.randn(size.d, size.d) * size.d**-0.5
    zero_D = torch.zeros(size.d)
    return LayerCall((x_NBD,), lambda: run_recurrence(x_NBD, u_DD, zero_D))


def run_recurrence(x_NBD: Tensor, u_DD: Tensor, bias_D: Tensor) -> Tensor:
    """Run the model's plain recurrent cell step by step."""
    state, states = [torch.zeros(x_NBD.shape[1:])], []
    for x_BD in x_NBD:
        state = rnn_cell(x_BD, state, u_DD, bias_D)
        states += state
    return torch.stack(states)


def make_lstm_layer(size: LayerSize) -> LayerCall:
    """Make an LSTM layer with its input projection, run step by step."""
    layer, text = RecurrentLayer("lstm", size.d, size.d).eval(), make_packed(size)
    x_TD = torch.randn(size.batch * size.n, size.d)
    return LayerCall((x_TD,), lambda: layer(x_TD, text, implementation="reference")[0])


def apply_recurrent_hop(h_BND: Tensor, x_BND: Tensor, number: int, k: int) -> Tensor:
    """Apply one step to every position, from the previous state of its left neighbor."""
    d = h_BND.shape[-1]
    before_BND = F.pad(h_BND, (0, 0, 1, -1))
    return rnn_cell(x_BND, [before_BND], make_fixed_weights(d, d), h_BND.new_zeros(d))[0]


# ---- convolution


def make_convolution(size: LayerSize, *, dilated: bool = False) -> LayerCall:
    layer = Convolution(size.d, size.d, size.k, dilation=size.k if dilated else 1, causal=True)
    init_convolution(layer)
    return make_layer_call(layer, size)


def make_layer_call(layer: nn.Module, size: LayerSize) -> LayerCall:
    text, x_TD = make_packed(size), torch.randn(size.batch * size.n, size.d)
    return LayerCall((x_TD,), lambda: layer(x_TD, text))


def make_gated_convolution(size: LayerSize) -> LayerCall:
    """Make the layer of ConvS2S: twice as wide, with a gated linear unit."""
    layer = GatedConvolution(ConvS2SConfig(d_ff=size.d, kernel_size=size.k), causal=True).eval()
    init_convolution(layer.convolution)
    return make_layer_call(layer, size)


def make_bytenet_block(size: LayerSize) -> LayerCall:
    """Make the residual block of ByteNet: a convolution of half the width between two projections."""
    config = ByteNetConfig(d_model=size.d, d_ff=size.d // 2, kernel_size=size.k)
    layer = ByteNetBlock(config, size.k, causal=True).eval()
    for part in (layer.reduce, layer.dilated, layer.expand):
        init_convolution(part)
    return make_layer_call(layer, size)


def apply_convolution_hop(x_BND: Tensor, dilation: int, k: int) -> Tensor:
    """Apply a causal convolution: a position sees itself and the k - 1 before it.

    Both kinds of stack then reach all earlier positions. A centered dilated stack would lose the paths that
    cross an end of the sentence.
    """
    batch, n, d = x_BND.shape
    layer = Convolution(d, d, k, dilation=dilation, causal=True).double()
    layer.weight_v.data, layer.bias.data = make_fixed_weights(d, d * k), make_fixed_weights(d)
    mixed_TD = layer(x_BND.flatten(0, 1), Packed.of([[0] * n] * batch))
    return torch.tanh(mixed_TD).view_as(x_BND)


def make_fixed_weights(*shape: int) -> Tensor:
    """Return constant weights of a hop, scaled so that gradients do not vanish."""
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
        exponents={"n": 2, "d": 1},
        make_mixing=make_attention,
        make_layer=make_attention_layer,
        apply_hop=lambda x, inputs, number, k: apply_attention_hop(x),
        path_exponent=0,
    ),
    LayerType(
        name="recurrent",
        complexity="n d²",
        sequential="n",
        path="n",
        exponents={"n": 1, "d": 2},
        make_mixing=make_recurrence,
        make_layer=make_lstm_layer,
        apply_hop=apply_recurrent_hop,
        path_exponent=1,
        is_causal=True,
        initial_state=torch.zeros_like,
    ),
    LayerType(
        name="convolution, contiguous",
        complexity="k n d²",
        sequential="1",
        path="n/k",
        exponents={"n": 1, "d": 2, "k": 1},
        make_mixing=make_convolution,
        make_layer=make_gated_convolution,
        apply_hop=lambda x, inputs, number, k: apply_convolution_hop(x, 1, k),
        path_exponent=1,
        is_causal=True,
        kernel_symbol="k",
    ),
    LayerType(
        name="convolution, dilated",
        complexity="k n d²",
        sequential="1",
        path="log_k n",
        exponents={"n": 1, "d": 2, "k": 1},
        make_mixing=lambda size: make_convolution(size, dilated=True),
        make_layer=make_bytenet_block,
        apply_hop=lambda x, inputs, number, k: apply_convolution_hop(x, k**number, k),
        path_exponent=None,
        is_causal=True,
        kernel_symbol="k",
    ),
    LayerType(
        name="self-attention, restricted",
        complexity="r n d",
        sequential="1",
        path="n/r",
        exponents={"n": 1, "d": 1, "k": 1},
        make_mixing=lambda size: make_attention(size, window=size.k),
        make_layer=lambda size: make_attention_layer(size, window=size.k),
        apply_hop=lambda x, inputs, number, k: apply_attention_hop(x, k),
        path_exponent=1,
        kernel_symbol="r",
    ),
)
