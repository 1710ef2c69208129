"""The systems of bench/decode.py: our torch engine, CTranslate2 through us and directly, and Hugging Face."""

import argparse
import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

import manyheads as mh
import report
from manyheads import checkpoint
from manyheads.config import UNK_ID, DecodingConfig, SubwordConfig
from manyheads.export.ctranslate2 import ensure_converted
from manyheads.inference.conversion import read_pieces
from manyheads.inference.ctranslate2_engine import BATCH_TOKENS, CTranslate2Engine, make_beam_options
from manyheads.inference.engine import Decoder, decode_all
from manyheads.inference.torch_engine import Precision, TorchEngine
from manyheads.search.options import DecodingConstraints
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from peers import MARIAN_BATCH_TOKENS, MarianEngine, make_marian

OURS, OURS_HALF = "manyheads, torch float32", "manyheads, torch bfloat16"
OURS_INT8, OURS_FLOAT = "manyheads, CTranslate2 int8", "manyheads, CTranslate2 float32"
DIRECT_INT8, DIRECT_FLOAT = "CTranslate2 int8, called directly", "CTranslate2 float32, called directly"
PEER = "Hugging Face generate, batches by source length"
PEER_AT_BEST = "Hugging Face generate, outputs of one length together"
PEER_STATIC = "Hugging Face generate, static cache, compiled"
ON_CPU = (OURS, OURS_INT8, DIRECT_INT8, OURS_FLOAT, DIRECT_FLOAT, PEER, PEER_AT_BEST)
ON_GPU = (OURS_HALF, OURS, PEER_STATIC, PEER, PEER_AT_BEST)
BATCH_CANDIDATES = (2**12, 2**13, 2**14)  # source tokens, for Hugging Face on a GPU
CANDIDATE_LENGTH = 12  # of the outputs while a batch size is chosen


@dataclass(frozen=True)
class DecodeCall:
    """Sentences with outputs of equal length. Sources end with the end token."""

    sources: list[list[int]]
    length: int  # of each output, without the end token

    @property
    def tokens(self) -> int:
        return len(self.sources) * self.length

    @property
    def constraints(self) -> list[DecodingConstraints]:
        return [DecodingConstraints(self.length, self.length)] * len(self.sources)


Outputs = list[list[list[int]]]  # tokens by call and sentence


class System:
    """What a row of the table measures."""

    def warm_up(self, calls: list[DecodeCall], config: DecodingConfig) -> str:
        """Do all one-time work, which is not measured, and return a note on it."""
        self.decode(calls[:1], config)
        return ""

    def decode(self, calls: list[DecodeCall], config: DecodingConfig) -> Outputs:
        raise NotImplementedError


class SingleBatchSystem(System):
    """An engine that takes all sentences at once, each with its own length."""

    def __init__(self, engine: Decoder) -> None:
        self.engine = engine

    def decode(self, calls: list[DecodeCall], config: DecodingConfig) -> Outputs:
        sources = [source for call in calls for source in call.sources]
        constraints = [constraint for call in calls for constraint in call.constraints]
        hypotheses = iter(decode_all(self.engine, sources, constraints, config, scores="none"))
        return [[next(hypotheses)[0].tokens for _ in call.sources] for call in calls]


class CallByCallSystem(System):
    """An engine that takes sentences with outputs of one length at a time."""

    def __init__(self, engine: Decoder) -> None:
        self.engine = engine

    def decode(self, calls: list[DecodeCall], config: DecodingConfig) -> Outputs:
        results = [
            decode_all(self.engine, call.sources, call.constraints, config, scores="none") for call in calls
        ]
        return [[hypotheses[0].tokens for hypotheses in by_sentence] for by_sentence in results]


class TorchSystem(SingleBatchSystem):
    """Our torch engine in float32 or bfloat16."""

    def __init__(self, model: mh.Transformer, device: str, precision: Precision) -> None:
        super().__init__(TorchEngine(copy.deepcopy(model), device, precision))
        self.device = device

    def warm_up(self, calls: list[DecodeCall], config: DecodingConfig) -> str:
        """On a GPU decode everything once, so that graphs of all shapes are captured."""
        self.decode(calls if self.device == "cuda" else calls[:1], config)
        return ""


class HuggingFaceSystem(System):
    """Marian in batches of its best size. `batches` maps beams to batch tokens, and may be shared."""

    def __init__(self, engine: MarianEngine, by_source: bool, batches: dict[int, int]) -> None:
        self.engine, self.batches = engine, batches
        self.system = (SingleBatchSystem if by_source else CallByCallSystem)(engine)

    def warm_up(self, calls: list[DecodeCall], config: DecodingConfig) -> str:
        if self.engine.device == "cpu":
            return super().warm_up(calls, config)
        if config.beam not in self.batches:
            self.batches[config.beam] = self.choose_batch_tokens(calls, config)
        for _ in range(self.engine.warm_up_runs):  # every shape, as for our engine
            self.decode(calls, config)
        return f"batches of {self.engine.describe_batch()}"

    def decode(self, calls: list[DecodeCall], config: DecodingConfig) -> Outputs:
        self.engine.batch_tokens = self.batches.get(config.beam, MARIAN_BATCH_TOKENS)
        return self.system.decode(calls, config)

    def choose_batch_tokens(self, calls: list[DecodeCall], config: DecodingConfig) -> int:
        """Return the fastest of the candidates that fit in memory."""
        speeds: dict[int, float] = {}
        for tokens in BATCH_CANDIDATES:
            try:
                speeds[tokens] = self.measure_batch_speed(tokens, calls, config)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                break
        return max(speeds, key=lambda tokens: speeds[tokens])

    def measure_batch_speed(self, tokens: int, calls: list[DecodeCall], config: DecodingConfig) -> float:
        """Return the sentences per second of one full batch of short outputs and similar sources."""
        sources = sorted((source for call in calls for source in call.sources), key=len)
        self.engine.batch_tokens = tokens
        count = self.engine.count_sentences(len(sources[len(sources) // 2]))
        first = max(0, len(sources) // 2 - count)
        batch = DecodeCall(sources[first : first + count], CANDIDATE_LENGTH)
        trial = CallByCallSystem(self.engine)
        seconds = [
            report.time_call(lambda: trial.decode([batch], config), self.engine.device) for _ in range(3)
        ]
        return len(batch.sources) / min(seconds)


class DirectCTranslate2System(System):
    """CTranslate2 called with the same options, from ids to ids like the others."""

    def __init__(self, folder: Path, compute_type: str, threads: int) -> None:
        import ctranslate2

        path = ensure_converted(folder)
        self.translator = ctranslate2.Translator(str(path), compute_type=compute_type, intra_threads=threads)
        self.pieces = read_pieces(path, "source")
        self.ids = {piece: token for token, piece in enumerate(self.pieces)}

    def decode(self, calls: list[DecodeCall], config: DecodingConfig) -> Outputs:
        return [self.decode_call(call, config) for call in calls]

    def decode_call(self, call: DecodeCall, config: DecodingConfig) -> list[list[int]]:
        results = self.translator.translate_batch(
            [[self.pieces[token] for token in source] for source in call.sources],
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            max_input_length=0,
            min_decoding_length=call.length,
            max_decoding_length=call.length,
            return_scores=config.beam > 1,
            **make_beam_options(config),
        )
        return [[self.ids[piece] for piece in result.hypotheses[0]] for result in results]


# ---- making them


def list_available(device: str) -> list[str]:
    """Return the systems whose packages are installed."""
    needs = {"CTranslate2": "ctranslate2", "Hugging Face": "transformers"}
    missing = [word for word, package in needs.items() if not report.get_version(package)]
    systems = ON_GPU if device == "cuda" else ON_CPU
    return [name for name in systems if not any(word in name for word in missing)]


def make_systems(
    folder: Path, config: mh.TransformerConfig, arguments: argparse.Namespace, max_length: int
) -> dict[str, System]:
    """Make the selected systems, for outputs of at most `max_length` tokens."""
    device, threads = arguments.device, arguments.threads
    model = save_model(folder, config, arguments.seed)
    batches: dict[int, int] = {}
    marian = cache(lambda: make_marian_engine(config, device))
    makers: dict[str, Callable[[], System]] = {
        OURS: lambda: TorchSystem(model, device, "float32"),
        OURS_HALF: lambda: TorchSystem(model, device, "bfloat16"),
        OURS_INT8: lambda: CallByCallSystem(CTranslate2Engine(ensure_converted(folder), "int8", threads)),
        DIRECT_INT8: lambda: DirectCTranslate2System(folder, "int8", threads),
        OURS_FLOAT: lambda: CallByCallSystem(CTranslate2Engine(ensure_converted(folder), "float32", threads)),
        DIRECT_FLOAT: lambda: DirectCTranslate2System(folder, "float32", threads),
        PEER_STATIC: lambda: HuggingFaceSystem(make_static_marian(config, device, max_length), False, {}),
        PEER: lambda: HuggingFaceSystem(marian(), True, batches),
        PEER_AT_BEST: lambda: HuggingFaceSystem(marian(), False, batches),
    }
    if any("CTranslate2" in name for name in arguments.systems):
        ensure_converted(folder)  # once, for all of them
    return {name: makers[name]() for name in arguments.systems}


def make_marian_engine(config: mh.TransformerConfig, device: str) -> MarianEngine:
    return MarianEngine(make_marian_model(config, device), UNK_ID, device)


def make_static_marian(config: mh.TransformerConfig, device: str, max_length: int) -> MarianEngine:
    from static_marian import StaticMarianEngine

    marian = make_marian_model(config, device)
    return StaticMarianEngine(marian, UNK_ID, device, max_length, compiled=device == "cuda")


def make_marian_model(config: mh.TransformerConfig, device: str) -> Any:
    """Make a Marian with random weights, in bfloat16 on a GPU.

    Padding uses a token that the workload does not contain: one more would make the vocabulary odd.
    """
    marian = make_marian(mh.Config(model=config), UNK_ID, config.vocab_size)
    return marian.to(torch.bfloat16) if device == "cuda" else marian


def save_model(folder: Path, config: mh.TransformerConfig, seed: int) -> mh.Transformer:
    """Save random weights as a model folder. Its subwords are not used, but as many as the vocabulary."""
    torch.manual_seed(seed)
    model = mh.Transformer(config).eval()
    text = ["the benchmark has ids and no text"] * 4
    size = SubwordConfig(
        vocab_size=config.vocab_size, byte_fallback=False, copy_symbols=False, term_symbols=False
    )
    symbols = [f"<{number}>" for number in range(config.vocab_size - 20)]
    subwords = SubwordTokenizer.train(text, size, symbols)
    checkpoint.save(
        folder,
        checkpoint.collect_weights(model),
        SubwordPair(subwords, subwords),
        mh.Config(model=config),
        step=0,
        languages={"source": "en", "target": "ko"},
    )
    return model
