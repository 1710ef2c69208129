"""Import from Hugging Face: a folder of MarianMTModel, OPUS-MT's included, as a model folder of ours.

The same model, in our order of dimensions (see marian.py) and of the vocabulary: unknown, begin, end, then
the others in their order. Begin is the token that Marian's decoder starts with, usually the padding token.
Here it is never written, while Hugging Face's generate() counts its probability and rules it out only then
(except with renormalize_logits). Scores are compared with the padding token masked.

Two .spm files become two of our subword models with the ids of the one vocab.json. Text gives
MarianTokenizer's ids, except that

- our `normalize` comes first: U+2581 in a text becomes an underscore;
- a piece that a .spm has and vocab.json lacks is unknown to MarianTokenizer. In a source it stays a piece,
  with the weights of the unknown token; a target is split around it, since it could never be written;
- a run of characters that only the other language's .spm has is one token if vocab.json has it; otherwise
  it is split into tokens that vocab.json has, while MarianTokenizer makes it one unknown token;
- >>fra<< selects the language wherever a word begins, not only at the start and before a space;
- </s>, <unk> and <pad> in a text are text.

Settings of training alone (activation_dropout, layerdrop) are ignored. Nothing is unpickled.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyheads import checkpoint
from manyheads.atomic_io import check_replaceable
from manyheads.config import BOS_ID, LANGUAGE_CODE, NUM_SPECIAL_TOKENS, Config, DataConfig, TransformerConfig
from manyheads.errors import CheckpointError, ConfigError
from manyheads.export import marian
from manyheads.export.spm import VocabularyMapping, read_spm, rewrite_spm, text_pieces
from manyheads.export.verify import ScoreComparison, compare_scores, sample_pairs, score_pairs
from manyheads.inference.torch_engine import TorchEngine
from manyheads.model.positions import sinusoidal_encoding
from manyheads.model.transformer import Transformer
from manyheads.text.languages import UNDETERMINED, check_language
from manyheads.text.subwords import SubwordPair

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
REQUIRED_SETTINGS = {  # what our models support, by the keys of config.json
    "model_type": "marian",
    "is_encoder_decoder": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}
SYMMETRIC_SETTINGS = ("attention_heads", "ffn_dim")  # of encoder and decoder


def from_huggingface(folder: Path, out: Path) -> list[ScoreComparison]:
    """Write `out`, which must not exist. Return the scores of sample translations by both models."""
    marian.import_transformers()
    check_replaceable(out, checkpoint.MANIFEST, replace=False)
    marian_folder = MarianFolder.read(folder)
    spms = [read_spm(folder / name) for name in (marian.SOURCE, marian.TARGET)]
    vocabulary = read_vocabulary(folder, marian_folder, [piece for spm in spms for piece in text_pieces(spm)])
    subwords = convert_subwords(folder, spms, vocabulary)
    config = convert_config(marian_folder, vocabulary)
    weights = convert_weights(folder, marian_folder, vocabulary)
    if "output.bias" in weights:
        config = replace(config, model=replace(config.model, output_bias=True))
    assert isinstance(config.model, TransformerConfig)
    model = Transformer(config.model)
    checkpoint.copy_weights(model, weights, str(folder / marian.WEIGHTS))
    checks = compare_with_marian(folder, marian_folder, vocabulary, subwords, model)
    languages = {side: marian_folder.language(side) for side in ("source", "target")}
    checkpoint.save(out, checkpoint.collect_weights(model), subwords, config, step=0, languages=languages)
    return checks


def compare_with_marian(
    folder: Path,
    marian_folder: "MarianFolder",
    vocabulary: VocabularyMapping,
    subwords: SubwordPair,
    model: Transformer,
) -> list[ScoreComparison]:
    """Score the same translations with both models, in the ids of each."""
    pairs = [
        (source, [token if token < vocabulary.vocab_words else NUM_SPECIAL_TOKENS for token in target])
        for source, target in sample_pairs(subwords)
    ]
    marian_pairs = [
        ([vocabulary.marian_ids[token] for token in s], [vocabulary.marian_ids[token] for token in t])
        for s, t in pairs
    ]
    theirs = marian.score_with_marian(
        marian.open_marian(folder),
        marian_pairs,
        marian_folder.start_id,
        marian_folder.end_id,
        marian_folder.pad_id,
    )
    return compare_scores(str(folder), subwords, pairs, score_pairs(TorchEngine(model), pairs), theirs)


# ---- the configuration


@dataclass(frozen=True)
class MarianFolder:
    """The JSON files of a Marian folder, checked."""

    folder: Path
    config: dict[str, Any]  # with the defaults of transformers
    tokenizer: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> "MarianFolder":
        config = read_json(folder / marian.CONFIG)
        generation = read_json(folder / marian.GENERATION, required=False)
        tokenizer = read_json(folder / marian.TOKENIZER, required=False)
        defaults = marian.import_transformers().MarianConfig().to_dict()
        defaults["decoder_vocab_size"] = config.get("vocab_size")
        marian_folder = cls(folder, {**defaults, **config, **generation}, tokenizer)
        marian_folder.check()
        return marian_folder

    def check(self) -> None:
        for key, required in REQUIRED_SETTINGS.items():
            if self.config.get(key, required) != required:
                self.refuse(key, f"must be {required!r}")
        for key in SYMMETRIC_SETTINGS:
            if self.config[f"encoder_{key}"] != self.config[f"decoder_{key}"]:
                self.refuse(f"decoder_{key}", f"must be encoder_{key}, {self.config[f'encoder_{key}']!r}")
        if self.config["activation_function"] not in ACTIVATIONS:
            self.refuse("activation_function", f"must be one of {', '.join(ACTIVATIONS)}")
        if self.config["decoder_vocab_size"] != self.config["vocab_size"]:
            self.refuse("decoder_vocab_size", f"must be vocab_size, {self.config['vocab_size']!r}")
        for key in ("vocab_size", "decoder_start_token_id", "eos_token_id", "max_position_embeddings"):
            if type(self.config[key]) is not int or self.config[key] < 0:
                self.refuse(key, "must be a non-negative integer")
        if self.pad_id is not None and (type(self.pad_id) is not int or self.pad_id == self.end_id):
            self.refuse("pad_token_id", "must be a number other than eos_token_id")
        if self.config.get("bad_words_ids") not in (None, [], [[self.pad_id]]):
            self.refuse("bad_words_ids", f"may forbid pad_token_id, {self.pad_id!r}, alone")
        if self.tokenizer.get("separate_vocabs"):
            raise CheckpointError(
                f"{self.folder / marian.TOKENIZER}: separate_vocabs is true: only models with one "
                f"vocabulary for both languages can be read"
            )

    def refuse(self, key: str, requirement: str) -> None:
        raise CheckpointError(
            f"{self.folder / marian.CONFIG}: {key} is {self.config.get(key)!r}, but {requirement}: "
            f"our models support nothing else"
        )

    @property
    def start_id(self) -> int:
        return int(self.config["decoder_start_token_id"])

    @property
    def end_id(self) -> int:
        return int(self.config["eos_token_id"])

    @property
    def pad_id(self) -> int | None:
        pad: int | None = self.config["pad_token_id"]
        return pad

    def language(self, side: str) -> str:
        """Return a language code. Some folders name a family, such as ROMANCE, and some nothing."""
        code = self.tokenizer.get(f"{side}_lang")
        if not isinstance(code, str) or not LANGUAGE_CODE.fullmatch(code):
            return UNDETERMINED
        try:
            check_language(code)
        except ConfigError:
            return UNDETERMINED
        return code


def convert_config(marian_folder: MarianFolder, vocabulary: VocabularyMapping) -> Config:
    settings = marian_folder.config
    try:
        model = TransformerConfig(
            vocab_size=len(vocabulary.marian_ids),
            encoder_layers=settings["encoder_layers"],
            decoder_layers=settings["decoder_layers"],
            d_model=settings["d_model"],
            d_ff=settings["encoder_ffn_dim"],
            heads=settings["encoder_attention_heads"],
            activation=ACTIVATIONS[settings["activation_function"]],  # type: ignore[arg-type]
            dropout=settings["dropout"],
            attention_dropout=settings["attention_dropout"],
        )
        return Config(model=model, data=DataConfig(max_length=settings["max_position_embeddings"]))
    except ConfigError as error:
        raise CheckpointError(f"{marian_folder.folder / marian.CONFIG}: {error}") from None


# ---- the vocabulary


def read_vocabulary(folder: Path, marian_folder: MarianFolder, text_pieces: list[str]) -> VocabularyMapping:
    """Return our vocabulary with Marian's ids. `text_pieces` are those of the .spm files."""
    path, size = folder / marian.VOCABULARY, marian_folder.config["vocab_size"]
    ids = read_json(path)
    if {*map(type, ids.values())} != {int} or sorted(ids.values()) != list(range(size)):
        raise CheckpointError(f"{path}: does not name each of vocab_size = {size} words once, from 0 on")
    unknown = ids.get(marian_folder.tokenizer.get("unk_token", "<unk>"))
    if unknown is None:
        raise CheckpointError(f"{path}: has no word for unk_token")
    for key in ("eos_token_id", "decoder_start_token_id"):
        if marian_folder.config[key] >= size:
            marian_folder.refuse(key, f"must be below vocab_size, {size}")
    names = sorted(ids, key=lambda name: int(ids[name]))
    special = [unknown, marian_folder.start_id, marian_folder.end_id]
    others = [number for number in range(size) if number not in {*special, marian_folder.pad_id}]
    begin = "<s>" if "<s>" not in ids else names[marian_folder.start_id]
    pieces = [names[unknown], begin, names[marian_folder.end_id], *(names[number] for number in others)]
    known = {*pieces}
    lacking = list(dict.fromkeys(piece for piece in text_pieces if piece not in known))
    return VocabularyMapping(
        [*pieces, *lacking], [*special, *others] + [unknown] * len(lacking), vocab_words=len(pieces)
    )


def convert_subwords(folder: Path, spms: list[Any], vocabulary: VocabularyMapping) -> SubwordPair:
    """Return our subwords, one model for both languages if both files are the same."""
    names = [str(folder / name) for name in (marian.SOURCE, marian.TARGET)]
    source = rewrite_spm(spms[0], vocabulary, names[0], is_source=True)
    if spms[0] == spms[1]:
        return SubwordPair(source, source)
    return SubwordPair(source, rewrite_spm(spms[1], vocabulary, names[1], is_source=False))


def read_json(path: Path, required: bool = True) -> dict[str, Any]:
    if not required and not path.exists():
        return {}
    try:
        marian_folder = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}; a Marian folder has it") from None
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path}: not JSON") from None
    if not isinstance(marian_folder, dict):
        raise CheckpointError(f"{path}: not a JSON object")
    return marian_folder


# ---- the weights


def convert_weights(
    folder: Path, marian_folder: MarianFolder, vocabulary: VocabularyMapping
) -> dict[str, Tensor]:
    """Return the weights under our names, in our order of dimensions and of the vocabulary."""
    theirs = read_weights(folder)
    d_model = marian_folder.config["d_model"]
    check_positions(folder, theirs, d_model)
    order = marian.interleaved_order(d_model)
    rows = torch.tensor(vocabulary.marian_ids)
    table_KD = pop_shared_embedding(folder, theirs)
    check_axis(folder, marian.SHARED, table_KD, 0, marian_folder.config["vocab_size"])
    check_axis(folder, marian.SHARED, table_KD, 1, d_model)
    weights = {"source_embedding.weight": table_KD[rows][:, order]}
    for mapping in marian.layer_tensors(
        marian_folder.config["encoder_layers"], marian_folder.config["decoder_layers"]
    ):
        tensor = pop_tensor(folder, theirs, mapping.theirs)
        if mapping.residual_axis is not None:
            check_axis(folder, mapping.theirs, tensor, mapping.residual_axis, d_model)
        weights[mapping.ours] = marian.permute_axis(tensor, mapping.residual_axis, order)
    bias = theirs.pop(marian.BIAS, torch.zeros(1, len(table_KD)))
    check_axis(folder, marian.BIAS, bias, 1, len(table_KD))
    if theirs:
        raise CheckpointError(
            f"{folder / marian.WEIGHTS}: holds {sorted(theirs)[0]}, which our models do not have"
        )
    bias_K = convert_bias(bias[0], marian_folder, vocabulary)
    if bias_K.any():
        weights["output.bias"] = bias_K
    return weights


def convert_bias(bias: Tensor, marian_folder: MarianFolder, vocabulary: VocabularyMapping) -> Tensor:
    """Theirs, and FORBIDDEN for what is no word of theirs. [K]"""
    ours_K = bias[torch.tensor(vocabulary.marian_ids)]
    ours_K[vocabulary.vocab_words :] = marian.FORBIDDEN_LOGIT
    if marian_folder.start_id in (marian_folder.pad_id, marian_folder.end_id, vocabulary.marian_ids[0]):
        ours_K[BOS_ID] = marian.FORBIDDEN_LOGIT
    return ours_K


def read_weights(folder: Path) -> dict[str, Tensor]:
    path = folder / marian.WEIGHTS
    if not path.exists():
        pickled = folder / "pytorch_model.bin"
        why = (
            f"{pickled.name} is a pickle, which could run any program and is never opened: convert it to "
            f"safetensors, where you trust it, with MarianMTModel.from_pretrained and save_pretrained"
            if pickled.exists()
            else "a Marian folder has its weights there"
        )
        raise CheckpointError(f"{path}: is missing; {why}")
    return {name: tensor.float() for name, tensor in checkpoint.read_tensors(path).items()}


def pop_shared_embedding(folder: Path, theirs: dict[str, Tensor]) -> Tensor:
    """Remove and return the matrix that embeddings and output share, under whichever name it is stored."""
    names = [name for name in (marian.SHARED, *marian.EMBEDDINGS, marian.OUTPUT) if name in theirs]
    if not names:
        raise CheckpointError(f"{folder / marian.WEIGHTS}: lacks {marian.SHARED}")
    tables = [theirs.pop(name) for name in names]
    for name, table in zip(names, tables, strict=True):
        if not torch.equal(table, tables[0]):
            raise CheckpointError(
                f"{folder / marian.WEIGHTS}: {name} is not {names[0]}, but tie_word_embeddings says so"
            )
    return tables[0]


def pop_tensor(folder: Path, theirs: dict[str, Tensor], name: str) -> Tensor:
    if name not in theirs:
        raise CheckpointError(f"{folder / marian.WEIGHTS}: lacks {name}")
    return theirs.pop(name)


def check_axis(folder: Path, name: str, tensor: Tensor, axis: int, length: int) -> None:
    if tensor.dim() <= axis or tensor.shape[axis] != length:
        raise CheckpointError(
            f"{folder / marian.WEIGHTS}: {name} is {list(tensor.shape)}, but {marian.CONFIG} makes it "
            f"{length} wide (axis {axis})"
        )


def check_positions(folder: Path, theirs: dict[str, Tensor], d_model: int) -> None:
    """Check a stored table of positions: it must be Marian's sinusoids, not learned."""
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight"
        table = theirs.pop(name, None)
        if table is None:
            continue
        check_axis(folder, name, table, 1, d_model)
        own = sinusoidal_encoding(torch.arange(len(table)), d_model)[:, marian.marian_order(d_model)]
        if not torch.allclose(table.double(), own, atol=1e-3):
            raise CheckpointError(f"{folder / marian.WEIGHTS}: {name} is not Marian's sines and cosines")
