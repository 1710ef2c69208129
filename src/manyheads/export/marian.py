"""The mapping between our Transformer and Hugging Face's Marian.

Both are the paper's post-norm model with sinusoids. Marian puts all sines before all cosines, we interleave
them (3.5). Nothing else depends on the order of the residual stream's dimensions, so permuting every weight
that reads or writes it makes the two models exactly equal.

Marian needs a padding token, which our vocabularies lack. FORBIDDEN_LOGIT as its bias keeps it out of outputs
and leaves the other probabilities unchanged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyheads.errors import RequestError, install_command

# Below any logit, with exp of it 0; within float16, and small enough for label smoothing.
FORBIDDEN_LOGIT = -1e4

CONFIG, GENERATION, WEIGHTS = "config.json", "generation_config.json", "model.safetensors"
SOURCE, TARGET, VOCABULARY = "source.spm", "target.spm", "vocab.json"
TARGET_VOCABULARY, TOKENIZER = "target_vocab.json", "tokenizer_config.json"

EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
SHARED, OUTPUT, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"

LAYER_NAMES = {  # ours -> Marian's
    "self_attention.w_q": "self_attn.q_proj",
    "self_attention.w_k": "self_attn.k_proj",
    "self_attention.w_v": "self_attn.v_proj",
    "self_attention.w_o": "self_attn.out_proj",
    "cross_attention.w_q": "encoder_attn.q_proj",
    "cross_attention.w_k": "encoder_attn.k_proj",
    "cross_attention.w_v": "encoder_attn.v_proj",
    "cross_attention.w_o": "encoder_attn.out_proj",
    "feed_forward.w_1": "fc1",
    "feed_forward.w_2": "fc2",
    "self_attention_residual.norm": "self_attn_layer_norm",
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
    "feed_forward_residual.norm": "final_layer_norm",
}


@dataclass(frozen=True)
class TensorMapping:
    """A tensor of a layer under both names, and its axis of the residual stream."""

    ours: str
    theirs: str
    residual_axis: int | None


def layer_tensors(encoder_layers: int, decoder_layers: int) -> Iterator[TensorMapping]:
    """Yield all tensors but embeddings and output."""
    for side, layers in (("encoder", encoder_layers), ("decoder", decoder_layers)):
        for layer in range(layers):
            for ours, theirs in LAYER_NAMES.items():
                if side == "encoder" and "cross" in ours:
                    continue
                for parameter in ("weight", "bias"):
                    yield TensorMapping(
                        f"{side}.{layer}.{ours}.{parameter}",
                        f"model.{side}.layers.{layer}.{theirs}.{parameter}",
                        find_residual_axis(ours, parameter),
                    )


def find_residual_axis(part: str, parameter: str) -> int | None:
    """Return the axis of the residual stream. Weights are [out, in]: readers have it last, writers first."""
    reads = part.endswith(("w_q", "w_k", "w_v", "w_1"))
    if parameter == "bias":
        return None if reads else 0
    return 1 if reads else 0


def marian_order(d_model: int) -> Tensor:
    """Return our dimensions in Marian's order: sines, then cosines."""
    return torch.cat((torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)))


def interleaved_order(d_model: int) -> Tensor:
    """Return Marian's dimensions in our order."""
    return marian_order(d_model).argsort()


def permute_axis(tensor: Tensor, axis: int | None, order: Tensor) -> Tensor:
    return tensor if axis is None else tensor.index_select(axis, order)


# ---- running Marian


def import_transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise RequestError(
            "Hugging Face folders need the package transformers, which is not installed: "
            f"{install_command('huggingface')}"
        ) from None
    return transformers


def open_marian(folder: Path) -> Any:
    """Open a folder with MarianMTModel, from safetensors only, in float32, without the network."""
    package = import_transformers()
    logging = package.utils.logging
    had_progress_bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model = package.MarianMTModel.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
        )
    finally:
        if had_progress_bar:
            logging.enable_progress_bar()
    return model.eval()


@torch.no_grad()
def score_with_marian(
    marian: Any,
    pairs: Sequence[tuple[list[int], list[int]]],
    begin: int,
    end: int,
    forbidden_id: int | None,
) -> list[float]:
    """Return log p of each target and its end by forced decoding, with `forbidden_id` masked."""
    scores = []
    for source, target in pairs:
        logits_TK = marian(
            input_ids=torch.tensor([[*source, end]]), decoder_input_ids=torch.tensor([[begin, *target]])
        ).logits[0]
        if forbidden_id is not None:
            logits_TK[:, forbidden_id] = -torch.inf
        log_p_TK = logits_TK.log_softmax(-1)
        scores.append(log_p_TK.gather(1, torch.tensor([*target, end])[:, None]).sum().item())
    return scores
