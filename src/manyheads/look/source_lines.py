"""The line of the source that computes each step of a walk.

A line is named by its file, its function and a part of its text, and looked up in the source: a line that
moved is found again, and one that changed is an error, which the tests notice.
"""

import ast
from functools import cache
from importlib.resources import files
from typing import Any

from manyheads.config import TransformerConfig

Snippet = tuple[str, str, str]  # file, function, part of the text of the line

CONCAT_HEADS = ("model/attention.py", "MultiHeadAttention.concat_heads")
WEIGHTS = ("ops/attention.py", "attention_weights")
SCORES = ("ops/attention.py", "attention_scores")
EMBED = ("ops/embedding.py", "embed")
ENCODE = ("model/transformer.py", "Transformer.encode")
DECODE = ("model/transformer.py", "Transformer.decode")
RESIDUAL = ("model/layers.py", "Residual.forward")
FUSED_ADD_NORM = ("ops/add_norm.py", "add_norm", "norm(x_TD + dropout(h_TD))")
FUSED_LINEAR = ("ops/add_norm.py", "linear_add_norm", "add_norm(x_TD, linear(h_TF), norm, dropout)")


def find_source_lines(config: TransformerConfig, stack: str) -> dict[str, dict[str, Any]]:
    """Return file, line and text for each step of a layer, by the name of the step.

    A name with its part, as `cross.query`, precedes the name alone. `mask` is the masking of the scores and
    `probability` the softmax over the vocabulary.
    """
    snippets = {**list_snippets(config), **list_residual_snippets(config)}
    is_encoder = stack == "encoder"
    snippets["input"] = (*ENCODE, "x_SD = layer(") if is_encoder else (*DECODE, "x_TD = layer(")
    if config.norm == "pre":
        snippets["output.norm"] = (
            (*ENCODE, "self.encoder_norm(x_SD)") if is_encoder else (*DECODE, "self.decoder_norm(x_TD)")
        )
    return {name: find_line(*snippet) for name, snippet in snippets.items()}


def list_snippets(config: TransformerConfig) -> dict[str, Snippet]:
    is_additive, is_learned = config.attention == "additive", config.positions == "learned"
    projections = "q_THK, k_SHK, v_SHV = self.project("
    memory = "k_SHK, v_SHV = self.keys_and_values("
    return {
        "embedding": (*EMBED, "embed_tokens(tokens_T, embedding) * scale"),
        "position": (
            ("model/positions.py", "LearnedPositions.forward", "self.table(positions_T)")
            if is_learned
            else ("model/positions.py", "sinusoidal_encoding", "(angles.sin(), angles.cos())")
        ),
        "sum": (*EMBED, "x_TD + encoding("),
        "query": (*CONCAT_HEADS, projections),
        "key": (*CONCAT_HEADS, projections),
        "value": (*CONCAT_HEADS, projections),
        "cross.memory": (*ENCODE, "self.encoder_norm(x_SD)"),
        "cross.query": (*CONCAT_HEADS, "(q_THK,) = self.project("),
        "cross.key": (*CONCAT_HEADS, memory),
        "cross.value": (*CONCAT_HEADS, memory),
        "scores": (*SCORES, "(hidden_HQLK * spec.energy_HK" if is_additive else "q_HQK @ k_HLK.transpose("),
        "mask": (*WEIGHTS, "masked_fill(~mask_QL"),
        "weights": (*WEIGHTS, "scores_HQL.softmax(-1)"),
        "heads": ("ops/attention.py", "reference_attention", "dropped_HQL @ v_LHV"),
        "concat": (*CONCAT_HEADS, ".flatten(-2)"),
        "hidden": (
            ("ops/linear.py", "linear_relu", "F.relu(layer(x_TD))")
            if config.activation == "relu"
            else ("model/layers.py", "FeedForward.hidden", "self.activation(self.w_1(x_TD))")
        ),
        "logits": ("model/encoder_decoder.py", "EncoderDecoder.forward", "self.output(self.hidden("),
        "probability": ("inference/torch_engine.py", "TorchEngine.trace", ".log_softmax(-1)"),
    }


def list_residual_snippets(config: TransformerConfig) -> dict[str, Snippet]:
    """Return the lines of the last map of a sublayer, its residual sum and its norm (3.1)."""
    if config.norm == "post" and config.residuals and config.normalization == "layer":
        return {
            "project": FUSED_LINEAR,
            "output": FUSED_LINEAR,
            "add": FUSED_ADD_NORM,
            "norm": FUSED_ADD_NORM,
        }
    last_map = (*RESIDUAL, "output(h)")
    is_pre = config.norm == "pre"
    norm = (*RESIDUAL, "self.norm(x_TD)") if is_pre else (*RESIDUAL, "else self.norm(h)")
    return {"project": last_map, "output": last_map, "add": (*RESIDUAL, "h = x_TD + h"), "norm": norm}


@cache
def find_line(file: str, function: str, snippet: str) -> dict[str, Any]:
    """Return the line of a function that holds the snippet, which is exactly one."""
    text = files("manyheads").joinpath(*file.split("/")).read_text(encoding="utf-8")
    first, last = find_function(text, function)
    lines = text.splitlines()
    numbers = [number for number in range(first, last + 1) if snippet in lines[number - 1]]
    assert len(numbers) == 1, f"{file}: {function} has {len(numbers)} lines with {snippet!r}"
    return {"file": f"src/manyheads/{file}", "line": numbers[0], "text": lines[numbers[0] - 1].strip()}


def find_function(text: str, name: str) -> tuple[int, int]:
    """Return the first and last line of a function, which may be a method such as `Residual.forward`."""
    body: list[ast.stmt] = ast.parse(text).body
    for part in name.split("."):
        types = (ast.ClassDef, ast.FunctionDef)
        (node,) = (node for node in body if isinstance(node, types) and node.name == part)
        body = node.body
    return node.lineno, node.end_lineno or node.lineno
