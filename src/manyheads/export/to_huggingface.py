"""A model folder of ours as a folder that Hugging Face's MarianMTModel and MarianTokenizer open.

Exactly the same model: Marian's own positions, our weights in its order of dimensions (see marian.py), and
one word more at the end of the vocabulary, which pads and is never written. Separate vocabularies are
Marian's `separate_vocabs`; since both sides pad with one id, the smaller one is filled up to the larger.

MarianTokenizer gives the ids of our Subwords for text that is normalized (NFC, single spaces, none at the
ends), as `manyheads.text.subwords.normalize` makes it. It differs in this:

- it does not normalize: decomposed Hangul or two spaces in a row give it other ids than ours;
- <unk>, </s> and <pad> written in a text are its special tokens, and >>xyz<< at the beginning is a language;
- it warns that sacremoses is not installed; in transformers 5 its ids are the same with and without it.

Its generate() divides scores by L^length_penalty, not by the paper's ((5 + L) / 6)^alpha: the same search at
0, and a like one otherwise.
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

MIN_POSITIONS = (
    1024  # positions that Marian computes a table of, where the model was not trained on longer text
)
LANGUAGE_PIECE = re.compile(rf"{WORD_START}(>>[^<>\s]+<<)")  # as from_huggingface writes Marian's >>fra<<

REQUIRED_SETTINGS = {  # what Marian holds, by the keys of our configuration
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
    """Writes `out`, which must not exist; the scores of sample translations by both, which are the same."""
    marian.import_transformers()
    model, subwords, told = checkpoint.load_model(folder)
    check_config(told.config.model)
    assert isinstance(model, Transformer)
    pad = max(len(subwords.source), len(subwords.target))
    pairs = sample_pairs(subwords)
    ours = score_pairs(TorchEngine(model), pairs)
    weights = convert_weights(model, pad + 1)
    needed = sum(one.nbytes for one in weights.values())
    with report_disk_full(out, needed), atomic_directory(out, marian.CONFIG) as aside:
        checkpoint.write_tensors(aside / marian.WEIGHTS, weights, {"format": "pt"})
        write_json(aside / marian.CONFIG, convert_config(told.config, pad))
        write_json(aside / marian.GENERATION, convert_generation_config(told.config, pad))
        write_tokenizer(aside, subwords, told, pad)
        theirs = marian.score_with_marian(marian.open_marian(aside), pairs, BOS_ID, EOS_ID, pad)
        return compare_scores(str(out), subwords, pairs, ours, theirs)


def check_config(model: ModelConfig) -> TransformerConfig:
    """What Marian cannot hold, by its key."""
    for key, held in REQUIRED_SETTINGS.items():
        if getattr(model, key, held) != held:
            raise RequestError(
                f"model.{key} is {getattr(model, key)!r}, but Hugging Face's Marian has {held!r} alone: "
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


def convert_weights(model: Transformer, words: int) -> dict[str, Tensor]:
    """By Marian's names, in its order of dimensions; vocabularies of so many words."""
    config, order = model.config, marian.marian_order(model.config.d_model)
    ours = dict(model.named_parameters())
    weights = {
        one.theirs: marian.permute_axis(ours[one.ours].detach(), one.residual_axis, order)
        for one in marian.layer_tensors(config.encoder_layers, config.decoder_layers)
    }

    def table(weight_KD: Tensor) -> Tensor:
        filled = torch.zeros(words, config.d_model)
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
    weights[marian.BIAS] = convert_bias(model, words)
    return weights


def convert_bias(model: Transformer, words: int) -> Tensor:
    """Ours where there is one; what is no word of ours is never written. [1, words]"""
    bias = torch.full((1, words), marian.FORBIDDEN_LOGIT)
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
    """Tokens that either side may have: all that it was trained on, and the output's length beyond it."""
    return max(MIN_POSITIONS, config.data.max_length + config.decoding.max_extra_length)


# ---- words


def write_tokenizer(folder: Path, subwords: SubwordPair, told: checkpoint.CheckpointInfo, pad: int) -> None:
    names = [vocabulary_names(one.get_vocabulary(), pad) for one in (subwords.source, subwords.target)]
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
            "source_lang": told.languages.get("source"),
            "target_lang": told.languages.get("target"),
            "unk_token": subwords.source.id_to_piece(UNK_ID),
            "eos_token": subwords.source.id_to_piece(EOS_ID),
            "pad_token": pad_name,
            "model_max_length": count_positions(told.config),
            "separate_vocabs": not subwords.has_shared_ids,
        },
    )


def vocabulary_names(pieces: list[str], words: int) -> list[str]:
    """Pieces as Marian writes them, and names for the words that only the other side has."""
    own = [found[1] if (found := LANGUAGE_PIECE.fullmatch(piece)) else piece for piece in pieces]
    return own + [f"<unused {number}>" for number in range(len(own), words)]


def unused_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"<{name}>"
    return name


def write_json(path: Path, told: dict[str, Any]) -> None:
    path.write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
