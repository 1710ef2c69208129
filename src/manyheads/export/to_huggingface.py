"""Export to Hugging Face: a model folder as one that MarianMTModel and MarianTokenizer open.

Exactly the same model: Marian's own positions, our weights in its order of dimensions (see marian.py), and a
padding token at the end of the vocabulary, which is never written. Separate vocabularies become Marian's
`separate_vocabs`; since both sides share the padding id, the smaller one is padded to the size of the larger.

MarianTokenizer gives our ids for text that is normalized (NFC, single spaces, none at the ends), as
`manyheads.text.subwords.normalize` does. It differs in this:

- it does not normalize: decomposed Hangul or two spaces in a row have other ids;
- <unk>, </s> and <pad> in a text are its special tokens, and >>xyz<< at the start is a language;
- it warns that sacremoses is not installed; in transformers 5 its ids are the same with and without it.

Its generate() divides scores by L^length_penalty, not by the paper's ((5 + L) / 6)^alpha: the same search at
0, a similar one otherwise.
"""

import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyheads import checkpoint
from manyheads.atomic_io import atomic_directory, report_disk_full
from manyheads.config import BOS_ID, EOS_ID, UNK_ID, Config, ModelConfig, TransformerConfig
from manyheads.errors import RequestError
from manyheads.export import marian
from manyheads.export.verify import ScoreComparison, compare_scores, sample_pairs, score_pairs
from manyheads.inference.torch_engine import TorchEngine
from manyheads.model.transformer import Transformer
from manyheads.text.subwords import WORD_START, SubwordPair

MIN_POSITIONS = 1024  # of Marian's table, unless the model was trained on longer text
LANGUAGE_PIECE = re.compile(rf"{WORD_START}(>>[^<>\s]+<<)")  # Marian's >>fra<<, as from_huggingface writes it

REQUIRED_SETTINGS = {  # what Marian supports, by our keys
    "architecture": "transformer",
    "experts": None,
    "attention": "scaled-dot",
    "window": None,
    "positions": "sinusoid",
    "norm": "post",
    "normalization": "layer",
    "residuals": True,
}


def to_huggingface(folder: Path, out: Path) -> list[ScoreComparison]:
    """Write `out`, which must not exist. Return the scores of sample translations by both models."""
    marian.import_transformers()
    model, subwords, info = checkpoint.load_model(folder)
    check_config(info.config.model)
    assert isinstance(model, Transformer)
    pad = max(len(subwords.source), len(subwords.target))
    pairs = sample_pairs(subwords)
    ours = score_pairs(TorchEngine(model), pairs)
    weights = convert_weights(model, pad + 1)
    num_bytes = sum(tensor.nbytes for tensor in weights.values())
    with report_disk_full(out, num_bytes), atomic_directory(out, marian.CONFIG) as temporary:
        checkpoint.write_tensors(temporary / marian.WEIGHTS, weights, {"format": "pt"})
        write_json(temporary / marian.CONFIG, convert_config(info.config, pad))
        write_json(temporary / marian.GENERATION, convert_generation_config(info.config, pad))
        write_tokenizer(temporary, subwords, info, pad)
        theirs = marian.score_with_marian(marian.open_marian(temporary), pairs, BOS_ID, EOS_ID, pad)
        return compare_scores(str(out), subwords, pairs, ours, theirs)


def check_config(model: ModelConfig) -> TransformerConfig:
    """Refuse what Marian does not support, by its key."""
    for key, supported in REQUIRED_SETTINGS.items():
        if getattr(model, key, supported) != supported:
            raise RequestError(
                f"model.{key} is {getattr(model, key)!r}, but Hugging Face's Marian has {supported!r} alone: "
                f"this model cannot be written for it"
            )
    assert isinstance(model, TransformerConfig)
    for key, width in (("d_k", model.head_dim_k), ("d_v", model.head_dim_v)):
        if width * model.heads != model.d_model:
            raise RequestError(
                f"model.{key} is {width}, but Hugging Face's Marian has d_model / heads alone, which is "
                f"{model.d_model / model.heads:g}: this model cannot be written for it"
            )
    return model


# ---- weights


def convert_weights(model: Transformer, vocab_size: int) -> dict[str, Tensor]:
    """Return the weights under Marian's names, in its order of dimensions."""
    config, order = model.config, marian.marian_order(model.config.d_model)
    ours = dict(model.named_parameters())
    weights = {
        mapping.theirs: marian.permute_axis(ours[mapping.ours].detach(), mapping.residual_axis, order)
        for mapping in marian.layer_tensors(config.encoder_layers, config.decoder_layers)
    }

    def table(weight_KD: Tensor) -> Tensor:
        filled = torch.zeros(vocab_size, config.d_model)
        filled[: len(weight_KD)] = marian.permute_axis(weight_KD.detach(), 1, order)
        return filled

    if config.tie_embeddings == "three-way":
        weights[marian.SHARED] = table(model.source_embedding.weight)
    else:
        for name, part in zip(
            marian.EMBEDDINGS, (model.source_embedding, model.target_embedding), strict=True
        ):
            weights[name] = table(part.weight)
    if config.tie_embeddings == "none":
        weights[marian.OUTPUT] = table(model.output.weight)
    weights[marian.BIAS] = convert_bias(model, vocab_size)
    return weights


def convert_bias(model: Transformer, vocab_size: int) -> Tensor:
    """Return our bias, if any. Tokens that we lack are never written. [1, vocabulary]"""
    bias = torch.full((1, vocab_size), marian.FORBIDDEN_LOGIT)
    bias[0, : model.config.output_vocab_size] = 0 if model.output.bias is None else model.output.bias.detach()
    return bias


# ---- configuration


def special_ids(pad: int) -> dict[str, int]:
    return {
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": pad,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": EOS_ID,
    }


def convert_config(config: Config, pad: int) -> dict[str, Any]:
    model = config.model
    assert isinstance(model, TransformerConfig)
    both_sides = {
        f"{side}_{key}": value
        for side, layers in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers))
        for key, value in (
            ("layers", layers),
            ("attention_heads", model.heads),
            ("ffn_dim", model.d_ff),
            ("layerdrop", 0.0),
        )
    }
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "dtype": "float32",
        "vocab_size": pad + 1,
        "decoder_vocab_size": pad + 1,
        "d_model": model.d_model,
        **both_sides,
        "activation_function": model.activation,
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": 0.0,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "max_position_embeddings": count_positions(config),
        "share_encoder_decoder_embeddings": model.tie_embeddings == "three-way",
        "tie_word_embeddings": model.tie_embeddings != "none",
        **special_ids(pad),
    }


def convert_generation_config(config: Config, pad: int) -> dict[str, Any]:
    return {
        **special_ids(pad),
        "max_length": count_positions(config),
        "num_beams": config.decoding.beam,
        "length_penalty": config.decoding.alpha,
    }


def count_positions(config: Config) -> int:
    """Return the tokens of a source or target at most: the length trained on, and the extra output length."""
    return max(MIN_POSITIONS, config.data.max_length + config.decoding.max_extra_length)


# ---- the tokenizer


def write_tokenizer(folder: Path, subwords: SubwordPair, info: checkpoint.CheckpointInfo, pad: int) -> None:
    names = [vocabulary_names(side.pieces, pad) for side in (subwords.source, subwords.target)]
    pad_name = unused_name("<pad>", {*names[0], *names[1]})
    tables = [{name: number for number, name in enumerate([*side, pad_name])} for side in names]
    subwords.source.save(folder / marian.SOURCE)
    subwords.target.save(folder / marian.TARGET)
    write_json(folder / marian.VOCABULARY, tables[0])
    if not subwords.has_shared_ids:
        write_json(folder / marian.TARGET_VOCABULARY, tables[1])
    write_json(
        folder / marian.TOKENIZER,
        {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": info.languages.get("source"),
            "target_lang": info.languages.get("target"),
            "unk_token": subwords.source.id_to_piece(UNK_ID),
            "eos_token": subwords.source.id_to_piece(EOS_ID),
            "pad_token": pad_name,
            "model_max_length": count_positions(info.config),
            "separate_vocabs": not subwords.has_shared_ids,
        },
    )


def vocabulary_names(pieces: list[str], vocab_size: int) -> list[str]:
    """Return pieces as Marian writes them, and names for ids that only the other side has."""
    own = [match[1] if (match := LANGUAGE_PIECE.fullmatch(piece)) else piece for piece in pieces]
    return own + [f"<unused {number}>" for number in range(len(own), vocab_size)]


def unused_name(name: str, used: set[str]) -> str:
    while name in used:
        name = f"<{name}>"
    return name


def write_json(path: Path, info: dict[str, Any]) -> None:
    path.write_text(json.dumps(info, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
