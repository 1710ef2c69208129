"""The peer without padding: a Transformer in plain PyTorch, written for speed on a GPU.

Sentences stand end to end in one row of tokens, filled up to one shape for all batches. Attention is
FlexAttention with a mask of sentences, or `torch.nn.attention.varlen` (FlashAttention). Layers and loss are
compiled, matrices are bfloat16 copies of float32 weights, and the whole step with its fused Adam is one CUDA
graph. On a CPU attention is dense with a mask and everything is float32, which is for tests.

Shapes: S source and T target tokens, N = S + T; D = d_model, H heads, K = d_model / heads, V the vocabulary.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn

import manyheads as mh
from manyheads.cuda.graphs import capture
from manyheads.model.positions import sinusoidal_encoding
from manyheads.packed import round_up
from training_system import LEARNING_RATE, TRAIN, TrainingSystem
from workload import MAX_LENGTH, WorkloadBatch

MAX_SENTENCE = round_up(MAX_LENGTH + 1, 128)  # a tile of attention holds every sentence
MAX_POSITIONS = 512
FILLER_LENGTH = 64
MIN_FILLER_TOKENS = 32  # on each side, so that no filler is empty
BLOCK = 128  # tokens of a block of FlexAttention
IGNORED = -100
HAS_WINDOW = "window_size" in inspect.signature(varlen_attn).parameters  # torch 2.10 had is_causal


# ---- batches


@dataclass(frozen=True)
class Side:
    """Where the sentences of one side are."""

    offsets: Tensor  # [sentences + 1] int32
    sentence_ids: Tensor  # [tokens] int32
    positions: Tensor  # [tokens] int32: in the sentence


@dataclass(frozen=True)
class BatchShape:
    """The sizes that all batches are filled up to, so that one program and one CUDA graph serve them."""

    source: int  # tokens
    target: int
    sentences: int

    @classmethod
    def for_batches(cls, batches: list[WorkloadBatch]) -> "BatchShape":
        tokens = [max(getattr(batch, f"{side}_tokens") for batch in batches) for side in ("source", "target")]
        source, target = (round_up(count + MIN_FILLER_TOKENS, BLOCK) for count in tokens)
        fewest = min(min(batch.source_tokens, batch.target_tokens) for batch in batches)
        fillers = -(-(max(source, target) - fewest) // FILLER_LENGTH)
        sentences = max(len(batch.sources) for batch in batches) + fillers
        return cls(source, target, round_up(sentences, BLOCK))


@dataclass(frozen=True)
class PackedBatch:
    """A batch of static shape. Fillers at the end of both sides have labels that do not count."""

    tokens: Tensor  # [N]: source, then the decoder's input
    labels: Tensor  # [T]
    source: Side
    target: Side
    scale: Tensor  # []: 1 / the number of real labels
    block_tables: list[Tensor]  # of FlexAttention: encoder, decoder, cross; counts and indices of each

    @classmethod
    def of(
        cls, batch: WorkloadBatch, shape: "BatchShape", flex: bool, forward_passes: int = 1
    ) -> "PackedBatch":
        """Pack a batch. Of two forward passes (R-Drop), the second follows the first on each side."""
        sizes = shape.source, shape.target
        lengths = [np.array([len(sentence) for sentence in side]) for side in (batch.sources, batch.labels)]
        missing = [size - own.sum() for size, own in zip(sizes, lengths, strict=True)]
        fillers = -(-max(missing) // FILLER_LENGTH)
        lengths = [
            np.concatenate((own, (np.arange(fillers) + lack) // fillers))  # sums up to what is missing
            for own, lack in zip(lengths, missing, strict=True)
        ]
        source, target = (
            make_side(np.tile(own, forward_passes), forward_passes * shape.sentences) for own in lengths
        )
        sides = [np.zeros(sizes[0], np.int64), np.zeros(sizes[1], np.int64), np.full(sizes[1], IGNORED)]
        for side, sentences in zip(sides, (batch.sources, batch.inputs, batch.labels), strict=True):
            joined = np.concatenate(sentences)
            side[: len(joined)] = joined
        repeated = [np.tile(side, forward_passes) for side in sides]
        tokens, labels = np.concatenate(repeated[:2]), repeated[2]
        pairs = [(source, source, False), (target, target, True), (target, source, False)]
        tables = [table for pair in pairs for table in make_block_table(*pair)] if flex else []
        scale = torch.tensor(1 / batch.target_tokens)
        return cls(torch.from_numpy(tokens), torch.from_numpy(labels), source, target, scale, tables)

    @property
    def tensors(self) -> list[Tensor]:
        sides = [getattr(side, name) for side in (self.source, self.target) for name in side.__annotations__]
        return [self.tokens, self.labels, *sides, self.scale, *self.block_tables]

    @classmethod
    def from_tensors(cls, tensors: list[Tensor]) -> "PackedBatch":
        tokens, labels, *rest = tensors
        return cls(tokens, labels, Side(*rest[:3]), Side(*rest[3:6]), rest[6], rest[7:])

    @cached_property
    def shape(self) -> tuple[torch.Size, ...]:
        return tuple(tensor.shape for tensor in self.tensors)


def make_side(lengths: NDArray[np.int64], count: int) -> Side:
    """Return the layout of sentences of these lengths, with empty ones up to a number."""
    offsets = np.full(count + 1, lengths.sum())
    offsets[: len(lengths) + 1] = np.cumsum([0, *lengths])
    ids = np.repeat(np.arange(len(lengths)), lengths)
    positions = np.arange(len(ids)) - offsets[ids]
    return Side(*(torch.from_numpy(values.astype(np.int32)) for values in (offsets, ids, positions)))


def make_block_table(queries: Side, keys: Side, causal: bool) -> tuple[Tensor, Tensor]:
    """Return how many blocks of keys each block of queries sees, and which, first ones first."""
    offsets, ids = keys.offsets.numpy(), queries.sentence_ids.numpy()
    starts = np.arange(0, len(ids), BLOCK)
    ends = np.minimum(starts + BLOCK, len(ids)) - 1
    first, last = offsets[ids[starts]] // BLOCK, -(-offsets[ids[ends] + 1] // BLOCK)
    if causal:
        last = np.minimum(last, starts // BLOCK + 1)
    num_key_blocks = -(-len(keys.sentence_ids) // BLOCK)
    indices = np.minimum(first[:, None] + np.arange(num_key_blocks), num_key_blocks - 1)
    counts = last - first
    return tuple(torch.from_numpy(values.astype(np.int32)[None, None]) for values in (counts, indices))  # type: ignore[return-value]


# ---- attention, from [tokens, H, K] to [tokens, H, K]


@dataclass(frozen=True)
class Mask:
    """Which keys the queries see. `layout` depends on the implementation."""

    implementation: str  # varlen, flex, dense
    layout: Any
    is_causal: bool


def make_mask(implementation: str, queries: Side, keys: Side, is_causal: bool, table: list[Tensor]) -> Mask:
    if implementation == "varlen":
        return Mask(implementation, (queries.offsets, keys.offsets), is_causal)
    if implementation == "flex":
        return Mask(implementation, make_block_mask(queries, keys, is_causal, *table), is_causal)
    visible = queries.sentence_ids[:, None] == keys.sentence_ids
    if is_causal:
        visible &= queries.positions[:, None] >= keys.positions
    return Mask(implementation, visible, is_causal)


def make_block_mask(queries: Side, keys: Side, is_causal: bool, counts: Tensor, indices: Tensor) -> Any:
    from torch.nn.attention.flex_attention import BlockMask

    query_ids, key_ids = queries.sentence_ids, keys.sentence_ids

    def is_visible(_: Tensor, __: Tensor, q: Tensor, k: Tensor) -> Tensor:
        same = query_ids[q] == key_ids[k]
        return same & (q >= k) if is_causal else same

    lengths = len(query_ids), len(key_ids)
    return BlockMask.from_kv_blocks(
        counts, indices, BLOCK_SIZE=BLOCK, mask_mod=is_visible, seq_lengths=lengths
    )


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    if mask.implementation == "varlen":
        return attend_varlen(q, k, v, mask)
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    if mask.implementation == "flex":
        from torch.nn.attention.flex_attention import flex_attention

        out = flex_attention(q, k, v, block_mask=mask.layout)
    else:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.layout)
    return out[0].transpose(0, 1)


def attend_varlen(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    options: dict[str, Any] = {}
    if mask.is_causal:
        options = {"window_size": (-1, 0)} if HAS_WINDOW else {"is_causal": True}
    q_offsets, k_offsets = mask.layout
    out: Any = varlen_attn(q, k, v, q_offsets, k_offsets, MAX_SENTENCE, MAX_SENTENCE, **options)
    attended: Tensor = out
    return attended


# ---- the model


class SelfAttention(nn.Module):
    """Queries, keys and values from one product."""

    def __init__(self, config: mh.TransformerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model)
        self.output = nn.Linear(config.d_model, config.d_model)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(1)
        out: Tensor = self.output(attend(q, k, v, mask).flatten(1))
        return out


class CrossAttention(nn.Module):
    """Keys and values come from the decoder, which computes those of all layers at once."""

    def __init__(self, config: mh.TransformerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.query = nn.Linear(config.d_model, config.d_model)
        self.output = nn.Linear(config.d_model, config.d_model)

    def forward(self, x: Tensor, keys_values: Tensor, mask: Mask) -> Tensor:
        k, v = keys_values.unbind(1)
        out: Tensor = self.output(
            attend(self.query(x).unflatten(-1, (self.heads, -1)), k, v, mask).flatten(1)
        )
        return out


class FeedForward(nn.Module):
    def __init__(self, config: mh.TransformerConfig) -> None:
        super().__init__()
        self.w_1, self.w_2 = (
            nn.Linear(config.d_model, config.d_ff),
            nn.Linear(config.d_ff, config.d_model),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.w_2(linear_relu(x, self.w_1.weight, self.w_1.bias))
        return out


@torch.library.custom_op("bench::linear_relu", mutates_args=())
def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """max(0, x W^T + b) as one product. torch.compile would split it."""
    return torch._addmm_activation(bias, x, weight.t())


@linear_relu.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(len(x), len(weight))


def save_linear_relu(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], inputs[1], output)


def differentiate_linear_relu(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, weight, output = ctx.saved_tensors
    gradient = torch.where(output > 0, gradient, 0)
    return gradient @ weight, gradient.t() @ x, gradient.sum(0)


linear_relu.register_autograd(differentiate_linear_relu, setup_context=save_linear_relu)


class Norm(nn.LayerNorm):
    """LayerNorm(x + Dropout(h)) in float32. The sum is kept for the backward pass in the type of x."""

    def __init__(self, config: mh.TransformerConfig) -> None:
        super().__init__(config.d_model)
        self.dropout = config.dropout

    def forward(self, x: Tensor, h: Tensor) -> Tensor:  # type: ignore[override]
        summed = (x.float() + F.dropout(h.float(), self.dropout, self.training)).to(x.dtype)
        normalized = F.layer_norm(summed.float(), self.normalized_shape, self.weight, self.bias, self.eps)
        return normalized.to(x.dtype)


class EncoderLayer(nn.Module):
    def __init__(self, config: mh.TransformerConfig) -> None:
        super().__init__()
        self.self_attention, self.feed_forward = SelfAttention(config), FeedForward(config)
        self.norm_1, self.norm_2 = Norm(config), Norm(config)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        x = self.norm_1(x, self.self_attention(x, mask))
        out: Tensor = self.norm_2(x, self.feed_forward(x))
        return out


class DecoderLayer(nn.Module):
    def __init__(self, config: mh.TransformerConfig) -> None:
        super().__init__()
        self.self_attention, self.cross_attention = SelfAttention(config), CrossAttention(config)
        self.feed_forward = FeedForward(config)
        self.norm_1, self.norm_2, self.norm_3 = Norm(config), Norm(config), Norm(config)

    def forward(self, x: Tensor, keys_values: Tensor, self_mask: Mask, cross_mask: Mask) -> Tensor:
        x = self.norm_1(x, self.self_attention(x, self_mask))
        x = self.norm_2(x, self.cross_attention(x, keys_values, cross_mask))
        out: Tensor = self.norm_3(x, self.feed_forward(x))
        return out


class PackedTransformer(nn.Module):
    """The model and its loss: the sum over real labels times `scale`."""

    positions: Tensor

    def __init__(self, config: mh.TransformerConfig, train: mh.TrainConfig, attention: str) -> None:
        super().__init__()
        self.config, self.attention, self.smoothing = config, attention, train.label_smoothing
        self.embedding = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.keys_values = nn.Linear(config.d_model, config.decoder_layers * 2 * config.d_model)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        table = sinusoidal_encoding(torch.arange(MAX_POSITIONS), config.d_model).float()
        self.register_buffer("positions", table)
        self.embed: Callable[..., tuple[Tensor, Tensor]] = embed_tokens
        self.compute_loss: Callable[..., tuple[Tensor, Tensor]] = compute_loss_and_gradient
        if train.r_drop:
            self.compute_loss = partial(compute_r_drop_loss_and_gradient, r_drop=train.r_drop)
        nn.init.normal_(self.embedding, std=config.d_model**-0.5)
        for name, parameter in self.named_parameters():
            if name.endswith("weight") and parameter.dim() == 2:
                nn.init.xavier_uniform_(parameter, config.init_gain)

    def forward(self, batch: PackedBatch, output_weight: Tensor, output_gradient: Tensor) -> Tensor:
        """Return the loss. The gradient of the output projection is added to `output_gradient`."""
        source, target, tables = batch.source, batch.target, batch.block_tables
        source_mask = make_mask(self.attention, source, source, False, tables[:2])
        target_mask = make_mask(self.attention, target, target, True, tables[2:4])
        cross_mask = make_mask(self.attention, target, source, False, tables[4:])
        dropout = self.config.dropout if self.training else 0.0
        x, y = self.embed(batch, self.embedding, self.positions, dropout, output_weight.dtype)
        for layer in self.encoder:
            x = layer(x, source_mask)
        by_layer = self.keys_values(x).unflatten(-1, (len(self.decoder), 2, self.config.heads, -1)).unbind(1)
        for layer, keys_values in zip(self.decoder, by_layer, strict=True):
            y = layer(y, keys_values, target_mask, cross_mask)
        loss: Tensor = ProjectedLoss.apply(  # type: ignore[no-untyped-call]
            self.compute_loss, y, output_weight, output_gradient, batch.labels, batch.scale, self.smoothing
        )
        return loss

    def compile_layers(self) -> None:
        """Compile one program per kind of layer. A CUDA graph hides the calls between them."""
        compile_static = partial(torch.compile, dynamic=False, options={"max_autotune_pointwise": True})
        for layers in (self.encoder, self.decoder):
            compiled = compile_static(type(layers[0]).forward)
            for layer in layers:
                layer.forward = compiled.__get__(layer)
        self.embed = compile_static(embed_tokens)
        self.compute_loss = compile_static(self.compute_loss)


def embed_tokens(
    batch: PackedBatch, embedding: Tensor, encoding: Tensor, dropout: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Look the tokens of both sides up at once, so that the gradient of the embedding is one sum."""
    positions = torch.cat((batch.source.positions, batch.target.positions))
    embedded = F.embedding(batch.tokens, embedding) * math.sqrt(embedding.shape[1]) + encoding[positions]
    dropped = F.dropout(embedded, dropout, training=dropout > 0).to(dtype)
    source, target = dropped.tensor_split([len(batch.source.positions)])
    return source.clone(), target.clone()


# ---- the loss


def compute_loss_and_gradient(
    logits_TV: Tensor, labels_T: Tensor, scale: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Return the label-smoothed loss and its gradient by the logits, from one pass over each row."""
    logits, vocab_size = logits_TV.float(), logits_TV.shape[1]
    is_real = labels_T != IGNORED
    labels = labels_T.clamp(min=0)[:, None]
    normalizer = logits.logsumexp(1, keepdim=True)
    share = smoothing / vocab_size
    right = logits_TV.gather(1, labels).float()
    losses = normalizer - (1 - smoothing) * right - share * logits.sum(1, keepdim=True)
    hits = torch.arange(vocab_size, device=logits.device) == labels
    gradient = (logits - normalizer).exp() - share - torch.where(hits, 1 - smoothing, 0.0)
    weight = is_real[:, None] * scale
    return (losses * weight).sum(), (gradient * weight).to(logits_TV.dtype)


def compute_r_drop_loss_and_gradient(
    logits_TV: Tensor, labels_T: Tensor, scale: Tensor, smoothing: float, r_drop: float
) -> tuple[Tensor, Tensor]:
    """As above for two forward passes, the second after the first, with the divergence of R-Drop.

    The loss is the mean of both, plus r_drop times the mean of KL(p|q) and KL(q|p) (manyheads/train/loss.py).
    """
    loss, gradient_TV = compute_loss_and_gradient(logits_TV, labels_T, scale / 2, smoothing)
    log_p_TV = logits_TV.float().log_softmax(1)
    log_q_TV = log_p_TV.roll(len(labels_T) // 2, 0)
    p_TV, q_TV = log_p_TV.exp(), log_q_TV.exp()
    ratio_TV = log_p_TV - log_q_TV
    divergence_T1 = (p_TV * ratio_TV).sum(1, keepdim=True)
    weight_T1 = (labels_T != IGNORED)[:, None] * (r_drop * scale / 2)
    change_TV = p_TV * (ratio_TV - divergence_T1) + p_TV - q_TV
    total = loss + (weight_T1 * divergence_T1).sum()
    return total, gradient_TV + (weight_T1 * change_TV).to(gradient_TV.dtype)


class ProjectedLoss(torch.autograd.Function):
    """The output projection with its loss. The gradient is computed in the forward pass, from the logits."""

    @staticmethod
    def forward(
        ctx: Any,
        compute_loss: Callable[..., tuple[Tensor, Tensor]],
        hidden_TD: Tensor,
        weight_VD: Tensor,
        weight_gradient: Tensor,
        labels_T: Tensor,
        scale: Tensor,
        smoothing: float,
    ) -> Tensor:
        loss, gradient_TV = compute_loss(hidden_TD @ weight_VD.T, labels_T, scale, smoothing)
        ctx.save_for_backward(gradient_TV @ weight_VD)
        weight_gradient.copy_(gradient_TV.T @ hidden_TD)
        return loss

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        """The loss is the root of the graph: its own gradient is 1."""
        (hidden_gradient,) = ctx.saved_tensors
        return None, hidden_gradient, None, None, None, None, None


# ---- the training step


class PackedSystem(TrainingSystem):
    """The model, its float32 weights and the graphs of its step."""

    def __init__(
        self, attention: str, config: mh.TransformerConfig, device: str, train: mh.TrainConfig = TRAIN
    ) -> None:
        self.forward_passes = train.forward_passes
        self.device, self.on_gpu = device, device == "cuda"
        self.attention = attention if self.on_gpu else "dense"
        kinds = {"varlen": "varlen_attn", "flex": "FlexAttention", "dense": "dense attention"}
        self.note = kinds[self.attention]
        self.dtype = torch.bfloat16 if self.on_gpu else torch.float32
        self.model = PackedTransformer(config, train, self.attention).to(device).train()
        self.make_master_weights()
        self.adam = torch.optim.Adam(
            self.masters,
            lr=torch.tensor(LEARNING_RATE, device=device),
            betas=(train.beta1, train.beta2),
            eps=train.epsilon,
            fused=True,
            capturable=self.on_gpu,
        )
        self.shape: BatchShape | None = None
        self.graphs: dict[Any, tuple[torch.cuda.CUDAGraph, list[Tensor]]] = {}
        self.pool = torch.cuda.graph_pool_handle() if self.on_gpu else None
        if self.on_gpu:
            self.model.compile_layers()

    def make_master_weights(self) -> None:
        """Keep matrices and biases of products in float32, and give the model copies in its own type.

        The embedding stays float32 for lookups. The output projection reads a copy of it.
        """
        linear: list[Tensor] = [
            p for m in self.model.modules() if isinstance(m, nn.Linear) for p in m.parameters()
        ]
        masters = [parameter.detach().clone() for parameter in linear]
        for parameter in linear:
            parameter.data = parameter.data.to(self.dtype)
        self.output_weight = self.model.embedding.detach().to(self.dtype)
        self.output_gradient = torch.empty_like(self.output_weight)
        chosen = {id(parameter) for parameter in linear}
        self.others = [p for p in self.model.parameters() if id(p) not in chosen]
        self.linear, self.masters = linear, [*masters, *self.others]
        self.linear_masters = masters
        for master in masters:
            master.grad = torch.zeros_like(master)

    @torch.no_grad()
    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Load float32 weights by their names in the model."""
        masters = self.get_masters()
        for name, weight in weights.items():
            masters.pop(name).copy_(weight)
        assert not masters
        self.refresh_copies()

    def get_masters(self) -> dict[str, Tensor]:
        by_parameter = dict(zip(map(id, self.linear), self.linear_masters, strict=True))
        return {name: by_parameter.get(id(p), p.data) for name, p in self.model.named_parameters()}

    def collect_gradients(self) -> dict[str, Tensor]:
        """Return the float32 gradients of the last step."""
        by_parameter = {id(p): m.grad for p, m in zip(self.linear, self.linear_masters, strict=True)}
        return {name: by_parameter.get(id(p), p.grad) for name, p in self.model.named_parameters()}  # type: ignore[misc]

    def refresh_copies(self) -> None:
        torch._foreach_copy_(self.linear, self.linear_masters)
        self.output_weight.copy_(self.model.embedding)

    def prepare_batches(self, batches: list[WorkloadBatch]) -> list[PackedBatch]:
        self.shape = BatchShape.for_batches(batches)
        return [self.prepare(batch) for batch in batches]

    def prepare(self, batch: WorkloadBatch) -> PackedBatch:
        shape = self.shape or BatchShape.for_batches([batch])
        packed = PackedBatch.of(batch, shape, self.attention == "flex", self.forward_passes)
        return PackedBatch.from_tensors([tensor.to(self.device) for tensor in packed.tensors])

    def step(self, batch: PackedBatch) -> None:
        if not self.on_gpu:
            self.run(batch)
            return
        if batch.shape not in self.graphs:
            self.record(batch)
        graph, inputs = self.graphs[batch.shape]
        torch._foreach_copy_(inputs, batch.tensors)
        graph.replay()

    def record(self, batch: PackedBatch) -> None:
        """Run the step on another stream, which compiles what is missing, and capture it."""
        inputs = [tensor.clone() for tensor in batch.tensors]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(1 if self.graphs else 3):
                self.run(PackedBatch.from_tensors(inputs))
        torch.cuda.current_stream().wait_stream(stream)
        graph, _ = capture(lambda: self.run(PackedBatch.from_tensors(inputs)), self.pool)
        self.graphs[batch.shape] = graph, inputs

    def run(self, batch: PackedBatch) -> Tensor:
        """Forward, backward and update. The returned loss is on the device."""
        loss: Tensor = self.model(batch, self.output_weight, self.output_gradient)
        gradients = torch.autograd.grad(loss, [*self.linear, *self.others])
        count = len(self.linear)
        with torch.no_grad():
            torch._foreach_copy_(
                [m.grad for m in self.linear_masters if m.grad is not None], list(gradients[:count])
            )
            for parameter, gradient in zip(self.others, gradients[count:], strict=True):
                parameter.grad = gradient
            self.model.embedding.grad.add_(self.output_gradient)  # type: ignore[union-attr]
            self.adam.step()
            self.refresh_copies()
        return loss.detach()
