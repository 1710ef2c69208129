"""Runs a folder that export/onnx.py wrote, with numpy, onnxruntime and sentencepiece, and without torch.

The search is greedy: beam search needs torch (search/beam.py). The decoder graph serves beams too, for
programs that bring their own search.

onnx.json       format number, sizes, ids, lengths, languages, SHA-256 of the rest
encoder.onnx    source [B, S], source_lengths [B]
                -> source_keys [N, B, H, S, K], source_values [N, B, H, S, V]
decoder.onnx    tokens [R], lengths [R], past_keys [N, R, H, L, K], past_values [N, R, H, L, V],
                and the encoder's two with source_lengths
                -> logits [R, vocabulary], new_keys, new_values: the past with one slot more
subwords.model  or subwords.source.model and subwords.target.model

Shapes: B sentences, W hypotheses of each, R = B W rows in that order; N layers, H heads, K = d_k, V = d_v;
        S slots for the longest source, L slots for what was read: a row's tokens fill the last of them.
"""

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
from manyheads.config import BOS_ID, EOS_ID, UNK_ID
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
        "max_positions": int | None,
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
BATCH_SENTENCES = 64  # decoded at once

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Choose = Callable[[Integers, int, Floats], tuple[Integers, Booleans]]


@dataclass(frozen=True, eq=False)
class OnnxDecoderState:
    """What was read so far. Methods return new states and change none."""

    past_keys: Floats  # [N, R, H, L, K]
    past_values: Floats  # [N, R, H, L, V]
    lengths: Integers  # [R] tokens that each row has read, at most L
    source_keys: Floats  # [N, B, H, S, K]
    source_values: Floats  # [N, B, H, S, V]
    source_lengths: Integers  # [B]

    def reorder(self, rows_R: Integers) -> "OnnxDecoderState":
        """Let row i continue what row rows[i] has read. Both must belong to one sentence."""
        return replace(
            self,
            past_keys=self.past_keys[:, rows_R],
            past_values=self.past_values[:, rows_R],
            lengths=self.lengths[rows_R],
        )

    def select(self, sentences: Integers) -> "OnnxDecoderState":
        """Return these sentences only."""
        width = len(self.lengths) // max(1, len(self.source_lengths))
        rows = (sentences[:, None] * width + np.arange(width)).ravel()
        return replace(
            self.reorder(rows),
            source_keys=self.source_keys[:, sentences],
            source_values=self.source_values[:, sentences],
            source_lengths=self.source_lengths[sentences],
        )


class OnnxModel:
    """An exported model. Sources are ids that end with the end token. Several threads may use it at once."""

    def __init__(self, folder: str | os.PathLike[str], threads: int | None = None) -> None:
        """Open a folder and verify every file by its checksum. onnxruntime chooses `threads` by default."""
        path = Path(folder)
        self.manifest = read_export_manifest(path)
        self.sizes: dict[str, int] = self.manifest["sizes"]
        self.max_positions: int | None = self.manifest["max_positions"]  # None: no limit
        try:
            self.subwords = SubwordPair.load(path)
        except DataError as error:
            raise CheckpointError(str(error)) from None
        self._encoder = open_session(path / ENCODER, ENCODER_PORTS, threads)
        self._decoder = open_session(path / DECODER, DECODER_PORTS, threads)

    # ---- the model, step by step

    def encode(self, sources: Sequence[Sequence[int]], beam: int = 1) -> OnnxDecoderState:
        """Return the state before the first token, with `beam` hypotheses for each source."""
        if beam < 1:
            raise RequestError(f"{beam} hypotheses for a sentence, but there must be at least 1")
        lengths = np.array([len(source) for source in sources], np.int64)
        max_length = int(lengths.max(initial=1))
        self._check_length(max_length)
        ids = np.zeros((len(sources), max_length), np.int64)
        for row, source in zip(ids, sources, strict=True):
            row[: len(source)] = source
        self._check_ids(ids, self.sizes["source_vocab_size"])
        keys, values = self._encoder.run(None, {"source": ids, "source_lengths": lengths})
        num_rows = len(sources) * beam

        def empty_past(source: Floats) -> Floats:
            layers, _, heads, _, width = source.shape
            return np.zeros((layers, num_rows, heads, 0, width), source.dtype)

        lengths_R = np.zeros(num_rows, np.int64)
        return OnnxDecoderState(empty_past(keys), empty_past(values), lengths_R, keys, values, lengths)

    def step(self, tokens_R: Integers, state: OnnxDecoderState) -> tuple[Floats, OnnxDecoderState]:
        """Read one token of each row. Return the logits of the next token, [R, vocabulary]."""
        if len(tokens_R) != len(state.lengths):
            raise RequestError(f"{len(tokens_R)} tokens, but the state has {len(state.lengths)} rows")
        self._check_length(1 + int(state.lengths.max(initial=0)))
        self._check_ids(tokens_R, self.sizes["target_vocab_size"])
        inputs = {name: getattr(state, name) for name in DECODER_PORTS[0] if name != "tokens"}
        logits, keys, values = self._decoder.run(None, {"tokens": tokens_R, **inputs})
        return logits, replace(state, past_keys=keys, past_values=values, lengths=state.lengths + 1)

    def _check_length(self, length: int) -> None:
        if self.max_positions is not None and length > self.max_positions:
            raise DataError(
                f"sentences of up to {length} tokens, but the model has {self.max_positions} learned "
                f"positions: shorten them"
            )

    def _check_ids(self, ids: Integers, vocab_size: int) -> None:
        if ids.size and not 0 <= ids.min() <= ids.max() < vocab_size:
            raise DataError(f"token ids from {ids.min()} to {ids.max()}, but the vocabulary has {vocab_size}")

    # ---- many sentences

    def greedy_search(self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> list[list[int]]:
        """Return the likeliest token at each step, up to a length for each source, without begin and end."""
        results: list[list[int]] = [[] for _ in sources]

        def choose(indices: Integers, length: int, logits_RK: Floats) -> tuple[Integers, Booleans]:
            tokens = logits_RK.argmax(-1)
            continues = (tokens != EOS_ID) & (np.array([max_lengths[index] for index in indices]) > length)
            for index, token in zip(indices[continues], tokens[continues], strict=True):
                results[index].append(int(token))
            return tokens, continues

        self._decode(sources, choose)
        return results

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return log p of each token of each target, the end token last. Targets have no begin and end."""
        if len(sources) != len(targets):
            raise DataError(f"{len(sources)} sources, but {len(targets)} targets: give one for each")
        labels = [[*target, EOS_ID] for target in targets]
        results: list[list[float]] = [[] for _ in targets]

        def choose(indices: Integers, length: int, logits_RK: Floats) -> tuple[Integers, Booleans]:
            tokens = np.array([labels[index][length] for index in indices], np.int64)
            self._check_ids(tokens, logits_RK.shape[1])
            log_p = log_softmax(logits_RK)[np.arange(len(tokens)), tokens]
            for index, score in zip(indices, log_p, strict=True):
                results[index].append(float(score))
            return tokens, np.array([length + 1 < len(labels[index]) for index in indices])

        self._decode(sources, choose)
        return results

    def _decode(self, sources: Sequence[Sequence[int]], choose: Choose) -> None:
        """Run the decoder. `choose` picks each row's next token, and which rows continue."""
        for indices in group_by_length([len(source) for source in sources]):
            state = self.encode([sources[index] for index in indices])
            tokens, length = np.full(len(indices), BOS_ID, np.int64), 0
            while len(indices):
                logits_RK, state = self.step(tokens, state)
                tokens, continues = choose(indices, length, logits_RK)
                if not continues.all():
                    indices, tokens = indices[continues], tokens[continues]
                    state = state.select(np.flatnonzero(continues))
                length += 1

    # ---- text

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translate texts of one sentence each by greedy search. Texts without words are copied."""
        if isinstance(texts, str):
            raise RequestError(f"translate needs a list of texts, but got the text {texts[:40]!r}")
        results = list(texts)
        indices = [index for index, text in enumerate(texts) if has_words(text)]
        sources = [[*self.subwords.source.encode(texts[index]), EOS_ID] for index in indices]
        self._warn_about_length(sources)
        outputs = self.greedy_search(sources, [self._max_output_length(source) for source in sources])
        for index, ids in zip(indices, outputs, strict=True):
            results[index] = self.subwords.target.decode(ids)
        return results

    def _max_output_length(self, source: Sequence[int]) -> int:
        max_length = len(source) - 1 + int(self.manifest["max_extra_length"])
        return max_length if self.max_positions is None else min(max_length, self.max_positions - 1)

    def _warn_about_length(self, sources: Sequence[Sequence[int]]) -> None:
        longest, trained = max(map(len, sources), default=0), self.manifest["max_length"]
        if longest > trained:
            warnings.warn(
                f"a text of {longest} tokens, but the model was trained with up to {trained}: "
                f"its translation may be poor; give one sentence at a time",
                stacklevel=3,
            )


def log_softmax(logits_RK: Floats) -> Floats:
    """Return log p of every token, in float64."""
    shifted = logits_RK.astype(np.float64) - logits_RK.max(-1, keepdims=True)
    log_p: Floats = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return log_p


def group_by_length(lengths: Sequence[int]) -> Iterator[Integers]:
    """Yield the indices of sentences of similar length, a batch at a time."""
    order = np.argsort(np.array(lengths, np.int64), kind="stable")
    for first in range(0, len(order), BATCH_SENTENCES):
        yield order[first : first + BATCH_SENTENCES]


# ---- reading the folder


def import_optional(package: str) -> Any:
    """Import a package that only exports need."""
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
    """Open a session of onnxruntime and check its inputs and outputs."""
    runtime = import_optional("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors only; they are raised too
    # int8 matrices become float32 when the session is opened. Otherwise onnxruntime rounds activations too.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # one of a dozen types without a common base
        raise CheckpointError(f"{path}: onnxruntime cannot open it ({str(error).splitlines()[0]})") from None
    inputs = tuple(port.name for port in session.get_inputs())
    outputs = tuple(port.name for port in session.get_outputs())
    if (set(inputs), set(outputs)) != tuple(map(set, ports)):
        raise CheckpointError(
            f"{path}: takes {inputs} and returns {outputs}: it was not exported by manyheads"
        )
    return session
