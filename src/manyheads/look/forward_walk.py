"""Run one sentence through one layer of the model and record every intermediate result.

The parts of the layer are called one by one, where the model calls them together. The last vectors are those
that the model itself computes.

    source, target   the texts
    tokens           by side: `source`, `decoder_input` and `target`
    ids              of the tokens, by side
    stack, layer     encoder or decoder, and the number of the layer
    layers           of this stack; `stacks` has those of both
    colors           one per head
    heads, d_model, d_k, d_v, d_ff, positions, attention, norm, normalization, activation, residuals
    steps            in order:
        part         embedding, self, cross, feed_forward or output
        name         embedding, position, sum, input, norm, memory, query, key, value, scores, weights,
                     heads, concat, project, add, hidden, output or logits
        axes, shape  such as ["T", "H", "K"] and [5, 4, 32]: T tokens, S key tokens of cross-attention,
                     D = d_model, H heads, K = d_k, V = d_v, C = all heads together, F = d_ff, W vocabulary
        rows         the side of the tokens in the rows; `columns` too, where the columns are tokens
        values       the first `width` numbers of each vector; null is masked
    candidates       after the last layer of the decoder the most probable tokens of each step
    output           with them, for each step: `ids`, which end with that of the target token, their `pieces`
                     and `logits`, and `log_sum_exp` over the vocabulary: p = exp(logit - log_sum_exp)
    code             by step: `file`, `line` and `text` of the line that computes it (source_lines.py)
    parameters       on request the learned numbers (walk_parameters.py); `output.logits` has one row for
                     each of its `ids`
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from manyheads.config import BOS_ID, EOS_ID, ModelConfig, TransformerConfig
from manyheads.errors import RequestError
from manyheads.look.colors import head_colors
from manyheads.look.source_lines import find_source_lines
from manyheads.look.walk_parameters import Parameters, collect_parameters, encode_norm, encode_numbers
from manyheads.model.attention import MultiHeadAttention
from manyheads.model.layers import DecoderLayer, EncoderLayer, Experts, FeedForward, Residual
from manyheads.model.transformer import Transformer
from manyheads.ops.attention import attention_scores
from manyheads.ops.attention_spec import attention_mask
from manyheads.packed import Packed
from manyheads.translation import AttentionMaps
from manyheads.translator import Translator

Stack = Literal["encoder", "decoder"]
STACKS: tuple[Stack, Stack] = ("encoder", "decoder")
DEFAULT_WIDTH = 8  # numbers of each vector
MAX_PAGE_NUMBERS = 8_000_000  # of a page with every layer: about 80 MB
NUM_CANDIDATES = 5
NOT_WALKABLE = "model.{key} is {value!r}, but only the Transformer of the paper can be walked"
CONFIG_KEYS = (
    "heads", "d_model", "d_ff", "positions", "attention", "norm", "normalization", "activation", "residuals",
)  # fmt: skip


@dataclass
class WalkRecorder:
    """The steps recorded so far."""

    width: int
    with_parameters: bool = False
    steps: list[dict[str, Any]] = field(default_factory=list)
    parameters: Parameters = field(default_factory=dict)
    output: dict[str, Any] = field(default_factory=dict)

    def record(self, part: str, name: str, axes: str, rows: str, values: Tensor, columns: str = "") -> Tensor:
        """Record the first numbers of vectors, or a whole map, and return the values unchanged."""
        shown = values if columns else values[..., : self.width]
        numbers = shown.double().cpu().numpy().round(6).tolist()
        step = {"part": part, "name": name, "axes": list(axes), "shape": list(values.shape), "rows": rows}
        if columns:
            step["columns"] = columns
            numbers = replace_infinity(numbers)
        self.steps.append({**step, "values": numbers})
        return values


def replace_infinity(numbers: Any) -> Any:
    """Replace infinities in nested lists by None."""
    if isinstance(numbers, list):
        return [replace_infinity(number) for number in numbers]
    return numbers if math.isfinite(numbers) else None


def estimate_numbers(
    config: TransformerConfig, num_tokens: int, width: int, with_parameters: bool = False
) -> int:
    """Return an upper bound for the numbers of a walk."""
    per_head = 8 * config.heads * min(width, max(config.head_dim_k, config.head_dim_v))
    per_token = 24 * min(width, max(config.d_model, config.d_ff, config.output_vocab_size))
    total = num_tokens * (per_head + per_token) + 4 * config.heads * num_tokens**2
    return total + (estimate_parameters(config, num_tokens) if with_parameters else 0)


def estimate_parameters(config: TransformerConfig, num_tokens: int) -> int:
    """Return an upper bound for the parameters of a layer, and of the output rows of the candidates."""
    attention = 2 * config.heads * (config.head_dim_k + config.head_dim_v) * (config.d_model + 1)
    feed_forward = 2 * (config.d_model + 1) * (config.d_ff + 1)
    rows = num_tokens * (NUM_CANDIDATES + 1) * (config.d_model + 1)
    return 2 * attention + feed_forward + 16 * config.d_model + rows


@torch.inference_mode()
def walk_layer(
    translator: Translator,
    source: str,
    target: str | None = None,
    *,
    stack: Stack = "encoder",
    layer: int = 0,
    width: int = DEFAULT_WIDTH,
    with_parameters: bool = False,
) -> dict[str, Any]:
    """Walk a sentence and its translation, by default the model's own, through one layer."""
    if target is None:
        target = translator.translate([source], split=False, corrections=False)[0].text
    # This also checks that the engine has attention.
    attention = translator.attention(source, target, candidates=NUM_CANDIDATES)
    model: Transformer = translator.engine.model  # type: ignore[attr-defined]
    config = model.config
    num_layers = check_layer(config, stack, layer)
    source_ids = [*translator.subwords.encode_source(source), EOS_ID]
    target_ids = translator.subwords.target.encode(target)
    device = model.output.weight.device
    packed_source = Packed.of([source_ids]).to(device)
    recorder = WalkRecorder(width, with_parameters)
    if stack == "encoder":
        walk_encoder(model, layer, packed_source, recorder)
    else:
        decoder_input = Packed.of([[BOS_ID, *target_ids]]).to(device)
        walk_decoder(model, layer, packed_source, decoder_input, recorder)
    return {
        "source": source,
        "target": target,
        "languages": attention.languages,
        **list_tokens(translator, attention, source_ids, target_ids),
        "stack": stack,
        "layer": layer,
        "layers": num_layers,
        "stacks": {"encoder": config.encoder_layers, "decoder": config.decoder_layers},
        **{key: getattr(config, key) for key in CONFIG_KEYS},
        "d_k": config.head_dim_k,
        "d_v": config.head_dim_v,
        "colors": head_colors(config.heads),
        "steps": recorder.steps,
        "candidates": format_candidates(attention) if recorder.output else [],
        "output": add_pieces(recorder.output, translator) if recorder.output else None,
        "code": find_source_lines(config, stack),
        "parameters": recorder.parameters if with_parameters else None,
    }


def walk_model(translator: Translator, source: str, target: str | None = None) -> dict[str, Any]:
    """Walk a sentence through every layer, with all numbers; of a large model without its parameters.

    Return the walks of the layers by stack.
    """
    config = translator.engine.model.config  # type: ignore[attr-defined]
    for stack in STACKS:
        check_layer(config, stack, 0)
    if target is None:
        target = translator.translate([source], split=False, corrections=False)[0].text
    texts = ((translator.subwords.source, source), (translator.subwords.target, target))
    num_tokens = max(len(subwords.encode(text)) for subwords, text in texts) + 1
    num_layers = config.encoder_layers + config.decoder_layers
    width = max(config.d_model, config.d_ff)
    totals = [num_layers * estimate_numbers(config, num_tokens, width, full) for full in (True, False)]
    if min(totals) > MAX_PAGE_NUMBERS:
        raise RequestError(
            f"the walk of {num_tokens} tokens has up to {min(totals):,} numbers, but the maximum is "
            f"{MAX_PAGE_NUMBERS:,}: use a shorter sentence"
        )
    options: dict[str, Any] = {"width": width, "with_parameters": totals[0] <= MAX_PAGE_NUMBERS}
    return {
        stack: [
            walk_layer(translator, source, target, stack=stack, layer=layer, **options)
            for layer in range(getattr(config, f"{stack}_layers"))
        ]
        for stack in STACKS
    }


def list_tokens(
    translator: Translator, attention: AttentionMaps, source_ids: list[int], target_ids: list[int]
) -> dict[str, dict[str, list[Any]]]:
    """Return the tokens of each side, and their ids."""
    target_tokens = attention.target_tokens
    begin = translator.subwords.target.id_to_piece(BOS_ID)
    tokens = {
        "source": attention.source_tokens,
        "decoder_input": [begin, *target_tokens[:-1]],
        "target": target_tokens,
    }
    ids = {
        "source": source_ids,
        "decoder_input": [BOS_ID, *target_ids],
        "target": [*target_ids, EOS_ID],
    }
    return {"tokens": tokens, "ids": ids}


def add_pieces(output: dict[str, Any], translator: Translator) -> dict[str, Any]:
    subwords = translator.subwords.target
    return {**output, "pieces": [[subwords.id_to_piece(piece) for piece in step] for step in output["ids"]]}


def check_layer(config: ModelConfig, stack: Stack, layer: int) -> int:
    """Return the number of layers of a stack; raise RequestError if it cannot be walked."""
    if not isinstance(config, TransformerConfig):
        raise RequestError(NOT_WALKABLE.format(key="architecture", value=config.architecture))
    if config.experts is not None:
        raise RequestError(NOT_WALKABLE.format(key="experts", value=config.experts))
    num_layers = config.encoder_layers if stack == "encoder" else config.decoder_layers
    if not 0 <= layer < num_layers:
        raise RequestError(f"layer is {layer}, but the {stack} has {num_layers} layers, counted from 0")
    return num_layers


def format_candidates(attention: AttentionMaps) -> list[list[tuple[str, float]]]:
    return [
        [(piece, round(math.exp(log_prob), 6)) for piece, log_prob in ranked]
        for ranked in attention.candidates
    ]


def walk_encoder(model: Transformer, index: int, source: Packed, recorder: WalkRecorder) -> None:
    x = walk_embedding(model, "source", source, recorder)
    for earlier in list(model.encoder)[:index]:
        x = earlier(x, source)
    layer = cast(EncoderLayer, model.encoder[index])
    if recorder.with_parameters:
        recorder.parameters |= collect_parameters(layer)
    if index:
        recorder.record("self", "input", "TD", "source", x)
    x = walk_attention(
        "self", layer.self_attention, layer.self_attention_residual, x, None, "source", recorder
    )
    x = walk_feed_forward(layer.feed_forward, layer.feed_forward_residual, x, "source", recorder)
    if index == model.config.encoder_layers - 1 and model.config.norm == "pre":
        walk_final_norm(model.encoder_norm, x, "source", recorder)


def walk_decoder(
    model: Transformer, index: int, source: Packed, decoder_input: Packed, recorder: WalkRecorder
) -> None:
    memory = model.encode(source)
    x = walk_embedding(model, "decoder_input", decoder_input, recorder)
    for earlier in list(model.decoder)[:index]:
        x = earlier(x, memory.hidden, decoder_input, source)
    layer = cast(DecoderLayer, model.decoder[index])
    if recorder.with_parameters:
        recorder.parameters |= collect_parameters(layer)
    if index:
        recorder.record("self", "input", "TD", "decoder_input", x)
    x = walk_attention(
        "self", layer.self_attention, layer.self_attention_residual, x, None, "decoder_input", recorder
    )
    x = walk_attention(
        "cross",
        layer.cross_attention,
        layer.cross_attention_residual,
        x,
        memory.hidden,
        "decoder_input",
        recorder,
    )
    x = walk_feed_forward(layer.feed_forward, layer.feed_forward_residual, x, "decoder_input", recorder)
    if index == model.config.decoder_layers - 1:
        if model.config.norm == "pre":
            x = walk_final_norm(model.decoder_norm, x, "decoder_input", recorder)
        logits = recorder.record("output", "logits", "TW", "decoder_input", model.output(x))
        walk_output(model.output, logits, decoder_input, recorder)


def walk_final_norm(norm: nn.Module, x: Tensor, side: str, recorder: WalkRecorder) -> Tensor:
    """The norm after a stack, which only pre-norm has."""
    if recorder.with_parameters:
        recorder.parameters["output.norm"] = encode_norm(norm)
    return recorder.record("output", "norm", "TD", side, norm(x))


def walk_output(output: nn.Linear, logits_TW: Tensor, decoder_input: Packed, recorder: WalkRecorder) -> None:
    """Record the logits of the most probable tokens and of the target token of each step (3.4)."""
    end = decoder_input.tokens.new_tensor([EOS_ID])
    target_T1 = torch.cat([decoder_input.tokens[1:], end])[:, None]
    best_TN = logits_TW.topk(min(NUM_CANDIDATES, logits_TW.shape[1])).indices
    ids = torch.cat([best_TN, target_T1], 1)
    recorder.output = {
        "ids": ids.tolist(),
        "logits": logits_TW.gather(1, ids).double().cpu().numpy().round(6).tolist(),
        "log_sum_exp": logits_TW.double().logsumexp(-1).cpu().numpy().round(6).tolist(),
    }
    if recorder.with_parameters:
        unique = ids.unique()
        bias = None if output.bias is None else encode_numbers(output.bias[unique])
        rows = {"ids": unique.tolist(), "weight": encode_numbers(output.weight[unique]), "bias": bias}
        recorder.parameters["output.logits"] = {"shape": [len(unique), output.in_features], **rows}


def walk_embedding(model: Transformer, side: str, packed: Packed, recorder: WalkRecorder) -> Tensor:
    """Embeddings times sqrt(d_model), plus positional encodings (3.4, 3.5)."""
    from_source = side == "source"
    table = model.source_embedding if from_source else model.target_embedding
    encoding = model.source_positions if from_source else model.target_positions
    x = table(packed.tokens) * math.sqrt(model.config.d_model)
    recorder.record("embedding", "embedding", "TD", side, x)
    if encoding is not None:
        positions = encoding(packed.positions, packed.max_length, x.dtype)
        x = x + recorder.record("embedding", "position", "TD", side, positions)
        recorder.record("embedding", "sum", "TD", side, x)
    return cast(Tensor, x)


def walk_attention(
    part: str,
    attention: MultiHeadAttention,
    residual: Residual,
    x_TD: Tensor,
    memory_SD: Tensor | None,
    side: str,
    recorder: WalkRecorder,
) -> Tensor:
    """Equation (1) in every head, the output projection, and the residual connection (3.1, 3.2)."""
    y_TD = recorder.record(part, "norm", "TD", side, residual.norm(x_TD)) if residual.pre_norm else x_TD
    input_SD, key_side = (y_TD, side) if memory_SD is None else (memory_SD, "source")
    key_axis = "S" if memory_SD is not None else "T"
    if memory_SD is not None:
        recorder.record(part, "memory", "SD", key_side, memory_SD)
    q_THK = recorder.record(part, "query", "THK", side, attention.split_heads(attention.w_q(y_TD)))
    k_SHK, v_SHV = (attention.split_heads(w(input_SD)) for w in (attention.w_k, attention.w_v))
    recorder.record(part, "key", f"{key_axis}HK", key_side, k_SHK)
    recorder.record(part, "value", f"{key_axis}HV", key_side, v_SHV)
    spec = attention.current_spec()
    scores_HTS = attention_scores(q_THK.transpose(0, 1), k_SHK.transpose(0, 1), spec)
    if spec.causal or spec.window is not None:
        scores_HTS = scores_HTS.masked_fill(~attention_mask(len(x_TD), spec, x_TD.device), -math.inf)
    recorder.record(part, "scores", f"HT{key_axis}", side, scores_HTS, key_side)
    weights_HTS = recorder.record(part, "weights", f"HT{key_axis}", side, scores_HTS.softmax(-1), key_side)
    heads_THV = (weights_HTS @ v_SHV.transpose(0, 1)).transpose(0, 1)
    recorder.record(part, "heads", "THV", side, heads_THV)
    concat_TC = recorder.record(part, "concat", "TC", side, heads_THV.flatten(-2))
    out_TD = recorder.record(part, "project", "TD", side, attention.w_o(concat_TC))
    return walk_residual(part, residual, x_TD, out_TD, side, recorder)


def walk_feed_forward(
    feed_forward: FeedForward | Experts, residual: Residual, x_TD: Tensor, side: str, recorder: WalkRecorder
) -> Tensor:
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (3.3)."""
    assert isinstance(feed_forward, FeedForward)
    y_TD = (
        recorder.record("feed_forward", "norm", "TD", side, residual.norm(x_TD))
        if residual.pre_norm
        else x_TD
    )
    hidden_TF = recorder.record("feed_forward", "hidden", "TF", side, feed_forward.hidden(y_TD))
    out_TD = recorder.record("feed_forward", "output", "TD", side, feed_forward.w_2(hidden_TF))
    return walk_residual("feed_forward", residual, x_TD, out_TD, side, recorder)


def walk_residual(
    part: str, residual: Residual, x_TD: Tensor, out_TD: Tensor, side: str, recorder: WalkRecorder
) -> Tensor:
    """LayerNorm(x + Sublayer(x)); with pre-norm the normalization comes before (3.1)."""
    if residual.residuals:
        out_TD = recorder.record(part, "add", "TD", side, x_TD + out_TD)
    if not residual.pre_norm:
        out_TD = recorder.record(part, "norm", "TD", side, residual.norm(out_TD))
    return out_TD
