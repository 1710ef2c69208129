"""Runs a folder that export/onnx.py wrote: numpy, onnxruntime and sentencepiece, and no torch.

onnx.json       format number, sizes, ids, lengths, languages, SHA-256 of the rest
encoder.onnx    source [B, S], source_lengths [B]
                -> source_keys [N, B, H, S, K], source_values [N, B, H, S, V]
decoder.onnx    tokens [R], lengths [R], past_keys [N, R, H, L, K], past_values [N, R, H, L, V],
                and the encoder's two with source_lengths
                -> logits [R, words], new_keys, new_values: the past with one slot more
subwords.model  or subwords.source.model and subwords.target.model

Shapes: B sentences, W hypotheses of each, R = B W rows in that order; N layers, H heads, K = d_k, V = d_v;
        S slots for the longest source, L slots for what was read: a row's tokens stand in the last of them.
"""

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.atomic_io import ManifestSchema, read_manifest, verify_files
from manyheads.config import BOS_ID, EOS_ID, UNK_ID, DecodingConfig
from manyheads.errors import CheckpointError, DataError, RequestError
from manyheads.text.segmentation import has_words
from manyheads.text.subwords import SubwordPair

MANIFEST, ENCODER, DECODER = "onnx.json", "encoder.onnx", "decoder.onnx"
SPECIAL_IDS = {"unknown": UNK_ID, "begin": BOS_ID, "end": EOS_ID}
ONNX_SCHEMA = ManifestSchema(
    file_name=MANIFEST,
    format=2,
    folder_type="an ONNX export",
    keys={
        "sizes": ("source_vocab_size", "target_vocab_size"),
        "positions": int | None,
        "max_length": int,
        "max_extra_length": int,
        "special": dict,
    },
    remedy="export the model again",
    required_files=(ENCODER, DECODER),
)
SOURCE = ("source_keys", "source_values", "source_lengths")
ENCODER_PORTS = (("source", "source_lengths"), ("source_keys", "source_values"))
DECODER_PORTS = (
    ("tokens", "lengths", "past_keys", "past_values", *SOURCE),
    ("logits", "new_keys", "new_values"),
)
BATCH_SENTENCES = 64  # sentences that are run at once

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]
Choose = Callable[[Integers, int, Floats], tuple[Integers, NDArray[np.bool_]]]


@dataclass(frozen=True, eq=False)
class OnnxDecoderState:
    """What was read so far. Nothing changes in place; the methods make new ones."""

    past_keys: Floats  # [N, R, H, L, K]
    past_values: Floats  # [N, R, H, L, V]
    lengths: Integers  # [R] tokens that each row has read, at most L
    source_keys: Floats  # [N, B, H, S, K]
    source_values: Floats  # [N, B, H, S, V]
    source_lengths: Integers  # [B]

    def reorder(self, rows_R: Integers) -> "OnnxDecoderState":
        """Row i continues what row rows[i] has read; both are of one sentence."""
        return replace(
            self,
            past_keys=self.past_keys[:, rows_R],
            past_values=self.past_values[:, rows_R],
            lengths=self.lengths[rows_R],
        )

    def select(self, sentences: Integers) -> "OnnxDecoderState":
        """These sentences alone."""
        width = len(self.lengths) // max(1, len(self.source_lengths))
        rows = (sentences[:, None] * width + np.arange(width)).ravel()
        return replace(
            self.reorder(rows),
            source_keys=self.source_keys[:, sentences],
            source_values=self.source_values[:, sentences],
            source_lengths=self.source_lengths[sentences],
        )


class OnnxModel:
    """An exported model, loaded. Sources are ids that end with the end token; several threads may use it."""

    def __init__(self, folder: str | os.PathLike[str], threads: int | None = None) -> None:
        """Every file is compared with its checksum. `threads`: by default as onnxruntime sees fit."""
        here = Path(folder)
        self.manifest = read_export_manifest(here)
        self.sizes: dict[str, int] = self.manifest["sizes"]
        self.max_positions: int | None = self.manifest[
            "positions"
        ]  # that there are; None where they have no end
        try:
            self.subwords = SubwordPair.load(here)
        except DataError as fault:
            raise CheckpointError(str(fault)) from None
        self._encoder = open_session(here / ENCODER, ENCODER_PORTS, threads)
        self._decoder = open_session(here / DECODER, DECODER_PORTS, threads)

    # ---- the model, step by step

    def encode(self, sources: Sequence[Sequence[int]], width: int = 1) -> OnnxDecoderState:
        """The state before the first token, with `width` hypotheses for each source."""
        if width < 1:
            raise RequestError(f"{width} hypotheses a sentence, but there must be at least 1")
        lengths = np.array([len(source) for source in sources], np.int64)
        room = int(lengths.max(initial=1))
        self._check_length(room)
        ids = np.zeros((len(sources), room), np.int64)
        for row, source in zip(ids, sources, strict=True):
            row[: len(source)] = source
        self._check_ids(ids, self.sizes["source_vocab_size"])
        keys, values = self._encoder.run(None, {"source": ids, "source_lengths": lengths})
        rows = len(sources) * width

        def nothing_yet(like: Floats) -> Floats:
            layers, _, heads, _, each = like.shape
            return np.zeros((layers, rows, heads, 0, each), like.dtype)

        nothing_read = np.zeros(rows, np.int64)
        return OnnxDecoderState(nothing_yet(keys), nothing_yet(values), nothing_read, keys, values, lengths)

    def step(self, tokens_R: Integers, state: OnnxDecoderState) -> tuple[Floats, OnnxDecoderState]:
        """Reads one token of each row; gives the logits of what follows it, [R, words]."""
        if len(tokens_R) != len(state.lengths):
            raise RequestError(f"{len(tokens_R)} tokens, but the state has {len(state.lengths)} rows")
        self._check_length(1 + int(state.lengths.max(initial=0)))
        self._check_ids(tokens_R, self.sizes["target_vocab_size"])
        given = {name: getattr(state, name) for name in DECODER_PORTS[0] if name != "tokens"}
        logits, keys, values = self._decoder.run(None, {"tokens": tokens_R, **given})
        return logits, replace(state, past_keys=keys, past_values=values, lengths=state.lengths + 1)

    def _check_length(self, length: int) -> None:
        if self.max_positions is not None and length > self.max_positions:
            raise DataError(
                f"sentences of up to {length} tokens, but learned positions reach {self.max_positions}: "
                f"shorten them"
            )

    def _check_ids(self, ids: Integers, known: int) -> None:
        if ids.size and not 0 <= ids.min() <= ids.max() < known:
            raise DataError(f"token ids from {ids.min()} to {ids.max()}, but the vocabulary has {known}")

    # ---- many sentences

    def greedy(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        """The likeliest token each time, at most so many of each source; without begin and end."""
        found: list[list[int]] = [[] for _ in sources]

        def choose(numbers: Integers, length: int, logits_RK: Floats) -> tuple[Integers, NDArray[np.bool_]]:
            tokens = logits_RK.argmax(-1)
            going = (tokens != EOS_ID) & (np.array([limits[number] for number in numbers]) > length)
            for number, token in zip(numbers[going], tokens[going], strict=True):
                found[number].append(int(token))
            return tokens, going

        self._follow(sources, choose)
        return found

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """log p of each token of each target, the end token's last; targets have neither begin nor end."""
        if len(sources) != len(targets):
            raise DataError(f"{len(sources)} sources, but {len(targets)} targets: give as many")
        labels = [[*target, EOS_ID] for target in targets]
        found: list[list[float]] = [[] for _ in targets]

        def choose(numbers: Integers, length: int, logits_RK: Floats) -> tuple[Integers, NDArray[np.bool_]]:
            tokens = np.array([labels[number][length] for number in numbers], np.int64)
            self._check_ids(tokens, logits_RK.shape[1])
            log_p = log_softmax(logits_RK)[np.arange(len(tokens)), tokens]
            for number, one in zip(numbers, log_p, strict=True):
                found[number].append(float(one))
            return tokens, np.array([length + 1 < len(labels[number]) for number in numbers])

        self._follow(sources, choose)
        return found

    def _follow(self, sources: Sequence[Sequence[int]], choose: Choose) -> None:
        """Lets `choose` take each row's next token from its logits, and say which rows go on."""
        for numbers in group_by_length([len(source) for source in sources]):
            state = self.encode([sources[number] for number in numbers])
            tokens, length = np.full(len(numbers), BOS_ID, np.int64), 0
            while len(numbers):
                logits_RK, state = self.step(tokens, state)
                tokens, going = choose(numbers, length, logits_RK)
                if not going.all():
                    numbers, tokens, state = (
                        numbers[going],
                        tokens[going],
                        state.select(np.flatnonzero(going)),
                    )
                length += 1

    def beam(
        self,
        source: Sequence[int],
        limit: int,
        width: int = DecodingConfig.beam,
        alpha: float = DecodingConfig.alpha,
    ) -> tuple[list[int], float]:
        """Beam search (6.1) for one source: the best tokens, and log p / ((5 + L) / 6)^alpha of them.

        As in search.py: of the 2 W likeliest continuations those that end, and are among the first W, are
        finished; the W best of the others go on, until nothing that does can still be better.
        """
        state = self.encode([source], width)
        scores_W = np.where(np.arange(width) == 0, 0.0, -np.inf)  # all begin alike, so one stands for all
        written: list[list[int]] = [[] for _ in range(width)]
        best: tuple[list[int], float] = [], -math.inf
        while best[1] < scores_W.max() / penalty(limit + 1, alpha):
            length = len(written[0])
            last = [row[-1] if row else BOS_ID for row in written]
            logits_WK, state = self.step(np.array(last, np.int64), state)
            log_p_WK = log_softmax(logits_WK)
            if length >= limit:
                log_p_WK[:, np.arange(log_p_WK.shape[1]) != EOS_ID] = -np.inf
            all_WK = scores_W[:, None] + log_p_WK
            parents, tokens = np.unravel_index(highest(all_WK.ravel(), 2 * width), all_WK.shape)
            for parent, token in zip(parents[:width], tokens[:width], strict=True):
                score = float(all_WK[parent, token]) / penalty(length + 1, alpha)
                if token == EOS_ID and score > best[1]:
                    best = written[parent], score
            if width == 1 and best[1] > -math.inf:
                break  # a beam of 1 is greedy search
            going = np.flatnonzero(tokens != EOS_ID)[:width]
            parents, tokens = parents[going], tokens[going]
            scores_W = all_WK[parents, tokens]
            written = [[*written[parent], int(token)] for parent, token in zip(parents, tokens, strict=True)]
            state = state.reorder(parents)
        return best

    # ---- text

    def translate(
        self, texts: Sequence[str], beam: int = 1, alpha: float = DecodingConfig.alpha
    ) -> list[str]:
        """Each text, one sentence, in the other language; those without a word stay as they are."""
        if isinstance(texts, str):
            raise RequestError(f"translate wants a list of texts, and has the text {texts[:40]!r}")
        found = list(texts)
        numbers = [number for number, text in enumerate(texts) if has_words(text)]
        sources = [[*self.subwords.source.encode(texts[number]), EOS_ID] for number in numbers]
        self._warn_of_long(sources)
        limits = [self._limit(source) for source in sources]
        if beam == 1:
            results = self.greedy(sources, limits)
        else:
            results = [self.beam(*one, beam, alpha)[0] for one in zip(sources, limits, strict=True)]
        for number, ids in zip(numbers, results, strict=True):
            found[number] = self.subwords.target.decode(ids)
        return found

    def _limit(self, source: Sequence[int]) -> int:
        """Tokens that a translation may have: so many more than its source, where positions reach so far."""
        limit = len(source) - 1 + int(self.manifest["max_extra_length"])
        return limit if self.max_positions is None else min(limit, self.max_positions - 1)

    def _warn_of_long(self, sources: Sequence[Sequence[int]]) -> None:
        longest, trained = max(map(len, sources), default=0), self.manifest["max_length"]
        if longest > trained:
            warnings.warn(
                f"a text of {longest} tokens, but the model was trained with up to {trained}: "
                f"its translation may be poor; give one sentence at a time",
                stacklevel=3,
            )


def log_softmax(logits_RK: Floats) -> Floats:
    """log p of every word, in float64."""
    shifted = logits_RK.astype(np.float64) - logits_RK.max(-1, keepdims=True)
    found: Floats = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return found


def highest(values: Floats, count: int) -> NDArray[np.intp]:
    """Where the so many highest values stand, the highest first."""
    among = np.argpartition(-values, count - 1)[:count]
    return among[np.argsort(-values[among], kind="stable")]


def penalty(length: int, alpha: float) -> float:
    """((5 + L) / 6)^alpha (6.1), the end token counted in L; search.py's own, which needs torch."""
    return math.pow((5 + length) / 6, alpha)


def group_by_length(lengths: Sequence[int]) -> Iterator[Integers]:
    """Numbers of sentences of like length, a batch at a time."""
    order = np.argsort(np.array(lengths, np.int64), kind="stable")
    for first in range(0, len(order), BATCH_SENTENCES):
        yield order[first : first + BATCH_SENTENCES]


# ---- reading the folder


def import_optional(package: str) -> Any:
    """A package that only exports need."""
    try:
        return import_module(package)
    except ImportError:
        raise RequestError(f"{package} is not installed: pip install 'manyheads[onnx]'") from None


def read_export_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest, and check every file that it lists."""
    manifest = read_manifest(folder, ONNX_SCHEMA)
    if manifest["special"] != SPECIAL_IDS:
        raise CheckpointError(
            f"{folder / MANIFEST}: its special ids are {manifest['special']}, but must be {SPECIAL_IDS}"
        )
    verify_files(folder, manifest, ONNX_SCHEMA)
    return manifest


def open_session(path: Path, ports: tuple[tuple[str, ...], tuple[str, ...]], threads: int | None) -> Any:
    """A session of onnxruntime, with the inputs and outputs that it must have."""
    runtime = import_optional("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors alone; they are raised too
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as fault:  # of a dozen kinds, which have no parent of their own
        raise CheckpointError(f"{path}: onnxruntime cannot open it ({str(fault).splitlines()[0]})") from None
    given = tuple(one.name for one in session.get_inputs()), tuple(one.name for one in session.get_outputs())
    if tuple(map(set, given)) != tuple(map(set, ports)):
        raise CheckpointError(f"{path}: takes {given[0]} and gives {given[1]}: not a graph of ours")
    return session
