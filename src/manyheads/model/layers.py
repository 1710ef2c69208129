"""The layers of encoder and decoder (3.1), their feed-forward networks (3.3) and the norms around them.

Shapes: T target or source tokens, S memory tokens, D = d_model, E experts, N experts of a token;
        R rows of a decoding step, each one hypothesis, or of a mixture, T * N sorted by expert.
"""

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.config import TransformerConfig
from manyheads.errors import DataError
from manyheads.model.attention import MultiHeadAttention
from manyheads.model.kv_cache import LayerCache
from manyheads.ops.add_norm import add_norm, feed_forward_add_norm, layer_norm, linear_add_norm
from manyheads.ops.dispatch import cast_for_autocast
from manyheads.ops.grouped_linear import count_members, grouped_linear
from manyheads.ops.linear import Linear, linear_float32, linear_relu
from manyheads.packed import Packed, gather_rows

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position (3.3)"""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.w_1 = Linear(config.d_model, config.d_ff)
        self.w_2 = Linear(config.d_ff, config.d_model)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x_TD: Tensor) -> Tensor:
        out: Tensor = self.w_2(self.hidden(x_TD))
        return out

    def hidden(self, x_TD: Tensor) -> Tensor:
        """Return max(0, x W_1 + b_1)."""
        if self.activation is F.relu:
            return linear_relu(x_TD, self.w_1)
        return self.activation(self.w_1(x_TD))


class Experts(nn.Module):
    """A mixture of experts: several feed-forward networks, of which each token takes a few.

    out = sum of g_e FFN_e(x) over the experts e with the highest gates, g their softmax
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        assert config.experts is not None
        self.experts_per_token = config.experts_per_token
        self.gate = nn.Linear(config.d_model, config.experts)
        self.experts = nn.ModuleList(FeedForward(config) for _ in range(config.experts))
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x_TD: Tensor, aux_losses: list[Tensor] | None = None) -> Tensor:
        """`aux_losses` receives the load-balancing loss."""
        scores_TE = linear_float32(x_TD, self.gate)  # rounding would decide between close experts
        highest_TN, chosen_TN = scores_TE.topk(self.experts_per_token, -1)
        if aux_losses is not None:
            aux_losses.append(load_balance_loss(scores_TE, chosen_TN))
        out_TND = self.apply_experts(x_TD, chosen_TN)
        gates_TN1 = highest_TN.softmax(-1)[..., None]
        out: Tensor = (gates_TN1 * out_TND).sum(1).to(out_TND.dtype)
        return out

    def apply_experts(self, x_TD: Tensor, chosen_TN: Tensor) -> Tensor:
        """Return the output of each chosen expert. [T, N, D]

        Tokens are sorted by expert, so that each expert runs once.
        """
        sorted_R, order_R = chosen_TN.flatten().sort(stable=True)
        repeated_RD = x_TD[:, None].expand(-1, self.experts_per_token, -1).flatten(0, 1)
        experts = [cast(FeedForward, expert) for expert in self.experts]
        hidden_RF = grouped_linear(gather_rows(repeated_RD, order_R), [e.w_1 for e in experts], sorted_R)
        out_RD = grouped_linear(self.activation(hidden_RF), [e.w_2 for e in experts], sorted_R)
        return gather_rows(out_RD, order_R.argsort()).view(*chosen_TN.shape, x_TD.shape[1])


def load_balance_loss(scores_TE: Tensor, chosen_TN: Tensor) -> Tensor:
    """Return E sum_e f_e p_e: f the share of tokens that chose expert e, p its mean probability.

    It is 1 where all are equally busy and E where one does all the work.
    """
    experts = scores_TE.shape[1]
    shares_E = count_members(chosen_TN, experts) / max(1, chosen_TN.numel())
    means_E = scores_TE.softmax(-1).sum(0) / max(1, len(scores_TE))
    loss: Tensor = experts * (shares_E * means_E).sum()
    return loss


def build_feed_forward(config: TransformerConfig) -> FeedForward | Experts:
    return FeedForward(config) if config.experts is None else Experts(config)


class Dropout(nn.Dropout):
    """As torch's, but its mask takes a byte per element on a CPU too, not a float."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return torch.native_dropout(x, self.p, True)[0]


class BatchNorm(nn.BatchNorm1d):
    """Normalizes each of the D features over the tokens of the batch, none of which is padding."""

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
    """Normalizes each token over its D features."""

    def forward(self, x_TD: Tensor) -> Tensor:
        return layer_norm(x_TD, self)


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

    def forward(
        self, x_TD: Tensor, sublayer: Callable[[Tensor], Tensor], output: nn.Linear | None = None
    ) -> Tensor:
        """Apply a sublayer. Its last step may be the linear map `output`, left to this module to fuse."""
        h = sublayer(cast_for_autocast(self.norm(x_TD)) if self.pre_norm else x_TD)
        if self.residuals and not self.pre_norm and isinstance(self.norm, LayerNorm):
            if output is None:
                return add_norm(x_TD, h, self.norm, self.dropout)
            return linear_add_norm(x_TD, h, output, self.norm, self.dropout)
        h = self.dropout(h if output is None else output(h))
        if self.residuals:
            h = x_TD + h
        out: Tensor = h if self.pre_norm else self.norm(h)
        return out

    def attention(
        self,
        x_TD: Tensor,
        attention: MultiHeadAttention,
        memory_SD: Tensor | None,
        queries: Packed,
        keys: Packed,
        maps: list[Tensor] | None,
    ) -> Tensor:
        """Apply an attention sublayer; without a memory it is self-attention."""
        norm, post_norm = self.norm, self.residuals and not self.pre_norm
        fused = post_norm and maps is None and attention.is_fused(x_TD, memory_SD, queries, keys)
        if fused and isinstance(norm, LayerNorm):
            return attention.add_norm(x_TD, memory_SD, queries, keys, norm, self.dropout)
        return self(  # type: ignore[no-any-return]
            x_TD,
            lambda x: attention.concat_heads(x, x if memory_SD is None else memory_SD, queries, keys, maps),
            attention.w_o,
        )

    def feed_forward(
        self, x_TD: Tensor, network: FeedForward | Experts, aux_losses: list[Tensor] | None
    ) -> Tensor:
        """Apply a feed-forward sublayer."""
        if isinstance(network, Experts):
            return self(x_TD, lambda x: network(x, aux_losses))  # type: ignore[no-any-return]
        post_norm = self.residuals and not self.pre_norm
        if post_norm and isinstance(self.norm, LayerNorm) and network.activation is F.relu:
            return feed_forward_add_norm(x_TD, network.w_1, network.w_2, self.norm, self.dropout)
        return self(x_TD, network.hidden, network.w_2)  # type: ignore[no-any-return]


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
        x_SD = self.self_attention_residual.attention(x_SD, self.self_attention, None, source, source, maps)
        return self.feed_forward_residual.feed_forward(x_SD, self.feed_forward, aux_losses)


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
        x_TD = self.self_attention_residual.attention(
            x_TD, self.self_attention, None, target, target, self_maps
        )
        x_TD = self.cross_attention_residual.attention(
            x_TD, self.cross_attention, memory_SD, target, source, cross_maps
        )
        return self.feed_forward_residual.feed_forward(x_TD, self.feed_forward, aux_losses)

    def step(self, x_RD: Tensor, cache: LayerCache) -> Tensor:
        """One new token of each row, which sees the earlier ones through the cache."""
        x_RD = self.self_attention_residual(
            x_RD, lambda x: self.self_attention.self_attention_step(x, cache), self.self_attention.w_o
        )
        x_RD = self.cross_attention_residual(
            x_RD, lambda x: self.cross_attention.cross_attention_step(x, cache), self.cross_attention.w_o
        )
        return self.feed_forward_residual.feed_forward(x_RD, self.feed_forward, None)
