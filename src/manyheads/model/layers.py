"""The sub-layers and what stands around them (3.1, 3.2.2, 3.3).

Shapes: T target or source tokens, S memory tokens, D = d_model, H heads, K = d_k, V = d_v;
        R rows of a decoding step, each one hypothesis.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.config import TransformerConfig
from manyheads.errors import DataError
from manyheads.model.attention import AttentionSpec, attend
from manyheads.model.kv_cache import LayerCache
from manyheads.ops import dispatch as kernels
from manyheads.ops.split import split
from manyheads.packed import Packed, gather_rows


class Linear(nn.Linear):
    """x W + b"""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if not kernels.use_kernels(x):
        return F.linear(x, weight, bias)
    from manyheads.ops import linear_triton as products

    return products.linear(x, weight, bias)


class MultiHeadAttention(nn.Module):
    """Several attentions side by side (3.2.2).

    MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O
    head_i = Attention(Q W_Q, K W_K, V W_V)             each with its own part of the three matrices
    """

    def __init__(self, config: TransformerConfig, *, causal: bool = False, window: int | None = None):
        super().__init__()
        self.heads = config.heads
        self.w_q = Linear(config.d_model, config.heads * config.head_dim_k)
        self.w_k = Linear(config.d_model, config.heads * config.head_dim_k)
        self.w_v = Linear(config.d_model, config.heads * config.head_dim_v)
        self.w_o = Linear(config.heads * config.head_dim_v, config.d_model)
        additive = config.attention == "additive"
        self.energy = nn.Parameter(torch.empty(config.heads, config.head_dim_k)) if additive else None
        self.spec = AttentionSpec(config.attention, causal, window, config.attention_dropout)

    def forward(
        self,
        x_TD: Tensor,
        memory_SD: Tensor,
        queries: Packed,
        keys: Packed,
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        if x_TD is memory_SD:
            q_THK, k_SHK, v_SHV = self.project(x_TD, self.w_q, self.w_k, self.w_v)
        else:
            (q_THK,) = self.project(x_TD, self.w_q)
            k_SHK, v_SHV = self.keys_and_values(memory_SD)
        gathered_THV = attend(q_THK, k_SHK, v_SHV, queries, keys, self.current_spec(), maps=maps)
        return self.merge_heads(gathered_THV)

    def self_attention_step(self, x_RD: Tensor, cache: LayerCache) -> Tensor:
        """One new token of each row, which looks at itself and at what the row has read."""
        q_RHK, k_RHK, v_RHV = self.project(x_RD, self.w_q, self.w_k, self.w_v)
        return self.merge_heads(cache.self_attention(q_RHK, k_RHK, v_RHV, self.current_spec()))

    def cross_attention_step(self, x_RD: Tensor, cache: LayerCache) -> Tensor:
        """One new token of each row, which looks at its sentence's source."""
        (q_RHK,) = self.project(x_RD, self.w_q)
        return self.merge_heads(cache.cross_attention(q_RHK, self.current_spec()))

    def keys_and_values(self, memory_SD: Tensor) -> tuple[Tensor, Tensor]:
        k_SHK, v_SHV = self.project(memory_SD, self.w_k, self.w_v)
        return k_SHK, v_SHV

    def project(self, x_TD: Tensor, *maps: nn.Linear) -> list[Tensor]:
        """Several maps of the same vectors, by heads; on a GPU in one product, which keeps it busier."""
        if not x_TD.is_cuda or len(maps) == 1:
            return [self.split_heads(one(x_TD)) for one in maps]
        together = linear(
            x_TD, torch.cat([one.weight for one in maps]), torch.cat([one.bias for one in maps])
        )
        widths = [one.out_features for one in maps]
        return [self.split_heads(part) for part in split(together, widths)]

    def split_heads(self, x: Tensor) -> Tensor:
        return x.view(len(x), self.heads, x.shape[-1] // self.heads)

    def merge_heads(self, gathered_THV: Tensor) -> Tensor:
        out: Tensor = self.w_o(gathered_THV.flatten(-2))
        return out

    def current_spec(self) -> AttentionSpec:
        """The rule with today's parameters, and with dropout only in training."""
        dropout = self.spec.dropout if self.training else 0.0
        return replace(self.spec, dropout=dropout, energy_HK=self.energy)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position (3.3)"""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.w_1 = Linear(config.d_model, config.d_ff)
        self.w_2 = Linear(config.d_ff, config.d_model)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x_TD: Tensor, aux_losses: list[Tensor] | None = None) -> Tensor:
        out: Tensor = self.w_2(self.hidden(x_TD))
        return out

    def hidden(self, x_TD: Tensor) -> Tensor:
        """max(0, x W_1 + b_1)"""
        if self.activation is F.relu and kernels.use_kernels(x_TD):
            from manyheads.ops import linear_triton as products

            return products.linear_relu(x_TD, self.w_1.weight, self.w_1.bias)
        return self.activation(self.w_1(x_TD))


class Experts(nn.Module):
    """Several feed-forward layers, of which each token takes a few: conditional computation.

    out = sum of g_e FFN_e(x) over the experts e with the highest gates, g their softmax
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        assert config.experts is not None
        self.experts_per_token = config.experts_per_token
        self.gate = nn.Linear(config.d_model, config.experts)
        self.experts = nn.ModuleList(FeedForward(config) for _ in range(config.experts))

    def forward(self, x_TD: Tensor, aux_losses: list[Tensor] | None = None) -> Tensor:
        """`losses` receives how unequally busy the experts are."""
        scores_TE = self.gate_scores(x_TD)
        highest_TN, chosen_TN = scores_TE.topk(self.experts_per_token, -1)
        if aux_losses is not None:
            aux_losses.append(load_balance_loss(scores_TE, chosen_TN))
        out_TND = self.apply_experts(x_TD, chosen_TN)
        gates_TN1 = highest_TN.softmax(-1)[..., None]
        out: Tensor = (gates_TN1 * out_TND).sum(1).to(out_TND.dtype)
        return out

    def gate_scores(self, x_TD: Tensor) -> Tensor:
        """In full precision: a rounded gate would decide between like experts. [T, E]"""
        dtype = torch.promote_types(x_TD.dtype, torch.float32)
        with torch.autocast(x_TD.device.type, enabled=False):
            return F.linear(x_TD.to(dtype), self.gate.weight.to(dtype), self.gate.bias.to(dtype))

    def apply_experts(self, x_TD: Tensor, chosen_TN: Tensor) -> Tensor:
        """What each chosen expert makes of a token: tokens are sorted by expert, so that each reads once.

        An expert that nobody chose reads nothing, and so has a gradient of zeros, which ranks can sum up.
        """
        order = chosen_TN.flatten().argsort(stable=True)
        each = x_TD[:, None].expand(-1, self.experts_per_token, -1).flatten(0, 1)
        busy = chosen_TN.flatten().bincount(minlength=len(self.experts)).tolist()
        parts = zip(self.experts, gather_rows(each, order).split(busy), strict=True)
        out = torch.cat([expert(part) for expert, part in parts])
        return gather_rows(out, order.argsort()).view(*chosen_TN.shape, x_TD.shape[1])


def load_balance_loss(scores_TE: Tensor, chosen_TN: Tensor) -> Tensor:
    """E sum_e f_e p_e: f the share of the choices that fell on an expert, p its mean probability.

    1 where all are equally busy, E where one does all the work; it pushes down what is chosen too often.
    """
    experts = scores_TE.shape[1]
    shares_E = chosen_TN.flatten().bincount(minlength=experts) / max(1, chosen_TN.numel())
    means_E = scores_TE.softmax(-1).sum(0) / max(1, len(scores_TE))
    found: Tensor = experts * (shares_E * means_E).sum()
    return found


def build_feed_forward(config: TransformerConfig) -> FeedForward | Experts:
    return FeedForward(config) if config.experts is None else Experts(config)


class Dropout(nn.Dropout):
    """As torch's, but on a CPU too it remembers what it dropped in a byte a number, not in a float."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return torch.native_dropout(x, self.p, True)[0]


class BatchNorm(nn.BatchNorm1d):
    """Each of the D numbers normalized over the tokens of the batch, of which none is padding."""

    def forward(self, x_TD: Tensor) -> Tensor:
        if len(x_TD) == 0:
            return x_TD
        if self.training and len(x_TD) == 1:
            raise DataError(
                "a training batch of 1 token, but batch normalization needs at least 2: "
                'make the batch larger, or set model.normalization = "layer"'
            )
        return super().forward(x_TD)


class LayerNorm(nn.LayerNorm):
    """Each token's D numbers normalized, in the precision of its gain: a model that is rounded keeps that."""

    def forward(self, x_TD: Tensor) -> Tensor:
        if x_TD.dtype == self.weight.dtype or torch.is_autocast_enabled(x_TD.device.type):
            return super().forward(x_TD)
        return super().forward(x_TD.to(self.weight.dtype)).to(x_TD.dtype)


def build_norm(config: TransformerConfig) -> nn.Module:
    return LayerNorm(config.d_model) if config.normalization == "layer" else BatchNorm(config.d_model)


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))) (3.1, 5.4); with pre-norm x + Dropout(Sublayer(LayerNorm(x)))"""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.norm = build_norm(config)
        self.dropout = Dropout(config.dropout)
        self.pre_norm = config.norm == "pre"
        self.residuals = config.residuals
        self.fuses = self.residuals and not self.pre_norm and isinstance(self.norm, nn.LayerNorm)

    def forward(self, x_TD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        out: Tensor = sublayer(kernels.cast_for_autocast(self.norm(x_TD)) if self.pre_norm else x_TD)
        if self.fuses and kernels.use_kernels(out):
            return self.fused(x_TD, out)
        out = self.dropout(out)
        if self.residuals:
            out = x_TD + out
        if not self.pre_norm:
            out = self.norm(out)
        return out

    def fused(self, x_TD: Tensor, h_TD: Tensor) -> Tensor:
        """The same in one kernel."""
        from manyheads.ops.add_norm_triton import add_norm

        dropout = self.dropout.p if self.training else 0.0
        assert isinstance(self.norm, nn.LayerNorm)
        return add_norm(x_TD, h_TD, self.norm.weight, self.norm.bias, self.norm.eps, dropout)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward (3.1)."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.self_attention = MultiHeadAttention(config, window=config.window)
        self.feed_forward = build_feed_forward(config)
        self.self_attention_residual = Residual(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        x_SD: Tensor,
        source: Packed,
        maps: list[Tensor] | None = None,
        aux_losses: list[Tensor] | None = None,
    ) -> Tensor:
        x_SD = self.self_attention_residual(x_SD, lambda x: self.self_attention(x, x, source, source, maps))
        out: Tensor = self.feed_forward_residual(x_SD, lambda x: self.feed_forward(x, aux_losses))
        return out


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, feed-forward (3.1)."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.self_attention = MultiHeadAttention(config, causal=True, window=config.window)
        self.cross_attention = MultiHeadAttention(config)
        self.feed_forward = build_feed_forward(config)
        self.self_attention_residual = Residual(config)
        self.cross_attention_residual = Residual(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        x_TD: Tensor,
        memory_SD: Tensor,
        target: Packed,
        source: Packed,
        self_maps: list[Tensor] | None = None,
        cross_maps: list[Tensor] | None = None,
        aux_losses: list[Tensor] | None = None,
    ) -> Tensor:
        return self.apply_sublayers(
            x_TD,
            lambda x: self.self_attention(x, x, target, target, self_maps),
            lambda x: self.cross_attention(x, memory_SD, target, source, cross_maps),
            aux_losses,
        )

    def step(self, x_RD: Tensor, cache: LayerCache) -> Tensor:
        """One new token of each row, which sees what came before it through the cache."""
        return self.apply_sublayers(
            x_RD,
            lambda x: self.self_attention.self_attention_step(x, cache),
            lambda x: self.cross_attention.cross_attention_step(x, cache),
        )

    def apply_sublayers(
        self,
        x: Tensor,
        self_attention: Callable[[Tensor], Tensor],
        cross_attention: Callable[[Tensor], Tensor],
        aux_losses: list[Tensor] | None = None,
    ) -> Tensor:
        x = self.self_attention_residual(x, self_attention)
        x = self.cross_attention_residual(x, cross_attention)
        out: Tensor = self.feed_forward_residual(x, lambda x: self.feed_forward(x, aux_losses))
        return out
