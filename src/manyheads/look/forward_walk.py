"""One sentence on its way through one layer of the model, number by number.

The layer's own parts are called one after the other, where the model calls them all at once; what each of
them gives is told with its shape. The last vectors are those that the model itself computes.

    source, target   the texts
    tokens           by side: `source`, and `read` and `written` by the decoder
    ids              of the tokens, by side
    stack, layer     what is walked through: encoder or decoder, and which of its layers
    layers, heads, d_model, d_k, d_v, d_ff, positions, attention, norm, normalization, activation, residuals
    steps            in their order:
        part         embedding, self, cross, feed_forward or output
        name         embedding, position, sum, input, norm, query, key, value, scores, weights, heads,
                     concat, project, add, hidden, outward or logits
        axes, shape  such as ["T", "H", "K"] and [5, 4, 32]: T tokens, S tokens that are looked at,
                     D = d_model, H heads, K = d_k, V = d_v, C = the heads together, F = d_ff, W words
        rows         the side whose tokens the rows are of; `columns` too, where the columns are tokens
        numbers      of each vector the first `width`; null is what may not be seen
    candidates       after the decoder's last layer the likeliest pieces for each step, with probabilities
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
from torch import Tensor

from manyheads.config import BOS_ID, EOS_ID, TransformerConfig
from manyheads.errors import RequestError
from manyheads.model.attention import MultiHeadAttention
from manyheads.model.layers import DecoderLayer, EncoderLayer, Experts, FeedForward, Residual
from manyheads.model.transformer import Transformer
from manyheads.ops.attention import attention_scores
from manyheads.ops.attention_spec import attention_mask
from manyheads.packed import Packed
from manyheads.translator import Translator

Stack = Literal["encoder", "decoder"]
DEFAULT_WIDTH = 8  # numbers of each vector
NUM_CANDIDATES = 5
CONFIG_KEYS = (
    "layers",
    "heads",
    "d_model",
    "d_ff",
    "positions",
    "attention",
    "norm",
    "normalization",
    "activation",
)


@dataclass
class WalkRecorder:
    """What was told so far."""

    width: int
    steps: list[dict[str, Any]] = field(default_factory=list)

    def record(self, part: str, name: str, axes: str, rows: str, values: Tensor, columns: str = "") -> Tensor:
        """Vectors are cut to the width, and what goes on is whole."""
        shown = values if columns else values[..., : self.width]
        numbers = shown.double().cpu().numpy().round(6).tolist()
        step = {"part": part, "name": name, "axes": list(axes), "shape": list(values.shape), "rows": rows}
        if columns:
            step["columns"] = columns
            numbers = replace_infinity(numbers)
        self.steps.append({**step, "numbers": numbers})
        return values


def replace_infinity(numbers: Any) -> Any:
    if isinstance(numbers, list):
        return [replace_infinity(one) for one in numbers]
    return numbers if math.isfinite(numbers) else None


def estimate_numbers(config: TransformerConfig, tokens: int, width: int) -> int:
    """No walk of so many tokens holds more numbers than this."""
    by_heads = 8 * config.heads * min(width, max(config.head_dim_k, config.head_dim_v))
    whole = 24 * min(width, max(config.d_model, config.d_ff, config.output_vocab_size))
    return tokens * (by_heads + whole) + 4 * config.heads * tokens**2


@torch.inference_mode()
def walk_layer(
    translator: Translator,
    source: str,
    target: str | None = None,
    *,
    stack: Stack = "encoder",
    layer: int = 0,
    width: int = DEFAULT_WIDTH,
) -> dict[str, Any]:
    """A sentence and its translation, or a given one, through one layer. See above for what comes back."""
    if target is None:
        target = translator.translate([source], split=False)[0].text
    attention = translator.attention(
        source, target, candidates=NUM_CANDIDATES
    )  # which also checks the engine
    model: Transformer = translator.engine.model  # type: ignore[attr-defined]
    config = model.config
    if not isinstance(config, TransformerConfig) or config.experts is not None:
        is_transformer = isinstance(config, TransformerConfig)
        key, value = ("experts", config.experts) if is_transformer else ("architecture", config.architecture)
        raise RequestError(
            f"model.{key} is {value!r}, but a walk goes through the layers of the paper's Transformer alone"
        )
    layers = config.encoder_layers if stack == "encoder" else config.decoder_layers
    if not 0 <= layer < layers:
        raise RequestError(f"layer is {layer}, but the {stack} has {layers}, from 0")
    source_ids = [*translator.subwords.source.encode(source), EOS_ID]
    target_ids = translator.subwords.target.encode(target)
    sentence, begun = (
        Packed.of([ids]).to(model.output.weight.device) for ids in (source_ids, [BOS_ID, *target_ids])
    )
    steps = WalkRecorder(width)
    if stack == "encoder":
        walk_encoder(model, layer, sentence, steps)
    else:
        walk_decoder(model, layer, sentence, begun, steps)
    written = attention.target_tokens
    begin = translator.subwords.target.id_to_piece(BOS_ID)
    return {
        "source": source,
        "target": target,
        "languages": attention.languages,
        "tokens": {"source": attention.source_tokens, "read": [begin, *written[:-1]], "written": written},
        "ids": {"source": source_ids, "read": [BOS_ID, *target_ids], "written": [*target_ids, EOS_ID]},
        "stack": stack,
        "layer": layer,
        **{name: getattr(config, name) for name in CONFIG_KEYS},
        "d_k": config.head_dim_k,
        "d_v": config.head_dim_v,
        "residuals": config.residuals,
        "steps": steps.steps,
        "candidates": [
            [[piece, round(math.exp(log_p), 6)] for piece, log_p in step] for step in attention.candidates
        ]
        if stack == "decoder" and layer == layers - 1
        else [],
    }


def walk_encoder(model: Transformer, number: int, source: Packed, steps: WalkRecorder) -> None:
    x = walk_embedding(model, "source", source, steps)
    for earlier in list(model.encoder)[:number]:
        x = earlier(x, source)
    layer = cast(EncoderLayer, model.encoder[number])
    if number:
        steps.record("self", "input", "TD", "source", x)
    x = walk_attention("self", layer.self_attention, layer.self_attention_residual, x, None, "source", steps)
    x = walk_feed_forward(layer.feed_forward, layer.feed_forward_residual, x, "source", steps)
    if number == model.config.encoder_layers - 1 and model.config.norm == "pre":
        steps.record("output", "norm", "TD", "source", model.encoder_norm(x))


def walk_decoder(model: Transformer, number: int, source: Packed, read: Packed, steps: WalkRecorder) -> None:
    memory = model.encode(source)
    x = walk_embedding(model, "read", read, steps)
    for earlier in list(model.decoder)[:number]:
        x = earlier(x, memory.hidden, read, source)
    layer = cast(DecoderLayer, model.decoder[number])
    if number:
        steps.record("self", "input", "TD", "read", x)
    x = walk_attention("self", layer.self_attention, layer.self_attention_residual, x, None, "read", steps)
    x = walk_attention(
        "cross", layer.cross_attention, layer.cross_attention_residual, x, memory.hidden, "read", steps
    )
    x = walk_feed_forward(layer.feed_forward, layer.feed_forward_residual, x, "read", steps)
    if number == model.config.decoder_layers - 1:
        if model.config.norm == "pre":
            x = steps.record("output", "norm", "TD", "read", model.decoder_norm(x))
        steps.record("output", "logits", "TW", "read", model.output(x))


def walk_embedding(model: Transformer, side: str, packed: Packed, steps: WalkRecorder) -> Tensor:
    """Rows of the embedding times sqrt(d_model), plus the encoding of positions (3.4, 3.5)."""
    from_source = side == "source"
    table = model.source_embedding if from_source else model.target_embedding
    encoding = model.source_positions if from_source else model.target_positions
    x = table(packed.tokens) * math.sqrt(model.config.d_model)
    steps.record("embedding", "embedding", "TD", side, x)
    if encoding is not None:
        positions = encoding(packed.positions, packed.max_length, x.dtype)
        x = x + steps.record("embedding", "position", "TD", side, positions)
        steps.record("embedding", "sum", "TD", side, x)
    return cast(Tensor, x)


def walk_attention(
    part: str,
    attention: MultiHeadAttention,
    around: Residual,
    x_TD: Tensor,
    memory_SD: Tensor | None,
    side: str,
    steps: WalkRecorder,
) -> Tensor:
    """Equation (1) in every head, the heads side by side, and what stands around them (3.1, 3.2)."""
    y_TD = steps.record(part, "norm", "TD", side, around.norm(x_TD)) if around.pre_norm else x_TD
    seen_TD, other = (y_TD, side) if memory_SD is None else (memory_SD, "source")
    rows = "S" if memory_SD is not None else "T"
    q_THK = steps.record(part, "query", "THK", side, attention.split_heads(attention.w_q(y_TD)))
    k_SHK = steps.record(part, "key", f"{rows}HK", other, attention.split_heads(attention.w_k(seen_TD)))
    v_SHV = steps.record(part, "value", f"{rows}HV", other, attention.split_heads(attention.w_v(seen_TD)))
    rule = attention.current_spec()
    scores_HTS = attention_scores(q_THK.transpose(0, 1), k_SHK.transpose(0, 1), rule)
    if rule.causal or rule.window is not None:
        scores_HTS = scores_HTS.masked_fill(~attention_mask(len(x_TD), rule, x_TD.device), -math.inf)
    steps.record(part, "scores", f"HT{rows}", side, scores_HTS, other)
    weights_HTS = steps.record(part, "weights", f"HT{rows}", side, scores_HTS.softmax(-1), other)
    heads_THV = (weights_HTS @ v_SHV.transpose(0, 1)).transpose(0, 1)
    steps.record(part, "heads", "THV", side, heads_THV)
    concat_TC = steps.record(part, "concat", "TC", side, heads_THV.flatten(-2))
    out_TD = steps.record(part, "project", "TD", side, attention.w_o(concat_TC))
    return walk_residual(part, around, x_TD, out_TD, side, steps)


def walk_feed_forward(
    feed_forward: FeedForward | Experts, around: Residual, x_TD: Tensor, side: str, steps: WalkRecorder
) -> Tensor:
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (3.3)."""
    assert isinstance(feed_forward, FeedForward)
    y_TD = steps.record("feed_forward", "norm", "TD", side, around.norm(x_TD)) if around.pre_norm else x_TD
    hidden_TF = steps.record("feed_forward", "hidden", "TF", side, feed_forward.hidden(y_TD))
    out_TD = steps.record("feed_forward", "outward", "TD", side, feed_forward.w_2(hidden_TF))
    return walk_residual("feed_forward", around, x_TD, out_TD, side, steps)


def walk_residual(
    part: str, around: Residual, x_TD: Tensor, out_TD: Tensor, side: str, steps: WalkRecorder
) -> Tensor:
    """LayerNorm(x + Sublayer(x)); pre-norm has normalized before (3.1)."""
    if around.residuals:
        out_TD = steps.record(part, "add", "TD", side, x_TD + out_TD)
    if not around.pre_norm:
        out_TD = steps.record(part, "norm", "TD", side, around.norm(out_TD))
    return out_TD
