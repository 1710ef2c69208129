"""The CTranslate2 engine: our models, converted once, run by a C++ library that is fast on CPUs.

Its search is not quite ours, and a result that it gave says so by the engine's name:

- Hypotheses are compared by log p / L^alpha while it looks, and it stops when `beam` of them are finished. We
  rank what it found by our log p / ((5 + L) / 6)^alpha. At alpha 0 both look for the same, and find the same.
- Where something is forbidden, must be longer or begin in a given way, it shares the probability of what must
  not be among what may, and looks for the best by that. The scores that we give are always the model's own.
- At its limit a hypothesis is cut. It gets the end token that our search would force on it.

A list of several results is ranked by the model's own scores. A single one is the best by CTranslate2's
count; only where some hypotheses were cut and others not are they compared as they stand in the end.
"""

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from manyheads import checkpoint
from manyheads.atomic_io import atomic_directory, hash_file, hash_files, report_disk_full
from manyheads.config import BOS_ID, EOS_ID, UNK_ID, Config, DecodingConfig, ModelConfig, TransformerConfig
from manyheads.errors import CheckpointError, ConfigError, DataError, RequestError
from manyheads.inference.engine import ScoreDetail
from manyheads.inference.torch_engine import group_by_tokens
from manyheads.model.attention import MultiHeadAttention
from manyheads.model.positions import LearnedPositions, SinusoidalPositions, sinusoidal_encoding
from manyheads.model.transformer import Transformer
from manyheads.search.beam import DecodingConstraints, Hypothesis, length_penalty
from manyheads.text.subwords import SubwordPair, SubwordTokenizer, count_cpus

FORMAT = 1  # of a conversion: raised when the same model would be converted otherwise
CONVERSION_MANIFEST = "conversion.json"
COMPUTE_TYPES = ("float32", "int8", "int8_float32")
SINUSOID_POSITIONS = 4096  # of sinusoids, which CTranslate2 keeps in a table
BATCH_TOKENS = 2048  # of sources, padding counted, translated at once
SCORED_TOKENS = 1024  # of sources or targets, scored at once: all their logits are held
LEAST_ROOM = 64  # sentences of like limits are searched together: up to this, and then by doubling
IMPOSSIBLE = -1e9  # CTranslate2 marks hypotheses that are none by a log p below this


def import_ctranslate2() -> Any:
    """The package of the same name, which only this engine needs."""
    try:
        import ctranslate2  # type: ignore[import-untyped]
    except ImportError:
        raise RequestError(
            "the ctranslate2 engine needs the package ctranslate2: pip install 'manyheads[ctranslate2]'"
        ) from None
    return ctranslate2


# ---- conversion


@dataclass(frozen=True)
class Conversion:
    """A converted model, as its folder tells."""

    folder: Path
    model: str  # the identity of the model folder that it was made of
    format: int
    max_positions: int  # that a source or an output can have


def convert(folder: Path, out: Path) -> None:
    """A model folder as a CTranslate2 folder in float32, complete or absent, with the subwords beside it."""
    model, subwords, told = load_convertible_model(folder)
    with (
        report_disk_full(out, count_parameter_bytes(model)),
        atomic_directory(out, CONVERSION_MANIFEST) as aside,
    ):
        write_conversion(model, subwords, told, aside)


def ensure_converted(folder: Path) -> Path:
    """Where the conversion of a model folder lies: beside it, made if there is none of just this model.

    A folder that is a conversion itself is taken as it is.
    """
    return open_conversion(folder).folder


def describe(folder: Path) -> checkpoint.CheckpointInfo:
    """What a model folder says of itself, or a conversion of the model that it was made of."""
    if not (folder / CONVERSION_MANIFEST).exists():
        return checkpoint.read_info(folder)
    told = read_conversion_manifest(folder)
    try:
        config = Config.from_mapping(told["config"])
        return checkpoint.CheckpointInfo(config, told["step"], told["languages"], {}, folder)
    except (KeyError, TypeError, AttributeError, ConfigError) as fault:
        raise CheckpointError(
            f"{folder / CONVERSION_MANIFEST}: does not describe a model ({fault})"
        ) from None


def open_conversion(folder: Path) -> Conversion:
    if (folder / CONVERSION_MANIFEST).exists():
        return read_conversion(folder)
    folder = Path(os.path.realpath(folder))
    place = folder.with_name(f"{folder.name}.ctranslate2")
    return find_conversion(place, folder) or create_conversion(place, folder)


def find_conversion(place: Path, folder: Path) -> Conversion | None:
    """What lies there, if it is sound and of just this model."""
    identity = model_identity(folder)
    try:
        found = read_conversion(place)
    except CheckpointError:
        return None
    return found if (found.model, found.format) == (identity, FORMAT) else None


def create_conversion(place: Path, folder: Path) -> Conversion:
    model, subwords, told = load_convertible_model(folder)
    try:
        with (
            report_disk_full(place, count_parameter_bytes(model)),
            atomic_directory(place, CONVERSION_MANIFEST, replace=True) as aside,
        ):
            write_conversion(model, subwords, told, aside)
    except OSError as fault:
        raise RequestError(
            f"{place}: cannot be written ({fault.strerror}), and the conversion is kept there: convert it to "
            f"a place that can (manyheads export {folder} --to ctranslate2), and use that folder"
        ) from None
    return read_conversion(place)


def load_convertible_model(folder: Path) -> tuple[Transformer, SubwordPair, checkpoint.CheckpointInfo]:
    model, subwords, told = checkpoint.load_model(folder)
    check_convertible(model.config)
    assert isinstance(model, Transformer)
    return model, subwords, told


def read_conversion(place: Path) -> Conversion:
    """A conversion, every file of which is compared with its checksum."""
    told = read_conversion_manifest(place)
    try:
        found = Conversion(place, told["model"], told["format"], int(told["positions"]))
        unsound = [name for name, stated in told["files"].items() if hash_file(place / name) != stated]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointError(f"{place}: no sound conversion to CTranslate2") from None
    if unsound:
        raise CheckpointError(
            f"{place / unsound[0]}: damaged, its SHA-256 is not that of {CONVERSION_MANIFEST}"
        )
    return found


def read_conversion_manifest(place: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((place / CONVERSION_MANIFEST).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        raise CheckpointError(
            f"{place}: no conversion to CTranslate2 (no sound {CONVERSION_MANIFEST})"
        ) from None


def model_identity(folder: Path) -> str:
    """SHA-256 of the model folder's manifest, which holds those of the rest."""
    checkpoint.read_model_manifest(folder)
    return str(hash_file(folder / checkpoint.MANIFEST)["sha256"])


def count_parameter_bytes(model: nn.Module) -> int:
    return sum(one.nbytes for one in model.parameters())


def write_conversion(
    model: Transformer, subwords: SubwordPair, told: checkpoint.CheckpointInfo, out: Path
) -> None:
    """The files of a conversion, into a folder that is there."""
    build_spec(model, subwords).save(os.fspath(out))
    subwords.save(out)
    description = {
        "format": FORMAT,
        "model": model_identity(told.folder),
        "positions": position_count(model.config),
        "step": told.step,
        "languages": told.languages,
        "config": asdict(told.config),
        "versions": {**checkpoint.get_versions(), "ctranslate2": import_ctranslate2().__version__},
        "files": hash_files(out),
    }
    text = json.dumps(description, ensure_ascii=False, indent=1) + "\n"
    (out / CONVERSION_MANIFEST).write_text(text, encoding="utf-8")


def check_convertible(config: ModelConfig) -> None:
    """What CTranslate2 has no place for is refused by its key."""
    if not isinstance(config, TransformerConfig):
        raise RequestError(
            f"model.architecture is {config.architecture!r}, which CTranslate2 cannot represent: "
            f"use the torch engine"
        )
    whole = config.d_model // config.heads if config.d_model % config.heads == 0 else None
    for key, value, kept in (
        ("experts", config.experts, config.experts is None),
        ("window", config.window, config.window is None),
        ("attention", config.attention, config.attention in ("scaled-dot", "dot")),
        ("normalization", config.normalization, config.normalization == "layer"),
        ("residuals", config.residuals, config.residuals),
        ("activation", config.activation, config.activation in ACTIVATIONS),
        ("d_k", config.head_dim_k, config.head_dim_k == whole),
        ("d_v", config.head_dim_v, config.head_dim_v == whole),
    ):
        if not kept:
            raise RequestError(
                f"model.{key} is {value!r}, which CTranslate2 cannot represent: use the torch engine"
            )


ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH"}  # by CTranslate2's names


def position_count(config: ModelConfig) -> int:
    return config.position_limit or SINUSOID_POSITIONS


def build_spec(model: Transformer, subwords: SubwordPair) -> Any:
    """Our model in CTranslate2's words."""
    specs = import_ctranslate2().specs
    config = model.config
    spec = specs.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.heads,
        pre_norm=config.norm == "pre",
        activation=getattr(specs.Activation, ACTIVATIONS[config.activation]),
    )
    spec.encoder.embeddings[0].weight = to_numpy(model.source_embedding.weight)
    spec.decoder.embeddings.weight = to_numpy(model.target_embedding.weight)
    spec.decoder.projection.weight = to_numpy(model.output.weight)
    if model.output.bias is not None:
        spec.decoder.projection.bias = to_numpy(model.output.bias)
    for theirs, positions in (
        (spec.encoder, model.source_positions),
        (spec.decoder, model.target_positions),
    ):
        theirs.position_encodings.encodings = position_table(positions, config)
    if config.norm == "pre":
        copy_norm(model.encoder_norm, spec.encoder.layer_norm)
        copy_norm(model.decoder_norm, spec.decoder.layer_norm)
    for mine, theirs in zip(model.encoder, spec.encoder.layer, strict=True):
        copy_layer(mine, theirs)
    for mine, theirs in zip(model.decoder, spec.decoder.layer, strict=True):
        copy_layer(mine, theirs)
        copy_cross_attention(mine.cross_attention, theirs.attention)  # type: ignore[arg-type]
        copy_norm(mine.cross_attention_residual.norm, theirs.attention.layer_norm)
    register_vocabularies(spec, subwords, config)
    spec.validate()
    spec.optimize()  # matrices that are tied are stored once
    return spec


def register_vocabularies(spec: Any, subwords: SubwordPair, config: ModelConfig) -> None:
    """CTranslate2 takes and gives pieces as texts."""
    source = unique_pieces(subwords.source, config.input_vocab_size)
    target = unique_pieces(subwords.target, config.output_vocab_size)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.unk_token, spec.config.eos_token = target[UNK_ID], target[EOS_ID]
    spec.config.bos_token = spec.config.decoder_start_token = target[BOS_ID]
    spec.config.layer_norm_epsilon = nn.LayerNorm(1).eps


def unique_pieces(subwords: SubwordTokenizer, size: int) -> list[str]:
    """A text of its own for each id: the piece, where there is one and no other has it."""
    found: dict[str, None] = {}
    for one in range(size):
        piece = subwords.id_to_piece(one) if one < len(subwords) else f"<{one}>"
        while piece in found:
            piece = f"{piece}<{one}>"
        found[piece] = None
    return list(found)


def position_table(
    positions: SinusoidalPositions | LearnedPositions | None, config: ModelConfig
) -> NDArray[Any]:
    """What is added to the embedding at each position. [positions, d_model]"""
    if isinstance(positions, LearnedPositions):
        return to_numpy(positions.table.weight)
    if positions is None:
        return np.zeros((SINUSOID_POSITIONS, config.d_model), np.float32)
    return to_numpy(sinusoidal_encoding(torch.arange(SINUSOID_POSITIONS), config.d_model))


def copy_layer(mine: Any, theirs: Any) -> None:
    """What encoder and decoder layers have in common."""
    attention = mine.self_attention
    queries = scaled_queries(attention)
    copy_linear([queries, attention.w_k, attention.w_v], theirs.self_attention.linear[0])
    copy_linear([attention.w_o], theirs.self_attention.linear[1])
    copy_norm(mine.self_attention_residual.norm, theirs.self_attention.layer_norm)
    copy_linear([mine.feed_forward.w_1], theirs.ffn.linear_0)
    copy_linear([mine.feed_forward.w_2], theirs.ffn.linear_1)
    copy_norm(mine.feed_forward_residual.norm, theirs.ffn.layer_norm)


def copy_cross_attention(mine: MultiHeadAttention, theirs: Any) -> None:
    copy_linear([scaled_queries(mine)], theirs.linear[0])
    copy_linear([mine.w_k, mine.w_v], theirs.linear[1])
    copy_linear([mine.w_o], theirs.linear[2])


def scaled_queries(attention: MultiHeadAttention) -> nn.Linear:
    """CTranslate2 always divides by sqrt(d_k); what our rule does not divide is multiplied before."""
    d_k = attention.w_q.out_features // attention.heads
    scale = attention.spec.scale(d_k) * math.sqrt(d_k)
    if scale == 1:
        return attention.w_q
    scaled = nn.Linear(attention.w_q.in_features, attention.w_q.out_features)
    scaled.weight.data, scaled.bias.data = attention.w_q.weight * scale, attention.w_q.bias * scale
    return scaled


def copy_linear(mine: Sequence[nn.Linear], theirs: Any) -> None:
    """One layer, or several with the same input as one."""
    theirs.weight = np.concatenate([to_numpy(one.weight) for one in mine])
    theirs.bias = np.concatenate([to_numpy(one.bias) for one in mine])


def copy_norm(mine: Any, theirs: Any) -> None:
    theirs.gamma, theirs.beta = to_numpy(mine.weight), to_numpy(mine.bias)


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().float().cpu().numpy()


# ---- running


@dataclass
class Draft:
    """What the search found, before it is ranked."""

    tokens: list[int]  # without the end token
    total: float  # log p as the search counted it
    cut: bool  # whether the limit, and not the model, ended it
    exact: bool  # whether forced decoding would give the same total
    token_scores: list[float] = field(default_factory=list)

    def score_by(self, token_scores: list[float]) -> None:
        self.token_scores, self.total, self.exact = token_scores, sum(token_scores), True

    def rank(self, alpha: float) -> float:
        return self.total / length_penalty(len(self.tokens) + 1, alpha)


@dataclass(frozen=True)
class Conditions:
    """What sentences must have in common to be searched in one call. Lengths count no end token."""

    room: int  # tokens at most, in this call
    least: int
    forbidden: tuple[tuple[int, ...], ...]
    prefixed: bool


class CTranslate2Engine:
    """A converted model that is loaded; several threads may use it at once."""

    objective = "found by CTranslate2's log p / L^alpha, ranked by log p / ((5 + L) / 6)^alpha"

    def __init__(self, folder: Path, compute_type: str = "float32", threads: int | None = None) -> None:
        """`threads`: by default as many as there are cores."""
        check_compute_type(compute_type)
        conversion = open_conversion(Path(folder))
        self.name = f"ctranslate2 {compute_type}"
        self.max_positions = conversion.max_positions  # the most tokens of a side, end included
        self._source_pieces = read_pieces(conversion.folder, "source")
        self._target_pieces = read_pieces(conversion.folder, "target")
        self._target_ids = {piece: one for one, piece in enumerate(self._target_pieces)}
        self._translator = import_ctranslate2().Translator(
            os.fspath(conversion.folder),
            device="cpu",
            compute_type=compute_type,
            intra_threads=threads or count_cpus(),
        )

    # The interface of every engine

    def search(
        self,
        sources: Sequence[list[int]],
        wishes: Sequence[DecodingConstraints],
        how: DecodingConfig,
        *,
        scores: ScoreDetail = "total",
    ) -> list[list[Hypothesis]]:
        """The best translations of each source, best first, in the order of the sources.

        `scores`: the total is free where the search was free; after a cut, a prefix and the like it is
        computed by forced decoding, as the scores of tokens always are. With "none" what is not free is NaN.
        A source that holds the end token alone comes out empty: CTranslate2 does not ask the model.
        """
        self._check(sources, wishes, how)
        wishes = [replace(wish, max_length=min(wish.max_length, self.max_positions - 1)) for wish in wishes]
        drafts = self._drafts(sources, wishes, how, scored=scores != "none")
        unsure = [
            (n, one) for n, some in enumerate(drafts) if how.nbest > 1 or partly_cut(some) for one in some
        ]
        self._make_exact(sources, [(n, one) for n, one in unsure if not one.exact])
        for some in drafts:
            some.sort(key=lambda one: -one.rank(how.alpha))
            del some[how.nbest :]
        if scores != "none":
            chosen = [(n, one) for n, some in enumerate(drafts) for one in some]
            known = "token_scores" if scores == "tokens" else "exact"
            self._make_exact(sources, [(n, one) for n, one in chosen if not getattr(one, known)])
        return [[hypothesis(one, how.alpha) for one in some] for some in drafts]

    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """The log-probability of each token of each target, the end token's last: forced decoding."""
        lengths = [max(len(s), len(t) + 1) for s, t in zip(sources, targets, strict=True)]
        for source, target in zip(sources, targets, strict=True):
            self._check_lengths(source, len(target))
        posted = [
            (
                numbers,
                self._translator.score_batch(
                    [self._as_pieces(sources[n], self._source_pieces) for n in numbers],
                    [self._as_pieces(targets[n], self._target_pieces) for n in numbers],
                    max_input_length=0,
                    asynchronous=True,
                ),
            )
            for numbers in group_by_tokens(lengths, SCORED_TOKENS)
        ]
        found: list[list[float]] = [[] for _ in targets]
        for numbers, results in posted:
            for number, one in zip(numbers, results, strict=True):
                found[number] = list(one.result().log_probs)
        return found

    # What is refused

    def _check(
        self, sources: Sequence[list[int]], wishes: Sequence[DecodingConstraints], how: DecodingConfig
    ) -> None:
        if how.temperature is not None:
            raise RequestError(
                f"decoding.temperature is {how.temperature}, but CTranslate2 has one row of random numbers for "
                f"all sentences, so that a seed would not give the same again: use the torch engine"
            )
        for source, wish in zip(sources, wishes, strict=True):
            self._check_lengths(source)
            if wish.required_phrases:
                raise RequestError(
                    "something is required in the output (a glossary), which CTranslate2 cannot promise: "
                    "use the torch engine"
                )

    def _check_lengths(self, source: list[int], target: int = 0) -> None:
        """CTranslate2 would stop in the middle, or cut the source."""
        if not source:
            raise RequestError("a source without a token, but each must end with the end token")
        longest = max(len(source), target + 1)
        if longest > self.max_positions:
            raise RequestError(
                f"{'a source' if longest == len(source) else 'a target'} of {longest} tokens, end included, "
                f"but this model has {self.max_positions} positions in CTranslate2: split it, or use the torch engine"
            )

    # The search

    def _drafts(
        self,
        sources: Sequence[list[int]],
        wishes: Sequence[DecodingConstraints],
        how: DecodingConfig,
        scored: bool,
    ) -> list[list[Draft]]:
        """What CTranslate2 finds for each sentence, within its limit."""
        found: list[list[Draft]] = [[] for _ in sources]
        together: dict[Conditions, list[int]] = {}
        for number, wish in enumerate(wishes):
            if len(wish.prefix) >= wish.max_length:
                found[number] = [without_choice(wish)]
            else:
                together.setdefault(conditions_of(wish, self._room(wish)), []).append(number)
        too_long: dict[Conditions, list[int]] = {}
        for number, drafts in self._results(together, sources, wishes, how, scored):
            limit = wishes[number].max_length
            if how.beam > 1 and any(len(one.tokens) > limit for one in drafts):
                too_long.setdefault(conditions_of(wishes[number], limit), []).append(number)
            else:  # greedy search does not look ahead: its first tokens would be the same
                found[number] = [cut_short(one, limit) for one in drafts]
        for number, drafts in self._results(too_long, sources, wishes, how, scored):
            found[number] = drafts
        return found

    def _room(self, wish: DecodingConstraints) -> int:
        """The length that a sentence is searched up to at first. It depends on it alone; many share it."""
        if wish.min_length >= wish.max_length:
            return wish.max_length
        return min(self.max_positions, max(LEAST_ROOM, 1 << (wish.max_length - 1).bit_length()))

    def _results(
        self,
        together: dict[Conditions, list[int]],
        sources: Sequence[list[int]],
        wishes: Sequence[DecodingConstraints],
        how: DecodingConfig,
        scored: bool,
    ) -> Iterator[tuple[int, list[Draft]]]:
        """Each sentence's number and what was found. All calls are posted before the first is waited for."""
        posted = []
        for shared, numbers in together.items():
            prefixes = None
            if shared.prefixed:
                prefixes = [self._as_pieces(wishes[n].prefix, self._target_pieces) for n in numbers]
            results = self._translator.translate_batch(
                [self._as_pieces(sources[n], self._source_pieces) for n in numbers],
                prefixes,
                asynchronous=True,
                **self._options(shared, how, scored),
            )
            posted.append((shared, numbers, results))
        for shared, numbers, results in posted:
            free = not (shared.least or shared.forbidden or shared.prefixed or how.no_repeat_ngram)
            for number, one in zip(numbers, results, strict=True):
                yield number, self._read(one.result(), how, free) or [without_choice(wishes[number])]

    def _options(self, shared: Conditions, how: DecodingConfig, scored: bool) -> dict[str, Any]:
        return {
            "max_batch_size": BATCH_TOKENS,
            "batch_type": "tokens",
            "max_input_length": 0,
            "max_decoding_length": shared.room,
            "min_decoding_length": shared.least,
            "suppress_sequences": [
                self._as_pieces(phrase, self._target_pieces) for phrase in shared.forbidden
            ]
            or None,
            "no_repeat_ngram_size": how.no_repeat_ngram or 0,
            "return_end_token": True,
            "return_scores": scored or how.beam > 1,
            **make_beam_options(how),
        }

    def _read(self, result: Any, how: DecodingConfig, free: bool) -> list[Draft]:
        """CTranslate2's results, whose scores are divided by L^alpha; L counts the end token too.

        Where it found the source empty, it asked the model nothing and gives no end token either: no result.
        """
        ids, drafts = self._target_ids, []
        alpha = make_beam_options(how)["length_penalty"]
        for pieces, score in zip(result.hypotheses, result.scores or [math.nan], strict=False):
            total = score * len(pieces) ** alpha
            if not pieces or total < IMPOSSIBLE:
                continue
            tokens = [ids[piece] for piece in pieces]
            cut = tokens[-1] != EOS_ID
            drafts.append(Draft(tokens if cut else tokens[:-1], total, cut, free and not cut))
        return drafts

    def _make_exact(self, sources: Sequence[list[int]], drafts: list[tuple[int, Draft]]) -> None:
        found = self.score([sources[n] for n, _ in drafts], [one.tokens for _, one in drafts])
        for (_, one), token_scores in zip(drafts, found, strict=True):
            one.score_by(token_scores)

    def _as_pieces(self, ids: Sequence[int], pieces: list[str]) -> list[str]:
        try:
            return [pieces[one] for one in ids]
        except IndexError:
            raise DataError(f"token id {max(ids)}, but the vocabulary has {len(pieces)}") from None


def check_compute_type(compute_type: str) -> None:
    if compute_type not in COMPUTE_TYPES:
        raise RequestError(f"compute type {compute_type!r}, but there are {', '.join(COMPUTE_TYPES)}")
    there = import_ctranslate2().get_supported_compute_types("cpu")
    if compute_type not in there:
        raise RequestError(f"this CPU cannot compute in {compute_type}, but in {', '.join(sorted(there))}")


def read_pieces(place: Path, side: str) -> list[str]:
    shared = place / "shared_vocabulary.json"
    path = shared if shared.exists() else place / f"{side}_vocabulary.json"
    return list(json.loads(path.read_text(encoding="utf-8")))


def make_beam_options(how: DecodingConfig) -> dict[str, Any]:
    """As many hypotheses as there are to rank; where it may stop early, at alpha 0, twice as many as it would
    by itself, since it does not look whether those under way could still be better than those it has."""
    if how.beam == 1:
        return {"beam_size": 1, "length_penalty": 0.0}
    asked: dict[str, Any] = {"beam_size": how.beam, "length_penalty": how.alpha, "num_hypotheses": how.beam}
    if how.alpha == 0:
        asked |= {"num_hypotheses": 1} if how.nbest == 1 else {"patience": 2, "num_hypotheses": 2 * how.beam}
    return asked


def conditions_of(wish: DecodingConstraints, room: int) -> Conditions:
    return Conditions(room, min(wish.min_length, room), wish.forbidden_phrases, bool(wish.prefix))


def without_choice(wish: DecodingConstraints) -> Draft:
    """What is decided before it begins: the prefix leaves no room, or there is nothing to translate."""
    return Draft(list(wish.prefix[: wish.max_length]), math.nan, cut=True, exact=False)


def cut_short(draft: Draft, limit: int) -> Draft:
    if len(draft.tokens) <= limit:
        return draft
    return Draft(draft.tokens[:limit], math.nan, cut=True, exact=False)


def partly_cut(drafts: list[Draft]) -> bool:
    return len({one.cut for one in drafts}) == 2


def hypothesis(draft: Draft, alpha: float) -> Hypothesis:
    total = draft.total if draft.exact else math.nan
    score = total / length_penalty(len(draft.tokens) + 1, alpha)
    return Hypothesis(draft.tokens, draft.token_scores, score, total)
